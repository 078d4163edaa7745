package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"belay/internal/vfs"
	"belay/internal/wire"
)

// Errors of listening.
var (
	// ErrRunning: another daemon of this user holds the lock.
	ErrRunning = errors.New("a belay daemon is running already")
	// ErrPlace: no place can hold the socket.
	ErrPlace = errors.New("no place for the socket")
)

// Place is a socket that is bound, and the locks that make this daemon the only one.
type Place struct {
	net.Listener
	Path  string
	made  os.FileInfo // the socket as it was bound
	locks []*flock.Flock
}

// Listen takes the lock and binds the socket at the first place that can hold one. The lock is held for life, by the
// kernel: a crash frees it. Where the first place has a lock and no room for a socket its lock is held all the same, so
// that nobody can start there later.
func Listen(stateDir string) (*Place, error) {
	p := &Place{}
	var errs []error
	for _, path := range wire.SocketPlaces(stateDir) {
		err := p.take(path, stateDir)
		if err == nil {
			return p, nil
		}

		errs = append(errs, err)
		if errors.Is(err, ErrRunning) {
			return nil, errors.Join(err, p.Unlock())
		}
	}

	return nil, errors.Join(fmt.Errorf("%w: %w", ErrPlace, errors.Join(errs...)), p.Unlock())
}

func (p *Place) take(path, stateDir string) error {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, vfs.DirMode); err != nil {
		return fmt.Errorf("make %s: %w", folder, err)
	}

	target := folder
	if folder == filepath.Clean(stateDir) { // it may be a link of the user's own
		if name, err := filepath.EvalSymlinks(folder); err == nil {
			target = name
		}
	}

	if err := wire.Private(target); err != nil {
		return err
	}

	const flags = os.O_CREATE | os.O_RDONLY | vfs.PlainFlags
	lock := flock.New(lockName(path), flock.SetPermissions(vfs.FileMode), flock.SetFlag(flags))
	held, err := lock.TryLock()
	if err != nil {
		return fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	if !held {
		return fmt.Errorf("%w (lock %s)", ErrRunning, lock.Path())
	}

	p.locks = append(p.locks, lock)

	// No client follows a link to a socket. The lock is held there all the same, for whoever comes by the folder's
	// other name.
	if err := wire.Private(folder); err != nil {
		return err
	}

	l, err := bind(path)
	if err != nil {
		return err
	}

	p.Listener, p.Path = l, path
	if p.made, err = os.Lstat(path); err != nil {
		return errors.Join(fmt.Errorf("look at %s: %w", path, err), l.Close())
	}

	return nil
}

// Lost says whether the socket is no longer where it was bound: somebody removed or replaced it, or the whole folder.
func (p *Place) Lost() bool {
	info, err := os.Lstat(p.Path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, p.made)
}

// Close ends listening. It removes the socket only if that is still its own. A second call does nothing.
func (p *Place) Close() error {
	err := p.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	if !p.Lost() {
		err = errors.Join(err, os.Remove(p.Path))
	}

	return err
}

// Unlock lets another daemon start. The end of the process does so too.
func (p *Place) Unlock() error {
	var err error
	for _, lock := range p.locks {
		err = errors.Join(err, lock.Unlock())
	}
	return err
}

// lockName lies beside the socket.
func lockName(place string) string { return place[:len(place)-len(filepath.Ext(place))] + ".lock" }

// bind removes a stale socket and listens. The lock is held: nobody else of belay's does this meanwhile.
func bind(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", path, err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s is there and is no socket: left alone", path)
	default:
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			err = fmt.Errorf("%s: another process is listening here but does not hold the daemon's lock", path)
			return nil, errors.Join(err, c.Close())
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("probe %s: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the stale socket: %w", err)
		}
	}

	// It is closed on exec, and the folder is closed to others already.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen at %s (%d bytes): %w", path, len(path), err)
	}

	l.SetUnlinkOnClose(false) // by then another daemon's socket may be there: Place.Close looks first
	if err := os.Chmod(path, vfs.FileMode); err != nil {
		return nil, errors.Join(fmt.Errorf("close %s to others: %w", path, err), l.Close())
	}

	return l, nil
}
