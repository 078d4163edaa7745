package vfstest

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"

	"belay/internal/vfs"
)

// Fault is a vfs.FS that hands everything on to another one, counts the operations, lists them, and makes chosen ones
// fail. All calls count but Seek, which cannot fail on a disk, and Close of a file that was only read, which can lose
// nothing. It is safe for concurrent use.
//
// A write that fails lets half of its bytes through, as a full disk does. A sync that fails on a Mem loses the unsynced
// bytes for good, as Linux does, so that a program which syncs once more and believes it is found out.
type Fault struct {
	inner vfs.FS
	mu    struct {
		sync.Mutex
		from, until int    // operations from <= n < until fail
		verb        string // and is not "": only these
		err         error
		count       int
		op          string // the first that failed
		ops         []string
	}
}

// NewFault makes operation k (the first is 0) fail with err, for example syscall.ENOSPC or io.ErrShortWrite. A negative
// k makes none fail.
func NewFault(inner vfs.FS, k int, err error) *Fault {
	f := &Fault{inner: inner}
	f.mu.from, f.mu.until, f.mu.err = k, k+1, err
	return f
}

// FailFrom makes every operation from the k-th on fail with err until Heal.
func (f *Fault) FailFrom(k int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.from, f.mu.until, f.mu.verb, f.mu.err = k, math.MaxInt, "", err
}

// FailVerb makes every operation with this verb (the first word of its line in Ops) fail with err until Heal. On a full
// disk for example writes fail, and files can be created and removed.
func (f *Fault) FailVerb(verb string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.from, f.mu.until, f.mu.verb, f.mu.err = 0, math.MaxInt, verb, err
}

// FailNow makes every operation from the next one on fail with err until Heal.
func (f *Fault) FailNow(err error) { f.FailFrom(f.Count(), err) }

// Heal ends all failing.
func (f *Fault) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.from, f.mu.until = -1, 0
}

// Fired says whether an operation was made to fail.
func (f *Fault) Fired() bool { return f.Op() != "" }

// Op is the first operation that was made to fail, for example "sync a.log".
func (f *Fault) Op() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.op
}

// Count is the number of operations so far.
func (f *Fault) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.count
}

// Ops lists the operations so far, one line each, files by their last path element.
func (f *Fault) Ops() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.mu.ops...)
}

// step counts one operation and says whether it fails.
func (f *Fault) step(verb, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	op := verb + " " + filepath.Base(name)
	n := f.mu.count
	f.mu.count++
	f.mu.ops = append(f.mu.ops, op)
	if n < f.mu.from || n >= f.mu.until || f.mu.verb != "" && f.mu.verb != verb {
		return nil
	}
	if f.mu.op == "" {
		f.mu.op = op
	}

	return fail(verb, name, f.mu.err)
}

// OpenFile is listed as create, truncate or open, by what its flags ask for.
func (f *Fault) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	verb := "open"
	switch {
	case flag&os.O_CREATE != 0:
		verb = "create"
	case flag&os.O_TRUNC != 0:
		verb = "truncate"
	}

	if err := f.step(verb, name); err != nil {
		return nil, err
	}

	file, err := f.inner.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}

	return &faultFile{File: file, fault: f, name: name, reads: flag&(os.O_WRONLY|os.O_RDWR) == 0}, nil
}

// Rename is listed with both names.
func (f *Fault) Rename(oldName, newName string) error {
	if err := f.step("rename "+filepath.Base(oldName), newName); err != nil {
		return err
	}
	return f.inner.Rename(oldName, newName)
}

// Remove is listed as remove.
func (f *Fault) Remove(name string) error {
	if err := f.step("remove", name); err != nil {
		return err
	}
	return f.inner.Remove(name)
}

// MkdirAll is listed as mkdir.
func (f *Fault) MkdirAll(path string, perm fs.FileMode) error {
	if err := f.step("mkdir", path); err != nil {
		return err
	}
	return f.inner.MkdirAll(path, perm)
}

// ReadDir is listed as readdir.
func (f *Fault) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.step("readdir", name); err != nil {
		return nil, err
	}
	return f.inner.ReadDir(name)
}

// Lstat is listed as lstat.
func (f *Fault) Lstat(name string) (fs.FileInfo, error) {
	if err := f.step("lstat", name); err != nil {
		return nil, err
	}
	return f.inner.Lstat(name)
}

// SyncDir is listed as syncdir.
func (f *Fault) SyncDir(name string) error {
	if err := f.step("syncdir", name); err != nil {
		return err
	}
	return f.inner.SyncDir(name)
}

type faultFile struct {
	vfs.File
	fault *Fault
	name  string
	reads bool // and cannot write
}

func (f *faultFile) Read(p []byte) (int, error) {
	if err := f.fault.step("read", f.name); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fault.step("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultFile) Write(p []byte) (int, error) {
	if err := f.fault.step("write", f.name); err != nil {
		n, werr := f.File.Write(p[:len(p)/2])
		if werr != nil {
			err = fmt.Errorf("%w (and %w)", err, werr)
		}
		return n, err
	}
	return f.File.Write(p)
}

func (f *faultFile) Sync() error {
	if err := f.fault.step("sync", f.name); err != nil {
		if m, ok := f.File.(*memFile); ok {
			m.loseUnsynced()
		}
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.fault.step("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Stat() (fs.FileInfo, error) {
	if err := f.fault.step("stat", f.name); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

func (f *faultFile) Chmod(mode fs.FileMode) error {
	if err := f.fault.step("chmod", f.name); err != nil {
		return err
	}
	return f.File.Chmod(mode)
}

// Close closes the file even when it is made to fail: a descriptor whose close failed is gone.
func (f *faultFile) Close() error {
	if f.reads {
		return f.File.Close()
	}

	err := f.fault.step("close", f.name)
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}

	return err
}
