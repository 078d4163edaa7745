package recovery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
)

// TestEachMessageStandsOnce: the user's words stand where they read best, and nowhere else.
func TestEachMessageStandsOnce(t *testing.T) {
	b := newStory().user(
		"say hello to the otters",
	).answer(
		"hello otters",
	).user(
		"now count them twice over",
	).answer(
		"there are seven",
	).
		user(
			"and the seals, one by one, please",
		).call(
		"c1", "Bash", `{"command":"count seals"}`,
	).dies()

	for _, most := range []int{1200, 2048, 4000, 9000} {
		r := b.plan(t, Options{MaxBytes: most})
		once(
			t, r.Text, "say hello to the otters", "hello otters", "now count them twice over",
			"there are seven", "and the seals, one by one, please",
		)

		if r.Omitted.Messages != 0 || strings.Contains(r.Text, "left out") {
			t.Errorf("cap %d: got %+v left out, want none:\n%s", most, r.Omitted, r.Text)
		}
	}

	// With room, the conversation stands in its order.
	text := b.plan(t, Options{}).Text
	_, earlier, _ := strings.Cut(text, "## Earlier messages\n")
	at := 0
	for _, w := range []string{
		"the user had said\n> say hello", "the agent had answered\n> hello otters", "the user had said\n> now count",
	} {
		i := strings.Index(earlier[at:], w)
		if i < 0 {
			t.Fatalf("%q is not in its place under the earlier messages:\n%s", w, text)
		}
		at += i
	}
}

// TestTaskThatIsTheNewestPrompt stands in "Now" when it fits there whole, else its beginning there and all of it below.
func TestTaskThatIsTheNewestPrompt(t *testing.T) {
	long := "Please port the parser. " + strings.Repeat("And mind the details. ", 40) + "Thank you."
	many := "Please port the parser.\nKeep its lines:\n  one\n  two"
	for _, c := range []struct{ prompt, whole string }{
		{"Please port the parser to Go.", "The task was, in the user's last words (10:00:07 UTC): Please port the parser to Go.\n"},
		{long, long},
		{many, "> Please port the parser.\n> Keep its lines:\n>   one\n>   two\n"},
	} {
		text := newStory().user(c.prompt).dies().plan(t, Options{}).Text
		once(t, text, c.whole)
		if n := strings.Count(text, "mind the details"); n > 45 {
			t.Errorf("a long task is told twice (%d times its sentence):\n%s", n, text)
		}
	}

	text := newStory().user(
		"fix it, whatever it takes",
	).event(
		checkpoint.Event{Kind: checkpoint.EventTask, Text: "ship release 2"},
	).dies().plan(
		t, Options{},
	).Text

	once(t, text, "The task was: ship release 2\n", "fix it, whatever it takes")
}

func TestNowStaysShort(t *testing.T) {
	b := newStory().user(
		"a plain prompt",
	).event(
		checkpoint.Event{Kind: checkpoint.EventTask, Text: strings.Repeat("a long task ", 300)},
	).dies()

	_, now, _ := strings.Cut(b.plan(t, Options{}).Text, "## Now\n")
	now, _, _ = strings.Cut(now, "\n## ")
	if len(now) < 400 || len(now) > 600 {
		t.Errorf("got %d bytes, want up to 600 of them used for a long task:\n%s", len(now), now)
	}
}

// TestLongLastAnswer: shortened in the first 2 KB, at length below where there is room, and else once.
func TestLongLastAnswer(t *testing.T) {
	answer := "It begins here. " + strings.Repeat("ü and more. ", 220) + "It ends here."
	b := newStory().user("tell me all").answer(answer).dies()
	big := b.plan(t, Options{Start: StartManual})
	has(t, big.Text, answer, "(the last answer, more of it)")
	small := b.plan(t, Options{Start: StartManual, MaxBytes: 2048})
	once(t, small.Text, "It begins here.", "[…]", "It ends here.")
	if m := small.Messages[len(small.Messages)-1]; !m.Shortened || m.Text != answer {
		t.Errorf(
			"JSON: got shortened %v and %d bytes, want the whole text, marked as shortened in the brief",
			m.Shortened, len(m.Text),
		)
	}

	if m := big.Messages[len(big.Messages)-1]; m.Shortened {
		t.Error("JSON: the message is marked as shortened, although it stands there whole")
	}
}

func TestCheckpointsPlaceIsMarked(t *testing.T) {
	mark := "--- checkpoint 7 (FULL, 10:00:29 UTC) was here ---\n"
	b := newStory().user("one is the first").answer("answer one").user("two is the second").answer("answer two")
	c := b.checkpoint(7)
	b.user("three is the third").answer("answer three").user("four is the fourth")
	in := Input{State: b.s, Checkpoint: c}
	text := plan(t, in, Options{Start: StartManual}).Text
	once(t, text, mark)
	has(t, text, "> answer two\n"+mark+"[10:00:43 UTC] the user had said\n> three")

	// All that is told is older, or all is newer.
	old := newStory().user("one is the first").answer("answer one").user("two is the second").answer("answer two")
	text = plan(t, Input{State: old.s, Checkpoint: old.checkpoint(7)}, Options{Start: StartManual}).Text
	if i := strings.Index(
		text, mark,
	); i < strings.Index(text, "> one is the first") ||
		i < strings.Index(text, "> answer one") {
		t.Errorf("the place of a checkpoint after all messages is not at the end:\n%s", text)
	}

	text = plan(t, in, Options{Start: StartManual, MaxMessages: 2}).Text
	lacks(t, text, mark, "answer two")
}

// TestDamagedCheckpoint: the one before is used, told of, and marked where it lies.
func TestDamagedCheckpoint(t *testing.T) {
	b := newStory().user("one is the first").answer("answer one")
	first := b.checkpoint(1)
	b.user("two is the second").answer("answer two")
	b.checkpoint(2)
	b.user("three is the third").answer("answer three").dies()
	in := Input{State: b.s, Checkpoint: first, Damaged: 1}
	r := plan(t, in, Options{})
	has(t, r.Text, "1 newer checkpoint(s) were damaged", "--- checkpoint 1 (FULL")
	if i, j := strings.Index(r.Text, "--- checkpoint 1"), strings.Index(r.Text, "> two is"); i < 0 || j < i {
		t.Errorf("checkpoint 1 is not marked before the second prompt:\n%s", r.Text)
	}
	if got := *r.Checkpoint; got.Number != 1 || got.Damaged != 1 || got.Level != "FULL" {
		t.Errorf("JSON: got %+v, want number 1, FULL, 1 damaged", got)
	}

	has(t, plan(t, in, Options{Format: Delta}).Text, "answer two", "answer three")
	all := plan(t, Input{State: b.s, Damaged: 2}, Options{})
	has(t, all.Text, "2 checkpoint(s) were damaged; none could be used")
	has(
		t, plan(t, Input{State: b.s, Damaged: 2}, Options{Format: Delta}).Text, "_delta_since_last: start →",
		"answer one",
	)
}

func TestNowTellsWhatIsMissing(t *testing.T) {
	b := newStory().user("go on with it").
		event(
			checkpoint.Event{
				Kind:   checkpoint.EventEntries,
				Losses: &checkpoint.Losses{BadLines: 2, Torn: 17, Holes: 1, HoleBytes: 4096, Oversized: 1},
			},
		).
		event(checkpoint.Event{Kind: checkpoint.EventDropped, Count: 4}).
		event(checkpoint.Event{Kind: checkpoint.EventDegraded, Reason: "disk full"}).
		event(checkpoint.Event{Kind: checkpoint.EventChildStart, Child: "k1", ChildName: "Explore"}).
		event(checkpoint.Event{Kind: checkpoint.EventChildStart, Child: "k2", ChildName: "Plan"}).
		event(checkpoint.Event{Kind: checkpoint.EventChildEnd, Child: "k2"}).dies()

	r := plan(t, Input{State: b.s, Gone: true}, Options{})
	has(
		t, r.Text, "transcript is missing",
		"Not readable: 3 bad transcript lines, 1 torn line of 17 bytes, 1 hole(s) of 4096 bytes, 4 events.",
		"No checkpoint could be written since", "Sub-agent Explore (k1) was running.",
		"in the middle of its work (its process is gone)",
	)

	lacks(t, r.Text, "Plan")
	want := Lost{BadLines: 3, TornBytes: 17, Holes: 1, HoleBytes: 4096, Events: 4, Gone: true}
	if got := r.Lost; got != want {
		t.Errorf("lost: got %+v, want %+v", got, want)
	}
}

func TestManySubAgentsAreCounted(t *testing.T) {
	b := newStory().user("go on with it")
	for i := range 60 {
		b.event(checkpoint.Event{Kind: checkpoint.EventChildStart, Child: fmt.Sprintf("k%d", i), ChildName: "Explore"})
	}
	text := b.dies().plan(t, Options{}).Text
	named := strings.Count(text, "Sub-agent ")
	has(t, text, fmt.Sprintf("- and %d more\n", 60-named), "(k59)")
}

func TestDoubtLines(t *testing.T) {
	b := newStory().user(
		"go",
	).call(
		"c1",
		"Bash",
		"{\"command\":\"make `release`\"}",
	).call(
		"c2",
		"Read",
		`{"path":"a"}`,
	).
		call(
			"c3",
			"Bash",
			`{"command":"serve"}`,
		).event(
		checkpoint.Event{Kind: checkpoint.EventToolEnd, Call: "c3", Background: true},
	).
		file(
			checkpoint.Entry{
				Kind: checkpoint.EntryCall,
				Call: "c4",
				Name: "Write",
				Act:  checkpoint.Act{File: "b", Digest: "b"},
			},
		).
		call(
			"c5", "Bash", `{"command":"watch"}`,
		).event(
		checkpoint.Event{Kind: checkpoint.EventToolEnd, Call: "c5", Background: true},
	).dies()

	in := Input{State: b.s, Processes: map[string]Process{"c1": ProcessRunning, "c3": ProcessGone}}
	r := plan(t, in, Options{})
	has(
		t, r.Text,
		"- Bash `make 'release'` started 10:00:14 UTC, may have changed something; its process is still running. Result unknown.\n",
		"- Read `a` started 10:00:21 UTC, only reads; it is not known whether its process still runs. Result unknown.\n",
		"- Bash `serve` started 10:00:28 UTC, may have changed something; its process is gone; it went on in the background.",
		"- Write `b` started 10:00:42 UTC, may have changed something; asked for, not seen to start.",
		"- Bash `watch` started 10:00:49 UTC, may have changed something; it may go on in the background. Result unknown.\n",
	)

	if len(r.InDoubt) != 5 || r.InDoubt[0].Process != ProcessRunning || !r.InDoubt[0].Mutates || r.InDoubt[1].Mutates ||
		r.InDoubt[1].Process != ProcessUnknown {
		t.Errorf("in_doubt: got %+v", r.InDoubt)
	}
}

// TestManyOpenCalls: the newest by name at the top, more of them below where there is room, the rest counted.
func TestManyOpenCalls(t *testing.T) {
	b := newStory().user("go")
	for i := range 200 {
		b.call(fmt.Sprint("c", i), "Bash", fmt.Sprintf(`{"command":"step-%03d of the long way"}`, i))
	}

	b.dies()
	for _, most := range []int{200, 300, 600, 2048, 9000} {
		r := b.plan(t, Options{MaxBytes: most})
		sound(t, r, most)
		named, told := strings.Count(r.Text, "- Bash `step-"), 0
		if i := strings.LastIndex(r.Text, "- and "); i >= 0 {
			if _, err := fmt.Sscanf(r.Text[i:], "- and %d more", &told); err != nil {
				t.Errorf("cap %d: the count of the others does not read: %v", most, err)
			}
		} else if i := strings.Index(r.Text, "- 200 calls"); i >= 0 {
			told = 200
		}

		if named+told != 200 {
			t.Errorf("cap %d: got %d named and %d counted, want 200 in all:\n%s", most, named, told, r.Text)
		}
		if most >= 2048 {
			has(t, r.Text, "step-199")
		}
	}
}

func TestO03DoneCallsAreShownAsDone(t *testing.T) {
	b := fromFile(t, "O03-side-effects.jsonl")
	for _, most := range []int{2048, 9000} {
		r := b.plan(t, Options{Start: StartUp, MaxBytes: most})
		sound(t, r, most)
		_, done, _ := strings.Cut(r.Text, "## Already done\n")
		has(t, done, "Bash `orgctl create Acme-Demo`", "Bash `orgctl invite ops@example.invalid`")
		has(t, r.Text, "no instruction", "do not repeat what is done", "Now write the notes.")
		for line := range strings.Lines(r.Text) {
			l := strings.ToLower(line)
			if strings.HasPrefix(l, "user:") || strings.HasPrefix(l, "human:") || strings.HasPrefix(l, "assistant:") {
				t.Errorf("a line looks like a live turn: %q", line)
			}
		}
	}
}

func TestWorkTree(t *testing.T) {
	b := newStory().user("go on with it")
	c := b.checkpoint(1)
	c.WorkTree = &checkpoint.WorkTree{Branch: "main", Head: "aaaaaaaaaaaaaaaa", Changed: []string{" M a.go"}}
	b.dies()
	for _, tc := range []struct {
		name, want string
		now        *checkpoint.WorkTree
	}{
		{"not looked at", "", nil},
		{"could not be told", "", &checkpoint.WorkTree{Error: "no git"}},
		{"the same", "", &checkpoint.WorkTree{Branch: "main", Head: "aaaaaaaaaaaaaaaa", Changed: []string{" M a.go"}}},
		{"branch", "branch is `fix`, was `main`", &checkpoint.WorkTree{Branch: "fix", Head: "b"}},
		{"no branch", "branch is none, was `main`", &checkpoint.WorkTree{Head: "b"}},
		{"head", "HEAD is bbbbbbbbbb, was aaaaaaaaaa", &checkpoint.WorkTree{Branch: "main", Head: "bbbbbbbbbbbbbbbb"}},
		{"files", "2 changed names now, 1 then", &checkpoint.WorkTree{Branch: "main", Head: "aaaaaaaaaaaaaaaa", Changed: []string{
			" M a.go", "?? b",
		}}},
		{"other files", "1 changed names as then, but others", &checkpoint.WorkTree{Branch: "main", Head: "aaaaaaaaaaaaaaaa", Changed: []string{
			"?? b",
		}}},
	} {
		text := plan(t, Input{State: b.s, Checkpoint: c, WorkTree: tc.now}, Options{}).Text
		if tc.want == "" {
			lacks(t, text, "## Work tree")
		} else {
			has(t, text, "## Work tree\nNot as at the checkpoint: "+tc.want)
		}
	}
}

// TestNoHeadStandsAlone: with every cap, each section holds something.
func TestNoHeadStandsAlone(t *testing.T) {
	for _, b := range []*story{crashed(), fromFile(t, "O01-many-turns.jsonl").dies(), newStory().decision("only this").dies()} {
		for most := MinBytes; most <= 4000; most += 7 {
			r := b.plan(t, Options{Start: StartManual, MaxBytes: most})
			lines := strings.Split(r.Text, "\n")
			for i, l := range lines[:len(lines)-1] {
				if strings.HasPrefix(l, "## ") &&
					(strings.HasPrefix(lines[i+1], "## ") || strings.HasPrefix(lines[i+1], "</")) {
					t.Errorf("cap %d: %q stands alone in:\n%s", most, l, r.Text)
				}
			}
		}
	}
}

func TestC12StampsAreForDisplay(t *testing.T) {
	b := fromFile(t, "C12-future-stamps.jsonl")
	r := b.plan(t, Options{Start: StartManual})
	has(
		t, r.Text, "2031-06-01 00:00 UTC (a stamp from the future)", "[2019-01-01 00:00 UTC]", "[10:00:07 UTC]",
		"[2026-11-01 05:30 UTC (a stamp from the future)]", "clock jumped to 2031", "clock went back to 2019",
		"year zero", "leap second", "## Last answer (10:00:56 UTC)\n> normal again",
	)

	if i, j := strings.Index(r.Text, "2031-06-01"), strings.Index(r.Text, "2019-01-01"); i > j {
		t.Errorf("the order went by stamp:\n%s", r.Text)
	}

	// A delta's border is a number, never a stamp.
	all := []checkpoint.Role{checkpoint.RoleUser, checkpoint.RoleAssistant}
	from := b.s.Messages[0].Num
	d := b.plan(t, Options{Format: Delta, Roles: all, MaxMessages: 10, SinceNum: &from, SinceTime: noon})
	has(
		t, d.Text, "clock jumped to 2031", "clock went back to 2019", "autumn hour, first pass", "year zero",
		"normal again", "**[2031-06-01T00:00:00.000Z, a stamp from the future]**",
		"**[2019-01-01T00:00:00.000Z]**",
	)

	lacks(t, d.Text, ") now\n")
}

func TestClock(t *testing.T) {
	for _, c := range []struct {
		t    time.Time
		want string
	}{
		{noon.Add(-time.Hour), "11:00:00 UTC"},
		{noon.Add(59 * time.Minute), "12:59:00 UTC"},
		{noon.Add(2 * time.Hour), "2026-01-05 14:00 UTC (a stamp from the future)"},
		{noon.AddDate(0, 0, -1), "2026-01-04 12:00 UTC"},
		{noon.AddDate(-1, 0, 0), "2025-01-05 12:00 UTC"},
		{noon.In(time.FixedZone("x", 9*3600)), "12:00:00 UTC"},
		{time.Time{}, "an unknown time"},
	} {
		if got := clock(c.t, noon); got != c.want {
			t.Errorf("clock(%v): got %q, want %q", c.t, got, c.want)
		}
	}
}
