package intake

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"go.uber.org/goleak"

	"belay/internal/vfs"
)

// waits is one intake for which something never happens.
type waits struct {
	*testing.T
	dir  string
	opt  Options
	in   io.Reader
	hang chan struct{} // closed when the test is over
}

// blocked waits as long as the test does.
func (w *waits) blocked() { <-w.hang }

// pipe gives stdin as an agent's shell gives it: a pipe in blocking mode, whose other end stays open.
func (w *waits) pipe(words string) *os.File {
	w.Helper()
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		w.Fatal(err)
	}

	syscall.CloseOnExec(p[1]) // a program of another test must not keep it open
	r, feed := os.NewFile(uintptr(p[0]), "stdin"), os.NewFile(uintptr(p[1]), "feed")
	w.Cleanup(func() { _, _ = feed.Close(), r.Close() }) // in this order: a read that still waits ends
	if _, err := feed.WriteString(words); err != nil {
		w.Fatal(err)
	}

	return r
}

// socket listens where the daemon does and lets talk have each connection.
func (w *waits) socket(talk func(net.Conn)) {
	w.Helper()
	ln := listen(w.T, w.dir)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			go func() {
				defer c.Close()
				talk(c)
			}()
		}
	}()

	w.Cleanup(func() { _ = ln.Close() })
}

// locked takes locks of the intakes' for as long as the test lasts.
func (w *waits) locked(names ...string) {
	w.Helper()
	for _, name := range names {
		l := flock.New(filepath.Join(w.dir, name))
		if ok, err := l.TryLock(); !ok || err != nil {
			w.Fatalf("lock %s: %v, %v", name, ok, err)
		}
		w.Cleanup(func() { _ = l.Unlock() })
	}
}

// hungFS is a disk on which the spool's folder can be listed and nothing be written.
type hungFS struct {
	vfs.FS
	block func()
}

func (h hungFS) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	h.block()
	return nil, errNoStart
}

const header = `{"v":1,"op":"hook","agent":"pi","event":"e","id":"a","len":8}` + "\n"

// An intake ends, whatever never happens, and its event lies in the spool by then.
func TestEveryWaitEnds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(w *waits)
		want    string // the payload that is spooled; empty: none
		dropped int    // that the spool counts
		err     error
	}{
		{"stdin that says nothing and never ends", func(w *waits) { w.in = w.pipe("") }, "", 1, ErrNoRequest},
		{"stdin that stops in the middle of the line", func(w *waits) { w.in = w.pipe(header[:20]) }, "", 1, ErrNoRequest},
		{"stdin that stops in the middle of the payload", func(w *waits) { w.in = w.pipe(header + "half") }, "half", 0, errNoStart},
		{"stdin that never ends after the payload", func(w *waits) { w.in = w.pipe(header + "a secret") }, "a [gone]", 0, errNoStart},
		{"a daemon that takes no connection", func(w *waits) { _ = listen(w.T, w.dir) }, "a [gone]", 0, nil},
		{"a daemon that reads nothing", func(w *waits) { w.socket(func(net.Conn) { w.blocked() }) }, "a [gone]", 0, nil},
		{"a daemon that answers a byte at a time", func(w *waits) {
			w.socket(func(c net.Conn) {
				for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
					if _, err := io.WriteString(c, "{"); err != nil {
						return
					}
				}
			})
		}, "a [gone]", 0, nil},
		{"a daemon whose answer's bytes never come", func(w *waits) {
			w.socket(func(c net.Conn) {
				_, _ = io.WriteString(c, `{"ok":true,"len":5}`+"\n") // the other side may be gone
				w.blocked()
			})
		}, "a [gone]", 0, nil},
		{"a start lock that is held for ever", func(w *waits) { w.locked("start.lock") }, "a [gone]", 0, nil},
		{"a drain lock that is held for ever", func(w *waits) { w.locked("drain.lock") }, "a [gone]", 0, errNoStart},
		{"all places of intakes held for ever", func(w *waits) {
			w.locked("intake.0.lock", "intake.1.lock", "intake.2.lock", "intake.3.lock", "intake.4.lock", "intake.5.lock", "intake.6.lock", "intake.7.lock")
		}, "a [gone]", 0, nil},
		{"a program that never says that it was started", func(w *waits) {
			w.opt.StartDaemon = func() error { w.blocked(); return nil }
		}, "a [gone]", 0, ErrLate},
		{"the same, with nothing to hand over", func(w *waits) {
			w.in = strings.NewReader("")
			w.opt.StartDaemon = func() error { w.blocked(); return nil }
		}, "", 0, ErrLate},
		{"a disk that hangs", func(w *waits) { w.opt.FS = hungFS{vfs.OS{}, w.blocked} }, "", 0, ErrLate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			others := goleak.IgnoreCurrent()
			w := &waits{T: t, dir: stateDir(t), hang: make(chan struct{}), in: strings.NewReader(header + "a secret")}
			t.Cleanup(func() { goleak.VerifyNone(t, others) }) // before the folder goes
			t.Cleanup(func() { close(w.hang) })
			w.opt = options(w.dir)
			w.opt.Wait, w.opt.RestWait, w.opt.Grace = 200*time.Millisecond, 50*time.Millisecond, time.Second
			tc.prepare(w)
			ended := make(chan error, 1)
			go func() { ended <- Run(context.Background(), w.in, w.opt) }()
			select {
			case err := <-ended:
				if !errors.Is(err, tc.err) {
					t.Errorf("Run = %v, want %v", err, tc.err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it never ends")
			}

			list := spooled(t, w.dir)
			got := ""
			for _, g := range list {
				got += g.payload
			}

			if got != tc.want {
				t.Errorf("the spool holds %q, want %q", got, tc.want)
			}

			wantDropped(t, w.dir, tc.dropped)
		})
	}
}
