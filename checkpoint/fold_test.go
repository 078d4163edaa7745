package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fold is a session under test: what happens is written as short steps, one second apart.
type fold struct {
	t      *testing.T
	s      *State
	now    time.Time
	seq    uint64
	ids    int
	last   Effect
	rounds int // how many effects said that a round ended
	chains int
	forced []Cause
}

func newFold(t *testing.T) *fold { return &fold{t: t, s: NewState(testKey()), now: epoch} }

func (f *fold) event(e Event) Effect {
	f.seq++
	f.now = f.now.Add(time.Second)
	e.Seq, e.Key = f.seq, f.s.Key
	if e.At.IsZero() {
		e.At = f.now
	}

	f.last = f.s.Apply(e)
	if f.last.Round {
		f.rounds++
	}
	if f.last.ChainEnd {
		f.chains++
	}
	if f.last.Force != "" {
		f.forced = append(f.forced, f.last.Force)
	}

	return f.last
}

func (f *fold) file(list ...Entry) Effect {
	for i := range list {
		if list[i].ID == "" && list[i].Kind != "" {
			f.ids++
			list[i].ID = fmt.Sprintf("id%d", f.ids)
		}
	}
	return f.event(Event{Kind: EventEntries, Entries: list, Cursor: "c"})
}

// step folds one short step: "P go" a prompt's hook, "S done" a Stop, "F go" a prompt in the file, "A done" an answer
// there, "E" a turn's end there, "X" an interrupt there, "H beat" and "N beat" an aside prompt by hook and in the file,
// "B" an aside turn's end in the file, "T id", "Z id" a call's start and end by hook, "C id", "R id" call and result in
// the file, "M id" a made-up result, "I" an increment.
func (f *fold) step(step string) {
	f.t.Helper()
	op, arg, _ := strings.Cut(step, " ")
	switch op {
	case "P":
		f.event(Event{Kind: EventPrompt, Text: arg, Sum: Hash(step)})
	case "S":
		f.event(Event{Kind: EventStop, Text: arg, Sum: Hash(step)})
	case "I":
		f.event(Event{Kind: EventStop})
	case "H":
		f.event(Event{Kind: EventPrompt, Text: arg, Aside: true})
	case "HS":
		f.event(Event{Kind: EventStop, Text: arg, Aside: true})
	case "F":
		f.file(Entry{Kind: EntryUser, Text: arg, At: f.now})
	case "N":
		f.file(Entry{Kind: EntryUser, Text: arg, At: f.now, Aside: true})
	case "A":
		f.file(Entry{Kind: EntryAssistant, Text: arg, At: f.now})
	case "E":
		f.file(Entry{Kind: EntryTurnEnd, At: f.now})
	case "B":
		f.file(Entry{Kind: EntryTurnEnd, At: f.now, Aside: true})
	case "X":
		f.file(Entry{Kind: EntryInterrupt, At: f.now})
	case "T":
		f.event(Event{Kind: EventToolStart, Call: arg, Name: "Bash"})
	case "Z":
		f.event(Event{Kind: EventToolEnd, Call: arg, Name: "Bash"})
	case "C":
		f.file(Entry{Kind: EntryCall, Call: arg, Name: "Bash"})
	case "R":
		f.file(Entry{Kind: EntryResult, Call: arg})
	case "M":
		f.file(Entry{Kind: EntryResult, Call: arg, MadeUp: true})
	case "later":
		f.now = f.now.Add(10 * time.Minute)
	default:
		f.t.Fatalf("no step %q", step)
	}
}

func (f *fold) steps(list string) *fold {
	f.t.Helper()
	for s := range strings.SplitSeq(list, ",") {
		f.step(strings.TrimSpace(s))
	}
	return f
}

// said is the conversation as one line, "user: go | assistant: done".
func said(s *State) string {
	var list []string
	for _, m := range s.Messages {
		list = append(list, string(m.Role)+": "+m.Text)
	}
	return strings.Join(list, " | ")
}

func TestRoundsCountOnceFromBothWitnesses(t *testing.T) {
	tests := []struct {
		name, steps string
		rounds      int
		inTurn      bool
		said        string
	}{
		{"hooks alone", "P go, S done", 1, false, "user: go | assistant: done"},
		{"file alone", "F go, A done, E", 1, false, "user: go | assistant: done"},
		{"file without turn ends", "F a, A x, F b, A y", 1, true, "user: a | assistant: x | user: b | assistant: y"},
		{"hook first", "P go, F go, S done, A done, E", 1, false, "user: go | assistant: done"},
		{"file first", "F go, P go, A done, E, S done", 1, false, "user: go | assistant: done"},
		{"file whole before hooks", "F go, A done, E, P go, S done", 1, false, "user: go | assistant: done"},
		{
			"file late by a round",
			"P a, S x, P b, F a, A x, E, S y, F b, A y, E",
			2,
			false,
			"user: a | assistant: x | user: b | assistant: y",
		},
		{
			"file late by all",
			"P a, S x, P b, S y, F a, A x, E, F b, A y, E",
			2,
			false,
			"user: a | assistant: x | user: b | assistant: y",
		},
		{
			"equal prompts, file late",
			"P go, S x, P go, S x, F go, A x, E, F go, A x, E",
			2,
			false,
			"user: go | assistant: x | user: go | assistant: x",
		},
		{
			"equal prompts in turn",
			"P go, F go, A x, E, S x, P go, F go, A x, E, S x",
			2,
			false,
			"user: go | assistant: x | user: go | assistant: x",
		},
		{
			"equal prompts, hooks silent, then back",
			"F go, A x, E, later, F b, A y, E, later, P go, F go, S x, A x, E",
			3,
			false,
			"user: go | assistant: x | user: b | assistant: y | user: go | assistant: x",
		},
		{"equal prompts, hooks back before the file", "F go, A x, E, later, F b, A y, E, later, P go, S z", 3, false,
			"user: go | assistant: x | user: b | assistant: y | user: go | assistant: z"},
		{
			"a prompt's hook was lost, then the same words",
			"F go, S x, P go, S y",
			2,
			false,
			"user: go | assistant: x | user: go | assistant: y",
		},
		{"H06 prompt and stop doubled", "P go, P go, S done, S done", 1, false, "user: go | assistant: done"},
		{"next prompt ends a turn", "P a, P b, S y", 2, false, "user: a | user: b | assistant: y"},
		{"a Stop twice in a turn", "P a, S x, T c, Z c, S y", 1, false, "user: a | assistant: x | assistant: y"},
		{"interrupt in the file", "P a, F a, X", 1, false, "user: a"},
		{"interrupt, then a prompt", "P a, F a, X, P b, F b, S y", 2, false, "user: a | user: b | assistant: y"},
		{"increments without prompts", "I, I, I", 3, false, ""},
		{
			"increments beside a file",
			"F a, A x, I, F b, A y, I",
			2,
			false,
			"user: a | assistant: x | user: b | assistant: y",
		},
		{"increment before the file's prompt", "I, F a, A x", 1, false, "user: a | assistant: x"},
		{"Stop without its prompt, file late", "S x, F a, A x, E", 1, false, "user: a | assistant: x"},
		{
			"prompt never in the file",
			"P a, S x, F b, A y, E",
			2,
			false,
			"user: a | assistant: x | user: b | assistant: y",
		},
		{
			"prompt lost by the hook, file late",
			"P b, F a, A x, E, F b, S y, A y, E",
			2,
			false,
			"user: a | assistant: x | user: b | assistant: y",
		},
		{"H12 hooks fall silent", "P a, F a, S x, A x, E, F b, A y, E, F c, A z, E", 3, false,
			"user: a | assistant: x | user: b | assistant: y | user: c | assistant: z"},
		{"heartbeat", "H beat, S ok", 0, false, ""},
		{
			"heartbeat between rounds",
			"P a, S x, H beat, HS ok, P b, S y",
			2,
			false,
			"user: a | assistant: x | user: b | assistant: y",
		},
		{"heartbeat by both", "H beat, N beat, HS ok, B", 0, false, ""},
		{
			"heartbeat in the file",
			"F a, A x, E, N beat, B, F b, A y, E",
			2,
			false,
			"user: a | assistant: x | user: b | assistant: y",
		},
		{"a heartbeat that only its Stop shows", "P beat, HS ok", 0, false, ""},
		{"notice inside a turn", "P a, H note, S x", 1, false, "user: a | assistant: x"},
		{"notice inside a turn, still at work", "P a, F a, N note", 0, true, "user: a"},
		{
			"notice inside a turn of the file, ended by it",
			"F a, N [System], A x, E",
			1,
			false,
			"user: a | assistant: x",
		},
		{"heartbeat inside an open turn leaves it open", "F a, N beat, B", 0, true, "user: a"},
		{"heartbeat inside an open turn by hooks", "P a, H beat, HS ok", 0, true, "user: a"},
		{"open", "P a", 0, true, "user: a"},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			f := newFold(t).steps(c.steps)
			if f.s.Rounds != c.rounds || f.rounds > c.rounds || f.s.SinceSparse != c.rounds {
				t.Errorf(
					"%d rounds (%d effects, %d for the gate), want %d; turns %+v", f.s.Rounds, f.rounds,
					f.s.SinceSparse, c.rounds, f.s.Turns,
				)
			}

			if f.s.InTurn() != c.inTurn {
				t.Errorf("in turn %v, want %v; turns %+v", f.s.InTurn(), c.inTurn, f.s.Turns)
			}
			if got := said(f.s); got != c.said {
				t.Errorf("said\n  %s\nwant\n  %s", got, c.said)
			}
		})
	}
}

func TestTurnIDsDecide(t *testing.T) {
	f := newFold(t)
	f.event(Event{Kind: EventPrompt, Text: "go", Turn: "p1"})
	f.event(Event{Kind: EventPrompt, Text: "go", Turn: "p1"}) // doubled, another payload between
	f.event(Event{Kind: EventStop, Text: "x", Turn: "p1"})
	f.event(Event{Kind: EventPrompt, Text: "go", Turn: "p2"})
	f.event(Event{Kind: EventStop, Text: "x", Turn: "p1"}) // late and doubled: p2 goes on
	if f.s.Rounds != 1 || !f.s.InTurn() {
		t.Errorf("rounds %d, in turn %v, want 1 and in turn", f.s.Rounds, f.s.InTurn())
	}

	f.file(
		Entry{Kind: EntryUser, Text: "go (written out)", Turn: "p1"}, Entry{Kind: EntryAssistant, Text: "x"},
		Entry{Kind: EntryUser, Text: "go", Turn: "p2"},
	)

	f.event(Event{Kind: EventStop, Text: "y", Turn: "p2"})
	if got, want := said(
		f.s,
	), "user: go (written out) | assistant: x | user: go | assistant: y"; f.s.Rounds != 2 ||
		got != want {
		t.Errorf("rounds %d, said %s; want 2, %s", f.s.Rounds, got, want)
	}
}

func TestPromptThatTheFileWritesOutIsOneRound(t *testing.T) {
	f := newFold(t).steps("P fix [Pasted text #1]")
	f.file(Entry{Kind: EntryUser, Text: "fix all of this long text", At: f.now.Add(time.Second)})
	f.steps("S done")
	if got, want := said(f.s), "user: fix all of this long text | assistant: done"; f.s.Rounds != 1 || got != want {
		t.Errorf("rounds %d, said %s; want 1, %s", f.s.Rounds, got, want)
	}
}

// TestFirstSightBeforeAnOpenPrompt: the daemon was started by the hook of a prompt, in the middle of a long session.
func TestFirstSightBeforeAnOpenPrompt(t *testing.T) {
	f := newFold(t).steps("P newest")
	var list []Entry
	for i := range 25 {
		list = append(
			list, Entry{ID: fmt.Sprint("u", i), Kind: EntryUser, Text: fmt.Sprint("old ", i)},
			Entry{ID: fmt.Sprint("a", i), Kind: EntryAssistant, Text: fmt.Sprint("answer ", i)},
			Entry{ID: fmt.Sprint("e", i), Kind: EntryTurnEnd},
		)
	}

	e := f.event(Event{Kind: EventEntries, Entries: list, First: true, Skipped: 1000})
	if last := f.s.Messages[len(f.s.Messages)-1]; last.Text != "newest" {
		t.Errorf("half-way the newest message is %q, want the prompt that waits", last.Text)
	}

	f.event(
		Event{
			Kind:    EventEntries,
			Entries: []Entry{{ID: "new", Kind: EntryUser, Text: "newest"}},
			First:   true,
			Cursor:  "c",
		},
	)

	if e.Force != CauseFirstSight || e.Round || f.s.Rounds != 0 || f.s.Skipped != 1000 {
		t.Errorf(
			"first sight: effect %+v, %d rounds, %d skipped, want one FULL, no rounds, 1000", e, f.s.Rounds,
			f.s.Skipped,
		)
	}

	if !f.s.InTurn() {
		t.Error("the open prompt was ended by older ones of the file")
	}

	users := f.s.Messages[:0:0]
	for _, m := range f.s.Messages {
		if m.Role == RoleUser {
			users = append(users, m)
		}
	}

	if len(users) != keepUsers || users[keepUsers-1].Text != "newest" || users[keepUsers-2].Text != "old 24" ||
		f.s.Task != "newest" {
		t.Errorf(
			"%d user messages, the last ones %q %q, task %q; want %d, old 24, newest", len(users),
			users[len(users)-2].Text, users[len(users)-1].Text, f.s.Task, keepUsers,
		)
	}

	f.steps("S done")
	if f.s.Rounds != 1 || f.s.SinceSparse != 1 {
		t.Errorf("rounds %d, for the gate %d, want 1 and 1", f.s.Rounds, f.s.SinceSparse)
	}
}

func TestPromptShownAsHeartbeatByItsAnswer(t *testing.T) {
	f := newFold(t).steps("F fix the uploader please today, A x, E")
	beat := Entry{ID: "hb", Kind: EntryUser, Text: "Read HEARTBEAT.md and follow it closely"}
	f.file(beat)
	if f.s.Task != beat.Text {
		t.Fatalf("task %q, want the prompt while nothing else is known", f.s.Task)
	}

	beat.Aside = true
	f.file(beat, Entry{Kind: EntryAssistant, Text: "HEARTBEAT_OK", Aside: true}, Entry{Kind: EntryTurnEnd, Aside: true})
	if f.s.Rounds != 1 || f.s.InTurn() || f.s.Task != "fix the uploader please today" ||
		said(f.s) != "user: fix the uploader please today | assistant: x" {
		t.Errorf(
			"rounds %d, in turn %v, task %q, said %s; want the heartbeat gone", f.s.Rounds, f.s.InTurn(),
			f.s.Task, said(f.s),
		)
	}
}

func TestPromptShownAsHeartbeatAfterItWasCounted(t *testing.T) {
	f := newFold(t).steps("F beat")
	f.steps("E")
	f.file(Entry{ID: "id1", Kind: EntryUser, Text: "beat", Aside: true})
	if f.s.Rounds != 1 || said(f.s) != "" || f.s.Title != "" || f.s.Task != "" {
		t.Errorf(
			"rounds %d, said %q, title %q, task %q; want 1 and nothing kept", f.s.Rounds, said(f.s), f.s.Title,
			f.s.Task,
		)
	}
}

func TestH06DoubledHooks(t *testing.T) {
	var list []struct {
		Name    string `json:"hook_event_name"`
		Source  string `json:"source"`
		Prompt  string `json:"prompt"`
		Last    string `json:"last_assistant_message"`
		Arrives int    `json:"_arrive_ms"`
	}

	readLines(t, "H06-double-events.jsonl", &list)
	f := newFold(t)
	starts := 0
	for _, l := range list {
		e := Event{
			At:     epoch.Add(time.Duration(l.Arrives) * time.Millisecond),
			Sum:    Hash(l.Name + l.Prompt + l.Last),
			Source: l.Source,
		}

		switch l.Name {
		case "SessionStart":
			e.Kind = EventStart
		case "UserPromptSubmit":
			e.Kind, e.Text = EventPrompt, l.Prompt
		case "Stop":
			e.Kind, e.Text = EventStop, l.Last
		}

		if !f.event(e).Double && e.Kind == EventStart {
			starts++
		}
	}

	if f.s.Rounds != 2 || starts != 1 {
		t.Errorf("%d rounds, %d starts, want 2 and 1", f.s.Rounds, starts)
	}
	if got, want := said(f.s), "user: go | assistant: done | user: go | assistant: done"; got != want {
		t.Errorf("said %s, want %s", got, want)
	}
}

// readLines decodes a JSONL file of testdata into a slice.
func readLines(t *testing.T, name string, list any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}

	doc := "[" + strings.Join(strings.Split(strings.TrimSpace(string(data)), "\n"), ",") + "]"
	if err := json.Unmarshal([]byte(doc), list); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func TestDoublesByID(t *testing.T) {
	f := newFold(t)
	f.event(Event{Kind: EventStop, ID: "one"})
	f.event(Event{Kind: EventMark, Text: "between"})
	if e := f.event(Event{Kind: EventStop, ID: "one"}); !e.Double || e.Round {
		t.Errorf("the same client event id again: effect %+v, want a double", e)
	}

	f.event(Event{Kind: EventStop, ID: "two"})
	if f.s.Rounds != 2 {
		t.Errorf("rounds %d, want 2", f.s.Rounds)
	}

	for i := range 3 * maxDoubles {
		f.event(Event{Kind: EventMark, Text: "x", ID: fmt.Sprint(i)})
	}

	if len(f.s.Doubles) != maxDoubles {
		t.Errorf("%d ids kept, want %d", len(f.s.Doubles), maxDoubles)
	}
}

func TestDoublesByContent(t *testing.T) {
	at := func(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }
	tests := []struct {
		name   string
		second Event
		double bool
	}{
		{"at once", Event{At: at(0.1), Kind: EventMark, Text: "a", Sum: 7}, true},
		{"just inside the window", Event{At: at(9.9), Kind: EventMark, Text: "a", Sum: 7}, true},
		{"a true second one", Event{At: at(10), Kind: EventMark, Text: "a", Sum: 7}, false},
		{"the clock went back a little", Event{At: at(-1), Kind: EventMark, Text: "a", Sum: 7}, true},
		{"other bytes", Event{At: at(0.1), Kind: EventMark, Text: "a", Sum: 8}, false},
		{"no sum", Event{At: at(0.1), Kind: EventMark, Text: "a"}, false},
	}

	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			s := NewState(testKey())
			s.Apply(Event{At: at(0), Kind: EventMark, Text: "a", Sum: 7})
			s.Apply(Event{At: at(0), Kind: EventOwed}) // the daemon's own events do not stand between
			if got := s.Apply(c.second); got.Double != c.double {
				t.Errorf("double %v, want %v", got.Double, c.double)
			}
		})
	}

	s := NewState(testKey())
	s.Apply(Event{At: at(0), Kind: EventMark, Text: "a", Sum: 7})
	s.Apply(Event{At: at(0), Kind: EventMark, Text: "b", Sum: 8})
	if got := s.Apply(Event{At: at(1), Kind: EventMark, Text: "a", Sum: 7}); got.Double {
		t.Error("an equal payload with another event between is a double, want a second one")
	}
}

func TestH07LateAnswer(t *testing.T) {
	answer := "The final answer is 42 retries."
	for _, comes := range []bool{true, false} {
		f := newFold(t).steps("P how many retries, F how many retries, A let me see, S " + answer)
		if comes {
			f.steps("A " + answer + ", E")
		}

		want := "user: how many retries | assistant: let me see | assistant: " + answer
		if got := said(f.s); got != want || f.s.Rounds != 1 {
			t.Errorf("file comes %v: %d rounds, said %s; want 1, %s", comes, f.s.Rounds, got, want)
		}
		if m := f.s.Messages[2]; m.InFile != comes {
			t.Errorf("file comes %v: in file %v", comes, m.InFile)
		}
	}
}

func TestS07EventsAlone(t *testing.T) {
	var list []struct {
		Name   string `json:"hook_event_name"`
		Prompt string `json:"prompt"`
		Last   string `json:"last_assistant_message"`
		Tool   string `json:"tool_name"`
		Input  struct {
			Path string `json:"file_path"`
		} `json:"tool_input"`
	}

	readLines(t, "S07-events.jsonl", &list)
	f := newFold(t)
	kinds := map[string]EventKind{
		"SessionStart":     EventStart,
		"UserPromptSubmit": EventPrompt,
		"PostToolUse":      EventToolEnd,
		"Stop":             EventStop,
	}

	for _, l := range list {
		f.event(
			Event{
				Kind: kinds[l.Name],
				Text: l.Prompt + l.Last,
				Name: l.Tool,
				Act:  Act{File: l.Input.Path, Digest: l.Input.Path},
				Sum:  Hash(l.Name + l.Prompt + l.Last),
			},
		)
	}

	want := "user: fix the uploader | assistant: Changed one line in uploader.go. | user: now add a test | assistant: Test added."
	if got := said(f.s); got != want || f.s.Rounds != 2 || f.chains != 1 {
		t.Errorf("%d rounds, %d chains, said\n %s\nwant 2, 1,\n %s", f.s.Rounds, f.chains, got, want)
	}
	if len(f.s.Calls) != 1 || f.s.Calls[0].State != CallDone || f.s.Calls[0].Digest != "uploader.go" ||
		len(f.s.Files) != 1 {
		t.Errorf("calls %+v, files %v, want one done Edit of uploader.go", f.s.Calls, f.s.Files)
	}
}

func TestH12FiftyRoundsOfTheFileOpenTheGate(t *testing.T) {
	m := newSim(t)
	for i := range 50 {
		m.at(time.Duration(i) * 30 * time.Second)
		m.event(
			Event{
				Kind:   EventEntries,
				Cursor: "c",
				Entries: []Entry{
					{ID: fmt.Sprint("u", i), Kind: EntryUser, Text: fmt.Sprint("prompt ", i)},
					{
						ID:   fmt.Sprint("a", i),
						Kind: EntryAssistant,
						Text: "x",
					},
					{ID: fmt.Sprint("e", i), Kind: EntryTurnEnd},
				},
			},
		)
	}

	m.at(23 * time.Minute)
	m.want("2m0s SPARSE round", "7m0s SPARSE round", "12m0s SPARSE round", "17m0s SPARSE round", "22m0s SPARSE round")
}

func TestR01ResetReadsTheSameAgain(t *testing.T) {
	f := newFold(t)
	list := []Entry{
		{ID: "u1", Kind: EntryUser, Text: "a"},
		{ID: "a1", Kind: EntryAssistant, Group: "g", Text: "one"},
		{ID: "a2", Kind: EntryAssistant, Group: "g", Text: "two"},
		{
			ID:   "c1",
			Kind: EntryCall,
			Call: "c",
			Name: "Bash",
		},
		{ID: "r1", Kind: EntryResult, Call: "c"},
		{ID: "k", Kind: EntryCompaction, Text: "sum"},
		{ID: "u2", Kind: EntryUser, Text: "b"},
	}

	f.file(list...)
	before := jsonOf(t, f.s)
	news := f.s.News
	e := f.file(append([]Entry{{Op: Reset}}, list...)...)
	after := f.s.Clone()
	after.Seq, after.LastEvent, after.LastFile, after.SumAt = f.s.Seq-1, epoch.Add(
		time.Second,
	), epoch.Add(
		time.Second,
	), time.Time{}

	if got := jsonOf(t, after); got != before || e.Force != "" || e.Round || f.s.News != news {
		t.Errorf("read again: effect %+v, news %d\n%s\nwant no change of\n%s", e, f.s.News, got, before)
	}
}

func TestF12ReplacedTranscript(t *testing.T) {
	type line struct {
		Type    string `json:"type"`
		UUID    string `json:"uuid"`
		Message struct {
			Content json.RawMessage `json:"content"`
		} `json:"message"`
	}

	entries := func(name string) []Entry {
		var lines []line
		readLines(t, name, &lines)
		var list []Entry
		for _, l := range lines {
			kind, text := EntryUser, string(l.Message.Content)
			if l.Type == "assistant" {
				kind = EntryAssistant
			}
			list = append(list, Entry{ID: l.UUID, Kind: kind, Text: text})
		}

		return list
	}

	f := newFold(t)
	f.file(entries("F12-before.jsonl")...)
	rounds, kept := f.s.Rounds, f.s.Messages[5].Text
	f.event(
		Event{Kind: EventEntries, Entries: append([]Entry{{Op: Reset}}, entries("F12-after.jsonl")...)},
	) // a part of a batch: no cursor
	f.file(Entry{Kind: EntryUser, Text: "still of the same reading"})
	if f.s.Rounds != rounds || f.s.SinceSparse != rounds {
		t.Errorf("rounds %d after the file was replaced, want %d: found again they do not count", f.s.Rounds, rounds)
	}

	if n := len(
		f.s.Messages,
	); f.s.Messages[n-1].Text != "still of the same reading" || !strings.Contains(f.s.Messages[n-2].Text, "only the new turn") ||
		!strings.Contains(said(f.s), kept) {
		t.Errorf("said %s, want what was before, then the two new prompts", said(f.s))
	}

	f.steps("E, F more")
	f.steps("E")
	if f.s.Rounds != rounds+2 {
		t.Errorf("rounds %d, want %d: what comes after the reading counts", f.s.Rounds, rounds+2)
	}
}

func TestR08RetractTakesBack(t *testing.T) {
	f := newFold(t)
	f.file(
		Entry{ID: "u1", Kind: EntryUser, Text: "first"}, Entry{ID: "a1", Kind: EntryAssistant, Text: "x"},
		Entry{ID: "u2", Kind: EntryUser, Text: "second, on another branch"},
	)

	f.file(Entry{Op: Retract, ID: "u2"}, Entry{Op: Retract, ID: "nobody"}, Entry{Op: Retract})
	if got, want := said(f.s), "user: first | assistant: x"; got != want || f.s.Task != "first" {
		t.Errorf("said %s, task %q, want %s, first", got, f.s.Task, want)
	}
}
