//go:build linux

package faults

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"belay/internal/wire"
)

// fill leaves so many bytes free on the state folder's disk; the function it returns gives the room back.
func (w *world) fill(free int64) (empty func()) {
	w.t.Helper()
	name := filepath.Join(w.state, "filler")
	w.t.Cleanup(func() { _ = os.Remove(name) }) // also after a failed test: the oracle looks at the folder
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}

	n, err := io.Copy(f, zeros{})
	if !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatalf("the disk took %d bytes, %v; want it full", n, err)
	}
	if err := errors.Join(f.Truncate(max(n-free, 0)), f.Close()); err != nil {
		w.t.Fatal(err)
	}

	return func() {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Error(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// badDisk is what every fault of the disk must show while it lasts: hooks in time, honest answers, a status that names
// it.
func (w *world) badDisk(says string) {
	w.t.Helper()
	last := wire.Reply{}
	until(w.t, "the journal feels it", func() bool {
		last = w.rounds("bad", 10, 2000)
		return last.Kept != wire.KeptDisk
	})

	if !last.OK || last.Kept != wire.KeptMemory {
		w.t.Errorf("answer %+v, want it kept in memory", last)
	}

	for range 5 {
		w.prompt("33333333-3333-4333-8333-333333333333", "the disk is bad")
	}

	if out, err := w.belay("status"); err != nil || !strings.Contains(out, says) {
		w.t.Errorf("belay status: %v\n%s\nwant %q in it", err, out, says)
	}
	if out, err := w.belay("checkpoint", "--agent", "tester", "--session", "bad", "--workspace", "/proj"); err == nil {
		w.t.Errorf("belay checkpoint on a bad disk: no error, %s", out)
	}
}

// better is what must be after it: everything on disk, nothing of what was told lost, few lines in the log.
func (w *world) better(d *daemonProc) {
	w.t.Helper()
	w.healed()
	if reply := w.rounds("after", 1, 10); reply.Kept != wire.KeptDisk {
		w.t.Errorf("answer %+v after the disk is well, want it on disk", reply)
	}

	lines := w.logLines()
	if lines > 20 {
		w.t.Errorf("%d lines in the log, want 20 at most", lines)
	}

	st := w.status()
	w.quiet()
	d.kill()
	acked := w.compare()
	if got := w.states()["bad"]; got == nil || got.Rounds != w.mu.sent["bad"] {
		w.t.Errorf("session bad has %+v, want all its %d rounds: none was dropped", got, w.mu.sent["bad"])
	}

	w.t.Logf("%d rounds acknowledged as on disk, %d lines in the log, %d dropped", acked, lines, st.Journal.Dropped)
}

func TestFullDisk(t *testing.T) {
	w := newWorldOn(t, 2<<20)
	d := w.start()
	w.rounds("before", 20, 500)
	empty := w.fill(0)
	w.badDisk("disk full since")
	empty()
	w.better(d)
}

// The disk is full at kill -9, and still at the next start.
func TestFullDiskOverARestart(t *testing.T) {
	w := newWorldOn(t, 2<<20)
	d := w.start()
	w.rounds("before", 20, 500)
	empty := w.fill(0)
	w.badDisk("disk full since")
	d.kill()
	w.compare()
	w.endAll() // a hook may have started another one
	d = w.start()
	w.rounds("second", 5, 2000)
	empty()
	w.healed()
	d.kill()
	w.compare()
}

// A checkpoint meets the end of the disk at each of many places: it is there whole, or it is not there.
func TestFullDiskDuringACheckpoint(t *testing.T) {
	w := newWorldOn(t, 2<<20)
	d := w.start()
	sizes := []int64{0, 12 << 10, 96 << 10}
	if long() {
		for n := int64(16 << 10); n < 256<<10; n += 4 << 10 {
			sizes = append(sizes, n)
		}
	}

	failed := 0
	for _, free := range sizes {
		w.rounds("s", 3, 4000)
		empty := w.fill(free)
		if _, err := w.belay("checkpoint", "--agent", "tester", "--session", "s", "--workspace", "/proj"); err != nil {
			failed++
		}

		w.rounds("s", 3, 4000)
		empty()
		w.healed()
	}

	if failed == 0 {
		t.Error("no checkpoint met the end of the disk: the test proved nothing")
	}
	if out, err := w.belay("checkpoint", "--agent", "tester", "--session", "s", "--workspace", "/proj"); err != nil {
		t.Errorf("belay checkpoint when there is room: %v %s", err, out)
	}

	t.Logf("%d of %d checkpoints failed", failed, len(sizes))
	d.kill()
	w.compare()
}

// The disk becomes read-only under the daemon, and writable again. Files that were open before go on as the kernel lets
// them.
func TestReadOnlyDisk(t *testing.T) {
	w := newWorldOn(t, 16<<20)
	d := w.start()
	w.rounds("before", 20, 500)
	if err := errors.Join(syscall.Mount(w.state, w.state, "", syscall.MS_BIND, ""),
		syscall.Mount("", w.state, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")); err != nil {
		t.Skipf("no read-only view can be mounted here: %v", err)
	}

	w.badDisk("FAILING since")
	if err := syscall.Unmount(w.state, syscall.MNT_DETACH); err != nil {
		t.Fatal(err)
	}

	w.better(d)
}
