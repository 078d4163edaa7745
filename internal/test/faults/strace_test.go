//go:build linux

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/internal/wire"
)

// inject makes a running daemon's system calls fail from the n-th on, until the function it returns is called. paths,
// if any, are the only ones that fail.
func (d *daemonProc) inject(calls, fault string, n int, paths ...string) (heal func()) {
	t := d.w.t
	t.Helper()
	name, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("no strace here: %v", err)
	}

	args := []string{"-f", "-qq", "-o", "/dev/null", "-p", fmt.Sprint(d.Process.Pid), "-e", "trace=" + calls,
		"-e", fmt.Sprintf("inject=%s:error=%s:when=%d+", calls, fault, n)}
	for _, p := range paths {
		args = append(args, "-P", p)
	}

	cmd := exec.Command(name, args...)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Skipf("strace does not start: %v", err)
	}

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	until(t, "strace holds the daemon", func() bool {
		select {
		case err := <-ended:
			t.Skipf("strace cannot hold a process here: %v: %s", err, said.String())
		default:
		}
		return d.traced(cmd.Process.Pid)
	})

	return func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // it lets go; it may have ended with the daemon
		<-ended
	}
}

// traced says whether all threads of the daemon are held by a tracer.
func (d *daemonProc) traced(by int) bool {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", d.Process.Pid))
	for _, name := range names {
		if data, err := os.ReadFile(
			name,
		); err == nil &&
			!strings.Contains(string(data), fmt.Sprintf("TracerPid:\t%d\n", by)) {
			return false
		}
	}

	return len(names) > 0
}

// EIO from outside, at the n-th call of a kind: nothing acknowledged is lost, the fault is shown, and it heals.
func TestInputOutputError(t *testing.T) {
	for _, tc := range []struct {
		name, calls string
		journal     bool // on the journal's files alone: the Go runtime itself needs its writes to succeed
		// the highest n of the long form: each thread counts its calls for itself, and few make many of a kind
		deep int
	}{
		{"fsync", "fsync,fdatasync", false, 200},
		{"write", "write", true, 1},
		{"openat", "openat", true, 1},
		{"rename", "rename,renameat,renameat2", false, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			starts := []int{1, 3}
			if long() {
				starts = starts[:0]
				for i := range 200 {
					starts = append(starts, 1+i%tc.deep)
				}
			}

			shown := 0

			// a process that forks under strace may hang there for ever
			w := newWorld(t, "BELAY_WORKTREE_ENABLED=false")
			d := w.start()
			for i, n := range starts {
				var paths []string
				for seq := w.status().Journal.Last + 1; tc.journal && len(paths) < 300; seq++ {
					paths = append(paths, filepath.Join(w.state, "journal", fmt.Sprintf("%020d.log", seq)))
				}

				w.rounds("seal", 1+i%5, 64<<10) // new segments, whose names are among these
				heal := d.inject(tc.calls, "EIO", n, paths...)
				c, err := wire.Dial(t.Context(), w.state, "")
				if err != nil {
					t.Fatal(err)
				}

				for more := range 2*n + 20 {
					reply, err := w.round(c, fmt.Sprint("s", more%3), 3000)
					if err != nil || !reply.OK {
						t.Fatalf("call %d: answer %+v, %v; want it kept somewhere", n, reply, err)
					}
					if reply.Kept == wire.KeptMemory && more > n+5 {
						break
					}
				}

				_ = c.Close()

				// it may fail, and says why
				out, _ := w.belay("checkpoint", "--agent", "tester", "--session", "s0", "--workspace", "/proj")
				st := w.status()
				if strings.Contains(
					fmt.Sprint(out, st.Journal.Error, st.Breaker.Reason, st.Breaker.Aside),
					"input/output error",
				) {
					shown++
				}

				heal()
				w.healed()
				if i%3 == 2 {
					d.kill()
					w.compare()
					d = w.start()
				}
			}

			if shown < len(starts)/2 {
				t.Errorf("%d of %d faults were shown: the test proved little", shown, len(starts))
			}

			st, began := w.status(), time.Now()
			d.kill()
			acked := w.compare()
			t.Logf(
				"%d of %d faults shown in status or answer, %d rounds acknowledged as on disk, %d dropped, compared in %s",
				shown, len(starts), acked, st.Journal.Dropped, time.Since(began).Round(time.Millisecond),
			)
		})
	}
}
