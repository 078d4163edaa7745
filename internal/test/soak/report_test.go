//go:build linux

package soak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// curve is one of the things that are drawn.
type curve struct {
	name string
	of   func(sample) int64
	unit int64
}

var curves = []curve{
	{"memory, MB", func(s sample) int64 { return s.Private }, 1 << 20},
	{"open files", func(s sample) int64 { return s.Files }, 1},
	{"goroutines", func(s sample) int64 { return s.Goroutines }, 1},
	{"sessions in memory", func(s sample) int64 { return s.Active }, 1},
	{"kept, MB", func(s sample) int64 { return s.Kept }, 1 << 20},
	{"journal, MB", func(s sample) int64 { return s.Journal }, 1 << 20},
	{"spool, files", func(s sample) int64 { return s.Spooled }, 1},
}

// report prints what the run met and, where the folder stays, writes it beside the samples.
func (w *watcher) report(t *testing.T, length time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"%s: %d sessions in all, %d events sent, %d acknowledged, %d without an answer, %d through belay-hook\n",
		length, len(w.mu.talks), w.sent.Load(), len(w.mu.acked), w.refused.Load(), w.hooked.Load(),
	)

	fmt.Fprintf(
		&b, "killed: %d daemons, %d agents; ended well: %d; resumed: %d; samples: %d\n", w.kills, w.died.Load(),
		w.ended.Load(), w.resumed.Load(), len(w.samples),
	)

	for _, c := range curves {
		least, most := c.of(w.samples[0]), int64(0)
		for _, s := range w.samples {
			least, most = min(least, c.of(s)), max(most, c.of(s))
		}

		last := c.of(w.samples[len(w.samples)-1])
		fmt.Fprintf(
			&b, "%-20s least %4d most %4d last %4d  %s\n", c.name, least/c.unit, most/c.unit, last/c.unit,
			sparkline(w.samples, c),
		)
	}

	t.Log("\n" + b.String())
	if os.Getenv("BELAY_SOAK_DIR") == "" {
		return nil
	}

	var lines bytes.Buffer
	for _, s := range w.samples {
		lines.Write(append(encode(s), '\n'))
	}

	for name, data := range map[string][]byte{"report.txt": []byte(b.String()), "samples.jsonl": lines.Bytes(), "soak.svg": []byte(drawing(w.samples))} {
		if err := os.WriteFile(filepath.Join(w.root, name), data, 0o600); err != nil {
			return err
		}
	}

	return nil
}

// sparkline draws a curve in one line of text.
func sparkline(list []sample, c curve) string {
	const width, marks = 60, "▁▂▃▄▅▆▇█"
	most := int64(1)
	for _, s := range list {
		most = max(most, c.of(s))
	}

	var b strings.Builder
	for i := range min(width, len(list)) {
		v := c.of(list[i*len(list)/min(width, len(list))])
		b.WriteRune([]rune(marks)[min(v*8/most, 7)])
	}

	return b.String()
}

// drawing draws every curve below the other, each to its own height.
func drawing(list []sample) string {
	const width, height = 720, 80
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		width+20, len(curves)*(height+30),
	)

	for i, c := range curves {
		most := int64(1)
		for _, s := range list {
			most = max(most, c.of(s))
		}

		top := i*(height+30) + 20
		fmt.Fprintf(
			&b, `<text x="10" y="%d">%s, at most %d</text><polyline fill="none" stroke="black" points="`, top-5,
			c.name, most/c.unit,
		)

		for j, s := range list {
			fmt.Fprintf(&b, "%d,%d ", 10+j*width/len(list), top+height-int(c.of(s)*height/most))
		}

		fmt.Fprintln(&b, `"/>`)
	}

	b.WriteString("</svg>\n")
	return b.String()
}

func TestReportDrawsEverySample(t *testing.T) {
	list := []sample{{Private: 1 << 20}, {Private: 8 << 20}}
	if got, want := sparkline(list, curves[0]), "▂█"; got != want {
		t.Errorf("sparkline %s, want %s", got, want)
	}
	if got := strings.Count(drawing(list), "<polyline"); got != len(curves) {
		t.Errorf("%d curves drawn, want %d", got, len(curves))
	}

	var back sample
	if err := json.Unmarshal(encode(list[1]), &back); err != nil || back != list[1] {
		t.Errorf("a sample reads back as %+v, %v", back, err)
	}
}

// A sample at its limits breaks none of them; one more of anything is told.
func TestEveryLimitIsHeld(t *testing.T) {
	f := &fleet{total: 1 << 20}
	at := sample{
		Active:     10,
		Kept:       f.total,
		Private:    memoryBase + 10*memoryPerSession,
		Files:      filesBase + 10*filesPerSession,
		Goroutines: goroutinesBase + 10*goroutinesPerSession,
		Journal:    journalBytes,
		Spool:      spoolBytes,
		Rest:       restBytes,
	}

	if got := f.over(at); len(got) != 0 {
		t.Errorf("at the limits: %q, want nothing", got)
	}

	for name, more := range map[string]func(*sample){
		"sessions/": func(s *sample) { s.Kept++ }, "memory": func(s *sample) { s.Private++ }, "files": func(s *sample) { s.Files++ },
		"goroutines": func(s *sample) { s.Goroutines++ }, "journal": func(s *sample) { s.Journal++ }, "spool": func(s *sample) { s.Spool++ },
		"all else": func(s *sample) { s.Rest++ },
	} {
		s := at
		more(&s)
		if got := f.over(s); len(got) != 1 || !strings.Contains(got[0], name) {
			t.Errorf("one more of %s: %q, want one breach that names it", name, got)
		}
	}
}
