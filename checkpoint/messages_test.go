package checkpoint

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestL05ShortenAtEveryCap(t *testing.T) {
	for _, text := range []string{strings.Repeat("日本語テキスト", 60), strings.Repeat("🚀🎉", 90), strings.Repeat("plain words ", 60), "é"} {
		for limit := range len(text) + 2 {
			got, cut := Shorten(text, limit)
			if len(got) > limit || !utf8.ValidString(got) || cut != (len(text) > limit) {
				t.Fatalf(
					"%d bytes to %d: got %d bytes, cut %v, valid %v", len(text), limit, len(got), cut,
					utf8.ValidString(got),
				)
			}

			if cut && limit > 40 &&
				(!strings.Contains(got, "[…]") || !strings.HasPrefix(text, got[:3]) || !strings.HasSuffix(text, got[len(got)-3:])) {
				t.Fatalf("to %d: %q has no mark, or not the head and tail", limit, got)
			}
		}
	}
}

func TestTitleIsCutAtAWord(t *testing.T) {
	tests := []struct{ prompt, want string }{
		{"fix it", "fix it"},
		{"  fix\n\n the   thing ", "fix the thing"},
		{strings.Repeat("word ", 40), strings.TrimSpace(strings.Repeat("word ", 12)) + "…"},
		{strings.Repeat("x", 100), strings.Repeat("x", 60) + "…"},
		{strings.Repeat("語", 100), strings.Repeat("語", 60) + "…"},
		{"", ""},
	}
	for _, c := range tests {
		if got := title(c.prompt); got != c.want {
			t.Errorf("%q: got %q, want %q", c.prompt, got, c.want)
		}
	}
}

// TestM07UsersWordsOutliveTheModels floods a session with answers.
func TestM07UsersWordsOutliveTheModels(t *testing.T) {
	f := newFold(t)
	big := strings.Repeat("b", CutText)
	for i := range 10 {
		f.file(Entry{Kind: EntryUser, Text: fmt.Sprint("remember ", i, " ", big[:CutText-20])})
	}

	for i := range 500 {
		f.file(Entry{Kind: EntryAssistant, Text: fmt.Sprint("answer ", i, " ", big[:CutText-20])})
	}

	users, replies, whole := 0, 0, 0
	for _, m := range f.s.Messages {
		limit := keepUserBytes
		if m.Role == RoleAssistant {
			replies, limit = replies+1, keepReplyBytes
		} else {
			users++
		}

		if len(m.Text) > limit {
			whole++
		} else if !m.Cut || !strings.Contains(m.Text, "[…]") {
			t.Errorf("message %d is %d bytes and bears no mark", m.Num, len(m.Text))
		}
	}

	if users != 10 || replies != keepReplies || whole != 2*keepWhole {
		t.Errorf(
			"%d user messages, %d replies, %d of them whole; want 10, %d, %d", users, replies, whole,
			keepReplies, 2*keepWhole,
		)
	}
}

func TestOneMessageInSeveralRecords(t *testing.T) {
	f := newFold(t).steps("P p, F p, S third")
	f.file(
		Entry{ID: "r1", Group: "m", Kind: EntryAssistant, Text: "first"},
		Entry{ID: "r2", Group: "m", Kind: EntryAssistant, Text: "second"},
		Entry{ID: "r3", Group: "m", Kind: EntryAssistant, Text: "third"},
	)

	f.file(
		Entry{ID: "r2", Group: "m", Kind: EntryAssistant, Text: "second"},
		Entry{ID: "r3", Group: "m", Kind: EntryAssistant, Text: "third"},
	) // read again

	if got, want := said(f.s), "user: p | assistant: first\nsecond\nthird"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

func TestUpsertGivesNewWords(t *testing.T) {
	f := newFold(t)
	f.file(Entry{ID: "u", Kind: EntryUser, Text: "befor"}, Entry{ID: "a", Kind: EntryAssistant, Text: "hal"})
	news := f.s.News
	f.file(Entry{ID: "u", Kind: EntryUser, Text: "before"}, Entry{ID: "a", Kind: EntryAssistant, Text: "half"})
	if got, want := said(
		f.s,
	), "user: before | assistant: half"; got != want || f.s.News <= news || f.s.Task != "before" ||
		f.s.Title != "before" {
		t.Errorf(
			"said %q, task %q, title %q, news %v; want %q and something new", got, f.s.Task, f.s.Title,
			f.s.News > news, want,
		)
	}
}

// TestP37DeltaHoldsWhatWasSaidSince: the next checkpoint's delta begins where the last one's state ended, by number and
// not by time.
func TestP37DeltaHoldsWhatWasSaidSince(t *testing.T) {
	f := newFold(t).steps("P a, S x")
	c := New(f.s.Clone(), 1, Decision{Level: Full, Cause: CauseManual}, f.now)
	f.steps("P b") // while it is written, in the same instant for all that matters
	taken := c.Taken()
	f.event(Event{Kind: EventCheckpoint, Taken: &taken})
	f.steps("S y")
	var got []string
	for _, m := range New(f.s.Clone(), 2, Decision{Level: Full}, f.now).Delta {
		got = append(got, m.Text)
	}

	if fmt.Sprint(got) != "[b y]" {
		t.Errorf("delta %v, want [b y]", got)
	}
}
