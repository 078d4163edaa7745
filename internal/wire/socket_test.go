package wire_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"belay/internal/wire"
	"belay/internal/wire/wiretest"
)

// folder is a short one, so that a socket's name fits.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// listen gives a listener that notes whether anybody said anything to it.
func listen(t *testing.T, place string) (heard func() bool) {
	t.Helper()
	l, err := net.Listen("unix", place)
	must(t, err)
	return hearing(t, l)
}

func hearing(t *testing.T, l net.Listener) (heard func() bool) {
	t.Helper()
	const last = "nothing else follows"
	said := make(chan int, 1)
	go func() {
		for total, buf := 0, make([]byte, 64); ; {
			c, err := l.Accept()
			if err != nil {
				said <- total
				return
			}

			n, _ := c.Read(buf) // nothing is what the test hopes for
			_ = c.Close()
			if string(buf[:n]) == last {
				said <- total
				return
			}

			total += n
		}
	}()

	t.Cleanup(func() { _ = l.Close() })

	// Connections are taken in their order: a last one of ours says that all before it were heard.
	return func() bool {
		c, err := net.Dial("unix", l.Addr().String())
		must(t, err)
		_, err = c.Write([]byte(last))
		must(t, err, c.Close())
		return <-said > 0
	}
}

// TestD13WhoMayBeTalkedTo: a socket that a stranger could have made, or who listens there, is told nothing.
func TestD13WhoMayBeTalkedTo(t *testing.T) {
	asRoot := func(t *testing.T) {
		t.Helper()
		if os.Getuid() != 0 {
			t.Skip("only root can give files away")
		}
	}
	for name, c := range map[string]struct {
		plant func(t *testing.T, dir, place string) (heard func() bool)
		want  error
	}{
		"ours": {func(t *testing.T, dir, place string) func() bool { return listen(t, place) }, nil},
		"folder open to others": {func(t *testing.T, dir, place string) func() bool {
			must(t, os.Chmod(dir, 0o777))
			return listen(t, place)
		}, wire.ErrUntrusted},
		"folder with a sticky bit": {func(t *testing.T, dir, place string) func() bool {
			must(t, os.Chmod(dir, 0o777|fs.ModeSticky))
			return listen(t, place)
		}, wire.ErrUntrusted},
		"folder open to the group": {func(t *testing.T, dir, place string) func() bool {
			must(t, os.Chmod(dir, 0o710))
			return listen(t, place)
		}, wire.ErrUntrusted},
		"folder of another user": {func(t *testing.T, dir, place string) func() bool {
			asRoot(t)
			must(t, os.Chown(dir, wiretest.Stranger, -1))
			return listen(t, place)
		}, wire.ErrUntrusted},
		"folder is a link": {func(t *testing.T, dir, place string) func() bool {
			other := folder(t)
			must(t, os.Remove(dir), os.Symlink(other, dir))
			return listen(t, place)
		}, wire.ErrUntrusted},
		"socket is a link": {func(t *testing.T, dir, place string) func() bool {
			other := filepath.Join(folder(t), "x.sock")
			must(t, os.Symlink(other, place))
			return listen(t, other)
		}, wire.ErrUntrusted},
		"socket of another user": {func(t *testing.T, dir, place string) func() bool {
			asRoot(t)
			heard := listen(t, place)
			must(t, os.Chown(place, wiretest.Stranger, -1))
			return heard
		}, wire.ErrUntrusted},
		"a file": {func(t *testing.T, dir, place string) func() bool {
			must(t, os.WriteFile(place, nil, 0o600))
			return nil
		}, wire.ErrUntrusted},
		"a pipe, which would be waited for": {func(t *testing.T, dir, place string) func() bool {
			must(t, syscall.Mkfifo(place, 0o600))
			return nil
		}, wire.ErrUntrusted},
		"nothing": {func(t *testing.T, dir, place string) func() bool { return nil }, fs.ErrNotExist},
		// All names are ours; only the kernel knows who listens.
		"another user listens at a socket of ours": {func(t *testing.T, dir, place string) func() bool {
			var l net.Listener
			must(t, os.Chmod(dir, 0o777))
			wiretest.As(t, wiretest.Stranger, func() (err error) {
				l, err = net.Listen("unix", place)
				return err
			})

			must(t, os.Chown(place, os.Getuid(), -1), os.Chmod(dir, 0o700))
			return hearing(t, l)
		}, wire.ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			place := filepath.Join(dir, "belay.sock")
			heard := c.plant(t, dir, place)
			conn, err := wire.Dial(t.Context(), dir, place)
			if err == nil {
				must(t, conn.Send(wire.Request{Op: "hello"}, nil))
				defer conn.Close() // the test is over
			}
			if !errors.Is(err, c.want) {
				t.Errorf("dial: got %v, want %v", err, c.want)
			}
			if heard != nil && heard() != (c.want == nil) {
				t.Errorf("something was said there: want %t", c.want == nil)
			}
		})
	}
}
