package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"belay/internal/redact"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a source file on disk and a mirror of it.
type rig struct {
	t    *testing.T
	src  string
	dir  string
	fsys vfs.FS
	opt  Options
	m    *Mirror
}

// codec is shared by all tests, as it is by all mirrors of a daemon: making one costs more than most tests.
var codec = sync.OnceValue(func() *Codec {
	c, err := NewCodec()
	if err != nil {
		panic(err)
	}
	return c
})

// testKey is the key of all tests of exact mirrors; a reader of other mirrors needs none and minds none.
var testKey = sync.OnceValue(func() *Key {
	k, err := MakeKey(vfstest.NewMem(), "/keys")
	if err != nil {
		panic(err)
	}
	return k
})

// bothKinds runs a test with a mirror without secrets and with an exact one.
func bothKinds(t *testing.T, test func(t *testing.T, key *Key)) {
	t.Run("redacted", func(t *testing.T) { test(t, nil) })
	t.Run("exact", func(t *testing.T) { test(t, testKey()) })
}

func newRig(t *testing.T, opt Options) *rig {
	t.Helper()
	tmp := t.TempDir()
	r := &rig{
		t:    t,
		src:  filepath.Join(tmp, "agent", "s.jsonl"),
		dir:  filepath.Join(tmp, "session"),
		fsys: vfs.OS{},
		opt:  opt,
	}

	if err := os.MkdirAll(filepath.Dir(r.src), 0o700); err != nil {
		t.Fatal(err)
	}

	r.open()
	t.Cleanup(func() {
		if err := r.m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})

	return r
}

func (r *rig) open() {
	r.t.Helper()
	r.opt.Codec = codec()
	m, err := Open(r.fsys, r.dir, r.opt)
	if err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.m = m
}

func (r *rig) reopen() {
	r.t.Helper()
	if err := r.m.Close(); err != nil {
		r.t.Fatalf("close: %v", err)
	}
	r.open()
}

// write replaces the source's bytes in place.
func (r *rig) write(data string) {
	r.t.Helper()
	if err := os.WriteFile(r.src, []byte(data), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) append(data string) {
	r.t.Helper()
	f, err := os.OpenFile(r.src, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := f.WriteString(data); err != nil {
		r.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// rename puts a new file in the source's place.
func (r *rig) rename(data string) {
	r.t.Helper()
	if err := os.WriteFile(r.src+".new", []byte(data), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.src+".new", r.src); err != nil {
		r.t.Fatal(err)
	}
}

// sync calls Sync until nothing is left.
func (r *rig) sync() Progress {
	r.t.Helper()
	for range 10_000 {
		p, err := r.m.Sync(context.Background(), r.src)
		if err != nil {
			r.t.Fatalf("sync: %v", err)
		}
		if p.Done {
			return p
		}
	}

	r.t.Fatal("sync never ends")
	return Progress{}
}

func readAll(t *testing.T, fsys vfs.FS, path string) string {
	t.Helper()
	got, err := tryRead(fsys, path)
	if err != nil {
		t.Fatalf("read mirror: %v", err)
	}
	return got
}

func tryRead(fsys vfs.FS, path string) (string, error) {
	rc, err := Lines(fsys, path, testKey())
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(rc)
	return string(data), errors.Join(err, rc.Close())
}

func (r *rig) file() string { return r.opt.Key.file(r.dir) }

// holds compares the mirror's lines, read by our reader and by zstd where that is.
func (r *rig) holds(want string) {
	r.t.Helper()
	if got := readAll(r.t, r.fsys, r.file()); got != want {
		r.t.Errorf("mirror holds %s, want %s", brief(got), brief(want))
	}
	if _, err := exec.LookPath("zstd"); err != nil || r.opt.Key != nil {
		return // TestZstdcat says so
	}

	out, err := exec.Command("zstd", "-dcq", r.file()).Output()
	if err != nil || string(out) != want {
		r.t.Errorf("zstd -dc gives %s, %v; want %s", brief(string(out)), err, brief(want))
	}
}

func brief(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%d bytes %q...%q", len(s), s[:100], s[len(s)-60:])
	}
	return fmt.Sprintf("%q", s)
}

func caseFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// lines makes n records of about size bytes.
func lines(from, n, size int) string {
	var b strings.Builder
	for i := from; i < from+n; i++ {
		fmt.Fprintf(
			&b, `{"type":"user","n":%d,"text":"%s"}`+"\n", i,
			strings.Repeat(fmt.Sprintf("word%d ", i%97), size/7),
		)
	}

	return b.String()
}

func TestOnlyWholeLines(t *testing.T) {
	r := newRig(t, Options{})
	r.write(`{"a":1`)
	if p := r.sync(); p.Behind != 6 {
		t.Errorf("half a line: got %d bytes behind, want 6", p.Behind)
	}
	if _, err := os.Stat(r.file()); err == nil {
		t.Error("a mirror was made of half a line")
	}

	r.append(",\"b\":2}\n{\"c\"")
	r.sync()
	r.holds("{\"a\":1,\"b\":2}\n")
	r.append(":3}\n")
	if p := r.sync(); p.Behind != 0 {
		t.Errorf("got %d bytes behind, want 0", p.Behind)
	}

	r.holds("{\"a\":1,\"b\":2}\n{\"c\":3}\n")
	if st := r.m.Status(); st.Lines != 2 || st.MirroredBytes != 22 || st.SourceBytes != 22 || st.State != Following {
		t.Errorf("got status %+v, want 2 lines and 22 of 22 bytes", st)
	}
}

func TestGrowthByHalfLines(t *testing.T) {
	r := newRig(t, Options{})
	text := lines(0, 40, 60)
	for i := 0; i < len(text); i += 13 {
		r.append(text[i:min(len(text), i+13)])
		r.sync()
		if i%5 == 0 {
			r.reopen()
		}
	}

	r.holds(text)
}

func TestGoesOnAfterRestart(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 10, 100))
	r.sync()
	r.reopen()
	if p := r.sync(); p.Copied != 0 || p.Generations != 0 {
		t.Errorf("after a restart: got %+v, want nothing copied", p)
	}

	r.append(lines(10, 10, 100))
	r.sync()
	r.holds(lines(0, 20, 100))
}

func TestBoundedPerCall(t *testing.T) {
	r := newRig(t, Options{Budget: 1 << 20, FirstSight: 1 << 30})
	r.write(lines(0, 5000, 1000))
	p, err := r.m.Sync(context.Background(), r.src)
	if err != nil || p.Done || p.Copied > 2<<20 || p.Copied == 0 || p.Behind == 0 {
		t.Errorf("got %+v, %v; want about 1 MB copied, some behind, not done", p, err)
	}

	r.sync()
	r.holds(lines(0, 5000, 1000))
}

func TestCancelled(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 10, 100))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.m.Sync(ctx, r.src); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}

	r.sync()
	r.holds(lines(0, 10, 100))
}

func TestLongLines(t *testing.T) {
	if testing.Short() {
		t.Skip("64 MB of input: run without -short")
	}

	r := newRig(t, Options{})
	long := `{"text":"` + strings.Repeat("0123456789abcde ", 4<<20) + `"}` + "\n"
	r.write(lines(0, 3, 100) + long + lines(3, 3, 100))
	r.sync()
	r.holds(lines(0, 3, 100) + long + lines(3, 3, 100))
}

func TestOversizedLine(t *testing.T) {
	r := newRig(t, Options{MaxLine: 2 << 20})
	long := strings.Repeat("x", 3<<20) + "\n"
	r.write(lines(0, 3, 100) + long + lines(3, 3, 100))
	r.sync()
	r.holds(
		lines(
			0, 3, 100,
		) + fmt.Sprintf(
			"{\"belay\":\"a line of %d bytes was left out of the mirror\"}\n", len(long),
		) + lines(
			3, 3, 100,
		),
	)

	if got := r.m.Status().Oversized; got != 1 {
		t.Errorf("got %d oversized lines, want 1", got)
	}
}

func TestX01X02NeverInMirror(t *testing.T) {
	r := newRig(t, Options{})
	secrets := []string{
		"sb_secret_probe_example_0000_abcd_efgh",
		"tok_live_EXAMPLE0EXAMPLE0EXAMPLE0",
		"eyJEXAMPLE0",
		"AKIAIOSFODNN7EXAMPLE",
		"xk-EXAMPLE0",
		"correct horse",
		"RVhBTVBMRQ",
		"EXAMPLE-pass",
		"EXAMPLE0EXAMPLE0",
		"EXAMPLEpass",
	}

	for _, line := range strings.SplitAfter(caseFile(t, "X01-secrets.jsonl")+caseFile(t, "X02-secret-forms.jsonl"), "\n") {
		r.append(line)
		r.sync()
	}

	text := readAll(t, r.fsys, r.file())
	raw, err := os.ReadFile(r.file())
	if err != nil {
		t.Fatal(err)
	}

	for _, s := range secrets {
		if strings.Contains(text, s) || bytes.Contains(raw, []byte(s)) {
			t.Errorf("%q is in the mirror", s)
		}
	}

	if n := strings.Count(text, "\n"); n != 12 {
		t.Errorf("got %d lines, want 12", n)
	}
}

func TestZstdcat(t *testing.T) {
	if _, err := exec.LookPath("zstdcat"); err != nil {
		t.Skip("zstdcat is not here: install the package zstd to compare with it")
	}

	r := newRig(t, Options{})
	for i := range 50 {
		r.append(lines(i, 1, 300))
		r.sync()
	}

	out, err := exec.Command("zstdcat", r.file()).CombinedOutput()
	if want := lines(0, 50, 300); err != nil || string(out) != want {
		t.Errorf("zstdcat gives %s, %v; want %s", brief(string(out)), err, brief(want))
	}
}

func TestModes(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 1, 10))
	r.sync()
	for path, want := range map[string]os.FileMode{r.file(): 0o600, r.dir: 0o700} {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s: got mode %o, want %o", path, st.Mode().Perm(), want)
		}
	}
}

func TestRedactsAsRedactDoes(t *testing.T) {
	r := newRig(t, Options{})
	line := `{"text":"DB_PASSWORD=hunter22\nnext"}`
	r.write(line + "\r\n\n" + "no json, token: a1b2c3d4e5\n")
	r.sync()
	r.holds(
		string(
			redact.Bytes(nil, []byte(line)),
		) + "\r\n\n" + string(
			redact.Bytes(nil, []byte("no json, token: a1b2c3d4e5")),
		) + "\n",
	)
}
