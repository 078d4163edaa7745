package lines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
)

// count is the state of a form that numbers its records.
type count struct {
	Pos
	N int `json:"n,omitempty"`
}

// numbered has records {"w": words}: "?.." is a prompt, "=.." a summary, all else an answer.
var numbered = Format[count]{Keys: []string{"w"}, Record: func(_ context.Context, p *Page[count], r Record) error {
	var rec struct{ W string }
	if err := Decode(r.Data, &rec); err != nil {
		return err
	}
	p.State.N++
	e := checkpoint.Entry{ID: fmt.Sprint(p.State.N), Kind: checkpoint.EntryAssistant, Text: rec.W}
	switch {
	case strings.HasPrefix(rec.W, "?"):
		e.Kind = checkpoint.EntryUser
	case strings.HasPrefix(rec.W, "="):
		e.Kind = checkpoint.EntryCompaction
	}
	p.Add(e)
	return nil
}}

func batchOf(
	t testing.TB,
	r *Reader[count, *count],
	from checkpoint.Cursor,
	opt checkpoint.ReadOptions,
) checkpoint.Batch {
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

// TestEachRecordOnce: appended to in pieces that end anywhere, spoilt, rewritten; with a reader of its own for each
// step and with one for all.
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
		{
			`{"w":"?a"}` + "\n" + `{"w":"b"}` + "\nnonsense\n" + `{"w":"x{"w":"c"}` + "\n" + `[1]` + "\n",
			"3 c",
			false,
			3,
			0,
		},
		{`{"w":"?z"}` + "\n", "reset, 1 ?z", false, 0, 0},
	}

	path := filepath.Join(t.TempDir(), "t.jsonl")
	one := NewReader(path, numbered)
	defer one.Close()
	var cur checkpoint.Cursor
	for i, s := range steps {
		put(t, path, s.file)
		fresh := NewReader(path, numbered)
		for n, r := range []*Reader[count, *count]{fresh, one} {
			b := batchOf(t, r, cur, checkpoint.ReadOptions{Final: s.final})
			if show(b.Entries) != s.want || b.Losses.BadLines != s.bad || b.Losses.Torn != s.torn {
				t.Errorf(
					"step %d, reader %d: %s, %+v; want %s, %d bad, %d torn", i, n, show(b.Entries), b.Losses,
					s.want, s.bad, s.torn,
				)
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
	say := func(w string) { fmt.Fprintf(&b, `{"w":%q}`+"\n", w) }
	say("first answer")
	say("?the task")
	for range 30 {
		say(long)
	}

	say("=what was")
	before := b.Len()
	say("?and now")
	say("last")
	path := filepath.Join(t.TempDir(), "t.jsonl")
	put(t, path, b.String())
	r := NewReader(path, numbered)
	defer r.Close()
	got := batchOf(t, r, "", checkpoint.ReadOptions{})
	if want := "2 ?the task, 3 =what was, 4 ?and now, 5 last"; show(got.Entries) != want || !got.First {
		t.Errorf("got %s, first %v; want %s", show(got.Entries), got.First, want)
	}

	if least := int64(
		before,
	) - 25<<10; got.Skipped < int64(len(long))*29 || got.Skipped > int64(before) ||
		got.Skipped < least {
		t.Errorf("skipped %d of %d bytes", got.Skipped, before)
	}

	whole := batchOf(t, r, "", checkpoint.ReadOptions{Whole: true})
	if len(whole.Entries) != 35 || !whole.First || whole.Skipped != 0 {
		t.Errorf(
			"whole: %d entries, first %v, skipped %d; want 35, true, 0", len(whole.Entries), whole.First,
			whole.Skipped,
		)
	}

	if more := batchOf(t, r, got.Cursor, checkpoint.ReadOptions{}); len(more.Entries) != 0 || more.First {
		t.Errorf("again: %s", show(more.Entries))
	}
}

// A record with an id counts once, however often and in whichever run it comes again.
func TestRepeats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	lines := `{"w":"?a"}` + "\n" + `{"w":"b"}` + "\n"
	put(t, path, lines+lines)
	first := batchOf(t, NewReader(path, named), "", checkpoint.ReadOptions{})
	if show(first.Entries) != "1 ?a, 2 b" || first.Losses.Repeats != 2 {
		t.Errorf("%s, %d repeats; want each once and 2", show(first.Entries), first.Losses.Repeats)
	}

	put(t, path, lines+lines+`{"w":"b"}`+"\n"+`{"w":"c"}`+"\n")
	next := batchOf(t, NewReader(path, named), first.Cursor, checkpoint.ReadOptions{})
	if show(next.Entries) != "3 c" || next.Losses.Repeats != 1 {
		t.Errorf("in a later run: %s, %d repeats; want 3 c and 1", show(next.Entries), next.Losses.Repeats)
	}
}

// named is numbered with records that are known by their words.
var named = Format[count]{
	Keys:  numbered.Keys,
	Learn: func(seen *Seen, l Line) { seen.Add(wordsOf(l.Data)) },
	Record: func(ctx context.Context, p *Page[count], r Record) error {
		if !p.Once(wordsOf(r.Data)) {
			return nil
		}
		return numbered.Record(ctx, p, r)
	},
}

func wordsOf(record []byte) string {
	var rec struct{ W string }
	_ = Decode(record, &rec) // what is no record has no words
	return rec.W
}

// What was given before the past changed, however often it does, is not given again and is no repeat.
func TestRewrittenTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	a, b, c := `{"w":"?a"}`+"\n", `{"w":"b"}`+"\n", `{"w":"c"}`+"\n"
	put(t, path, a+b+b)
	r := NewReader(path, named)
	defer r.Close()
	last := batchOf(t, r, "", checkpoint.ReadOptions{})
	for _, step := range []struct{ file, want string }{{c, "reset, 1 c"}, {b + a + c, "reset"}, {b + a + c + `{"w":"d"}` + "\n", "1 d"}} {
		put(t, path, step.file)
		last = batchOf(t, r, last.Cursor, checkpoint.ReadOptions{})
		if show(last.Entries) != step.want || last.Losses.Repeats != 0 {
			t.Errorf(
				"%q: %s, %d repeats; want %s and none", step.file, show(last.Entries), last.Losses.Repeats,
				step.want,
			)
		}
	}
}

// An unreadable cursor counts as none.
func TestUnreadableCursor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	put(t, path, `{"w":"?a"}`+"\n")
	r := NewReader(path, numbered)
	defer r.Close()
	for _, cur := range []checkpoint.Cursor{"rubbish", `{"o":-1}`, `[]`} {
		if b := batchOf(t, r, cur, checkpoint.ReadOptions{}); show(b.Entries) != "reset, 1 ?a" || !b.First {
			t.Errorf("cursor %q: %s, first %v; want a reset and all, as first sight", cur, show(b.Entries), b.First)
		}
	}
}

func TestNothingThere(t *testing.T) {
	r := NewReader(filepath.Join(t.TempDir(), "absent.jsonl"), numbered)
	for _, cur := range []checkpoint.Cursor{"", `{"o":5}`, "no cursor"} {
		b, err := r.Read(context.Background(), cur, checkpoint.ReadOptions{})
		if !errors.Is(err, fs.ErrNotExist) || b.Cursor != cur {
			t.Errorf("cursor %q: %q, %v; want fs.ErrNotExist and the cursor as it was", cur, b.Cursor, err)
		}
	}
}

// FuzzReader: whatever the file holds and wherever it is cut, what is read in two pieces is what is read at once.
func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"w":"?a"}`+"\n"+`{"w":"b"}`+"\n"), 12)
	f.Add([]byte("\x00\x00\n{\"w\":\"a{\"w\":\"b\"}\n"), 3)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			return
		}

		path := filepath.Join(dir, "t.jsonl")
		put(t, path, string(data))
		whole := batchOf(t, NewReader(path, numbered), "", checkpoint.ReadOptions{Whole: true})
		cut = bytes.LastIndexByte(data[:cut], '\n') + 1
		put(t, path, string(data[:cut]))
		head := batchOf(t, NewReader(path, numbered), "", checkpoint.ReadOptions{Whole: true})
		put(t, path, string(data))
		tail := batchOf(t, NewReader(path, numbered), head.Cursor, checkpoint.ReadOptions{})
		if got := append(head.Entries, tail.Entries...); !slices.Equal(got, whole.Entries) {
			t.Errorf("in two: %s\nat once: %s", show(got), show(whole.Entries))
		}
		if !json.Valid([]byte(tail.Cursor)) {
			t.Errorf("cursor %q", tail.Cursor)
		}
	})
}
