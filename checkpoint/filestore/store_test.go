package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/checkpoint/storetest"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) checkpoint.Store { return Open(vfs.OS{}, t.TempDir()) })
}

func meta(n uint64, level checkpoint.Level) checkpoint.Meta {
	return checkpoint.Meta{Number: n, Level: level, At: time.Now()}
}

func mustPut(t *testing.T, s *Store, k checkpoint.Key, n uint64, level checkpoint.Level, data string) {
	t.Helper()
	if err := s.Put(t.Context(), k, meta(n, level), []byte(data)); err != nil {
		t.Fatalf("put %d: %v", n, err)
	}
}

func numbers(t *testing.T, s *Store, k checkpoint.Key) []uint64 {
	t.Helper()
	list, err := s.List(t.Context(), k)
	if err != nil {
		t.Fatalf("list: %v", err)
	}

	var out []uint64
	for _, m := range list {
		out = append(out, m.Number)
	}

	return out
}

var testKey = checkpoint.Key{Agent: "agent", Session: "s-1"}

func TestLayoutIsPrivate(t *testing.T) {
	root := filepath.Join(t.TempDir(), "state", "belay")
	s := Open(vfs.OS{}, root)
	mustPut(t, s, testKey, 42, checkpoint.Full, "text")
	mustPut(t, s, testKey, 1234567, checkpoint.Sparse, "text")
	if err := s.Probe(t.Context(), 100); err != nil {
		t.Fatalf("probe: %v", err)
	}

	var got []string
	err := filepath.WalkDir(filepath.Dir(root), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		rel, err := filepath.Rel(root, path)
		got = append(got, fmt.Sprintf("%s %s", info.Mode(), rel))
		return err
	})

	want := []string{
		"drwx------ ..",
		"drwx------ .",
		"drwx------ sessions",
		"drwx------ sessions/agent",
		"drwx------ sessions/agent/s-1",
		"drwx------ sessions/agent/s-1/checkpoints",
		"-rw------- sessions/agent/s-1/checkpoints/000042-full.md",
		"-rw------- sessions/agent/s-1/checkpoints/1234567-sparse.md",
	}

	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestForeignNamesAreIgnored(t *testing.T) {
	root := t.TempDir()
	s := Open(vfs.OS{}, root)
	mustPut(t, s, testKey, 1, checkpoint.Full, "text")
	dir := s.path(elements(testKey))
	foreign := []string{
		"000002-full.md~",
		"000002-FULL.md",
		"2-full.md",
		"0000002-full.md",
		"000000-full.md",
		"-00002-full.md",
		"+00002-full.md",
		"000002-half.md",
		"000002.md",
		"notes.txt",
		"99999999999999999999999-full.md",
		".000002-full.md",
	}

	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range []string{"000003-full.md", filepath.Join("..", "..", "empty"), filepath.Join("..", "..", "..", "x", "checkpoints")} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(filepath.Join(root, "sessions", "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	mustPut(t, s, testKey, 2, checkpoint.Full, "text")
	if got, want := numbers(t, s, testKey), []uint64{2, 1}; !slices.Equal(got, want) {
		t.Errorf("list: got %v, want %v", got, want)
	}
	if got, err := s.Sessions(t.Context()); err != nil || !slices.Equal(got, []string{testKey.Dir()}) {
		t.Errorf("sessions: got %q, %v, want %q", got, err, testKey.Dir())
	}

	for _, name := range foreign {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != "mine" {
			t.Errorf("%s was touched: %q, %v", name, got, err)
		}
	}
}

func TestG01FullDiskKeepsTheLastGoodOne(t *testing.T) {
	fault := vfstest.NewFault(vfstest.NewMem(), -1, nil)
	s := Open(fault, "/state")
	mustPut(t, s, testKey, 1, checkpoint.Full, "good")
	fault.FailNow(syscall.ENOSPC)
	if err := s.Put(t.Context(), testKey, meta(2, checkpoint.Full), []byte("lost")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("put on a full disk: got %v, want ENOSPC", err)
	}
	if err := s.Probe(t.Context(), 100); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("probe of a full disk: got %v, want ENOSPC", err)
	}

	fault.Heal()
	if data, err := s.Get(t.Context(), testKey, 1); err != nil || string(data) != "good" {
		t.Errorf("get: got %q, %v, want %q", data, err, "good")
	}

	mustPut(t, s, testKey, 2, checkpoint.Full, "again")
	if got, want := numbers(t, s, testKey), []uint64{2, 1}; !slices.Equal(got, want) {
		t.Errorf("list: got %v, want %v", got, want)
	}
}

func TestG01ZeroByteFileIsSeenAsSuch(t *testing.T) {
	s := Open(vfs.OS{}, t.TempDir())
	mustPut(t, s, testKey, 1, checkpoint.Full, "good")
	if err := os.WriteFile(
		filepath.Join(s.path(elements(testKey)), fileName(2, checkpoint.Full)), nil, 0o600,
	); err != nil {
		t.Fatal(err)
	}

	list, err := s.List(t.Context(), testKey)
	if err != nil || len(list) != 2 || list[0].Bytes != 0 || list[1].Bytes != 4 {
		t.Errorf("list: got %+v, %v, want number 2 with 0 bytes and number 1 with 4", list, err)
	}
	if data, err := s.Get(t.Context(), testKey, 2); err != nil || len(data) != 0 {
		t.Errorf("get the empty one: got %q, %v", data, err)
	}
}

// A Put whose last step failed leaves its number free: the daemon tries the same one again.
func TestPutAgainAfterFailedFolderSync(t *testing.T) {
	mem := vfstest.NewMem()
	watched := vfstest.NewFault(mem, -1, nil)
	s := Open(watched, "/state")
	mustPut(t, s, testKey, 1, checkpoint.Full, "one")
	before := watched.Count()
	mustPut(t, s, testKey, 2, checkpoint.Full, "two")
	ops := watched.Ops()[before:]
	last := len(ops) - 1
	if ops[last] != "syncdir checkpoints" {
		t.Fatalf("the last operation of Put is %q, want the folder's sync", ops[last])
	}

	s.fsys = vfstest.NewFault(mem, last, syscall.EIO)
	if err := s.Put(t.Context(), testKey, meta(3, checkpoint.Full), []byte("3")); !errors.Is(err, syscall.EIO) {
		t.Fatalf("put with a failing folder sync: got %v, want EIO", err)
	}

	mustPut(t, s, testKey, 3, checkpoint.Full, "three")
	if data, err := s.Get(t.Context(), testKey, 3); err != nil || string(data) != "three" {
		t.Errorf("get: got %q, %v, want %q", data, err, "three")
	}
}

// The folder of a session that somebody removed is made again, durably.
func TestRemovedFolderIsMadeAgain(t *testing.T) {
	mem := vfstest.NewMem()
	s := Open(mem, "/state")
	mustPut(t, s, testKey, 1, checkpoint.Full, "one")
	dir := s.path(elements(testKey))
	for _, name := range []string{filepath.Join(dir, fileName(1, checkpoint.Full)), dir, filepath.Dir(dir)} {
		if err := mem.Remove(name); err != nil {
			t.Fatal(err)
		}
		if err := mem.SyncDir(filepath.Dir(name)); err != nil {
			t.Fatal(err)
		}
	}

	mustPut(t, s, testKey, 2, checkpoint.Full, "two")
	for seed := range uint64(20) {
		left := Open(mem.CrashClone(seed), "/state")
		if got, want := numbers(t, left, testKey), []uint64{2}; !slices.Equal(got, want) {
			t.Fatalf("after a power cut (seed %d): got %v, want %v", seed, got, want)
		}
	}
}

func TestGetIsBounded(t *testing.T) {
	s := Open(vfs.OS{}, t.TempDir())
	mustPut(t, s, testKey, 1, checkpoint.Full, "x")
	if err := os.Truncate(
		filepath.Join(s.path(elements(testKey)), fileName(1, checkpoint.Full)), checkpoint.MaxSize+1,
	); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Get(t.Context(), testKey, 1); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("get of a file over %d bytes: got %v, want ErrDamaged", checkpoint.MaxSize, err)
	}

	if err := s.Put(
		t.Context(), testKey, meta(2, checkpoint.Full), make([]byte, checkpoint.MaxSize+1),
	); !errors.Is(
		err, fs.ErrInvalid,
	) {
		t.Errorf("put of more than %d bytes: got %v, want fs.ErrInvalid", checkpoint.MaxSize, err)
	}
}

func FuzzParseName(f *testing.F) {
	for _, name := range []string{
		"000042-full.md", "1234567-sparse.md", "0000001-full.md", "18446744073709551615-full.md", "-", "",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		n, level, ok := ParseName(name)
		if ok && (n == 0 || fileName(n, level) != name) {
			t.Errorf("read %q as %d %s, which is written %q", name, n, level, fileName(n, level))
		}
	})
}

// tight is a disk with a mount below a folder in which only so many bytes fit into a file.
type tight struct {
	vfs.FS
	below string
	room  int
}

func (d tight) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := d.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.HasPrefix(name, d.below) {
		return f, err
	}
	return tightFile{f, d.room}, nil
}

type tightFile struct {
	vfs.File
	room int
}

func (f tightFile) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}

// A probe writes where checkpoints go, and as much as it is asked to.
func TestProbeMeetsWhatAWriteMeets(t *testing.T) {
	const sessions = "/state/sessions/"
	for name, tt := range map[string]struct {
		below string
		room  int
		size  int
		want  error
	}{
		"a full mount of all sessions": {sessions, 0, 0, syscall.ENOSPC},
		"a nearly full disk":           {"/", 100, 5000, syscall.ENOSPC},
		"room for exactly so much":     {sessions, 5000, 5000, nil},
		"a full mount of other things": {"/state/journal/", 0, 5000, nil},
		"the full folder of one agent": {sessions + "agent/", 0, 5000, nil},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfstest.NewMem()
			s := Open(tight{mem, tt.below, tt.room}, "/state")
			if err := s.Probe(t.Context(), tt.size); !errors.Is(err, tt.want) {
				t.Errorf("probe of %d bytes: got %v, want %v", tt.size, err, tt.want)
			}
			if left, err := mem.ReadDir(sessions); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
