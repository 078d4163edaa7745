package recovery

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"belay/checkpoint"
)

// P24: the layout of the original's section.
func TestP24DeltaLayout(t *testing.T) {
	b := newStory().user("build it").answer("old answer")
	c := b.checkpoint(1)
	b.user(
		"and test it",
	).call(
		"c1",
		"Bash",
		`{"command":"make test"}`,
	).done(
		"c1",
	).answer(
		"it is tested\nand green",
	).call(
		"c2", "read", `{"path":"a.md"}`,
	)

	want := `<belay-record k="0123456789ab">
_delta_since_last: 2026-01-05T10:00:15.000Z → 2026-01-05T12:00:00.000Z_

### 📡 Recovered Delta

**[2026-01-05T10:00:36.000Z]** [Tool: Bash(make test)]

**[2026-01-05T10:00:50.000Z]** it is tested
> and green

**[2026-01-05T10:00:57.000Z]** [Tool: read(a.md)] open
</belay-record k="0123456789ab">`

	if got := plan(t, Input{State: b.s, Checkpoint: c}, Options{Format: Delta}).Text; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// P17, P37: the assistant alone by default; the user's words when they are asked for.
func TestP17P37DeltaRoles(t *testing.T) {
	b := newStory().user("build it").call("c1", "Bash", `{"command":"make"}`).done("c1").answer("built")
	for _, c := range []struct {
		roles      []checkpoint.Role
		has, lacks []string
	}{
		{nil, []string{"** built", "[Tool: Bash(make)]"}, []string{"build it"}},
		{[]checkpoint.Role{checkpoint.RoleUser}, []string{"(the user had said) build it"}, []string{"built", "[Tool:"}},
		{[]checkpoint.Role{checkpoint.RoleUser, checkpoint.RoleAssistant}, []string{
			"(the user had said) build it", "** built", "[Tool:",
		}, nil},
		{[]checkpoint.Role{checkpoint.RoleTool}, []string{"[Tool: Bash(make)]"}, []string{"built", "build it"}},
	} {
		text := b.plan(t, Options{Format: Delta, Roles: c.roles}).Text
		has(t, text, c.has...)
		lacks(t, text, c.lacks...)
	}
}

// P18, P19, P38: what came before the checkpoint is never told again, in whatever order it was learned; without one,
// all is new.
func TestP18P19P38DeltaBorder(t *testing.T) {
	b := newStory().user(
		"build it",
	).call(
		"c0",
		"Bash",
		`{"command":"old command"}`,
	).done(
		"c0",
	).answer(
		"old answer",
	).call(
		"c1",
		"Bash",
		`{"command":"old tail"}`,
	).done(
		"c1",
	).
		call(
			"c2", "Bash", `{"command":"ends later"}`,
		)

	c := b.checkpoint(1)
	in := Input{State: b.s, Checkpoint: c}
	b.done("c2").call("c3", "Bash", `{"command":"new command"}`).done("c3")
	text := plan(t, in, Options{Format: Delta}).Text
	has(t, text, "new command", "ends later", "_delta_since_last: 2026-01-05T10:00:50.000Z →")
	lacks(t, text, "old", "Nothing new")
	b.user("go on").answer("new answer")
	text = plan(t, in, Options{Format: Delta}).Text
	has(t, text, "new command", "new answer")
	lacks(t, text, "old")
	text = plan(t, in, Options{Format: Delta, SinceNum: new(uint64)}).Text
	has(t, text, "old answer", "old command", "new answer", "_delta_since_last: start →")
	first := newStory().user("build it").answer("built").plan(t, Options{Format: Delta}).Text
	has(t, first, "built", "_delta_since_last: start →")
}

func TestNothingNewIsSaid(t *testing.T) {
	b := newStory().user("build it").answer("built")
	r := plan(t, Input{State: b.s, Checkpoint: b.checkpoint(1)}, Options{Format: Delta})
	has(t, r.Text, "Nothing new since then.")
	if len(r.Messages) != 0 || r.Omitted.Messages != 0 {
		t.Errorf("got %d messages, %+v omitted, want none", len(r.Messages), r.Omitted)
	}
}

// A state that was rebuilt from the transcript counts differently than the checkpoint in the store: nothing may get
// lost by that.
func TestDeltaOfAStateThatNeverHeardOfTheCheckpoint(t *testing.T) {
	old := newStory()
	for i := range 30 {
		old.user(fmt.Sprint("prompt ", i)).answer(fmt.Sprint("reply ", i))
	}

	c := old.checkpoint(9)
	fresh := checkpoint.NewState(testKey)
	fresh.Apply(checkpoint.Event{At: noon, Key: testKey, Kind: checkpoint.EventEntries, Entries: []checkpoint.Entry{
		{
			ID:   "u",
			Kind: checkpoint.EntryUser,
			Text: "hello",
		},
		{ID: "a", Kind: checkpoint.EntryAssistant, Text: "the newest answer"},
	}})

	has(t, plan(t, Input{State: fresh, Checkpoint: c}, Options{Format: Delta}).Text, "the newest answer")
}

// P22: five messages, the newest; tool lines are none.
func TestP22FiveMessages(t *testing.T) {
	b := newStory().user("go")
	for i := range 8 {
		b.file(
			checkpoint.Entry{
				ID:   fmt.Sprint("a", i),
				Kind: checkpoint.EntryAssistant,
				Text: fmt.Sprintf("answer-%d", i),
			},
		).
			call(
				fmt.Sprint("c", i), "Bash", fmt.Sprintf(`{"command":"cmd-%d"}`, i),
			).done(
			fmt.Sprint("c", i),
		)
	}

	r := b.plan(t, Options{Format: Delta})
	has(
		t, r.Text, "answer-3", "answer-7", "cmd-3", "cmd-7",
		fmt.Sprintf("_%d earlier left out, %d bytes_", r.Omitted.Messages, r.Omitted.Bytes),
	)

	lacks(t, r.Text, "answer-2", "cmd-2")
	if got, want := r.Omitted.Messages, 6; got != want {
		t.Errorf("omitted: got %d, want 3 answers and 3 calls", got)
	}

	has(t, b.plan(t, Options{Format: Delta, MaxMessages: 1}).Text, "answer-7")
	lacks(t, b.plan(t, Options{Format: Delta, MaxMessages: 1}).Text, "answer-6")
}

// P33: the newest is kept, in time order. P34: one big message is shortened with a mark and ends nothing.
func TestP33P34NewestKeptBigOneShortened(t *testing.T) {
	b := newStory().user("go")
	for i := range 40 {
		b.file(
			checkpoint.Entry{
				ID:   fmt.Sprint("a", i),
				Kind: checkpoint.EntryAssistant,
				Text: fmt.Sprintf("answer %02d: %s", i, strings.Repeat("word ", 60)),
			},
		)
	}

	text := b.plan(t, Options{Format: Delta, MaxMessages: 100}).Text
	has(t, text, "answer 39", "answer 38", "earlier left out")
	lacks(t, text, "answer 00")
	if strings.Index(text, "answer 38") > strings.Index(text, "answer 39") {
		t.Errorf("not in time order:\n%s", text)
	}

	for _, big := range []string{strings.Repeat("長い", 3000), "x" + strings.Repeat("\n", 3000) + "y", strings.Repeat("a\n", 3000), strings.Repeat("---\n", 2000), strings.Repeat("<system>", 2000)} {
		d := newStory().user("go").answer("small and before").user("on").answer("BEGIN" + big + "END")
		for _, most := range []int{200, 300, 2048} {
			r := d.plan(t, Options{Format: Delta, MaxBytes: most})
			sound(t, r, most)
			has(t, r.Text, "BEGIN", "[…]", "END")
			if m := r.Messages[len(r.Messages)-1]; !m.Shortened {
				t.Errorf("cap %d: the message is not marked as shortened", most)
			}
		}
	}
}

// P36: arguments are shown by a digest. Many calls never push the newest answer out.
func TestP36ToolLines(t *testing.T) {
	b := newStory().user("go").answer("the newest answer stays").user("more")
	for i := range 45 {
		b.call(
			fmt.Sprint("c", i), "Bash", fmt.Sprintf(`{"command":"cmd-%02d %s"}`, i, strings.Repeat("x", 100)),
		).done(
			fmt.Sprint("c", i),
		)
	}

	for _, most := range []int{400, 2048} {
		r := b.plan(t, Options{Format: Delta, MaxBytes: most})
		sound(t, r, most)
		has(t, r.Text, "the newest answer stays")
		if most == 2048 {
			has(t, r.Text, "[Tool: Bash(cmd-44 ")
		}

		shown := strings.Count(r.Text, "**[")
		if got, want := r.Omitted.Messages, 46-shown; got != want {
			t.Errorf("cap %d: got %d omitted, %d stand there of 46", most, got, shown)
		}
	}
}

func TestCallBeforeAnyMessageIsTold(t *testing.T) {
	text := newStory().call("c1", "Bash", `{"command":"make"}`).plan(t, Options{Format: Delta}).Text
	has(t, text, "[Tool: Bash(make)] open")
}

// TestJSONForm holds the names that docs/json.md promises.
func TestJSONForm(t *testing.T) {
	b := crashed()
	c := b.checkpoint(3)
	data, err := json.Marshal(
		plan(
			t, Input{State: b.s, Checkpoint: c, Adopted: true, WorkTree: &checkpoint.WorkTree{Branch: "main"}},
			Options{},
		),
	)

	if err != nil {
		t.Fatal(err)
	}

	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}

	for _, k := range []string{"agent", "session", "from_session", "start", "how_it_ended", "checkpoint", "task", "user", "decisions", "in_doubt", "messages", "omitted",
		"lost", "work_tree", "text", "bytes"} {
		if _, ok := got[k]; !ok {
			t.Errorf("%q is missing in %s", k, data)
		}
	}

	call := got["in_doubt"].([]any)[0].(map[string]any)
	for _, k := range []string{"id", "name", "digest", "started", "mutates", "process"} {
		if _, ok := call[k]; !ok {
			t.Errorf("in_doubt: %q is missing in %v", k, call)
		}
	}

	none, err := json.Marshal(plan(t, Input{State: newStory().s}, Options{}))
	if err != nil {
		t.Fatal(err)
	}

	for _, k := range []string{`"user":[]`, `"decisions":[]`, `"in_doubt":[]`, `"messages":[]`} {
		if !strings.Contains(string(none), k) {
			t.Errorf("an empty answer has no %s: %s", k, none)
		}
	}
}

// BenchmarkPlan is the brief of a full state whose texts all need to be made harmless: the worst there is.
func BenchmarkPlan(b *testing.B) {
	full := newStory()
	for i := range 60 {
		full.user(
			strings.Repeat("<belay & words> ", 2000),
		).answer(
			strings.Repeat("more \\ words -- ", 2000),
		).call(
			fmt.Sprint(i), "Bash", `{"command":"x"}`,
		)
	}

	for b.Loop() {
		if _, err := Plan(Input{State: full.s}, Options{Start: StartManual}, noon); err != nil {
			b.Fatal(err)
		}
	}
}
