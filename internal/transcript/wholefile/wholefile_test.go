package wholefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
)

// toy is a toy document: a line is "id words", "?" at its end is a prompt, "~" before an id a summary; "#..." is the
// epoch, "!" hides it, and a text without "." at its end is not whole.
func toy(_ context.Context, in io.Reader, give func(Item) error) (About, error) {
	var a About
	data, err := io.ReadAll(in)
	if err != nil {
		return a, err
	}

	body, whole := strings.CutSuffix(string(data), ".")
	for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
		id, words, _ := strings.Cut(line, " ")
		switch {
		case id == "":
			continue
		case id == "!":
			a.Hidden = true
			continue
		case id[0] == '#':
			a.Epoch = id
			continue
		}

		kind := checkpoint.EntryAssistant
		if strings.HasSuffix(words, "?") {
			kind = checkpoint.EntryUser
		}

		past := id[0] == '~'
		if past {
			kind = checkpoint.EntryCompaction
		}

		it := Item{
			ID:     id,
			Hash:   checkpoint.Hash(words),
			Size:   len(line),
			Prompt: kind == checkpoint.EntryUser,
			Past:   past,
			Entries: func() []checkpoint.Entry {
				return []checkpoint.Entry{{ID: id, Kind: kind, Text: words}}
			},
		}

		if err := give(it); err != nil {
			return a, err
		}
	}

	if !whole {
		return a, ErrBroken
	}

	return a, nil
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// show writes entries as words.
func show(list []checkpoint.Entry) string {
	var out []string
	for _, e := range list {
		s := e.ID
		switch {
		case e.Op != checkpoint.Upsert:
			s = strings.TrimSuffix(string(e.Op)+":"+e.ID, ":")
		case e.Kind == checkpoint.EntryClear:
			s = "clear"
		case e.Text != "":
			s += "=" + e.Text
		}

		out = append(out, s)
	}

	return strings.Join(out, " ")
}

func TestRewrites(t *testing.T) {
	type step struct{ file, want string }
	for name, steps := range map[string][]step{
		"messages are added":        {{"a hi?\nb yes\n.", "a=hi? b=yes"}, {"a hi?\nb yes\n.", ""}, {"a hi?\nb yes\nc more?\n.", "c=more?"}, {"a hi?\nb yes\nc more?\nd ok\n.", "d=ok"}},
		"a message gets richer":     {{"a hi?\nb y\n.", "a=hi? b=y"}, {"a hi?\nb yes\nc go?\n.", "b=yes c=go?"}},
		"old ones are summed up":    {{"a hi?\nb yes\nc go?\nd ok\n.", "a=hi? b=yes c=go? d=ok"}, {"~s sum\nc go?\nd ok\ne and?\n.", "~s=sum e=and?"}, {"~s sum\nc go?\nd ok\ne and?\nf so\n.", "f=so"}},
		"a half file tells nothing": {{"a hi?\nb yes\n.", "a=hi? b=yes"}, {"a hi?\nb y", ""}, {"", ""}, {"a hi?\nb yes\nc go?\n.", "c=go?"}},
		"cleared":                   {{"#1\na hi?\nb yes\n.", "a=hi? b=yes"}, {"#2\n.", ""}, {"#2\nx new?\n.", "clear x=new?"}, {"#2\nx new?\ny yes\n.", "y=yes"}},
		"another conversation":      {{"a hi?\nb yes\n.", "a=hi? b=yes"}, {"x new?\n.", "reset x=new?"}},
		"first nothing":             {{".", ""}, {"a hi?\n.", "a=hi?"}},
		"the end is cut off":        {{"a hi?\nb yes\nc go?\n.", "a=hi? b=yes c=go?"}, {"a hi?\nb yes\nd other?\n.", "retract:c d=other?"}, {"a hi?\n.", "retract:b retract:d"}, {"a hi?\ne so?\n.", "e=so?"}},
		"cut back to nothing":       {{"#1\na hi?\nb yes\n.", "a=hi? b=yes"}, {"#1\n.", "retract:a retract:b"}, {"#1\n.", ""}, {"#1\nx new?\n.", "reset x=new?"}},
		"cut and gone on":           {{"#1\na hi?\nb yes\n.", "a=hi? b=yes"}, {"#1\nx new?\n.", "reset retract:a retract:b x=new?"}},
		"cut back a long way":       {{"a hi?\nb 1\nc 2\nd 3\ne 4\nf 5\ng 6\nh 7\n.", "a=hi? b=1 c=2 d=3 e=4 f=5 g=6 h=7"}, {"a hi?\n.", "retract:b retract:c retract:d retract:e retract:f retract:g retract:h"}, {"a hi?\nx on?\n.", "x=on?"}},
		"a half file is no cut":     {{"a hi?\nb yes\n.", "a=hi? b=yes"}, {"a hi?\n", ""}, {"a hi?\nb yes\n.", ""}},
		"all is summed up":          {{"a hi?\nb yes\nc go?\n.", "a=hi? b=yes c=go?"}, {"~s sum\nd new?\n.", "reset ~s=sum d=new?"}},
		"hidden":                    {{"!\na hi?\n.", ""}, {"!\na hi?\nb yes\n.", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "doc")
			cur := checkpoint.Cursor("")
			kept := Open(path, toy)
			keptAt := cur
			for i, s := range steps {
				put(t, path, s.file)
				b, err := Open(path, toy).Read(context.Background(), cur, checkpoint.ReadOptions{})
				if err != nil || show(b.Entries) != s.want {
					t.Errorf("step %d: %v, got %q, want %q", i, err, show(b.Entries), s.want)
				}
				if len(b.Cursor) > 1000 {
					t.Errorf("step %d: a cursor of %d bytes", i, len(b.Cursor))
				}

				cur = b.Cursor

				// One reader that stays open gives the same.
				k, err := kept.Read(context.Background(), keptAt, checkpoint.ReadOptions{})
				if err != nil || show(k.Entries) != s.want {
					t.Errorf("step %d: the reader that stays: %v, got %q, want %q", i, err, show(k.Entries), s.want)
				}

				keptAt = k.Cursor
			}
		})
	}
}

func TestHalfFileAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc")
	put(t, path, "a hi?\nb yes\n")
	r := Open(path, toy)
	b, err := r.Read(context.Background(), "", checkpoint.ReadOptions{})
	if err != nil || len(b.Entries) > 0 || b.Cursor != "" || b.Losses.Torn == 0 {
		t.Errorf("while a writer may live: %v, %+v, want nothing but torn bytes", err, b)
	}

	b, err = r.Read(context.Background(), "", checkpoint.ReadOptions{Final: true})
	if err != nil || show(b.Entries) != "a=hi? b=yes" || b.Losses.Torn == 0 {
		t.Errorf("when none lives: %v, %q, torn %d, want what is whole", err, show(b.Entries), b.Losses.Torn)
	}
}

func TestFirstSight(t *testing.T) {
	var doc strings.Builder
	for i := range 100 {
		fmt.Fprintf(&doc, "u%d q%d?\na%d yes\n", i, i, i)
	}

	doc.WriteString(".")
	path := filepath.Join(t.TempDir(), "doc")
	put(t, path, doc.String())
	b, err := Open(path, toy).Read(context.Background(), "", checkpoint.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if !b.First || b.Skipped == 0 || len(b.Entries) != 41 || b.Entries[0].ID != "u0" || b.Entries[1].ID != "u80" {
		t.Errorf(
			"first %v, skipped %d, %d entries from %q: want the first prompt and the newest 20 with their answers",
			b.First, b.Skipped, len(b.Entries), show(b.Entries[:2]),
		)
	}
}

func TestWholeComesInPages(t *testing.T) {
	var doc strings.Builder
	for i := range 3*pageItems + 7 {
		fmt.Fprintf(&doc, "m%d w%d\n", i, i)
	}

	path := filepath.Join(t.TempDir(), "doc")
	put(t, path, doc.String()+".")
	r := Open(path, toy)
	var got []string
	cur := checkpoint.Cursor("")
	for reads := 0; ; reads++ {
		b, err := r.Read(context.Background(), cur, checkpoint.ReadOptions{Whole: true})
		if err != nil || reads > 5 {
			t.Fatal(reads, err)
		}

		for _, e := range b.Entries {
			got = append(got, e.ID)
		}

		if cur = b.Cursor; !b.More {
			break
		}
	}

	if len(got) != 3*pageItems+7 || !slices.IsSortedFunc(got, func(a, b string) int {
		var x, y int
		fmt.Sscanf(a, "m%d", &x)
		fmt.Sscanf(b, "m%d", &y)
		return x - y
	}) {
		t.Errorf("%d entries, want %d in order, each once", len(got), 3*pageItems+7)
	}
}

func TestOverTheCeiling(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc")
	put(t, path, "a hi?\nb yes\n.")
	r := Open(path, toy)
	r.ceiling = 5
	first, err := r.Read(context.Background(), "", checkpoint.ReadOptions{})
	if err != nil || len(first.Entries) > 0 || first.Losses.Oversized != 1 {
		t.Errorf("%v, %+v: want one oversized record", err, first)
	}

	again, err := r.Read(context.Background(), first.Cursor, checkpoint.ReadOptions{Final: true})
	if err != nil || again.Losses.Oversized != 0 {
		t.Errorf("%v, %+v: want it counted once", err, again)
	}

	r.ceiling = Ceiling
	b, err := r.Read(context.Background(), again.Cursor, checkpoint.ReadOptions{})
	if err != nil || show(b.Entries) != "reset a=hi? b=yes" {
		t.Errorf("smaller again: %v, %q", err, show(b.Entries))
	}
}

func TestStrangeCursorsAndFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "doc")
	if _, err := Open(
		path,
		toy,
	).Read(
		context.Background(), "c", checkpoint.ReadOptions{},
	); !errors.Is(
		err, fs.ErrNotExist,
	) {
		t.Errorf("absent: %v, want fs.ErrNotExist", err)
	}

	put(t, path, "a hi?\n.")
	for _, cur := range []checkpoint.Cursor{"x", "[]", `{"r":[1]}`, `{"o":12}`} {
		b, err := Open(path, toy).Read(context.Background(), cur, checkpoint.ReadOptions{})
		if err != nil || !strings.HasSuffix(show(b.Entries), "a=hi?") {
			t.Errorf("cursor %q: %v, %q, want all of it", cur, err, show(b.Entries))
		}
	}

	if b, err := Open(dir, toy).Read(context.Background(), "", checkpoint.ReadOptions{}); err == nil {
		t.Errorf("a folder: %+v, want an error", b)
	}
}

func TestUnchangedIsNotReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc")
	put(t, path, "a hi?\n.")
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}

	walks := 0
	r := Open(path, func(ctx context.Context, in io.Reader, give func(Item) error) (About, error) {
		walks++
		return toy(ctx, in, give)
	})

	cur := checkpoint.Cursor("")
	for range 3 {
		b, err := r.Read(context.Background(), cur, checkpoint.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cur = b.Cursor
	}

	if walks != 1 {
		t.Errorf("%d walks through a file that does not change, want 1", walks)
	}
}
