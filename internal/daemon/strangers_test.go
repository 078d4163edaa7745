package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/daemon/socket"
	"belay/internal/wire"
	"belay/internal/wire/wiretest"
)

// TestD13AStrangersConnection: another user who gets as far as the socket is refused without a word, and counted.
func TestD13AStrangersConnection(t *testing.T) {
	r := start(t, tempDir(t))
	place := r.l.site.path()
	open := func(folder, socket os.FileMode) {
		if err := errors.Join(os.Chmod(r.dir, folder), os.Chmod(place, socket)); err != nil {
			t.Fatal(err)
		}
	}

	open(0o711, 0o666) // as a careless chmod leaves it
	defer open(0o700, 0o600)
	wiretest.As(t, wiretest.Stranger, func() error {
		c, err := net.Dial("unix", place)
		if err != nil {
			return err
		}

		defer c.Close() // nothing is kept open
		_, werr := io.WriteString(c, "{\"op\":\"list\"}\n")
		if got, rerr := io.ReadAll(c); len(got) > 0 {
			return fmt.Errorf("was told %q (%v, %v)", got, werr, rerr)
		}

		return nil
	})

	open(0o700, 0o600)
	if got := r.l.numbers()["refused_connections"]; got != 1 {
		t.Errorf("%d connections are counted as refused, want 1", got)
	}
	if reply, _ := r.do(wire.Request{Op: "hello"}, nil); !reply.OK {
		t.Errorf("its own user: %+v", reply)
	}
}

// TestD13TheSecondPlaceIsPlanted: /tmp is everybody's. What another user has put to the name of our folder there is not
// used, and stays as it was.
func TestD13TheSecondPlaceIsPlanted(t *testing.T) {
	long := "/" + strings.Repeat("x", 120)        // too long for a socket: the second place is the only one
	user, folder := 20_000+os.Getpid()%30_000, "" // so that two runs do not meet
	for folder == "" || exists(folder) {
		user++
		wiretest.As(t, user, func() error {
			folder = filepath.Dir(wire.SocketPlaces(long)[0])
			return nil
		})
	}

	elsewhere := tempDir(t)
	for name, c := range map[string]struct {
		plant func() error
		ok    bool
	}{
		"nothing":        {func() error { return nil }, true},
		"his own folder": {func() error { return errors.Join(os.Mkdir(folder, 0o700), os.Chown(folder, user, user)) }, true},
		"his own folder, open to all": {func() error {
			return errors.Join(os.Mkdir(folder, 0o700), os.Chown(folder, user, user), os.Chmod(folder, 0o777))
		}, false},
		"another's folder":          {func() error { return os.Mkdir(folder, 0o700) }, false},
		"another's folder, as /tmp": {func() error { return errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, 0o777|fs.ModeSticky)) }, false},
		"a link to his own folder": {func() error {
			return errors.Join(os.Chown(elsewhere, user, user), os.Symlink(elsewhere, folder))
		}, false},
		"a link to nothing": {func() error { return os.Symlink(filepath.Join(elsewhere, "none"), folder) }, false},
		"a file":            {func() error { return os.WriteFile(folder, []byte("mine"), 0o644) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { _ = os.RemoveAll(folder) })
			if err := c.plant(); err != nil {
				t.Fatal(err)
			}

			before, _ := os.Lstat(folder) // nil where nothing is planted
			wiretest.As(t, user, func() error {
				p, err := socket.Listen(long)
				if err == nil {
					err = errors.Join(p.Close(), p.Unlock())
					if !c.ok {
						return errors.New("it listens there")
					}
					return err
				}

				if c.ok || !errors.Is(err, socket.ErrPlace) {
					return fmt.Errorf("got %w, want %t", err, c.ok)
				}

				return nil
			})

			if after, err := os.Lstat(
				folder,
			); before != nil &&
				(err != nil || after.Mode() != before.Mode() || !os.SameFile(before, after)) {
				t.Errorf("what was planted is now %v, %v", after, err)
			}

			if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
				t.Errorf("behind the link lies %v, %v; want nothing", left, err)
			}
		})
	}
}

// TestD13TheStateFolderIsALink: a link of the user's own is allowed. Clients go by the link too and find the daemon; by
// the folder's other name nobody can start a second one.
func TestD13TheStateFolderIsALink(t *testing.T) {
	folder := tempDir(t)
	dir := filepath.Join(tempDir(t), "link")
	if err := os.Symlink(folder, dir); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.Remove(lockName(wire.SocketPlaces(dir)[1])) })
	r := start(t, dir)
	if got := r.rounds("s", 0, 1); got.Kept != wire.KeptDisk {
		t.Errorf("an event: %+v", got)
	}
	if _, err := socket.Listen(folder); !errors.Is(err, socket.ErrRunning) {
		t.Errorf("a second daemon by the folder's own name: %v, want ErrRunning", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "journal")); err != nil {
		t.Errorf("the journal: %v", err)
	}
}
