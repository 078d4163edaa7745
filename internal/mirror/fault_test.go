package mirror

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

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
		r := &rig{t: t, src: filepath.Join(tmp, "s.jsonl"), dir: "/s", fsys: fault, opt: Options{FirstSight: 16 << 10, Budget: 20 << 10, Codec: codec()}}
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
