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

func newRig(t *testing.T, opt Options) *rig {
	t.Helper()
	tmp := t.TempDir()
	r := &rig{t: t, src: filepath.Join(tmp, "agent", "s.jsonl"), dir: filepath.Join(tmp, "session"), fsys: vfs.OS{}, opt: opt}
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
	rc, err := Lines(fsys, path)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(rc)
	return string(data), errors.Join(err, rc.Close())
}

func (r *rig) file() string { return filepath.Join(r.dir, FileName) }

// holds compares the mirror's lines, read by our reader and by zstd where that is.
func (r *rig) holds(want string) {
	r.t.Helper()
	if got := readAll(r.t, r.fsys, r.file()); got != want {
		r.t.Errorf("mirror holds %s, want %s", brief(got), brief(want))
	}
	if _, err := exec.LookPath("zstd"); err != nil {
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
		fmt.Fprintf(&b, `{"type":"user","n":%d,"text":"%s"}`+"\n", i, strings.Repeat(fmt.Sprintf("word%d ", i%97), size/7))
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
	r.holds(lines(0, 3, 100) + fmt.Sprintf("{\"belay\":\"a line of %d bytes was left out of the mirror\"}\n", len(long)) + lines(3, 3, 100))
	if got := r.m.Status().Oversized; got != 1 {
		t.Errorf("got %d oversized lines, want 1", got)
	}
}

func TestX01X02NeverInMirror(t *testing.T) {
	r := newRig(t, Options{})
	secrets := []string{
		"sb_secret_probe_example_0000_abcd_efgh", "tok_live_EXAMPLE0EXAMPLE0EXAMPLE0", "eyJEXAMPLE0", "AKIAIOSFODNN7EXAMPLE",
		"xk-EXAMPLE0", "correct horse", "RVhBTVBMRQ", "EXAMPLE-pass", "EXAMPLE0EXAMPLE0", "EXAMPLEpass",
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

// A crash may leave the last batch at any length.
func TestTornAtEveryByte(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 5, 80))
	r.sync()
	whole, err := os.ReadFile(r.file())
	if err != nil {
		t.Fatal(err)
	}
	r.append(lines(5, 2, 80))
	r.sync()
	both, err := os.ReadFile(r.file())
	if err != nil {
		t.Fatal(err)
	}
	for n := len(whole); n < len(both); n++ {
		if err := os.WriteFile(r.file(), both[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, r.fsys, r.file()); got != lines(0, 5, 80) {
			t.Fatalf("cut to %d bytes: a reader gets %s", n, brief(got))
		}
		r.reopen()
		if got, want := r.m.Status().Torn, int64(n-len(whole)); got != want {
			t.Fatalf("cut to %d bytes: got %d torn bytes, want %d", n, got, want)
		}
		r.sync()
		if got := readAll(t, r.fsys, r.file()); got != lines(0, 7, 80) {
			t.Fatalf("cut to %d bytes: then the mirror holds %s", n, brief(got))
		}
	}
	// Garbage of any kind behind the last batch.
	if err := os.WriteFile(r.file(), append(whole, make([]byte, 3<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.sync()
	r.holds(lines(0, 7, 80))
}

func TestDamageInTheMiddle(t *testing.T) {
	r := newRig(t, Options{})
	for i := range 3 {
		r.append(lines(i, 1, 200))
		r.sync()
	}
	if err := r.m.Flush(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(r.file())
	if err != nil {
		t.Fatal(err)
	}
	data[30] ^= 0x55
	if err := os.WriteFile(r.file(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := tryRead(r.fsys, r.file())
	if !errors.Is(err, ErrDamaged) || got != lines(1, 2, 200) {
		t.Errorf("got %s, %v; want the two good lines and ErrDamaged", brief(got), err)
	}
}

func TestF03ReplacedInPlace(t *testing.T) {
	before, after := caseFile(t, "F03-before.jsonl"), caseFile(t, "F03-after.jsonl")
	r := newRig(t, Options{})
	r.write(before)
	r.sync()
	r.write(after)
	if p := r.sync(); p.Generations != 1 {
		t.Errorf("got %d older copies, want 1", p.Generations)
	}
	r.holds(after)
	if got := readAll(t, r.fsys, filepath.Join(r.dir, "transcript.g001.jsonl.zst")); got != before {
		t.Errorf("the older copy holds %s, want %s", brief(got), brief(before))
	}
}

func TestF11HeaderOnlyFileWaits(t *testing.T) {
	old, header := caseFile(t, "F11-old.jsonl"), caseFile(t, "F11-new-header-only.jsonl")
	r := newRig(t, Options{})
	r.write(old)
	r.sync()
	r.rename(header)
	r.sync()
	if st := r.m.Status(); st.State != Replaced || st.Generations != 0 {
		t.Errorf("got status %+v, want replaced and no older copy", st)
	}
	r.reopen()
	r.sync()
	r.holds(old)
	r.rename(old + lines(0, 1, 50)) // the old one comes back and goes on
	r.sync()
	r.holds(old + lines(0, 1, 50))
	if st := r.m.Status(); st.State != Following || st.Generations != 0 {
		t.Errorf("got status %+v, want following and no older copy", st)
	}
}

func TestF12TruncatedOnResume(t *testing.T) {
	before, after := caseFile(t, "F12-before.jsonl"), caseFile(t, "F12-after.jsonl")
	r := newRig(t, Options{})
	r.write(before)
	r.sync()
	r.write(after)
	r.sync()
	r.holds(before) // one record is nothing to replace forty by
	r.append(lines(0, 1, 50))
	r.sync()
	r.holds(after + lines(0, 1, 50))
	gens, err := Generations(r.fsys, r.dir)
	if err != nil || len(gens) != 2 || gens[0].Number != 0 || gens[1].Number != 1 || gens[1].Lines != 40 {
		t.Fatalf("got %+v, %v; want the mirror and a copy of 40 lines", gens, err)
	}
	if got := readAll(t, r.fsys, gens[1].Path); got != before {
		t.Errorf("the older copy holds %s, want the 40 records", brief(got))
	}
}

func TestTruncatedToNothing(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 20, 50))
	r.sync()
	r.write("")
	r.sync()
	r.holds(lines(0, 20, 50))
	r.append(lines(90, 1, 50))
	r.sync()
	r.holds(lines(90, 1, 50))
	if got := r.m.Status().Generations; got != 1 {
		t.Errorf("got %d older copies, want 1", got)
	}
}

func TestSameTextInANewFileGoesOn(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 20, 50))
	r.sync()
	r.rename(lines(0, 25, 50))
	if p := r.sync(); p.Generations != 0 {
		t.Errorf("got %d older copies, want none", p.Generations)
	}
	r.holds(lines(0, 25, 50))
}

func TestF04OldFileIsReadToItsEnd(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 10, 50))
	r.sync()
	r.append(lines(10, 10, 50)) // then moved away before the next look
	if err := os.Rename(r.src, r.src+".1"); err != nil {
		t.Fatal(err)
	}
	r.write(lines(500, 10, 50))
	r.sync()
	r.holds(lines(500, 10, 50))
	if got := readAll(t, r.fsys, filepath.Join(r.dir, "transcript.g001.jsonl.zst")); got != lines(0, 20, 50) {
		t.Errorf("the older copy holds %s, want all 20 lines", brief(got))
	}
}

func TestF08GoneAndArchived(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 10, 50))
	r.sync()
	r.append(lines(10, 1, 50))
	if err := os.Remove(r.src); err != nil {
		t.Fatal(err)
	}
	r.sync()
	r.holds(lines(0, 11, 50)) // the open file was read to its end
	if got := r.m.Status().State; got != Gone {
		t.Errorf("got state %q, want gone", got)
	}
	if err := os.WriteFile(r.src+".zst", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.sync()
	if got := r.m.Status().State; got != Archived {
		t.Errorf("got state %q, want archived", got)
	}
	r.write(lines(0, 12, 50)) // it comes back plain and goes on
	if p := r.sync(); p.Copied != int64(len(lines(11, 1, 50))) || p.Generations != 0 {
		t.Errorf("got %+v, want one line copied", p)
	}
	r.holds(lines(0, 12, 50))
}

func TestGenerationsAreBounded(t *testing.T) {
	r := newRig(t, Options{KeepGenerations: 2})
	for i := range 7 {
		n := 5
		if i == 1 {
			n = 50 // the richest
		}
		r.write(lines(i*100, n, 50))
		r.sync()
		r.append(lines(i*100+n, 1, 50))
		r.sync()
	}
	gens, err := Generations(r.fsys, r.dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, g := range gens {
		got = append(got, g.Number)
	}
	if want := []int{0, 6, 5, 2}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got copies %v, want %v: the newest two and the richest", got, want)
	}
	if r.m.Status().Generations != 3 {
		t.Errorf("status: got %d older copies, want 3", r.m.Status().Generations)
	}
}

func TestFirstSightNewestFirst(t *testing.T) {
	opt := Options{FirstSight: 64 << 10, Budget: 100 << 10}
	text := lines(0, 3000, 300)
	for _, restart := range []bool{false, true} {
		r := newRig(t, opt)
		r.write(text)
		if _, err := r.m.Sync(context.Background(), r.src); err != nil {
			t.Fatal(err)
		}
		got := readAll(t, r.fsys, r.file())
		if !strings.HasSuffix(text, got) || len(got) < 60<<10 || len(got) > 64<<10 {
			t.Fatalf("first call: the mirror holds %s, want the newest 64 KB", brief(got))
		}
		want := text
		for i := 0; ; i++ {
			p, err := r.m.Sync(context.Background(), r.src)
			if err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 && i < 40 {
				more := lines(9000+i, 2, 300)
				r.append(more)
				want += more
			} else if p.Done {
				break
			}
			if got := readAll(t, r.fsys, r.file()); !strings.HasSuffix(want, got[strings.IndexByte(got, '\n')+1:]) && !strings.HasPrefix(want, got) {
				t.Fatalf("step %d: the mirror holds %s", i, brief(got))
			}
			if restart {
				r.reopen()
			}
			if i > 500 {
				t.Fatal("filling never ends")
			}
		}
		r.sync()
		r.holds(want)
		st := r.m.Status()
		if st.Missing != 0 || st.MirroredBytes != int64(len(want)) || st.Lines != int64(strings.Count(want, "\n")) {
			t.Errorf("got status %+v, want %d bytes and nothing missing", st, len(want))
		}
		if _, err := os.Stat(filepath.Join(r.dir, olderName)); err == nil {
			t.Error("the second file is still there")
		}
	}
}

func TestFillInterruptedByReplacement(t *testing.T) {
	r := newRig(t, Options{FirstSight: 64 << 10, Budget: 100 << 10})
	text := lines(0, 3000, 300)
	r.write(text)
	for range 3 {
		if _, err := r.m.Sync(context.Background(), r.src); err != nil {
			t.Fatal(err)
		}
	}
	r.write(lines(7000, 5, 50))
	r.sync()
	r.append(lines(7005, 5, 50))
	r.sync()
	r.holds(lines(7000, 10, 50))
	got := readAll(t, r.fsys, filepath.Join(r.dir, "transcript.g001.jsonl.zst"))
	if !strings.HasPrefix(got, text[:100<<10]) || !strings.HasSuffix(got, text[len(text)-(60<<10):]) {
		t.Errorf("the older copy holds %s, want what was filled in and the newest part", brief(got))
	}
}

func TestCompact(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 3000, 300)) // one big batch or more, then many small ones
	r.sync()
	for i := range 200 {
		r.append(lines(3000+i*5, 5, 300))
		r.sync()
	}
	before := r.m.Status().FileBytes
	if err := r.m.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.holds(lines(0, 4000, 300))
	after := r.m.Status()
	if after.FileBytes >= before || after.Lines != 4000 {
		t.Errorf("got %d bytes and %d lines, want under %d and 4000", after.FileBytes, after.Lines, before)
	}
	if err := r.m.Compact(context.Background()); err != nil || r.m.Status().FileBytes != after.FileBytes {
		t.Errorf("again: got %d bytes, %v; want no change", r.m.Status().FileBytes, err)
	}
	r.append(lines(4000, 1, 300))
	r.reopen()
	r.sync()
	r.holds(lines(0, 4001, 300))
}

// script is a session that meets everything: growth, a flush, compaction, a big first sight, a replaced file.
func script(r *rig) {
	ctx := context.Background()
	attempt := func() {
		for range 100 {
			p, err := r.m.Sync(ctx, r.src)
			if err == nil && p.Done {
				return
			}
		}
		r.t.Fatal("sync never ends")
	}
	r.write(lines(0, 300, 300))
	attempt()
	_ = r.m.Flush()
	for i := range 20 {
		r.append(lines(300+i, 1, 300))
		attempt()
	}
	_ = r.m.Compact(ctx) // may meet the fault: what counts is what can be read
	r.append(lines(320, 1, 300))
	attempt()
	_ = r.m.Flush()
	r.write(lines(1000, 9, 300))
	attempt()
	r.append(lines(1009, 1, 300))
	attempt()
}

// Whatever operation fails, once, the mirror ends up whole.
func TestEveryFault(t *testing.T) {
	for k := 0; ; k++ {
		tmp := t.TempDir()
		mem := vfstest.NewMem()
		fault := vfstest.NewFault(mem, k, errors.New("injected"))
		r := &rig{t: t, src: filepath.Join(tmp, "s.jsonl"), dir: "/s", fsys: fault, opt: Options{FirstSight: 16 << 10, Budget: 20 << 10}}
		m, err := Open(fault, r.dir, r.opt)
		if err != nil {
			if m, err = Open(fault, r.dir, r.opt); err != nil {
				t.Fatalf("op %d (%s): open again: %v", k, fault.Op(), err)
			}
		}
		r.m = m
		script(r)
		if got := readAll(t, mem, r.file()); got != lines(1000, 10, 300) {
			t.Errorf("op %d (%s): the mirror holds %s", k, fault.Op(), brief(got))
		}
		if got := readAll(t, mem, filepath.Join(r.dir, "transcript.g001.jsonl.zst")); got != lines(0, 321, 300) {
			t.Errorf("op %d (%s): the older copy holds %s", k, fault.Op(), brief(got))
		}
		if err := r.m.Close(); err != nil && !fault.Fired() {
			t.Errorf("op %d: close: %v", k, err)
		}
		if !fault.Fired() {
			t.Logf("%d operations", fault.Count())
			break
		}
	}
}

// After a power cut at any operation the mirror opens, holds what was flushed, and comes up to date again.
func TestPowerCutAnywhere(t *testing.T) {
	for k := 0; ; k += 3 {
		tmp := t.TempDir()
		mem := vfstest.NewMem()
		fault := vfstest.NewFault(mem, -1, nil)
		r := &rig{t: t, src: filepath.Join(tmp, "s.jsonl"), dir: "/s", fsys: fault, opt: Options{FirstSight: 16 << 10, Budget: 20 << 10}}
		text := lines(0, 300, 300)
		r.write(text)
		r.open()
		flushed := ""
		fault.FailFrom(k, errors.New("power is gone"))
		for i := range 30 {
			_, _ = r.m.Sync(context.Background(), r.src)
			if i > 15 {
				more := lines(300+i, 1, 300)
				r.append(more)
				text += more
			}
			if i%10 == 9 && r.m.Flush() == nil && r.m.cur != nil && !r.m.cur.broken && r.m.Status().Missing == 0 {
				flushed = text[:r.m.cur.last.To]
			}
		}
		_ = r.m.Compact(context.Background())
		fired := fault.Fired()
		_ = r.m.Close()
		r.fsys = mem.CrashClone(uint64(k))
		if flushed != "" {
			if got, err := tryRead(r.fsys, r.file()); !strings.HasPrefix(got, flushed) {
				t.Errorf("op %d (%s): after the cut the mirror holds %s, %v; want at least %s", k, fault.Op(), brief(got), err, brief(flushed))
			}
		}
		r.open()
		r.sync()
		if got := readAll(t, r.fsys, r.file()); got != text {
			t.Errorf("op %d (%s): then the mirror holds %s, want %s", k, fault.Op(), brief(got), brief(text))
		}
		if err := r.m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if !fired {
			break
		}
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

func FuzzTrailer(f *testing.F) {
	f.Add(trailer{To: 5, Raw: 5, Lines: 1, Frames: 9, Head: printOf([]byte("a")), Tail: printOf([]byte("b"))}.appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := decodeTrailer(b)
		if !ok {
			return
		}
		if out := got.appendTo(nil); !bytes.Equal(out, b) {
			t.Errorf("read %x, wrote %x", b, out)
		}
	})
}

func FuzzLines(f *testing.F) {
	c, err := NewCodec()
	if err != nil {
		f.Fatal(err)
	}
	frames := c.frames(nil, []byte("{\"a\":1}\n"))
	l := &log{fsys: vfstest.NewMem(), path: "/x"}
	if err := l.append(frames, trailer{To: 8, Raw: 8, Lines: 1}); err != nil {
		f.Fatal(err)
	}
	data, err := vfs.ReadFile(l.fsys, "/x", 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(append(data, data[:20]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := vfstest.NewMem()
		if err := vfs.Replace(mem, "/x", b); err != nil {
			t.Fatal(err)
		}
		text, _ := tryRead(mem, "/x")
		l, err := openLog(mem, "/x")
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		defer l.close()
		if l.size > int64(len(b)) || l.size == 0 && text != "" {
			t.Errorf("%d bytes: %d are whole, %q is read", len(b), l.size, text)
		}
	})
}

func BenchmarkMirror(b *testing.B) {
	src := filepath.Join(b.TempDir(), "s.jsonl")
	var text bytes.Buffer
	for i := 0; text.Len() < 32<<20; i++ {
		fmt.Fprintf(&text, `{"type":"assistant","uuid":"5f0c1a9e-2f7d-4c7e-%04x-1b1f6f3a2c44","timestamp":"2026-01-05T10:00:%02d.000Z","message":{"role":"assistant",`+
			`"content":[{"type":"text","text":"Step %d: read the parser, pass the token list on, run the tests.\nfunc f%d(a int) error {\n\treturn nil // see %x\n}"}],`+
			`"usage":{"input_tokens":%d,"output_tokens":%d}}}`+"\n", i%65536, i%60, i, i*7, i*i*31, i*3, i*5)
	}
	if err := os.WriteFile(src, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		m, err := Open(vfs.OS{}, b.TempDir(), Options{FirstSight: 1 << 40})
		if err != nil {
			b.Fatal(err)
		}
		for done := false; !done; {
			p, err := m.Sync(context.Background(), src)
			if err != nil {
				b.Fatal(err)
			}
			done = p.Done
		}
		b.ReportMetric(float64(m.Status().FileBytes)/float64(text.Len()), "ratio")
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIdleSync(b *testing.B) {
	src := filepath.Join(b.TempDir(), "s.jsonl")
	if err := os.WriteFile(src, []byte(lines(0, 100, 100)), 0o600); err != nil {
		b.Fatal(err)
	}
	m, err := Open(vfs.OS{}, b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	for b.Loop() {
		if _, err := m.Sync(context.Background(), src); err != nil {
			b.Fatal(err)
		}
	}
}

func TestRedactsAsRedactDoes(t *testing.T) {
	r := newRig(t, Options{})
	line := `{"text":"DB_PASSWORD=hunter22\nnext"}`
	r.write(line + "\r\n\n" + "no json, token: a1b2c3d4e5\n")
	r.sync()
	r.holds(string(redact.Bytes(nil, []byte(line))) + "\r\n\n" + string(redact.Bytes(nil, []byte("no json, token: a1b2c3d4e5"))) + "\n")
}
