package mirror

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// An exact mirror gives every byte back and holds none of them as they are, whatever happens to it.
func TestExactHoldsSecretsUnreadable(t *testing.T) {
	const secret = "correct-horse-4711"
	text := func(from, n int) string {
		return strings.ReplaceAll(lines(from, n, 80), "word", secret+"-")
	}
	r := newRig(t, Options{Key: testKey(), FirstSight: 16 << 10, Budget: 20 << 10})
	r.write(text(0, 300))
	r.sync()
	want := text(0, 300)
	for i := range 40 {
		r.append(text(300+i, 1))
		r.sync()
		want += text(300+i, 1)
	}

	if err := r.m.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}

	r.holds(want)
	r.reopen()
	r.append(text(340, 1))
	r.sync()
	r.holds(want + text(340, 1))
	entries, err := os.ReadDir(r.dir)
	if err != nil || len(entries) == 0 {
		t.Fatalf("list %s: %d entries, %v", r.dir, len(entries), err)
	}

	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(secret)) || bytes.Contains(data, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
			t.Errorf("%s holds what was to be encrypted", e.Name())
		}
	}

	if err := Check(r.fsys, r.file()); err != nil {
		t.Errorf("check: %v", err)
	}
}

func TestExactWithoutItsKey(t *testing.T) {
	r := newRig(t, Options{Key: testKey()})
	r.write(lines(0, 5, 80))
	r.sync()
	other, err := MakeKey(vfstest.NewMem(), "/keys")
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		key  *Key
		want error
	}{{nil, ErrNoKey}, {other, ErrWrongKey}} {
		rc, err := Lines(r.fsys, r.file(), c.key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(rc); !errors.Is(err, c.want) || len(got) > 0 {
			t.Errorf("got %d bytes, %v; want none, %v", len(got), err, c.want)
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
	}

	// With another key the mirror begins anew, and the old copy waits for its own.
	r.opt.Key = other
	r.reopen()
	r.append(lines(5, 1, 80))
	r.sync()
	gens, err := Generations(r.fsys, r.dir)
	if err != nil || len(gens) != 2 || !gens[0].Exact() {
		t.Fatalf("got %+v, %v; want the mirror and one older copy", gens, err)
	}

	for i, want := range []struct {
		key  *Key
		text string
	}{{other, lines(0, 6, 80)}, {testKey(), lines(0, 5, 80)}} {
		rc, err := Lines(r.fsys, gens[i].Path, want.key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(rc); err != nil || string(got) != want.text {
			t.Errorf("copy %d holds %s, %v; want %s", gens[i].Number, brief(string(got)), err, brief(want.text))
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Both kinds of mirror may lie in one folder: the setting was changed, and neither takes the other for its own.
func TestExactBesideRedacted(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 5, 80))
	r.sync()
	r.opt.Key = testKey()
	r.reopen()
	r.sync()
	for _, name := range []string{FileName, ExactName} {
		if got := readAll(t, r.fsys, filepath.Join(r.dir, name)); got != lines(0, 5, 80) {
			t.Errorf("%s holds %s", name, brief(got))
		}
	}
}

func TestKeyMustBeSafe(t *testing.T) {
	made := func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "keys")
		if _, err := MakeKey(vfs.OS{}, dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}

	path := func(dir string) string { return filepath.Join(dir, keyName) }
	for _, c := range []struct {
		name  string
		spoil func(dir string) error
		want  error
	}{
		{"as it was made", func(string) error { return nil }, nil},
		{"file open to others", func(dir string) error { return os.Chmod(path(dir), 0o640) }, ErrUnsafeKey},
		{"folder open to others", func(dir string) error { return os.Chmod(dir, 0o755) }, ErrUnsafeKey},
		{"file is a link", func(dir string) error {
			return errors.Join(os.Rename(path(dir), dir+".moved"), os.Symlink(dir+".moved", path(dir)))
		}, ErrUnsafeKey},
		{"folder is a link", func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".moved"), os.Symlink(dir+".moved", dir))
		}, ErrUnsafeKey},
		{"second name", func(dir string) error { return os.Link(path(dir), dir+".copy") }, ErrUnsafeKey},
		{"a folder in its place", func(dir string) error {
			return errors.Join(os.Remove(path(dir)), os.Mkdir(path(dir), 0o700))
		}, ErrUnsafeKey},
		{"torn", func(dir string) error { return os.Truncate(path(dir), 120) }, ErrUnsafeKey},
		{"empty", func(dir string) error { return os.Truncate(path(dir), 0) }, ErrUnsafeKey},
		{"gone", func(dir string) error { return os.Remove(path(dir)) }, ErrNoKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := made(t)
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}

			_, err := ReadKey(vfs.OS{}, dir)
			if !errors.Is(err, c.want) {
				t.Errorf("read: got %v, want %v", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "AGE-SECRET-KEY-") {
				t.Errorf("the error shows the key: %v", err)
			}
			if _, err := MakeKey(vfs.OS{}, dir); errors.Is(c.want, ErrUnsafeKey) && !errors.Is(err, ErrUnsafeKey) {
				t.Errorf("make: got %v, want %v", err, c.want)
			}
		})
	}
}

func TestKeyIsClosedWhateverTheUmask(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "keys")
	if _, err := MakeKey(vfs.OS{}, dir); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, keyName): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: got mode %04o, want %04o", path, got, want)
		}
	}

	a, err := MakeKey(vfs.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := ReadKey(vfs.OS{}, dir); err != nil || b.identity.String() != a.identity.String() {
		t.Errorf("another key the second time: %v", err)
	}
}

// Whatever operation fails, a key that was given is on stable storage, and a failed making leaves nothing in the way.
func TestKeyAtEveryFault(t *testing.T) {
	for k := 0; ; k++ {
		mem := vfstest.NewMem()
		fault := vfstest.NewFault(mem, k, errors.New("injected"))
		key, err := MakeKey(fault, "/c/keys")
		if err == nil {
			after := mem.CrashClone(uint64(k))
			if got, err := ReadKey(after, "/c/keys"); err != nil || got.identity.String() != key.identity.String() {
				t.Errorf("op %d (%s): after a power cut the key is not there: %v", k, fault.Op(), err)
			}
		} else if again, err := MakeKey(mem, "/c/keys"); err != nil || again == nil {
			t.Errorf("op %d (%s): make it again: %v", k, fault.Op(), err)
		}

		if !fault.Fired() {
			break
		}
	}
}

func BenchmarkMirrorExact(b *testing.B) { benchMirrorWith(b, made(), testKey()) }

// BenchmarkExactOverhead tells what a batch of a few lines costs beside one that is not encrypted.
func BenchmarkExactOverhead(b *testing.B) {
	line := []byte(lines(0, 3, 300))
	plain, err := Options{Codec: codec()}.pack(nil, line)
	if err != nil {
		b.Fatal(err)
	}

	var out []byte
	for b.Loop() {
		if out, err = (Options{Codec: codec(), Key: testKey()}).pack(out[:0], line); err != nil {
			b.Fatal(err)
		}
	}

	b.ReportMetric(float64(len(out)-len(plain)), "bytes/batch")
}
