//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"belay/checkpoint"
)

// TestTranscripts: what is generated is what the agents' readers understand; else the figures would be those of bad
// lines.
func TestTranscripts(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	for _, f := range forms() {
		r, err := b.record(context.Background(), f, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got := sizeOf(r.path); got < 1<<20-64<<10 || got > 1<<20+64<<10 {
			t.Errorf("%s: %d bytes, want about 1 MB", f.agent, got)
		}

		got, err := r.read(context.Background(), r.near, checkpoint.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}

		answers, results := 0, 0
		for _, e := range got.Entries {
			switch {
			case e.Kind == checkpoint.EntryAssistant && strings.HasPrefix(e.Text, "answer "):
				answers++
			case e.Output != "":
				results++
			}
		}

		if answers != 5 || results != 10 || got.Losses.BadLines != 0 {
			t.Errorf(
				"%s: %d answers, %d results, losses %+v after the cursor; want 5, 10 and none", f.agent,
				answers, results, got.Losses,
			)
		}
	}
}

// TestEvents: the load is made of requests of about the size that is claimed.
func TestEvents(t *testing.T) {
	p := &peer{name: session}
	for i := range 16 {
		p.line = p.line[:0]
		p.event(i%2 == 0)
		if !json.Valid(p.line) {
			t.Errorf("event %d is no JSON: %s", i, p.line)
		}
		if n := len(p.line); n < 190 || n > 210 {
			t.Errorf("event %d has %d bytes, want about 200", i, n)
		}
	}
}

func TestSample(t *testing.T) {
	s := sample{3, 1, 2}
	if s.median() != 2 || s.at(0) != 1 || s.at(0.99) != 3 {
		t.Errorf("median %v, min %v, p99 %v; want 2, 1, 3", s.median(), s.at(0), s.at(0.99))
	}
	if got := (sample{}).median(); got != 0 {
		t.Errorf("median of nothing: %v, want 0", got)
	}
}

func TestReport(t *testing.T) {
	var r report
	r.section("part")
	yard := sample{2}
	r.add("good", "ms", sample{4}).over("yard", yard).most("X1", 2)
	r.add("bad", "ms", sample{4.2}).over("yard", yard).most("X1", 2)
	r.add("unjudged", "ms", sample{4}).over("yard", nil).most("X1", 2)
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{
		"2.00x yard  [X1: at most 2x: met]", "2.10x yard  [X1: at most 2x: MISSED]", "[X1: at most 2x: not judged]",
		"\n1 goals missed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--only", "nothing"}, {"--no-such-flag"}} {
		var out, errOut bytes.Buffer
		if err := run(context.Background(), args, &out, &errOut); !errors.Is(err, errUsage) {
			t.Errorf("%q: got %v, want wrong use", args, err)
		}
	}
}
