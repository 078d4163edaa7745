package recovery

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
)

// crashed is a session that died in a turn: one answer in the file, one prompt and one open call that only hooks told
// of.
func crashed() *story {
	return newStory().
		file(
			checkpoint.Entry{ID: "u1", Kind: checkpoint.EntryUser, Text: "first: build the parser"},
			checkpoint.Entry{ID: "a1", Kind: checkpoint.EntryAssistant, Text: "the parser is built"},
		).
		decision("no new dependency").
		user("second: now release it, whatever it takes").
		call("c1", "Bash", `{"command":"make release"}`).
		dies()
}

// H13: every source has its answer.
func TestH13EverySourceHasItsAnswer(t *testing.T) {
	data, err := os.ReadFile("testdata/H13-sources.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	filed := []string{"the parser is built", "first: build the parser"}
	unfiled := []string{"no new dependency", "make release", "second: now release it"}
	want := map[string]struct{ has, lacks []string }{
		"startup":            {append(unfiled, filed...), nil},
		"some_future_source": {append(unfiled, filed...), nil},
		"":                   {append(unfiled, filed...), nil},
		"resume":             {unfiled, filed},
		"fork":               {unfiled, filed},
		"compact":            {append(unfiled, filed[1]), filed[:1]},
		"clear":              {nil, []string{"release", "parser", "belay"}},
	}

	for line := range strings.Lines(string(data)) {
		var hook struct{ Source string }
		if err := json.Unmarshal([]byte(line), &hook); err != nil {
			t.Fatal(err)
		}

		w, ok := want[hook.Source]
		if !ok {
			t.Fatalf("source %q has no stated answer", hook.Source)
		}

		r := crashed().plan(t, Options{Start: hook.Source})
		has(t, r.Text, w.has...)
		lacks(t, r.Text, w.lacks...)
		if r.Start != hook.Source {
			t.Errorf("start: got %q, want %q", r.Start, hook.Source)
		}

		delete(want, hook.Source)
	}

	if len(want) > 0 {
		t.Errorf("sources that the case file does not hold: %v", want)
	}
}

func TestNothingIsGiven(t *testing.T) {
	ended := func() *story {
		return newStory().user(
			"build it",
		).answer(
			"built",
		).event(
			checkpoint.Event{Kind: checkpoint.EventEnd, Reason: "logout"},
		)
	}

	filed := func() *story {
		return newStory().file(checkpoint.Entry{ID: "u1", Kind: checkpoint.EntryUser, Text: "all of it is filed"},
			checkpoint.Entry{ID: "a1", Kind: checkpoint.EntryAssistant, Text: "yes"})
	}

	told := crashed().event(checkpoint.Event{Kind: checkpoint.EventGiven, Marker: "m"})
	for _, c := range []struct {
		name  string
		b     *story
		start string
		want  bool
	}{
		{"clean end, startup", ended(), StartUp, false},
		{"clean end, unknown word", ended(), "later", false},
		{"clean end, by hand", ended(), StartManual, true},
		{"clean end, then it went on and died", ended().start("resume").user("again").dies(), StartUp, true},
		{"clean end, then it went on, nobody saw its death", ended().start("resume").user("again"), StartUp, true},
		{"clear", crashed(), StartClear, false},
		{"cleared since", crashed().start("clear"), StartUp, false},
		{"resume, all is filed", filed().dies(), StartResume, false},
		{"fork, all is filed", filed().dies(), StartFork, false},
		{"resume, a decision", filed().decision("keep it"), StartResume, true},
		{"resume, the decision was told", filed().decision("keep it").event(checkpoint.Event{Kind: checkpoint.EventGiven, Marker: "m"}), StartResume, false},
		{"compact, nothing said", newStory().start("compact"), StartCompact, false},
		{"nothing said at all", newStory().start("startup"), StartUp, false},
		{"nothing said at all, by hand", newStory(), StartManual, false},
		{"crash, told, resumed: unfiled words remain", told, StartResume, true},
	} {
		if got := c.b.plan(t, Options{Start: c.start}).Text; (got != "") != c.want {
			t.Errorf("%s: given: got %v, want %v:\n%s", c.name, got != "", c.want, got)
		}
	}
}

// TestDoubtIsToldOncePerDeath: a brief that was given no longer names its calls; a new death counts again.
func TestDoubtIsToldOncePerDeath(t *testing.T) {
	b := crashed()
	has(t, b.plan(t, Options{}).Text, "make release")
	b.event(checkpoint.Event{Kind: checkpoint.EventGiven, Marker: "m"})
	for _, start := range []string{StartUp, StartResume, StartFork, StartCompact} {
		lacks(t, b.plan(t, Options{Start: start}).Text, "make release")
	}

	has(t, b.plan(t, Options{Start: StartManual}).Text, "make release")
	b.start("resume").user("go on").call("c2", "Bash", `{"command":"make publish"}`).dies()
	text := b.plan(t, Options{Start: StartResume}).Text
	has(t, text, "make publish")
	lacks(t, text, "make release")
}

// TestOwedBriefLeavesOutThePromptThatCarriesIt: what the user says at this moment is no record of the past.
// TestBackgroundCallIsToldOnce: a call that goes on while its session comes and goes is told again where the
// conversation lost it, and when the agent died.
func TestBackgroundCallIsToldOnce(t *testing.T) {
	b := newStory().user(
		"go",
	).call(
		"c1", "Bash", `{"command":"serve"}`,
	).event(
		checkpoint.Event{Kind: checkpoint.EventToolEnd, Call: "c1", Background: true},
	).answer(
		"it runs",
	)
	for _, c := range []struct {
		start string
		want  bool
	}{{StartResume, true}, {StartResume, false}, {StartCompact, true}, {"death", false}, {StartResume, true}, {StartResume, false}} {
		if c.start == "death" {
			b.dies()
			continue
		}
		if text := b.plan(t, Options{Start: c.start}).Text; strings.Contains(text, "Bash `serve`") != c.want {
			t.Errorf("%s: told %v, want %v:\n%s", c.start, !c.want, c.want, text)
		}

		b.event(checkpoint.Event{Kind: checkpoint.EventGiven, Marker: "m"})
	}
}

func TestOwedBriefLeavesOutThePromptThatCarriesIt(t *testing.T) {
	owed := func(source string) *story {
		return crashed().start(
			source,
		).event(
			checkpoint.Event{Kind: checkpoint.EventOwed},
		).user(
			"third: what happened to my release?",
		)
	}

	for _, start := range []string{StartUp, StartResume} {
		r := owed(start).plan(t, Options{Start: start})
		has(t, r.Text, "make release", "stopped without a good-bye")
		lacks(t, r.Text, "third:")
		if len(r.User) == 0 || strings.HasPrefix(r.User[len(r.User)-1].Text, "third") {
			t.Errorf("%s: user: got %+v, want the words of before", start, r.User)
		}
	}

	filed := newStory().file(checkpoint.Entry{ID: "u1", Kind: checkpoint.EntryUser, Text: "all of it is filed"}).dies().
		event(checkpoint.Event{Kind: checkpoint.EventOwed}).user("now this")
	if r := filed.plan(t, Options{Start: StartResume}); r.Text != "" {
		t.Errorf("nothing but the prompt itself is unfiled, got:\n%s", r.Text)
	}

	// A prompt that has its answer, or that the transcript holds, is not being said at this moment.
	has(t, owed(StartUp).answer("it was never released").plan(t, Options{}).Text, "third:", "it was never released")
	inFile := owed(
		StartUp,
	).file(
		checkpoint.Entry{ID: "u3", Kind: checkpoint.EntryUser, Text: "third: what happened to my release?"},
	)

	has(t, inFile.plan(t, Options{}).Text, "third:")

	// Once it is owed no more, it is the record's.
	done := owed(StartUp).event(checkpoint.Event{Kind: checkpoint.EventGiven, Marker: "m"})
	has(t, done.dies().plan(t, Options{}).Text, "third:")
}

func TestCompactGivesTheUsersWordsWhole(t *testing.T) {
	b := newStory()
	for i := range 15 {
		b.user(strings.Repeat("word ", 60) + string(rune('a'+i)) + "-end").answer("an answer " + string(rune('a'+i)))
	}

	b.decision("no new dependency").call("c1", "Bash", `{"command":"make release"}`)
	r := b.plan(t, Options{Start: StartCompact})
	sound(t, r, 9000)
	for i := range 15 {
		once(t, r.Text, string(rune('a'+i))+"-end")
	}

	has(t, r.Text, "no new dependency", "make release", "compacted")
	lacks(t, r.Text, "an answer", "good-bye", "last sign", "## Already done", "## Last answer")
}

func TestHowItEnded(t *testing.T) {
	for _, c := range []struct {
		want string
		b    *story
	}{
		{"open", newStory().user("x")},
		{"unknown", newStory().user("x").answer("y")},
		{"clean", newStory().user("x").answer("y").event(checkpoint.Event{Kind: checkpoint.EventEnd})},
		{"died in a turn", newStory().user("x").dies()},
		{"died idle", newStory().user("x").answer("y").dies()},
		{"open", newStory().user("x").answer("y").event(checkpoint.Event{Kind: checkpoint.EventEnd}).start("resume").user("z")},
	} {
		if got := c.b.plan(t, Options{Start: StartManual}).HowItEnded; got != c.want {
			t.Errorf("how it ended: got %q, want %q", got, c.want)
		}
	}
}

// TestLastSignIsNotTheStartThatAsks: a session that starts again asks at this moment; its last sign was before.
func TestLastSignIsNotTheStartThatAsks(t *testing.T) {
	b := newStory().user("build it").answer("built")
	b.at = noon.Add(-time.Minute)
	b.start("startup")
	has(t, b.plan(t, Options{}).Text, "The last sign of it came at 10:00:14 UTC.")
}

func TestRepairingAgentGetsFacts(t *testing.T) {
	text := crashed().plan(t, Options{Repairs: true}).Text
	has(t, text, "## In doubt\n", "make release")
	lacks(t, text, "check before", "do not repeat")
}

func TestAdoptedNamesWhereItComesFrom(t *testing.T) {
	b := crashed()
	if got := plan(t, Input{State: b.s, Adopted: true}, Options{}).FromSession; got != testKey.Session {
		t.Errorf("from_session: got %q, want %q", got, testKey.Session)
	}
	if got := b.plan(t, Options{}).FromSession; got != "" {
		t.Errorf("from_session of the session itself: got %q, want none", got)
	}
}

func TestRolesOfTheBrief(t *testing.T) {
	for _, c := range []struct {
		roles      []checkpoint.Role
		has, lacks string
	}{
		{nil, "the parser is built", "[Tool:"},
		{[]checkpoint.Role{checkpoint.RoleAssistant}, "the parser is built", "## User said"},
		{[]checkpoint.Role{checkpoint.RoleUser}, "first: build", "the parser is built"},
		{[]checkpoint.Role{checkpoint.RoleUser, checkpoint.RoleTool}, "[Tool: Bash(make release)] in doubt", "the parser is built"},
	} {
		text := crashed().plan(t, Options{Start: StartManual, Roles: c.roles}).Text
		has(t, text, c.has)
		lacks(t, text, c.lacks)
	}
}

// TestPlanIsAPureRead: it marks nothing, and the same input gives the same text.
func TestPlanIsAPureRead(t *testing.T) {
	b := crashed()
	before, err := json.Marshal(b.s)
	if err != nil {
		t.Fatal(err)
	}

	first := b.plan(t, Options{}).Text
	b.plan(t, Options{Format: Delta})
	after, err := json.Marshal(b.s)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, after) {
		t.Errorf("the state changed:\n%s\n%s", before, after)
	}
	if second := b.plan(t, Options{}).Text; first != second {
		t.Errorf("the second text differs:\n%s\n%s", first, second)
	}
}

// A tool ended just before the kill and its result never reached the agent's file: the resumed model is told by its own
// agent that the outcome is unknown. belay knows better, and says so once.
func TestResumeTellsOfResultsThatTheFileDoesNotHold(t *testing.T) {
	b := newStory().start(StartUp).user("deploy it to staging, please").call("c1", "Bash", `{"command":"make deploy"}`).
		file(
			checkpoint.Entry{ID: "u", Kind: checkpoint.EntryUser, Text: "deploy it to staging, please"},
			checkpoint.Entry{
				ID:    "a",
				Kind:  checkpoint.EntryCall,
				Call:  "c1",
				Name:  "Bash",
				Input: `{"command":"make deploy"}`,
				Act:   checkpoint.Act{Digest: "make deploy"},
			},
		).
		done("c1").dies()

	r := b.plan(t, Options{Start: StartResume})
	if !strings.Contains(r.Text, "## Already done") || !strings.Contains(r.Text, "make deploy") {
		t.Errorf("the finished call is not told:\n%s", r.Text)
	}

	b.file(checkpoint.Entry{ID: "r", Kind: checkpoint.EntryResult, Call: "c1", MadeUp: true})
	if r := b.plan(t, Options{Start: StartResume}); !strings.Contains(r.Text, "make deploy") {
		t.Errorf("the agent's made-up result silenced the true one:\n%s", r.Text)
	}

	b.event(checkpoint.Event{Kind: checkpoint.EventGiven, Marker: "m"})
	if r := b.plan(t, Options{Start: StartResume}); r.Text != "" {
		t.Errorf("told twice:\n%s", r.Text)
	}
}
