// Package vfs is the one seam between belay and the disk. All durable state of belay (journal, state files,
// checkpoints, mirror, spool, settings that belay writes) goes through an FS, so that tests can make any operation fail
// and can look at what a power cut would leave.
//
// It promises one thing beyond the standard library: Replace puts a whole file in place durably, or leaves the old one.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Modes of everything that belay creates, whatever the umask says.
const (
	FileMode fs.FileMode = 0o600
	DirMode  fs.FileMode = 0o700
)

// TempSuffix ends the name of every temporary file that Replace makes. Such files are left-overs of a crash when no
// process holds the state folder's lock, and may be swept then.
const TempSuffix = ".belay-tmp"

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.Seeker
	io.Closer
	// Sync puts the file's bytes on stable storage. After an error the file's state is unknown: reopen it.
	Sync() error
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
	// Chmod sets the mode, whatever the umask says.
	Chmod(mode fs.FileMode) error
}

// FS is a file system. Errors are those of package os (errors.Is with fs.ErrNotExist and the like works).
type FS interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Rename(oldName, newName string) error
	Remove(name string) error
	MkdirAll(path string, perm fs.FileMode) error
	ReadDir(name string) ([]fs.DirEntry, error)
	// Lstat does not follow a link at name.
	Lstat(name string) (fs.FileInfo, error)
	// SyncDir puts the names in a folder on stable storage: without it a rename or a new file may be gone after a
	// power cut.
	SyncDir(name string) error
}

// OS is the real file system.
type OS struct{}

func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // a typed nil must not reach the interface
	}
	return f, nil
}

func (OS) Rename(oldName, newName string) error         { return os.Rename(oldName, newName) }
func (OS) Remove(name string) error                     { return os.Remove(name) }
func (OS) MkdirAll(path string, perm fs.FileMode) error { return os.MkdirAll(path, perm) }
func (OS) ReadDir(name string) ([]fs.DirEntry, error)   { return os.ReadDir(name) }
func (OS) Lstat(name string) (fs.FileInfo, error)       { return os.Lstat(name) }

func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MakeDir makes a folder and those above it, for this user alone, and durably: without a sync of the folder above, a
// new one may be gone after a power cut with all that was synced in it. Of those that are there the last is synced too,
// since its maker may have been killed before it did so.
func MakeDir(fsys FS, dir string) error { return MakeDirMode(fsys, dir, DirMode) }

// MakeDirMode is MakeDir for a folder that is not belay's alone.
func MakeDirMode(fsys FS, dir string, mode fs.FileMode) error {
	above := filepath.Dir(dir)
	_, err := fsys.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) && above != dir {
		err = MakeDirMode(fsys, above, mode)
	}
	if err == nil {
		err = fsys.MkdirAll(dir, mode) // says so when a file is in the way
	}
	if err != nil || above == dir {
		return err
	}

	// A parent that is not ours to read is not of our making, and its names were synced by whoever made it.
	if err := fsys.SyncDir(above); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("sync folder of %s: %w", dir, err)
	}

	return nil
}

// Replace makes name hold exactly data, durably: a temporary file beside it, write, sync, close, rename, sync of the
// folder. After a crash at any moment name holds the old bytes or the new ones. On error the old file is untouched
// (unless only the last step failed, which the error says) and the temporary file is removed.
func Replace(fsys FS, name string, data []byte) error { return ReplaceMode(fsys, name, data, FileMode) }

// ReplaceMode is Replace for a file that is not belay's alone: a program, another program's settings. The mode is there
// before the name is.
func ReplaceMode(fsys FS, name string, data []byte, mode fs.FileMode) error {
	return replace(fsys, name, mode, func(w io.Writer) error {
		n, err := w.Write(data)
		if err == nil && n < len(data) {
			err = io.ErrShortWrite
		}
		return err
	})
}

// ReplaceWith is Replace for what does not fit into memory: write gives the bytes, and its error leaves the old file.
func ReplaceWith(fsys FS, name string, write func(w io.Writer) error) error {
	return replace(fsys, name, FileMode, write)
}

func replace(fsys FS, name string, mode fs.FileMode, write func(w io.Writer) error) error {
	dir, tmp := filepath.Dir(name), tempOf(name)
	if err := writeWhole(fsys, tmp, mode, write); err != nil {
		_ = fsys.Remove(tmp) // the temporary file is swept later if this fails too
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.Rename(tmp, name); err != nil {
		_ = fsys.Remove(tmp)
		return fmt.Errorf("replace %s: %w", name, err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("replace %s: sync its folder: %w", name, err)
	}

	return nil
}

func tempOf(name string) string {
	return filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+TempSuffix)
}

// RemoveTemp removes what a crash left of Replace for one file, where nobody sweeps: in another program's folder.
func RemoveTemp(fsys FS, name string) error {
	err := fsys.Remove(tempOf(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	return nil
}

func writeWhole(fsys FS, name string, mode fs.FileMode, write func(w io.Writer) error) (err error) {
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}

	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()

	// The umask may have taken bits away, and a left-over of a crash may have others.
	if err := f.Chmod(mode); err != nil {
		return err
	}

	if err := write(f); err != nil {
		return err
	}

	return f.Sync()
}

// ReadFile returns the bytes of name, at most limit of them; a larger file is an error.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}

	defer f.Close() // read only: nothing can be lost
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", name, limit)
	}

	return data, nil
}

// SweepTemps removes what a crash left of Replace in a folder, as far as it was last written before a time; the zero
// time means all. Call it only while holding the state folder's lock.
func SweepTemps(fsys FS, dir string, before time.Time) error {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), TempSuffix) {
			continue
		}

		if !before.IsZero() {
			if info, ierr := e.Info(); ierr != nil || !info.ModTime().Before(before) {
				continue // gone, or somebody is at it
			}
		}

		if rerr := fsys.Remove(filepath.Join(dir, e.Name())); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}

	return err
}
