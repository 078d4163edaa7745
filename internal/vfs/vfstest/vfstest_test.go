package vfstest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"belay/internal/vfs"
)

const plain = os.O_WRONLY | os.O_CREATE

// write does what a test wants done to a file, and fails it otherwise.
func write(t *testing.T, fsys vfs.FS, name, data string, sync bool) {
	t.Helper()
	f, err := fsys.OpenFile(name, plain, vfs.FileMode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}

	if sync {
		if err = f.Sync(); err != nil {
			t.Fatal(err)
		}
	}

	if err = f.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(fsys vfs.FS, name string) string {
	data, err := vfs.ReadFile(fsys, name, 1<<20)
	if err != nil {
		return "error: " + class(err)
	}
	return string(data)
}

// class names an error as callers test for it.
func class(err error) string {
	for _, known := range []error{
		nil, fs.ErrNotExist, fs.ErrExist, fs.ErrClosed, io.EOF, syscall.ENOTDIR, syscall.EISDIR, syscall.EBADF,
		syscall.EINVAL,
	} {
		if errors.Is(err, known) {
			return fmt.Sprint(known)
		}
	}
	return "other: " + err.Error()
}

// TestMemIsLikeTheDisk runs one script on both file systems and compares all that a program can see.
func TestMemIsLikeTheDisk(t *testing.T) {
	got, want := script(NewMem(), "/state"), script(vfs.OS{}, filepath.Join(t.TempDir(), "state"))
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d: memory says %q, the disk %q", i, got[i], want[i])
		}
	}
}

func script(fsys vfs.FS, dir string) (out []string) {
	p := func(name string) string { return filepath.Join(dir, name) }
	say := func(what string, args ...any) {
		for i, a := range args {
			if err, ok := a.(error); ok || a == nil {
				args[i] = class(err)
			}
		}
		out = append(out, what+": "+fmt.Sprint(args...))
	}

	open := func(name string, flag int) vfs.File {
		f, err := fsys.OpenFile(p(name), flag, vfs.FileMode)
		say("open "+name, err)
		return f
	}

	open("a", plain) // no folder yet
	_, err := fsys.ReadDir(dir)
	say("readdir before", err)
	say("mkdir", fsys.MkdirAll(p("sub/deep"), vfs.DirMode))
	f := open("a", plain)
	n, err := f.Write([]byte("hello world"))
	say("write", n, err)
	pos, err := f.Seek(-5, io.SeekCurrent)
	say("seek", pos, err)
	n, err = f.Write([]byte("W"))
	say("overwrite", n, err)
	n, err = f.Read(make([]byte, 3))
	say("read of a write-only file", n, err)
	say("truncate up", f.Truncate(13))
	say("truncate down", f.Truncate(8))
	say("chmod", f.Chmod(0o640))
	say("sync, close", f.Sync(), f.Close())
	say("chmod of a closed file", f.Chmod(0o640))
	say("close twice", f.Close())
	say("content", read(fsys, p("a")))
	open("a", plain|os.O_EXCL)
	open("missing", os.O_RDONLY)
	open("sub", os.O_RDWR)
	open("a/b", plain)
	say("mkdir over a file", fsys.MkdirAll(p("a"), vfs.DirMode))
	f = open("a", os.O_RDWR|os.O_APPEND)
	n, err = f.Write([]byte("!"))
	say("append", n, err)
	buf := make([]byte, 20)
	n, err = f.ReadAt(buf, 6)
	say("read at", n, string(buf[:n]), err)
	n, err = f.ReadAt(buf, 100)
	say("read behind the end", n, err)
	_, err = f.Seek(-1, io.SeekStart)
	say("seek before the start", err)
	say("rename an open file", fsys.Rename(p("a"), p("sub/b")))
	n, err = f.Write([]byte("?"))
	say("write after rename", n, err, f.Close())
	say("content", read(fsys, p("sub/b")))
	say("rename of nothing", fsys.Rename(p("a"), p("c")))
	say("rename a folder", fsys.Rename(p("sub"), p("dir")))
	say("content", read(fsys, p("dir/b")))
	say("rename a folder over a file", fsys.Rename(p("dir/deep"), p("dir/b")))
	f = open("dir/b", os.O_WRONLY|os.O_TRUNC)
	say("close", f.Close())
	info, err := fsys.Lstat(p("dir/b"))
	say("lstat", info.Name(), info.Size(), info.Mode(), info.IsDir(), err)
	info, err = fsys.Lstat(p("dir/deep"))
	say("lstat of a folder", info.Name(), info.Mode(), info.IsDir(), err)
	_, err = fsys.Lstat(p("a"))
	say("lstat of nothing", err)
	entries, err := fsys.ReadDir(p("dir"))
	for _, e := range entries {
		say("entry", e.Name(), e.IsDir())
	}

	say("readdir", err, len(entries))
	say("remove a file", fsys.Remove(p("dir/b")))
	say("again", fsys.Remove(p("dir/b")))
	say("remove a folder", fsys.Remove(p("dir/deep")))
	say("sync a folder, and one that is not there", fsys.SyncDir(p("dir")), fsys.SyncDir(p("sub")))
	return out
}

// TestCrashClone states what a power cut may leave, over many seeds: always one of want, and each of them at some time.
func TestCrashClone(t *testing.T) {
	tests := []struct {
		name string
		do   func(t *testing.T, m *Mem)
		want []string // contents of /d/f
	}{
		{"synced, name too", func(t *testing.T, m *Mem) {
			write(t, m, "/d/f", "new", true)
			m.SyncDir("/d")
		}, []string{"new"}},
		{
			"synced, name not",
			func(t *testing.T, m *Mem) { write(t, m, "/d/f", "new", true) },
			[]string{"new", "error: file does not exist"},
		},
		{"not synced", func(t *testing.T, m *Mem) {
			write(t, m, "/d/f", "new", false)
			m.SyncDir("/d")
		}, []string{"", "n", "ne", "new", "\x00\x00\x00"}},
		{"overwritten", func(t *testing.T, m *Mem) {
			write(t, m, "/d/f", "old", true)
			m.SyncDir("/d")
			write(t, m, "/d/f", "NEW", false)
		}, []string{"old", "Nld", "NEd", "NEW"}},
		{"removed", func(t *testing.T, m *Mem) {
			write(t, m, "/d/f", "old", true)
			m.SyncDir("/d")
			m.Remove("/d/f")
		}, []string{"old", "error: file does not exist"}},
		{"replaced", func(t *testing.T, m *Mem) {
			write(t, m, "/d/f", "old", true)
			m.SyncDir("/d")
			vfs.Replace(m, "/d/f", []byte("new"))
		}, []string{"new"}},
		{"renamed without a sync of the folder", func(t *testing.T, m *Mem) {
			write(t, m, "/d/f", "old", true)
			m.SyncDir("/d")
			write(t, m, "/d/g", "new", true)
			m.Rename("/d/g", "/d/f")
		}, []string{"old", "new"}},
		{"in a folder whose name was not synced", func(t *testing.T, m *Mem) {
			m.MkdirAll("/d/sub", vfs.DirMode)
			write(t, m, "/d/sub/f", "new", true)
			m.SyncDir("/d/sub")
			m.Rename("/d/sub/f", "/d/f")
			m.SyncDir("/d/sub")
		}, []string{"new", "error: file does not exist"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMem()
			m.MkdirAll("/d", vfs.DirMode)
			m.SyncDir("/")
			tt.do(t, m)
			before := m.String()
			seen := map[string]bool{}
			for seed := range uint64(200) {
				got := read(m.CrashClone(seed), "/d/f")
				if again := read(m.CrashClone(seed), "/d/f"); again != got {
					t.Fatalf("seed %d gives %q, then %q", seed, got, again)
				}
				seen[got] = true
			}

			for _, want := range tt.want {
				if !seen[want] {
					t.Errorf("%q never came", want)
				}
				delete(seen, want)
			}

			if len(seen) > 0 {
				t.Errorf("came and must not: %q", slices.Sorted(maps.Keys(seen)))
			}
			if after := m.String(); after != before {
				t.Errorf("the original changed from %q to %q", before, after)
			}
		})
	}
}

// TestCrashCloneMovesWhole: a file that was renamed is there after a power cut, under its old name or its new one.
func TestCrashCloneMovesWhole(t *testing.T) {
	m := NewMem()
	m.MkdirAll("/d", vfs.DirMode)
	m.SyncDir("/")
	write(t, m, "/d/f", "moved", true)
	m.SyncDir("/d")
	m.Rename("/d/f", "/d/g")
	seen := map[string]int{}
	for seed := range uint64(100) {
		c := m.CrashClone(seed)
		seen[read(c, "/d/f")+", "+read(c, "/d/g")]++
	}

	const none = "error: file does not exist"
	for _, want := range []string{"moved, " + none, none + ", moved"} {
		if seen[want] == 0 {
			t.Errorf("%q never came", want)
		}
	}

	if seen[none+", "+none] > 0 {
		t.Errorf("the file was gone %d times of 100: %v", seen[none+", "+none], seen)
	}
}

func TestFaultFailsTheKthOperation(t *testing.T) {
	lines := "create .f.belay-tmp, chmod .f.belay-tmp, write .f.belay-tmp, sync .f.belay-tmp, close .f.belay-tmp, rename .f.belay-tmp f, syncdir d"
	for k, op := range strings.Split(lines, ", ") {
		m := NewMem()
		m.MkdirAll("/d", vfs.DirMode)
		write(t, m, "/d/f", "old", true)
		f := NewFault(m, k, syscall.EDQUOT)
		err := vfs.Replace(f, "/d/f", []byte("new"))
		if !errors.Is(err, syscall.EDQUOT) || f.Op() != op {
			t.Errorf("operation %d: got %v at %q, want EDQUOT at %q", k, err, f.Op(), op)
		}
		if got := read(m, "/d/f"); got != "old" && op != "syncdir d" {
			t.Errorf("operation %d (%s): the file holds %q, want the old one", k, op, got)
		}
	}

	f := NewFault(NewMem(), -1, syscall.EIO)
	f.MkdirAll("/d", vfs.DirMode)
	if err := vfs.Replace(f, "/d/f", nil); err != nil || f.Fired() {
		t.Errorf("without a fault: %v, fired %v", err, f.Fired())
	}
	if got := strings.Join(f.Ops()[1:], ", "); got != lines {
		t.Errorf("operations %q, want %q", got, lines)
	}
}

func TestFaultUntilHealed(t *testing.T) {
	f := NewFault(NewMem(), -1, nil)
	f.FailNow(syscall.EROFS)
	for range 3 {
		if err := f.MkdirAll("/d", vfs.DirMode); !errors.Is(err, syscall.EROFS) {
			t.Errorf("got %v, want EROFS", err)
		}
	}

	f.Heal()
	if err := f.MkdirAll("/d", vfs.DirMode); err != nil || !f.Fired() {
		t.Errorf("after healing: %v, fired %v", err, f.Fired())
	}
}

func TestFaultWriteIsShort(t *testing.T) {
	m := NewMem()
	f := NewFault(m, 1, io.ErrShortWrite)
	file, err := f.OpenFile("/f", plain, vfs.FileMode)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := file.Write([]byte("abcd")); n != 2 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %d, %v, want 2 and a short write", n, err)
	}
	if got := read(m, "/f"); got != "ab" {
		t.Errorf("the file holds %q, want %q", got, "ab")
	}
}

// TestFaultSyncLosesBytes: who syncs once more after a failed sync has nothing.
func TestFaultSyncLosesBytes(t *testing.T) {
	m := NewMem()
	f := NewFault(m, 2, syscall.EIO)
	file, err := f.OpenFile("/f", plain, vfs.FileMode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte("abcd")); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("first sync: %v, want EIO", err)
	}
	if err := file.Sync(); err != nil {
		t.Errorf("second sync: %v", err)
	}

	m.SyncDir("/")
	if got := read(m, "/f"); got != "abcd" {
		t.Errorf("programs read %q, want all", got)
	}
	if got := read(m.CrashClone(1), "/f"); got != "" {
		t.Errorf("after power loss %q, want nothing", got)
	}
}
