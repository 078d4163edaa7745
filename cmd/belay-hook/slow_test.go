package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// slowStdin is a hook's stdin whose writer is slower than the hook.
func slowStdin(t *testing.T, first string) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = r.Close()
		_ = w.Close()
	})

	if _, err := io.WriteString(w, first); err != nil {
		t.Fatal(err)
	}

	return r, w
}

// events waits until the intakes of n hooks have ended and gives what the daemon got.
func (d *daemon) events(t *testing.T, ends string, n int) []request {
	t.Helper()
	ended(t, ends, n)
	list := d.list()
	if len(list) != n {
		t.Fatalf("got %d events from %d hooks, want one from each", len(list), n)
	}
	return list
}

// TestSlowWriter: a payload that is only half there at the deadline comes whole and once, and the writer's pipe stays
// open: the second half is larger than it.
func TestSlowWriter(t *testing.T) {
	tests := []struct {
		name, event string
		limit       time.Duration
	}{{"event", "UserPromptSubmit", 200 * time.Millisecond}, {"brief", "SessionStart", 1100 * time.Millisecond}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			state, ends := tempState(t), tempState(t)
			d := serve(t, sock(state), reply(okReply))
			runs := 0
			second := strings.Repeat("the second half ", 20_000)
			within(t, tt.limit, func() run {
				runs++
				r, w := slowStdin(t, "the first half ")
				res := hookFrom(t, state, r, []string{realVar + "=" + ends}, "claude-code", tt.event)
				res.quiet(t)
				_ = r.Close() // the intake's copy alone is left
				if _, err := io.WriteString(w, second); err != nil {
					t.Errorf("the writer's second half: %v, want no error because of us", err)
				}

				_ = w.Close()
				t.Logf("hook took %v", res.took)
				return res
			})

			for _, g := range d.events(t, ends, runs) {
				if g.payload != "the first half "+second || g.req.Cut || g.req.Spooled == 0 ||
					strings.Contains(g.line, "rest") {
					t.Errorf("got %s and %d bytes, want the whole payload, not cut", g.line, len(g.payload))
				}
			}
		})
	}
}

// TestWriterThatNeverCloses: what came is handed over after the bound, and says that it may not be all.
func TestWriterThatNeverCloses(t *testing.T) {
	state, ends := tempState(t), tempState(t)
	d := serve(t, sock(state), reply(okReply))
	runs := 0
	within(t, 200*time.Millisecond, func() run {
		runs++
		r, _ := slowStdin(t, `{"a":1}`)
		return hookFrom(t, state, r, []string{realVar + "=" + ends, restVar + "=300ms"}, "claude-code", "Stop")
	})

	for _, g := range d.events(t, ends, runs) {
		if g.payload != `{"a":1}` || !g.req.Cut {
			t.Errorf("got %s with %q, want what had come, marked cut", g.line, g.payload)
		}
	}
}

// TestWriterThatDies: its death ends the payload at once, long before the bound.
func TestWriterThatDies(t *testing.T) {
	state, ends := tempState(t), tempState(t)
	d := serve(t, sock(state), reply(okReply))
	r, w := slowStdin(t, "")
	writer := exec.Command("sh", "-c", `printf '{"a":'; exec sleep 60`)
	writer.Stdout = w
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}

	_ = w.Close()
	hookFrom(t, state, r, []string{realVar + "=" + ends, restVar + "=1m"}, "claude-code", "Stop").quiet(t)
	_ = writer.Process.Kill()
	_ = writer.Wait() // it was killed
	if g := d.events(t, ends, 1)[0]; g.payload != `{"a":` {
		t.Errorf("got %q, want what the writer had written", g.payload)
	}
}

// TestSlowWriterWithoutIntake: where no belay can be started, what came is sent, cut. A terminal is never read in the
// background, so there too.
func TestSlowWriterWithoutIntake(t *testing.T) {
	state, alone := tempState(t), tempState(t)
	d := serve(t, sock(state), reply(okReply))
	data, err := os.ReadFile(filepath.Join(bin, "belay-hook"))
	if err != nil {
		t.Fatal(err)
	}

	exe := filepath.Join(alone, "belay-hook")
	if err := os.WriteFile(exe, data, 0o700); err != nil {
		t.Fatal(err)
	}

	r, _ := slowStdin(t, "half")
	cmd := exec.Command(exe, "claude-code", "Stop")
	cmd.Env = []string{"BELAY_STATE_DIR=" + state, "PATH=/nowhere"}
	cmd.Stdin = r
	if out, err := cmd.CombinedOutput(); err != nil || len(out) != 0 {
		t.Errorf("got %q, %v, want silence", out, err)
	}

	want := []string{"half"}
	if tty, err := os.Open("/dev/ptmx"); err == nil { // a terminal where nobody types
		defer tty.Close()
		hookFrom(t, state, tty, []string{takeVar + "=" + filepath.Join(state, "took")}, "claude-code", "Stop").quiet(t)
		want = append(want, "")
	}

	list := d.list()
	if len(list) != len(want) {
		t.Skipf("got %d events of %d: the machine stood still for 20 ms", len(list), len(want))
	}

	for i, g := range list {
		if g.payload != want[i] || !g.req.Cut {
			t.Errorf("got %s with %q, want %q, marked cut", g.line, g.payload, want[i])
		}
	}
}
