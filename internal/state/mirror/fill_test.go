package mirror

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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

			if got := readAll(
				t, r.fsys, r.file(),
			); !strings.HasSuffix(want, got[strings.IndexByte(got, '\n')+1:]) &&
				!strings.HasPrefix(want, got) {
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
		if _, err := os.Stat(r.m.olderFile()); err == nil {
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
