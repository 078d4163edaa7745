package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
)

// in makes a file with content and a File that reads it.
func in(t testing.TB, content string) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.jsonl")
	put(t, path, content)
	f := Open(path)
	t.Cleanup(func() { f.Close() })
	return f, path
}

func put(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func grow(t testing.TB, path, content string) {
	t.Helper()
	if err := appendTo(path, content); err != nil {
		t.Fatal(err)
	}
}

func appendTo(path, content string) error {
	w, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = w.WriteString(content)
	return errors.Join(err, w.Close())
}

// read gives the lines of one Read as strings.
func read(t testing.TB, f *File, from Pos, opt Options) ([]string, Span) {
	t.Helper()
	var got []string
	span, err := f.Read(from, opt, func(l Line) bool {
		got = append(got, string(l.Data))
		return true
	})

	if err != nil {
		t.Fatalf("read: %v", err)
	}

	return got, span
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(g, w) {
		t.Errorf("%s:\n got %.400s\nwant %.400s", what, g, w)
	}
}

func TestLinesAndTheirPlaces(t *testing.T) {
	f, _ := in(
		t,
		"\xef\xbb\xbf{\"a\":1}\r\n\n   \n{\"b\":2}\n{\"c\":3}\x00\x00\x00\n\x00\x00\x00\x00\n\x00\x00{\"d\":4}\n{\"rest",
	)

	var got []string
	span, err := f.Read(Pos{}, Options{}, func(l Line) bool {
		got = append(got, fmt.Sprintf("%d@%d-%d %s", l.Num, l.Off, l.End, l.Data))
		return true
	})

	if err != nil {
		t.Fatal(err)
	}

	same(t, "lines", got, []string{`1@0-12 {"a":1}`, `4@17-25 {"b":2}`, `5@25-36 {"c":3}`, `7@41-51 {"d":4}`})
	want := checkpoint.Losses{Holes: 2, HoleBytes: 6, Torn: 6}
	same(t, "losses", span.Losses, want)
	if span.Pos.Off != 51 || span.Pos.Line != 7 {
		t.Errorf("position: got offset %d line %d, want 51 and 7", span.Pos.Off, span.Pos.Line)
	}
}

func TestF01HalfLineWaits(t *testing.T) {
	f, path := in(t, `{"a":1`)
	got, span := read(t, f, Pos{}, Options{})
	if len(got) != 0 || span.Pos != (Pos{}) || span.Losses.Torn != 6 {
		t.Errorf("half a line: got %q at %+v, torn %d", got, span.Pos, span.Losses.Torn)
	}

	grow(t, path, `,"b":2}`)
	if got, _ := read(t, f, span.Pos, Options{}); len(got) != 0 {
		t.Errorf("without its newline: got %q, want nothing", got)
	}

	final, fspan := read(t, f, span.Pos, Options{Final: true})
	same(t, "final", final, []string{`{"a":1,"b":2}`})
	if fspan.Pos.Off != 0 || fspan.Losses.Torn != 0 {
		t.Errorf("final: got offset %d torn %d, want 0 and 0", fspan.Pos.Off, fspan.Losses.Torn)
	}

	grow(t, path, "\n")
	got, span = read(t, f, span.Pos, Options{})
	same(t, "whole", got, []string{`{"a":1,"b":2}`})
	if got, _ := read(t, f, span.Pos, Options{}); len(got) != 0 {
		t.Errorf("again: got %q, want nothing", got)
	}
}

func TestFinalRest(t *testing.T) {
	for _, c := range []struct {
		rest string
		want []string
		loss checkpoint.Losses
	}{
		{`{"a":1}`, []string{`{"a":1}`}, checkpoint.Losses{}},
		{"{\"a\":1}\x00\x00", []string{`{"a":1}`}, checkpoint.Losses{}},
		{`{"a":`, nil, checkpoint.Losses{Torn: 5}},
		{`17`, nil, checkpoint.Losses{Torn: 2}},
		{"\x00\x00\x00", nil, checkpoint.Losses{Holes: 1, HoleBytes: 3}},
		{"", nil, checkpoint.Losses{}},
	} {
		f, _ := in(t, "{}\n"+c.rest)
		_, span := read(t, f, Pos{}, Options{})
		got, span := read(t, f, span.Pos, Options{Final: true})
		same(t, fmt.Sprintf("rest %q", c.rest), got, c.want)
		same(t, fmt.Sprintf("losses of %q", c.rest), span.Losses, c.loss)
		if _, again := read(t, f, span.Pos, Options{Final: true}); again.Losses.Holes != 0 {
			t.Errorf("rest %q: the same hole counted twice", c.rest)
		}
	}
}

func TestMaxAndStop(t *testing.T) {
	f, _ := in(t, strings.Repeat("{\"a\":1}\n", 100))
	got, span := read(t, f, Pos{}, Options{Max: 20})
	if len(got) != 3 || !span.More || span.Pos.Off != 24 {
		t.Errorf("max 20: got %d lines, more %v, offset %d; want 3, true, 24", len(got), span.More, span.Pos.Off)
	}

	n := 0
	span, err := f.Read(span.Pos, Options{}, func(Line) bool { n++; return n < 5 })
	if err != nil || n != 5 || span.Pos.Off != 64 || span.Pos.Line != 8 || !span.More {
		t.Errorf("stop after 5: got %d lines, %+v, more %v, %v", n, span.Pos, span.More, err)
	}

	got, span = read(t, f, span.Pos, Options{})
	if len(got) != 92 || span.More {
		t.Errorf("rest: got %d lines, more %v; want 92, false", len(got), span.More)
	}
}

// Positions are kept as JSON between runs: they must be small and hold in a file of the same content, whatever its
// inode.
func TestPosHoldsByContent(t *testing.T) {
	head := strings.Repeat("{\"n\":\"0123456789\"}\n", 40)
	f, path := in(t, head)
	_, span := read(t, f, Pos{}, Options{})
	b, err := json.Marshal(span.Pos)
	if err != nil || len(b) > 120 {
		t.Fatalf("position as JSON: %s, %v", b, err)
	}

	var pos Pos
	if err := json.Unmarshal(b, &pos); err != nil || pos != span.Pos {
		t.Fatalf("position read back: got %+v, want %+v, %v", pos, span.Pos, err)
	}

	for _, c := range []struct {
		name, content string
		changed       bool
		lines         int
	}{
		{"same and more", head + "{\"new\":1}\n", false, 1},
		{"shrunk", head[:len(head)/2], true, 20},
		{"empty", "", true, 0},
		{"other head", "{\"x\"" + head[4:], true, 40},
		{"other bytes before the place", head[:len(head)-4] + "8\"}\n", true, 40},
		{"place inside a line", head[:len(head)-1] + " \n", true, 40},
	} {
		g, _ := in(t, c.content) // another inode
		told := false
		got, span := read(t, g, pos, Options{Changed: func() { told = true }})
		if span.Changed != c.changed || told != c.changed || len(got) != c.lines {
			t.Errorf(
				"%s: got changed %v (told %v), %d lines; want %v, %d", c.name, span.Changed, told, len(got),
				c.changed, c.lines,
			)
		}

		if ok, err := g.Holds(pos); ok == c.changed || err != nil {
			t.Errorf("%s: holds %v, %v; want %v", c.name, ok, err, !c.changed)
		}
	}

	_ = path
}

func TestF03RewrittenInPlace(t *testing.T) {
	f, path := in(t, "{\"a\":1}\n{\"a\":2}\n")
	_, span := read(t, f, Pos{}, Options{})
	put(t, path, "{\"b\":1}\n{\"b\":2}\n") // same inode, same size
	got, span := read(t, f, span.Pos, Options{})
	same(t, "lines", got, []string{`{"b":1}`, `{"b":2}`})
	if !span.Changed {
		t.Error("the change was not told")
	}
}

// F04: append, rename, create, append, at full speed; nothing lost, nothing twice, in order.
func TestF04RotationKeepsEveryLine(t *testing.T) {
	dir := t.TempDir()
	for round := range 50 {
		path := filepath.Join(dir, fmt.Sprintf("%d.jsonl", round))
		put(t, path, "{\"n\":0}\n")
		f := Open(path)
		var got []string
		_, span := read(t, f, Pos{}, Options{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := 1; n <= 200; n++ {
				err := appendTo(path, fmt.Sprintf("{\"n\":%d}\n", n))
				if n == 100 {
					err = errors.Join(err, os.Rename(path, path+".1"))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		}()

		pos, finished := span.Pos, false
		for {
			span, err := f.Read(pos, Options{Max: 64}, func(l Line) bool {
				got = append(got, string(l.Data))
				return true
			})

			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}

			pos = span.Pos
			if finished && !span.More {
				break
			}

			select {
			case <-done:
				finished = true
			default:
			}
		}

		f.Close()
		var want []string
		for n := 1; n <= 200; n++ {
			want = append(want, fmt.Sprintf("{\"n\":%d}", n))
		}

		if strings.Join(got, "") != strings.Join(want, "") {
			t.Fatalf("round %d: got %d lines, want 200: %.300v", round, len(got), got)
		}
	}
}

func TestRenamedAwayKeepsItsEnd(t *testing.T) {
	f, path := in(t, "{\"a\":1}\n")
	_, span := read(t, f, Pos{}, Options{})
	grow(t, path, "{\"a\":2}\n{\"a\":3}")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}

	got, span := read(t, f, span.Pos, Options{})
	same(t, "end of the old file", got, []string{`{"a":2}`})
	if _, err := f.Read(span.Pos, Options{}, func(Line) bool { return true }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing left and no file: got %v, want %v", err, fs.ErrNotExist)
	}

	put(t, path, "{\"b\":1}\n")
	got, span = read(t, f, span.Pos, Options{})
	same(t, "unfinished end, then the new file", got, []string{`{"a":3}`, `{"b":1}`})
	if !span.Changed {
		t.Error("the change was not told")
	}
}

func TestTornEndOfAReplacedFileIsCounted(t *testing.T) {
	f, path := in(t, "{\"a\":1}\n{\"a\":")
	_, span := read(t, f, Pos{}, Options{})
	put(t, path+".new", "{\"b\":1}\n")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}

	got, span := read(t, f, span.Pos, Options{})
	same(t, "lines", got, []string{`{"b":1}`})
	if span.Losses.BadLines != 1 || len(span.Losses.Bad) != 1 || span.Losses.Bad[0].Bytes != 5 {
		t.Errorf("losses: got %+v, want one bad line of 5 bytes", span.Losses)
	}
}

// V05: replaced by rename, with the same beginning: reading goes on where it was.
func TestV05AtomicSaves(t *testing.T) {
	f, path := in(t, "{\"a\":0}\n")
	_, span := read(t, f, Pos{}, Options{})
	content, want, got := "{\"a\":0}\n", []string(nil), []string(nil)
	for n := 1; n <= 3; n++ {
		content += fmt.Sprintf("{\"saved\":%d}\n", n)
		put(t, path+".tmp", content)
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}

		content += fmt.Sprintf("{\"appended\":%d}\n", n)
		grow(t, path, fmt.Sprintf("{\"appended\":%d}\n", n))
		want = append(want, fmt.Sprintf("{\"saved\":%d}", n), fmt.Sprintf("{\"appended\":%d}", n))
		lines, s := read(t, f, span.Pos, Options{})
		if s.Changed {
			t.Errorf("save %d: told as a change of the past", n)
		}

		got, span = append(got, lines...), s
	}

	same(t, "lines", got, want)
}

func TestL01LongLinesAndMemory(t *testing.T) {
	long := strings.Repeat("x", 15_000_000)
	f, path := in(t, "{\"a\":1}\n{\"long\":\""+long+"\"}\n{\"a\":2}\n")
	_ = path
	sizes := []int{}
	_, err := f.Read(
		Pos{}, Options{Max: 1 << 30}, func(l Line) bool { sizes = append(sizes, len(l.Data)); return true },
	)

	if err != nil {
		t.Fatal(err)
	}

	same(t, "sizes", sizes, []int{7, 15_000_011, 7})
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapInuse > 60<<20 { // the test's own 15 MB string is in it
		t.Errorf("heap after the long line: %d MB", m.HeapInuse>>20)
	}
}

func TestOversizedLineIsSkippedWithoutBeingHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")

	// Sparse runs of NUL around and inside: a line of x over the ceiling, a hole, and a record behind a hole.
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	defer w.Close()
	w.WriteString("{\"a\":1}\nx")
	w.WriteAt([]byte("x\n"), MaxLine+100)
	w.WriteAt([]byte("\n"), MaxLine+100+2+143_000)
	w.WriteAt([]byte("{\"a\":2}\n"), 3*MaxLine)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := Open(path)
	defer f.Close()
	got, span := read(t, f, Pos{}, Options{Max: 1 << 30})
	runtime.ReadMemStats(&after)
	same(t, "lines", got, []string{`{"a":1}`, `{"a":2}`})
	if l := span.Losses; l.Oversized != 1 || l.Holes != 2 || l.BadLines != 0 {
		t.Errorf("losses: got %+v, want 1 oversized, 2 holes", l)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("allocated %d MB for lines that are not kept", grown>>20)
	}

	var back []string
	size, _ := f.Size()
	if err := f.Backward(
		size, 1<<40, func(l Line) bool { back = append(back, string(l.Data)); return true },
	); err != nil {
		t.Fatal(err)
	}

	same(t, "backward", back, []string{`{"a":2}`, `{"a":1}`})
}

func TestLongTornLineIsNotReadAgainEachTime(t *testing.T) {
	f, path := in(t, "{\"a\":1}\n{\"long\":\""+strings.Repeat("x", 3<<20))
	_, span := read(t, f, Pos{}, Options{})
	for range 3 {
		grow(t, path, strings.Repeat("y", 1000))
		got, s := read(t, f, span.Pos, Options{})
		size, _ := f.Size()
		if len(got) != 0 || s.Losses.Torn != size-8 {
			t.Fatalf("torn: got %d lines, %d bytes; want 0, %d", len(got), s.Losses.Torn, size-8)
		}
	}

	grow(t, path, "\"}\n")
	if got, _ := read(t, f, span.Pos, Options{}); len(got) != 1 || len(got[0]) != 3<<20+3000+11 {
		t.Errorf("ended: got %d lines", len(got))
	}
}

func TestNotRegular(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skipf("no FIFO here: %v", err)
	}

	done := make(chan error, 1)
	go func() {
		_, err := Open(fifo).Read(Pos{}, Options{}, func(Line) bool { return true })
		done <- err
	}()

	select {
	case err := <-done:
		if !errors.Is(err, ErrNotRegular) {
			t.Errorf("FIFO: got %v, want %v", err, ErrNotRegular)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a FIFO hangs the reader")
	}

	if _, err := Open(dir).Read(Pos{}, Options{}, nil); !errors.Is(err, ErrNotRegular) {
		t.Errorf("folder: got %v, want %v", err, ErrNotRegular)
	}
	if _, err := Open(filepath.Join(dir, "no")).Read(Pos{}, Options{}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestLinkToAFile(t *testing.T) {
	_, path := in(t, "{\"a\":1}\n")
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Skipf("no links here: %v", err)
	}

	f := Open(link)
	defer f.Close()
	got, _ := read(t, f, Pos{}, Options{})
	same(t, "lines", got, []string{`{"a":1}`})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\xef\xbb\xbf{\"a\":1}\r\n\n{\"b\":\x00\x00\n\x00\x00{\"c\":3}"), uint16(3))
	f.Add([]byte("{}\n\x00\x00\x00"), uint16(1))
	f.Fuzz(func(t *testing.T, content []byte, cut uint16) {
		file, path := in(t, string(content))
		whole, span := read(t, file, Pos{}, Options{})
		if off := span.Pos.Off; off != 0 && content[off-1] != '\n' ||
			off != int64(bytes.LastIndexByte(content, '\n')+1) {
			t.Fatalf("position %d is not after the last newline", off)
		}

		// In small steps, with a new File and a position from JSON each time: the same lines.
		var got []string
		pos := Pos{}
		for more := true; more; {
			g := Open(path)
			lines, s := read(t, g, pos, Options{Max: int64(cut%64) + 1})
			g.Close()
			if s.Changed {
				t.Fatalf("position %+v does not hold in its own file", pos)
			}

			got, more = append(got, lines...), s.More
			b, _ := json.Marshal(s.Pos)
			pos = Pos{}
			if err := json.Unmarshal(b, &pos); err != nil {
				t.Fatal(err)
			}
		}

		same(t, "in steps", got, whole)
		if pos != span.Pos {
			t.Fatalf("in steps: ends at %+v, at once at %+v", pos, span.Pos)
		}
	})
}
