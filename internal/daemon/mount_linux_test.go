package daemon

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"belay/internal/wire"
)

// mountSmall puts a file system of 1 MB in a folder's place, for the test's time.
func mountSmall(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Skipf("no small file system here: %v", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// G10: a state folder on a file system that was mounted read-only: it is named, events are kept in memory, hooks are
// answered.
func TestG10ReadOnlyMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting read-only needs root")
	}

	dir := tempDir(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_RDONLY, "size=1m,mode=0700"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }) // gone already when the test took it away
	t.Cleanup(func() {
		for _, place := range wire.SocketPlaces(dir) {
			_ = os.Remove(lockName(place)) // the second place's lock stays for good; this one is of the test's own
		}
	})

	r := start(t, dir)
	if reply := r.rounds("s", 0, 2); reply.Kept != wire.KeptMemory {
		t.Errorf("kept %q, want memory", reply.Kept)
	}

	st := r.status()
	if said := st.Problem + st.Journal.Error; !strings.Contains(said, dir) ||
		!strings.Contains(said, syscall.EROFS.Error()) {
		t.Errorf("status says %q, want the folder %s and why", said, dir)
	}
	if n := r.logs.Len(); n > 20 {
		t.Errorf("%d log lines, want under 20", n)
	}
	if err := errors.Join(syscall.Mount("", dir, "", syscall.MS_REMOUNT, "")); err != nil {
		t.Fatalf("remount: %v", err)
	}

	until(t, "events are on disk", func() bool {
		c, err := wire.Dial(t.Context(), dir, "")
		if err != nil {
			return false // it moves to the folder that can be written now
		}
		defer c.Close()
		reply, _, err := tryDo(c, eventRequest("s", wire.Event{Kind: "mark", Text: "x"}), nil)
		return err == nil && reply.Kept == wire.KeptDisk
	})

	if got := r.session("tester", "s").MessageCount; got != 2 {
		t.Errorf("%d rounds after the disk can be written, want 2", got)
	}
}
