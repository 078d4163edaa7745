package daemon

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

// Listen takes the lock and binds the socket at the first place that can hold one. The lock is held for life, by the
// kernel: a crash frees it. unlock lets it go.
func Listen(stateDir string) (l net.Listener, unlock func(), err error) {
	var errs []error
	for _, place := range wire.SocketPlaces(stateDir) {
		l, unlock, err := listenAt(place)
		if err == nil {
			return l, unlock, nil
		}
		if errors.Is(err, ErrRunning) {
			return nil, nil, err
		}
		errs = append(errs, err)
	}
	return nil, nil, fmt.Errorf("%w: %w", ErrPlace, errors.Join(errs...))
}

func listenAt(place string) (net.Listener, func(), error) {
	folder := filepath.Dir(place)
	if err := os.MkdirAll(folder, vfs.DirMode); err != nil {
		return nil, nil, fmt.Errorf("make %s: %w", folder, err)
	}
	if err := ownFolder(folder); err != nil {
		return nil, nil, err
	}
	lock := flock.New(lockName(place), flock.SetPermissions(vfs.FileMode))
	held, err := lock.TryLock()
	if err != nil {
		return nil, nil, fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	if !held {
		return nil, nil, fmt.Errorf("%w (lock %s)", ErrRunning, lock.Path())
	}
	unlock := func() { _ = lock.Unlock() } // the kernel does it in any case
	l, err := bind(place)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return l, unlock, nil
}

// lockName lies beside the socket.
func lockName(place string) string { return place[:len(place)-len(filepath.Ext(place))] + ".lock" }

// ownFolder refuses a folder that others can write to or own. It is no link at its last element.
func ownFolder(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return fmt.Errorf("look at %s: %w", folder, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if filepath.Dir(folder) == "/tmp" {
			return fmt.Errorf("%s is a link", folder)
		}
		if info, err = os.Stat(folder); err != nil { // a state folder may be a link of the user's own
			return fmt.Errorf("look at %s: %w", folder, err)
		}
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %w", folder, syscall.ENOTDIR)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to another user (%d)", folder, st.Uid)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is open to others (mode %o): chmod 700 it", folder, info.Mode().Perm())
	}
	return nil
}

// bind removes a stale socket and listens. The lock is held: nobody else of belay's does this meanwhile.
func bind(place string) (net.Listener, error) {
	info, err := os.Lstat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", place, err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s is there and is no socket: left alone", place)
	default:
		c, err := net.DialTimeout("unix", place, time.Second)
		if err == nil {
			return nil, errors.Join(fmt.Errorf("somebody answers at %s without holding the lock", place), c.Close())
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("probe %s: %w", place, err)
		}
		if err := os.Remove(place); err != nil {
			return nil, fmt.Errorf("remove the stale socket: %w", err)
		}
	}
	l, err := net.Listen("unix", place) // close-on-exec; the folder is closed to others already
	if err != nil {
		return nil, fmt.Errorf("listen at %s (%d bytes): %w", place, len(place), err)
	}
	if err := os.Chmod(place, vfs.FileMode); err != nil {
		return nil, errors.Join(fmt.Errorf("close %s to others: %w", place, err), l.Close())
	}
	return l, nil
}
