package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// ErrUntrusted: a socket that a stranger could have made, or a stranger behind it. Nothing is said there.
var ErrUntrusted = errors.New("not a socket that only we can have made")

// maxSocketPath is the longest path that can be bound on every system belay runs on: sun_path holds 104 bytes on macOS
// and 108 on Linux, one of them the final NUL.
const maxSocketPath = 103

// SocketPlaces gives the places where the daemon of a state folder may listen, the first that works is taken. Client
// and daemon compute the same list; belay-hook has a copy of this arithmetic, held equal by a test.
func SocketPlaces(stateDir string) []string {
	var places []string
	if p := filepath.Join(stateDir, "belay.sock"); len(p) <= maxSocketPath {
		places = append(places, p)
	}
	return append(places, fmt.Sprintf("/tmp/belay-%d/%016x.sock", os.Getuid(), fnv64(stateDir)))
}

// fnv64 is FNV-1a: small enough for the hook client to have its own copy.
func fnv64(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h ^= uint64(s[i])
		h *= 1099511628211
	}
	return h
}

// Connect connects to a socket that only this user can have made: a socket and no link, of ours, in a folder and no
// link, of ours, that nobody else can enter, with a peer of ours behind it. belay-hook makes the same checks with its
// own code.
func Connect(ctx context.Context, place string) (net.Conn, error) {
	if err := Private(filepath.Dir(place)); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", place, err)
	}

	info, err := os.Lstat(place)
	if err != nil {
		return nil, fmt.Errorf("connect to the socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket || !ours(info) {
		return nil, fmt.Errorf("connect to %s: %w", place, ErrUntrusted)
	}

	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", place)
	if err != nil {
		return nil, err
	}

	uid, err := PeerUID(c.(*net.UnixConn)) // a dialler of "unix" gives nothing else
	if err == nil && uid != os.Getuid() {
		err = fmt.Errorf("connect to %s: user %d listens there: %w", place, uid, ErrUntrusted)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}

	return c, nil
}

// Private says whether a folder may hold the socket: it is one and no link, is ours, and is closed to all others.
func Private(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("look at the socket's folder: %w", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a link: %w", dir, ErrUntrusted)
	case !info.IsDir():
		return fmt.Errorf("%s: %w", dir, syscall.ENOTDIR)
	case !ours(info):
		return fmt.Errorf("%s belongs to another user: %w", dir, ErrUntrusted)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others (mode %o), and a socket belongs into a folder of your own: %w",
			dir, info.Mode().Perm(), ErrUntrusted)
	}

	return nil
}

func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}
