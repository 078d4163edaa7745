package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/jsonl"
)

// count is the state of a form that numbers its records.
type count struct {
	N int `json:"n,omitempty"`
}

// numbered has records {"w": words}: "?.." is a prompt, "=.." a summary, all else an answer.
var numbered = Form[count]{Key: "w", Line: func(s *count, l jsonl.Line) ([]checkpoint.Entry, error) {
	var rec struct{ W string }
	if l.Data[0] != '{' {
		return nil, errors.New("no object")
	}
	if err := jsonl.Decode(l.Data, &rec); err != nil {
		return nil, err
	}
	s.N++
	e := checkpoint.Entry{ID: fmt.Sprint(s.N), Kind: checkpoint.EntryAssistant, Text: rec.W}
	switch {
	case strings.HasPrefix(rec.W, "?"):
		e.Kind = checkpoint.EntryUser
	case strings.HasPrefix(rec.W, "="):
		e.Kind = checkpoint.EntryCompaction
	}
	return []checkpoint.Entry{e}, nil
}}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, r *Reader[count], from checkpoint.Cursor, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	b, err := r.Read(context.Background(), from, opt)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// show writes entries as "id words".
func show(list []checkpoint.Entry) string {
	var out []string
	for _, e := range list {
		if e.Op != checkpoint.Upsert {
			out = append(out, string(e.Op))
			continue
		}
		out = append(out, e.ID+" "+e.Text)
	}
	return strings.Join(out, ", ")
}

// TestEachRecordOnce: appended to in pieces that end anywhere, spoilt, rewritten; with a reader of its own for each step and
// with one for all.
func TestEachRecordOnce(t *testing.T) {
	steps := []struct {
		file, want string
		final      bool
		bad        int
		torn       int64
	}{
		{"", "", false, 0, 0},
		{`{"w":"?a"}` + "\n", "1 ?a", false, 0, 0},
		{`{"w":"?a"}` + "\n" + `{"w":"b"`, "", false, 0, 8},
		{`{"w":"?a"}` + "\n" + `{"w":"b"}`, "2 b", true, 0, 0},
		{`{"w":"?a"}` + "\n" + `{"w":"b"}` + "\n", "2 b", false, 0, 0}, // a rest comes again as itself
		{`{"w":"?a"}` + "\n" + `{"w":"b"}` + "\nnonsense\n" + `{"w":"x{"w":"c"}` + "\n" + `[1]` + "\n", "3 c", false, 3, 0},
		{`{"w":"?z"}` + "\n", "reset, 1 ?z", false, 0, 0},
	}
	path := filepath.Join(t.TempDir(), "t.jsonl")
	one := Open(path, numbered)
	defer one.Close()
	var cur checkpoint.Cursor
	for i, s := range steps {
		write(t, path, s.file)
		fresh := Open(path, numbered)
		for n, r := range []*Reader[count]{fresh, one} {
			b := read(t, r, cur, checkpoint.ReadOptions{Final: s.final})
			if show(b.Entries) != s.want || b.Losses.BadLines != s.bad || b.Losses.Torn != s.torn {
				t.Errorf("step %d, reader %d: %s, %+v; want %s, %d bad, %d torn", i, n, show(b.Entries), b.Losses, s.want, s.bad, s.torn)
			}
			if n == 1 {
				cur = b.Cursor
			}
		}
		if err := fresh.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFirstSightOfALargeFile(t *testing.T) {
	long := strings.Repeat("x", 20<<10)
	var b strings.Builder
	put := func(w string) { fmt.Fprintf(&b, `{"w":%q}`+"\n", w) }
	put("first answer")
	put("?the task")
	for range 30 {
		put(long)
	}
	put("=what was")
	before := b.Len()
	put("?and now")
	put("last")
	path := filepath.Join(t.TempDir(), "t.jsonl")
	write(t, path, b.String())
	r := Open(path, numbered)
	defer r.Close()
	got := read(t, r, "", checkpoint.ReadOptions{})
	if want := "2 ?the task, 3 =what was, 4 ?and now, 5 last"; show(got.Entries) != want || !got.First {
		t.Errorf("got %s, first %v; want %s", show(got.Entries), got.First, want)
	}
	if least := int64(before) - 25<<10; got.Skipped < int64(len(long))*29 || got.Skipped > int64(before) || got.Skipped < least {
		t.Errorf("skipped %d of %d bytes", got.Skipped, before)
	}
	whole := read(t, r, "", checkpoint.ReadOptions{Whole: true})
	if len(whole.Entries) != 35 || !whole.First || whole.Skipped != 0 {
		t.Errorf("whole: %d entries, first %v, skipped %d; want 35, true, 0", len(whole.Entries), whole.First, whole.Skipped)
	}
	if more := read(t, r, got.Cursor, checkpoint.ReadOptions{}); len(more.Entries) != 0 || more.First {
		t.Errorf("again: %s", show(more.Entries))
	}
}

// A record with an id counts once, however often and in whichever run it comes again.
func TestRepeats(t *testing.T) {
	named := numbered
	named.ID = func(record []byte) string {
		var rec struct{ W string }
		_ = jsonl.Decode(record, &rec) // what is no record has no id
		return rec.W
	}
	path := filepath.Join(t.TempDir(), "t.jsonl")
	lines := `{"w":"?a"}` + "\n" + `{"w":"b"}` + "\n"
	write(t, path, lines+lines)
	first := read(t, Open(path, named), "", checkpoint.ReadOptions{})
	if show(first.Entries) != "1 ?a, 2 b" || first.Losses.Repeats != 2 {
		t.Errorf("%s, %d repeats; want each once and 2", show(first.Entries), first.Losses.Repeats)
	}
	write(t, path, lines+lines+`{"w":"b"}`+"\n"+`{"w":"c"}`+"\n")
	next := read(t, Open(path, named), first.Cursor, checkpoint.ReadOptions{})
	if show(next.Entries) != "3 c" || next.Losses.Repeats != 1 {
		t.Errorf("in a later run: %s, %d repeats; want 3 c and 1", show(next.Entries), next.Losses.Repeats)
	}
}

func TestNothingThere(t *testing.T) {
	r := Open(filepath.Join(t.TempDir(), "absent.jsonl"), numbered)
	for _, cur := range []checkpoint.Cursor{"", `{"o":5}`, "no cursor"} {
		b, err := r.Read(context.Background(), cur, checkpoint.ReadOptions{})
		if !errors.Is(err, fs.ErrNotExist) || b.Cursor != cur {
			t.Errorf("cursor %q: %q, %v; want fs.ErrNotExist and the cursor as it was", cur, b.Cursor, err)
		}
	}
}

// FuzzRead: whatever the file holds and wherever it is cut, what is read in two pieces is what is read at once.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"w":"?a"}`+"\n"+`{"w":"b"}`+"\n"), 12)
	f.Add([]byte("\x00\x00\n{\"w\":\"a{\"w\":\"b\"}\n"), 3)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			return
		}
		path := filepath.Join(dir, "t.jsonl")
		write(t, path, string(data))
		whole := read(t, Open(path, numbered), "", checkpoint.ReadOptions{Whole: true})
		cut = bytes.LastIndexByte(data[:cut], '\n') + 1
		write(t, path, string(data[:cut]))
		head := read(t, Open(path, numbered), "", checkpoint.ReadOptions{Whole: true})
		write(t, path, string(data))
		tail := read(t, Open(path, numbered), head.Cursor, checkpoint.ReadOptions{})
		if got := append(head.Entries, tail.Entries...); !slices.Equal(got, whole.Entries) {
			t.Errorf("in two: %s\nat once: %s", show(got), show(whole.Entries))
		}
		if !json.Valid([]byte(tail.Cursor)) {
			t.Errorf("cursor %q", tail.Cursor)
		}
	})
}
