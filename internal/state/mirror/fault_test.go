package mirror

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// A crash may leave the last batch at any length.
func TestTornAtEveryByte(t *testing.T) { bothKinds(t, testTornAtEveryByte) }

func testTornAtEveryByte(t *testing.T, key *Key) {
	r := newRig(t, Options{Key: key})
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

	step := 1
	if key != nil {
		step = 23 // the same code decides, and each step costs a key exchange
	}

	for n := len(whole); n < len(both); n += step {
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

func FuzzTrailer(f *testing.F) {
	f.Add(
		trailer{
			To:     5,
			Raw:    5,
			Lines:  1,
			Frames: 9,
			Head:   fingerprintOf([]byte("a")),
			Tail:   fingerprintOf([]byte("b")),
		}.appendTo(
			nil,
		),
	)
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

		text, rerr := tryRead(mem, "/x")
		l, err := openLog(mem, "/x")
		if err != nil {
			t.Fatalf("open: %v", err)
		}

		defer l.close()

		// A reader steps over damage; the writer copies again from there on.
		if l.size > int64(len(b)) || l.size == 0 && text != "" && rerr == nil {
			t.Errorf("%d bytes: %d are whole, %q is read", len(b), l.size, text)
		}
	})
}
