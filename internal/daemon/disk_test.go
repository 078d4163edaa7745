package daemon

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"belay/internal/vfs"
)

// rotten is a disk on which everything in some folder fails while the switch is on.
type rotten struct {
	vfs.FS
	folder string
	on     atomic.Bool
}

func (f *rotten) bad(name string) error {
	if f.on.Load() && strings.Contains(name, f.folder) {
		return &fs.PathError{Op: "write", Path: name, Err: syscall.EIO}
	}
	return nil
}

func (f *rotten) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if err := f.bad(name); err != nil && flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return nil, err
	}

	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}

	return &rottenFile{file, f, name}, nil
}

func (f *rotten) Rename(a, b string) error { return errors.Join(f.bad(b), f.FS.Rename(a, b)) }
func (f *rotten) MkdirAll(p string, m fs.FileMode) error {
	if err := f.bad(p); err != nil {
		return err
	}
	return f.FS.MkdirAll(p, m)
}

type rottenFile struct {
	vfs.File
	fs   *rotten
	name string
}

func (f *rottenFile) Write(p []byte) (int, error) {
	if err := f.fs.bad(f.name); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *rottenFile) Sync() error {
	if err := f.fs.bad(f.name); err != nil {
		return err
	}
	return f.File.Sync()
}
