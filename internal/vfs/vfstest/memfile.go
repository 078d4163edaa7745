package vfstest

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// memFile is an open file of a Mem. Its position is guarded by the Mem's lock like all else.
type memFile struct {
	m      *Mem
	n      *node
	name   string
	flag   int
	pos    int64
	closed bool
}

// usable is called under the lock.
func (f *memFile) usable(op string, writes bool) error {
	access := f.flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
	switch {
	case f.closed:
		return fail(op, f.name, fs.ErrClosed)
	case f.n.dir:
		return fail(op, f.name, syscall.EISDIR)
	case writes && access == os.O_RDONLY, !writes && access == os.O_WRONLY:
		return fail(op, f.name, syscall.EBADF)
	}

	return nil
}

func (f *memFile) Read(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n, err := f.read(p, f.pos)
	f.pos += int64(n)
	return n, err
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n, err := f.read(p, off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

func (f *memFile) read(p []byte, off int64) (int, error) {
	if err := f.usable("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fail("read", f.name, syscall.EINVAL)
	}
	if len(p) > 0 && off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}

	return copy(p, f.n.data[min(off, int64(len(f.n.data))):]), nil
}

func (f *memFile) Write(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.usable("write", true); err != nil {
		return 0, err
	}
	if f.flag&os.O_APPEND != 0 {
		f.pos = int64(len(f.n.data))
	}
	if len(p) > 0 {
		f.n.change(change{f.pos, append([]byte(nil), p...)})
		f.pos += int64(len(p))
	}

	return len(p), nil
}

func (f *memFile) Seek(offset int64, whence int) (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, fail("seek", f.name, fs.ErrClosed)
	}

	switch whence {
	case io.SeekCurrent:
		offset += f.pos
	case io.SeekEnd:
		offset += int64(len(f.n.data))
	}

	if offset < 0 {
		return 0, fail("seek", f.name, syscall.EINVAL)
	}

	f.pos = offset
	return offset, nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fail("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fail("sync", f.name, fs.ErrClosed)
	}

	for _, c := range f.n.todo {
		f.n.stable = c.apply(f.n.stable)
	}

	f.n.todo = nil
	return nil
}

// loseUnsynced is what a kernel may do when a sync fails: programs still read the bytes, but no later sync writes them.
func (f *memFile) loseUnsynced() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.todo = nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.usable("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return fail("truncate", f.name, syscall.EINVAL)
	}

	f.n.change(change{off: size})
	return nil
}

// Chmod is kept at once, like a name after SyncDir: no promise of belay's hangs on a mode after a power cut.
func (f *memFile) Chmod(mode fs.FileMode) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fail("chmod", f.name, fs.ErrClosed)
	}
	f.n.mode = f.n.mode&^fs.ModePerm | mode.Perm()
	return nil
}

func (f *memFile) Stat() (fs.FileInfo, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return nil, fail("stat", f.name, fs.ErrClosed)
	}
	return f.n.info(f.name), nil
}

func (n *node) info(name string) memInfo {
	return memInfo{name: filepath.Base(name), size: int64(len(n.data)), mode: n.mode, mod: n.mod}
}

type memInfo struct {
	name string
	size int64
	mode fs.FileMode
	mod  time.Time
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return i.mod }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memInfo) Sys() any           { return nil }
