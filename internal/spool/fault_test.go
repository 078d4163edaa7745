package spool

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"belay/internal/vfs"
)

var errInjected = errors.New("injected")

// faultFS makes its k-th operation fail.
type faultFS struct {
	vfs.FS
	left  int
	fired string
}

func (f *faultFS) hit(op string) error {
	f.left--
	if f.left == -1 {
		f.fired = op
		return errInjected
	}
	return nil
}

func (f *faultFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if err := f.hit("open"); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{file, f}, nil
}

func (f *faultFS) Rename(a, b string) error {
	if err := f.hit("rename"); err != nil {
		return err
	}
	return f.FS.Rename(a, b)
}

func (f *faultFS) Remove(name string) error {
	if err := f.hit("remove"); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *faultFS) MkdirAll(path string, perm fs.FileMode) error {
	if err := f.hit("mkdir"); err != nil {
		return err
	}
	return f.FS.MkdirAll(path, perm)
}

func (f *faultFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.hit("readdir"); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(name)
}

func (f *faultFS) SyncDir(name string) error {
	if err := f.hit("syncdir"); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

type faultFile struct {
	vfs.File
	fs *faultFS
}

func (f *faultFile) Write(b []byte) (int, error) {
	if err := f.fs.hit("write"); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

func (f *faultFile) Read(b []byte) (int, error) {
	if err := f.fs.hit("read"); err != nil {
		return 0, err
	}
	return f.File.Read(b)
}

func (f *faultFile) Sync() error {
	if err := f.fs.hit("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestFaultAtEachOperation: whatever operation fails, the caller is told, and what is found later is whole.
func TestFaultAtEachOperation(t *testing.T) {
	ops := map[string]bool{}
	for k := 0; ; k++ {
		dir := t.TempDir()
		fsys := &faultFS{FS: vfs.OS{}, left: k}
		limits := Limits{Bytes: 2 * block, Age: time.Hour}
		written, lost := map[string]bool{}, 0
		var errs error
		for i, p := range []string{"one", "two", "three"} {
			n, err := Write(fsys, dir, limits, header(p), []byte(p), start.Add(time.Duration(i)*time.Second))
			errs = errors.Join(errs, err)
			lost += n
			written[p] = err == nil
		}
		got := map[string]int{}
		take := func(h, p []byte) error {
			if !bytes.Equal(h, header(string(p))) {
				t.Errorf("op %d (%s): header %s and payload %q are not of one event", k, fsys.fired, h, p)
			}
			got[string(p)]++
			return nil
		}
		_, err := Drain(context.Background(), fsys, dir, take)
		errs = errors.Join(errs, err)
		if fsys.fired != "" && !errors.Is(errs, errInjected) {
			t.Errorf("op %d (%s): fault swallowed: %v", k, fsys.fired, errs)
		}
		for range 2 { // what a fault left is taken by the next
			if _, err := Drain(context.Background(), vfs.OS{}, dir, take); err != nil {
				t.Errorf("op %d (%s): drain after the fault: %v", k, fsys.fired, err)
			}
		}
		missing := 0
		for p, ok := range written {
			if ok && got[p] == 0 {
				missing++
			}
		}
		if missing > lost {
			t.Errorf("op %d (%s): %d written events are gone, %d told", k, fsys.fired, missing, lost)
		}
		if fsys.fired == "" {
			if k < 20 || lost != 1 {
				t.Errorf("the sweep saw %d operations and %d losses; want over 20 and 1", k, lost)
			}
			break
		}
		ops[fsys.fired] = true
	}
	for _, op := range []string{"open", "write", "sync", "rename", "syncdir", "read", "readdir", "mkdir", "remove"} {
		if !ops[op] {
			t.Errorf("no fault at %q: the sweep misses it", op)
		}
	}
}

func FuzzName(f *testing.F) {
	f.Add("1775000000000-abc-1.0")
	f.Add(".1775000000000-abc.2" + vfs.TempSuffix)
	f.Add("dropped")
	f.Add("0000000000000-.99")
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := parseName(name)
		if ok && (got.name != name || got.at < 0 || got.tries < 0 || len(got.stem) < 14) {
			t.Errorf("%q: got %+v", name, got)
		}
	})
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("{\"v\":1}\npayload"))
	f.Add([]byte("\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		err := give(data, func(h, p []byte) error {
			if joined := append(append(bytes.Clone(h), '\n'), p...); !bytes.Equal(joined, data) {
				t.Errorf("file %q was given as %q and %q", data, h, p)
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrNoHeader) {
			t.Errorf("%q: %v", data, err)
		}
	})
}
