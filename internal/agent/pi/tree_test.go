package pi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/transcript/lines"
)

var talk = []checkpoint.EntryKind{checkpoint.EntryUser, checkpoint.EntryAssistant}

func TestBranches(t *testing.T) {
	u := func(id, parent string) string { return said(id, parent, "user", "say "+id) }
	base := []string{headLine, u("a", ""), u("b", "a"), u("c", "b")}
	for _, c := range []struct {
		name string
		more []string
		want string // ids of what stands at the end
	}{
		{"goes on", []string{u("d", "c")}, "a b c d"},
		{"rewinds", []string{u("d", "a")}, "a d"},
		{"rewinds and goes on", []string{u("d", "b"), u("e", "d")}, "a b d e"},
		{"rewinds to nothing", []string{u("d", "")}, "d"},
		{"R04 phantom parent", []string{u("d", "never"), u("e", "d")}, "a b c d e"},
		{"R02 own parent", []string{u("d", "d"), u("e", "d")}, "a b c d e"},
		{"R02 cycle", []string{u("d", "e"), u("e", "d"), u("f", "e")}, "a b c d e f"},
		{"R08 two writers", []string{u("x1", "a"), u("d", "c"), u("x2", "x1"), u("e", "d"), u("x3", "x2")}, "a x1 b c d x2 e x3"},
		{"no parent named", []string{`{"type":"message","id":"d","message":{"role":"user","content":"say d"}}`, u("e", "d")}, "a b c d e"},
		{"leaf", []string{`{"type":"leaf","id":"l","parentId":"c","targetId":"a"}`}, "a"},
		{"child of a leaf record", []string{`{"type":"leaf","id":"l","parentId":"c","targetId":"a"}`, u("d", "l"), u("e", "d")}, "a d e"},
		{"child of a leaf's target", []string{`{"type":"leaf","id":"l","parentId":"c","targetId":"a"}`, u("d", "a"), u("e", "d")}, "a d e"},
		{"leaf to nothing", []string{`{"type":"leaf","id":"l","parentId":"c","targetId":null}`, u("d", "")}, "d"},
		{"leaf to what is not there", []string{`{"type":"leaf","id":"l","parentId":"c","targetId":"never"}`, u("d", "c")}, "a b c d"},
		{"leaf back again", []string{`{"type":"leaf","id":"l","parentId":"c","targetId":"a"}`, u("d", "l"), `{"type":"leaf","id":"m","parentId":"d","targetId":"c"}`, u("e", "c")}, "a b c e"},
		{"after a reset an old parent means the leaf", []string{`{"type":"reset","id":"r","parentId":"c","reason":"new"}`, u("d", "a"), u("e", "d")}, "a b c d e"},
		{"side", []string{strings.Replace(u("s", "a"), `"id":"s"`, `"id":"s","appendMode":"side"`, 1), u("d", "c")}, "a b c s d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, append(slices.Clone(base), c.more...)...)
			var got []string
			for _, s := range standing(whole(t, path, false).Entries, talk...) {
				got = append(got, strings.TrimPrefix(s, "say "))
			}

			want := strings.Fields(c.want)
			if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// A reader of a later run finds the branch too.
func TestRewindAfterResume(t *testing.T) {
	path := write(
		t, headLine, said("a", "", "user", "one"), said("b", "a", "assistant", "two"),
		said("c", "b", "user", "three"),
	)

	first := whole(t, path, false)
	add(t, path, said("d", "b", "user", "other three")+"\n")
	more := once(t, path, first.Cursor, checkpoint.ReadOptions{})
	if got, want := standing(
		append(first.Entries, more.Entries...),
		talk...), []string{
		"one",
		"two",
		"other three",
	}; !slices.Equal(
		got, want,
	) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// OpenClaw shrinks an old result: it branches before it and appends copies of all that followed, under new ids.
func TestRewriteCopiesCountOnce(t *testing.T) {
	result := func(id, parent, text string) string {
		return fmt.Sprintf(
			`{"type":"message","id":%q,"parentId":%q,"message":{"role":"toolResult","toolCallId":"call_1","toolName":"exec","content":[{"type":"text","text":%q}],"timestamp":1767607300000}}`,
			id, parent, text,
		)
	}

	copied := func(id, parent, of, role, text string) string {
		return strings.Replace(said(of, parent, role, text), fmt.Sprintf("%q", of), fmt.Sprintf("%q", id), 1)
	}
	path := write(
		t, headLine, said("a", "", "user", "start"), result("b", "a", "a long output"),
		said("c", "b", "assistant", "done"), said("d", "c", "user", "more"),
	)

	tr := open(t, path)
	first := readAll(t, tr, "", checkpoint.ReadOptions{Whole: true})
	add(
		t,
		path,
		strings.Join(
			[]string{
				result("b2", "a", "shrunk"),
				copied("c2", "b2", "c", "assistant", "done"),
				copied("d2", "c2", "d", "user", "more"),
				said("e", "d2", "assistant", "new"),
			},
			"\n",
		)+"\n",
	)

	more := readAll(t, tr, first.Cursor, checkpoint.ReadOptions{})
	if got, want := show(
		more.Entries,
	), []string{
		`assistant "new"`,
		"turn-end",
	}; !slices.Equal(got, want) ||
		more.Losses.Repeats != 3 {
		t.Errorf("got %q and %d repeats, want %q and 3", got, more.Losses.Repeats, want)
	}

	// A reader of another run that does not remember: the same entries, under the same names.
	all := append(slices.Clone(first.Entries), once(t, path, first.Cursor, checkpoint.ReadOptions{}).Entries...)
	if got, want := standing(all, talk...), []string{"start", "done", "more", "new"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	// Rewinding to a copy takes back what follows, whichever record told of it.
	add(t, path, said("f", "c2", "user", "other")+"\n")
	last := readAll(t, tr, more.Cursor, checkpoint.ReadOptions{})
	all = append(append(slices.Clone(first.Entries), more.Entries...), last.Entries...)
	if got, want := standing(all, talk...), []string{"start", "done", "other"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSameWordsAtOneMomentAreTwoMessages(t *testing.T) {
	twin := strings.Replace(said("a", "a", "user", "yes"), `"id":"a"`, `"id":"b"`, 1)
	b := whole(
		t,
		write(
			t, headLine, said("a", "", "user", "yes"), said("x", "a", "assistant", "ok"),
			strings.Replace(twin, `"parentId":"a"`, `"parentId":"x"`, 1),
		),
		false,
	)

	if got, want := standing(b.Entries, talk...), []string{"yes", "ok", "yes"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A file whose records name parents that are nowhere costs no walk over the file for each of them.
func TestPhantomParentsAreCheap(t *testing.T) {
	text := []string{headLine}
	for i := range 3000 {
		text = append(text, said(fmt.Sprintf("m%d", i), fmt.Sprintf("call%d", i), "user", fmt.Sprintf("word %d", i)))
	}

	path := write(t, text...)
	b := whole(t, path, false)
	if got := len(standing(b.Entries, talk...)); got != 3000 {
		t.Errorf("%d prompts, want 3000", got)
	}

	src := &counted{File: lines.Open(path)}
	r := OpenRows(sourceOf(path), src)
	defer r.Close()
	c := readAll(t, r, b.Cursor, checkpoint.ReadOptions{}).Cursor
	for i := range 3 {
		id := fmt.Sprintf("z%d", i)
		add(t, path, said(id, "nowhere"+id, "user", id)+"\n")
		next := readAll(t, r, c, checkpoint.ReadOptions{})
		if got := standing(next.Entries, talk...); !slices.Equal(got, []string{id}) {
			t.Errorf("got %q, want %s", got, id)
		}
		c = next.Cursor
	}

	walks := slices.DeleteFunc(src.limits, func(n int64) bool { return n == 1<<20 }) // what is learned before a cursor
	if want := []int64{walkBytes, walkBytes / 4, walkBytes / 16}; !slices.Equal(walks, want) {
		t.Errorf("the walks may read %d bytes, want %d", walks, want)
	}
}

// counted is a file that keeps how many bytes each look backward might read.
type counted struct {
	*lines.File
	limits []int64
}

func (c *counted) Read(
	_ context.Context,
	from lines.Pos,
	opt lines.Options,
	fn func(lines.Line) bool,
) (lines.Span, error) {
	return c.File.Read(from, opt, fn)
}

func (c *counted) Backward(_ context.Context, end, limit int64, fn func(lines.Line) bool) error {
	c.limits = append(c.limits, limit)
	return c.File.Backward(end, limit, fn)
}

func (c *counted) At(_ context.Context, off int64) (lines.Pos, error) { return c.File.At(off) }
func (c *counted) Size(context.Context) (int64, error)                { return c.File.Size() }
