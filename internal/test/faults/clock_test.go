//go:build linux

package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shifted is added to every package of belay in programs whose wall clock a test can set: by so many seconds as a file
// says. The monotonic clock, the libraries' and the files' times go on as they are.
const shifted = `

import (
	"os"
	"strconv"
	stdtime "time"
	"unsafe"
)

func shiftedNow() stdtime.Time {
	now := stdtime.Now()
	data, _ := os.ReadFile(os.Getenv("BELAY_TEST_CLOCK"))
	seconds, _ := strconv.ParseInt(string(data), 10, 64)
	*(*uint64)(unsafe.Pointer(&now)) += uint64(seconds) << 30 // where a time with a monotonic reading has its wall seconds
	return now
}

func shiftedSince(t stdtime.Time) stdtime.Duration { return shiftedNow().Sub(t) }
func shiftedUntil(t stdtime.Time) stdtime.Duration { return t.Sub(shiftedNow()) }
`

var readsClock = regexp.MustCompile(`\btime\.(Now|Since|Until)\b`)

// movable builds programs whose wall clock can be set.
func movable(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(
		"go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.ImportPath}} {{.Name}} {{.Dir}} {{join .GoFiles \" \"}}{{end}}",
		"belay/cmd/belay",
	).Output()

	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	replace := map[string]string{}
	put := func(name, text string) {
		if replace[name] != "" {
			t.Fatalf("%s twice", name)
		}
		replace[name] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[name], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if !strings.HasPrefix(f[0], "belay/") {
			continue
		}

		found := false
		for _, name := range f[3:] {
			name = filepath.Join(f[2], name)
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if readsClock.Match(source) {
				put(name, readsClock.ReplaceAllString(string(source), "shifted$1")+"\nvar _ time.Duration\n")
				found = true
			}
		}

		if found {
			put(filepath.Join(f[2], "shifted.go"), "package "+f[1]+shifted)
		}
	}

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}

	to := filepath.Join(filepath.Dir(bin), "movable")
	if err := build(to, "-overlay", file); err != nil {
		t.Fatal(err)
	}

	return to
}

// The wall clock jumps both ways under the daemon: gates may open early and are never held shut, there is no storm of
// beats or checkpoints, and events stay in their order.
func TestClockJumps(t *testing.T) {
	if !long() {
		t.Skip(
			"builds all of belay anew: BELAY_LONG=1 runs it; the gates' and the heartbeat's own tests move the clock in the short form",
		)
	}

	const gate, beat = 3 * time.Second, 2 * time.Second
	clock := filepath.Join(t.TempDir(), "clock")
	w := newWorld(
		t, "BELAY_TEST_CLOCK="+clock, "BELAY_HEARTBEAT_EVERY=@every 2s", "BELAY_GATES_FULL_TIME=3s",
		"BELAY_GATES_SPARSE_TIME=3s", "BELAY_JOURNAL_SEGMENT=16MB",
	)

	w.bin = movable(t)
	set := func(d time.Duration) {
		t.Helper()
		if err := os.WriteFile(clock+".new", fmt.Append(nil, int64(d/time.Second)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(clock+".new", clock); err != nil {
			t.Fatal(err)
		}
	}

	set(0)
	d := w.start()
	w.rounds("s", 6, 50)
	const day = 24 * time.Hour
	for _, jump := range []time.Duration{-day, 2 * day, -30 * day, 0, 40 * day, -time.Hour} {
		taken, beats, began := w.status().Counts["checkpoints"], len(w.beats()), time.Now()
		set(jump)
		if got := time.Until(w.status().Heartbeat); jump == 0 && got > day {
			t.Errorf("the last beat is said to be in %s", got)
		}

		early := int64(0)
		until(t, "a checkpoint", func() bool {
			w.rounds("s", 1, 50)
			now := w.status().Counts["checkpoints"]
			if time.Since(began) < gate/2 {
				early = now - taken
				return false
			}
			return now > taken
		})

		took := time.Since(began)
		if early > 3 {
			t.Errorf("clock at %s: %d checkpoints at once, want a few at the most", jump, early)
		}
		if got, most := len(w.beats())-beats, int(took/beat)+2; got > most {
			t.Errorf("clock at %s: %d beats in %s, want %d at the most", jump, got, took, most)
		}

		t.Logf(
			"clock at %s: a checkpoint after %s, %d at once, %d beats", jump, took.Round(time.Millisecond),
			early, len(w.beats())-beats,
		)
	}

	if err := d.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	var want []string
	for i, jump := range []time.Duration{day, 0, 2 * time.Hour, -day} {
		set(jump)
		want = append(want, fmt.Sprint("prompt ", i))
		w.prompt(claudeSession, want[i])
		w.quiet()
	}

	if err := d.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	until(t, "the spool is empty", func() bool { return w.spooled() == 0 })
	d.kill()
	w.compare()
	if got := w.prompts(); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("prompts %q, want %q", got, want)
	}
}
