package codex

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
)

const threadThree = "01999999-0000-7000-8000-000000000003"

// laterName is the place of the rollout in which a thread goes on after its person went back.
func laterName(id string) string {
	return strings.TrimSuffix(nameOf(threadOne), ".jsonl") + "_" + id + ".jsonl"
}

// follows is the first record of such a rollout: it goes on from another one, of which so many bytes count.
func follows(thread, from string, end int) string {
	return rec(
		"session_meta",
		fmt.Sprintf(
			`{"id":%q,"session_id":%q,"cwd":"/p","source":"cli","history_mode":"paginated","history_base":{"thread_id":%q,"end_ordinal_exclusive":9,"end_byte_offset":%d}}`,
			thread, thread, from, end,
		),
	)
}

func round(n string) string {
	return says(
		"u"+n, "user", "user.text", "prompt "+n,
	) + says(
		"a"+n, "assistant", "unknown", "answer "+n,
	) + event(
		`{"type":"task_complete","turn_id":"t`+n+`"}`,
	)
}

// standing is what is left of the words after what was taken back.
func standing(entries []checkpoint.Entry) string {
	var words []string
	at := map[string]int{}
	for _, e := range entries {
		switch {
		case e.Op == checkpoint.Retract:
			if i, ok := at[e.ID]; ok {
				words[i] = ""
			}
		case e.Text != "":
			at[e.ID] = len(words)
			words = append(words, e.Text)
		}
	}

	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// TestGoneBack: the person goes back, once and again, and once further back. What was taken back is retracted, what
// still stands is given once, by the same reader, by one that begins at an older cursor, and by one that has seen
// nothing.
func TestGoneBack(t *testing.T) {
	home := t.TempDir()
	one := filepath.Join(home, nameOf(threadOne))
	two := filepath.Join(home, laterName(threadTwo))
	three := filepath.Join(home, laterName(threadThree))
	base := meta(threadOne, "/p") + round("1")
	write(t, one, base)
	r := open(t, one)
	early := all(t, r, "", whole)
	write(t, one, base+round("2"))
	seen := all(t, r, early.Cursor, whole)
	told := append(early.Entries, seen.Entries...)

	write(t, two, follows(threadOne, threadOne, len(base))+round("3"))
	next := all(t, open(t, two), seen.Cursor, whole)
	told = append(told, next.Entries...)
	if got, want := standing(told), "prompt 1 answer 1 prompt 3 answer 3"; got != want {
		t.Errorf("after the first time: got %q, want %q\n%s", got, want, brief(next.Entries))
	}
	if next.First || strings.Contains(brief(next.Entries), "reset") {
		t.Errorf("the first time is told as another conversation: %s", brief(next.Entries))
	}

	third := follows(threadOne, threadTwo, len(read(t, two)))
	write(t, two, read(t, two)+round("4"))
	write(t, three, third+round("5"))
	for _, tt := range []struct {
		name   string
		from   checkpoint.Cursor
		before []checkpoint.Entry
	}{
		{"read to the first part's end", next.Cursor, told},
		{"read to where it goes on", early.Cursor, early.Entries},
		{"seen for the first time", "", nil},
	} {
		b := all(t, open(t, three), tt.from, whole)
		sum := append(tt.before[:len(tt.before):len(tt.before)], b.Entries...)
		if got, want := standing(sum), "prompt 1 answer 1 prompt 3 answer 3 prompt 5 answer 5"; got != want {
			t.Errorf("%s: got %q, want %q\n%s", tt.name, got, want, brief(b.Entries))
		}
	}

	// Further back than the newest part begins: all of that one is gone.
	write(t, three, follows(threadOne, threadOne, len(meta(threadOne, "/p")))+round("6"))
	last := all(t, open(t, three), next.Cursor, whole)
	if got, want := standing(append(told, last.Entries...)), "prompt 6 answer 6"; got != want {
		t.Errorf("further back: got %q, want %q\n%s", got, want, brief(last.Entries))
	}

	found, err := locate(context.Background(), home, agent.Query{Session: threadOne})
	if err != nil || len(found) != 1 || found[0].Path != three {
		t.Errorf("locate: got %v, %v, want the newest part alone, %s", found, err, three)
	}
}

// TestGoneBackInLarge: first sight of what goes on from a large rollout has the first prompt and the newest words.
func TestGoneBackInLarge(t *testing.T) {
	home := t.TempDir()
	one, two := filepath.Join(home, nameOf(threadOne)), filepath.Join(home, laterName(threadTwo))
	var b strings.Builder
	b.WriteString(meta(threadOne, "/p"))
	for n := range 400 {
		b.WriteString(round(fmt.Sprint("long", n, strings.Repeat("x", 2000))))
	}

	base := b.String()
	write(t, one, base+round("gone"))
	write(t, two, follows(threadOne, threadOne, len(base))+round("new"))
	pack(t, one) // a week later
	got := all(t, open(t, two), "", checkpoint.ReadOptions{})
	words := standing(got.Entries)
	for text, want := range map[string]bool{
		"prompt long0x": true, "answer long399x": true, "prompt new": true, "answer new": true, "gone": false,
		"prompt long100x": false,
	} {
		if strings.Contains(words, text) != want {
			t.Errorf("%q is in first sight: got %v, want %v", text, !want, want)
		}
	}

	if !got.First || got.Skipped == 0 {
		t.Errorf("got first %v, %d bytes skipped, want first sight that skips some", got.First, got.Skipped)
	}
}

// TestForkedThread: what was before a fork is its parent's.
func TestForkedThread(t *testing.T) {
	home := t.TempDir()
	base := meta(threadTwo, "/p") + round("1")
	write(t, filepath.Join(home, nameOf(threadTwo)), base)
	path := filepath.Join(home, nameOf(threadOne))
	write(t, path, follows(threadOne, threadTwo, len(base))+round("2"))
	if got, want := standing(all(t, open(t, path), "", whole).Entries), "prompt 2 answer 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
