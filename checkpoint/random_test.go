package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	someKinds = []EventKind{
		EventStart,
		EventPrompt,
		EventPrompt,
		EventStop,
		EventStop,
		EventToolStart,
		EventToolEnd,
		EventCompacting,
		EventCompacted,
		EventChildStart,
		EventChildEnd,
		EventEnd,
		EventExit,
		EventMark,
		EventTask,
		EventBeat,
		EventEntries,
		EventEntries,
		EventEntries,
		EventCheckpoint,
		EventGiven,
		EventOwed,
		EventProcs,
		EventDropped,
		EventDegraded,
		"unknown",
	}
	someEntries = []EntryKind{
		EntryUser,
		EntryUser,
		EntryAssistant,
		EntryAssistant,
		EntryCall,
		EntryResult,
		EntryCompaction,
		EntryClear,
		EntryInterrupt,
		EntryTurnEnd,
		EntryOwn,
		EntryMeta,
		"unknown",
	}
	someWords = []string{
		"",
		"go",
		"go",
		"fix the uploader so that it retries",
		"done",
		"/compact",
		"é🚀",
		strings.Repeat("long ", 1000),
	}
	someIDs = []string{"", "a", "b", "c", "call-1"}
)

func genTime(t *rapid.T) time.Time {
	return epoch.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "at")))
}

func someAct(t *rapid.T) Act {
	return rapid.SampledFrom([]Act{{}, {Reads: true}, {File: "/a", Digest: "/a"}, {Digest: "make"}}).Draw(t, "act")
}

func genEntry(t *rapid.T) Entry {
	pick := func(list []string) string { return rapid.SampledFrom(list).Draw(t, "word") }
	n := Entry{
		Op:   rapid.SampledFrom([]Op{Upsert, Upsert, Upsert, Upsert, Retract, Reset}).Draw(t, "op"),
		ID:   pick(someIDs),
		Kind: rapid.SampledFrom(someEntries).Draw(t, "entry"),
		Group: pick(
			someIDs[:3],
		),
		Text: pick(someWords),
		Turn: pick(someIDs[:3]),
		Call: pick(someIDs),
		Name: pick([]string{"", "Bash", "Edit"}),
		Input: pick(
			[]string{"", `{"command":"ls"}`, `{"file_path":"/a"}`, "{"},
		),
		Act:       someAct(t),
		Child:     pick([]string{"", "", "", "kid"}),
		Workspace: pick([]string{"", "/w"}),
	}

	n.Aside, n.Failed, n.MadeUp, n.Background = rapid.Bool().Draw(
		t, "aside",
	), rapid.Bool().Draw(
		t, "failed",
	), rapid.Bool().Draw(
		t, "madeup",
	), rapid.Bool().Draw(
		t, "bg",
	)

	n.Alike = rapid.Uint64Range(0, 2).Draw(t, "alike")
	n.At = rapid.SampledFrom(
		[]time.Time{
			{},
			{},
			epoch,
			epoch.Add(40 * time.Minute),
			time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC),
			time.Date(9999, 12, 31, 0, 0, 0, 0, time.FixedZone("x", -3600)),
		},
	).Draw(
		t, "stamp",
	)

	return n
}

func genEvent(t *rapid.T) Event {
	pick := func(list []string) string { return rapid.SampledFrom(list).Draw(t, "word") }
	e := Event{
		At:   genTime(t),
		Kind: rapid.SampledFrom(someKinds).Draw(t, "kind"),
		ID:   rapid.StringN(0, 1, 1).Draw(t, "client id"),
		Sum:  rapid.Uint64Range(0, 3).Draw(t, "sum"),
		Turn: pick(someIDs[:3]),
		Text: pick(
			someWords,
		),
		Source:  pick([]string{"", "startup", "resume", "clear", "compact"}),
		Outcome: rapid.SampledFrom([]Outcome{"", OutcomeFailed}).Draw(t, "outcome"),
		Call: pick(
			someIDs,
		),
		Name:       pick([]string{"", "Bash", "Edit"}),
		Input:      pick([]string{"", `{"file_path":"/a"}`, "{"}),
		Act:        someAct(t),
		Child:      pick(someIDs[:3]),
		Transcript: pick([]string{"", "/t"}),
		Count:      rapid.IntRange(0, 3).Draw(t, "count"),
		Marker:     pick(someIDs),
		Cursor:     Cursor(pick(someIDs)),
	}

	e.Aside, e.Failed, e.Background, e.Bare = rapid.Bool().Draw(
		t, "aside",
	), rapid.Bool().Draw(
		t, "failed",
	), rapid.Bool().Draw(
		t, "bg",
	), rapid.Bool().Draw(
		t, "bare",
	)

	e.Alike = rapid.Uint64Range(0, 2).Draw(t, "alike")
	e.Decision, e.First = rapid.Bool().Draw(t, "decision"), rapid.IntRange(0, 4).Draw(t, "first") == 0
	if rapid.Bool().Draw(t, "has proc") {
		e.Proc = &Proc{PID: rapid.IntRange(1, 3).Draw(t, "pid"), Start: 1}
		e.Procs = []Proc{{PID: 9}}
	}

	if e.Kind == EventEntries {
		for range rapid.IntRange(0, 6).Draw(t, "entries") {
			e.Entries = append(e.Entries, genEntry(t))
		}
		e.Losses = &Losses{BadLines: 1, Bad: []BadLine{{Line: 1, Why: "x"}}}
	}

	if e.Kind == EventCheckpoint && rapid.Bool().Draw(t, "has taken") {
		e.Taken = &Taken{
			Number: rapid.Uint64Range(0, 9).Draw(t, "number"),
			Level:  rapid.SampledFrom([]Level{Full, Sparse}).Draw(t, "level"),
			At:     e.At,
			News: rapid.Uint64Range(
				0,
				50,
			).Draw(
				t, "news",
			),
			Failed: pick(someIDs[:2]),
			Both:   rapid.Bool().Draw(t, "both"),
			Gap:    rapid.Bool().Draw(t, "gap"),
		}
	}

	return e
}

// TestRandomEvents folds any events in any order and holds what must be true of every state.
func TestRandomEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, again := NewState(testKey()), NewState(testKey())
		rounds, ended := 0, map[string]bool{}
		for i := range rapid.IntRange(1, 25).Draw(t, "events") {
			e := genEvent(t)
			e.Seq, e.Key = uint64(i+1), s.Key
			before := jsonOfRapid(t, s)
			kept := s.Clone()
			f := s.Apply(e)
			if got := jsonOfRapid(t, kept); got != before {
				t.Fatalf("Apply changed a clone:\n%s\nwas\n%s", got, before)
			}
			if f.Round != (s.Rounds > rounds) {
				t.Fatalf("effect says round %v, rounds went from %d to %d", f.Round, rounds, s.Rounds)
			}

			rounds = s.Rounds
			holds(t, s, ended)

			// The same event after a restart: journal and state have only their JSON forms.
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}

			var replayed Event
			if err := json.Unmarshal(data, &replayed); err != nil {
				t.Fatal(err)
			}

			replayed.Seq = e.Seq
			again, err = DecodeState([]byte(jsonOfRapid(t, again)))
			if err != nil {
				t.Fatal(err)
			}
			if g := again.Apply(replayed); g != f {
				t.Fatalf("effect %+v, after a restart %+v", f, g)
			}
			if a, b := jsonOfRapid(t, s), jsonOfRapid(t, again); a != b {
				t.Fatalf("after event %+v\n%s\nbut after a restart\n%s", e, a, b)
			}
		}

		c := New(s.Clone(), 1, Decision{Level: Full, Cause: CauseManual}, epoch)
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}

		back, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := back.Encode(); err != nil || !bytes.Equal(twice, data) {
			t.Fatalf("a checkpoint read and written again differs (%v)", err)
		}
	})
}

// holds is what must be true of every state.
func holds(t *rapid.T, s *State, ended map[string]bool) {
	if s.Rounds < 0 || s.SinceSparse < 0 && s.LastSparse == nil || s.TurnSeq < len(s.Turns) {
		t.Fatalf("rounds %d, since %d, %d turns of %d", s.Rounds, s.SinceSparse, len(s.Turns), s.TurnSeq)
	}

	if len(s.Turns) > maxTurns || len(s.Messages) > keepUsers+keepReplies+1 || len(s.Calls) > maxOpen+maxEnded ||
		len(s.Files) > maxFiles {
		t.Fatalf(
			"%d turns, %d messages, %d calls, %d files are over a bound", len(s.Turns), len(s.Messages),
			len(s.Calls), len(s.Files),
		)
	}

	nums := map[uint64]bool{}
	for _, m := range s.Messages {
		if nums[m.Num] || m.Num > s.MsgSeq || m.Text == "" || len(m.Text) > CutText+len(someWords[7]) {
			t.Fatalf("message %d of %d is double, empty or too long (%d bytes)", m.Num, s.MsgSeq, len(m.Text))
		}
		nums[m.Num] = true
	}

	ids := map[string]bool{}
	for _, c := range s.Calls {
		if ids[c.ID] {
			t.Fatalf("call %s stands twice in the ledger", c.ID)
		}

		ids[c.ID] = true
		over := c.State == CallDone || c.State == CallFailed
		if ended[c.ID] && !over {
			t.Fatalf("call %s had ended and is %s", c.ID, c.State)
		}

		ended[c.ID] = over
	}

	for i := range s.Turns[:max(len(s.Turns)-1, 0)] {
		if !s.Turns[i].Ended {
			t.Fatalf("turn %d is open and not the last: %+v", s.Turns[i].N, s.Turns)
		}
	}
}

func jsonOfRapid(t *rapid.T, s *State) string {
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRandomTriggers lets the gates run over any rounds and pauses and holds what the gates promise.
func TestRandomTriggers(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		m := newSim(outer)
		type stamp struct {
			at     time.Duration
			level  Level
			forced bool
		}

		var list []stamp
		now := time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(1, int64(4*time.Minute)).Draw(t, "pause"))
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				m.at(now).event(Event{Kind: EventBeat})
			case 1:
				m.at(now).event(Event{Kind: EventCompacting})
			case 2:
				m.round(now, 0, true)
			default:
				m.round(now, 0, false)
			}
		}

		m.at(now + 24*time.Hour)
		for _, text := range m.taken {
			w := strings.Fields(text)
			at, err := time.ParseDuration(w[0])
			if err != nil {
				t.Fatal(err)
			}

			list = append(list, stamp{at, Level(w[1]), Cause(w[2]).Forced()})
			if len(w) == 4 {
				list = append(list, stamp{at, Sparse, false})
			}
		}

		last := map[Level]time.Duration{}
		for _, s := range list {
			since, before := last[s.level]
			if before && !s.forced && s.at-since < 5*time.Minute {
				t.Fatalf("a %s %s after the one before: %v", s.level, s.at-since, m.taken)
			}
			last[s.level] = s.at
		}

		if m.s.OwedFull != "" || m.s.OwedSparse {
			t.Fatalf("after a day of silence FULL %q and SPARSE %v are still owed", m.s.OwedFull, m.s.OwedSparse)
		}
	})
}

// longSession folds n events of an ordinary session and returns the bytes that each quarter of it allocated: unlike
// time, they do not depend on what else the machine does.
func longSession(s *State, n int) (quarters [4]uint64) {
	words := strings.Repeat("some words of the model and of the person, ", 60) // 2.6 KB
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	began, now := mem.TotalAlloc, epoch
	for i := range n {
		now = now.Add(time.Second)
		e := Event{Seq: uint64(i + 1), Key: s.Key, At: now, Sum: uint64(i + 1)}
		id := fmt.Sprintf("toolu_%020d", i/8)
		switch i % 8 {
		case 0:
			e.Kind, e.Text = EventPrompt, fmt.Sprint(i, words)
		case 1, 3:
			e.File = fmt.Sprintf("/proj/demo/file%d.go", i%500)
			e.Digest = e.File
			e.Kind, e.Call, e.Name, e.Input = EventToolStart, id+fmt.Sprint(
				i%8/2,
			), "Edit", fmt.Sprintf(
				`{"file_path":"/proj/demo/file%d.go","new_string":%q}`, i%500, words,
			)

		case 2:
			e.Kind, e.Call, e.Name = EventToolEnd, id+"0", "Edit"
		case 4:
			e.Kind, e.Entries, e.Cursor = EventEntries, []Entry{
				{ID: fmt.Sprint("u", i), Kind: EntryUser, Text: fmt.Sprint(i-4, words), At: now},
				{ID: fmt.Sprint("a", i), Kind: EntryAssistant, Text: words},
			}, "cursor"

		case 5:
			e.Kind, e.Decision, e.Text = EventMark, true, words
		case 6:
			e.Kind, e.Text = EventStop, fmt.Sprint("done ", i, words)
		case 7:
			e.Kind, e.Entries, e.Cursor = EventEntries, []Entry{
				{ID: fmt.Sprint("z", i), Kind: EntryAssistant, Text: fmt.Sprint("done ", i-1, words)},
				{ID: fmt.Sprint("e", i), Kind: EntryTurnEnd},
			}, "cursor"
		}

		s.Apply(e)
		if (i+1)%(n/4) == 0 {
			runtime.ReadMemStats(&mem)
			quarters[min(i*4/n, 3)], began = mem.TotalAlloc-began, mem.TotalAlloc
		}
	}

	return quarters
}

func TestStateIsBoundedAndFoldingIsFlat(t *testing.T) {
	const n = 6_400 // far beyond every bound
	s := NewState(testKey())
	began := time.Now()
	q := longSession(s, n)
	size := len(jsonOf(t, s))
	t.Logf(
		"%d events: state.json %d bytes, %s and %d bytes allocated an event", n, size, time.Since(began)/n,
		q[3]/(n/4),
	)

	if size > 400<<10 {
		t.Errorf("state of %d bytes after %d events, want at most 400 KB", size, n)
	}
	if s.Rounds != n/8 {
		t.Errorf("%d rounds, want %d", s.Rounds, n/8)
	}
	if q[3] > q[1]+q[1]/10 {
		t.Errorf("quarters of the session allocated %v bytes: the cost of an event grows", q)
	}

	small := NewState(testKey())
	longSession(small, 8*20)
	t.Logf("20 rounds with long messages: state.json %d bytes", len(jsonOf(t, small)))
}

// TestTypicalSizes prints what an idle session costs on disk: short prompts, answers of a few lines, some calls.
func TestTypicalSizes(t *testing.T) {
	f := newFold(t)
	f.event(
		Event{
			Kind:       EventStart,
			Source:     "startup",
			Workspace:  "/home/user/project",
			Transcript: "/home/user/.claude/projects/-home-user-project/11111111-1111-4111-8111-111111111111.jsonl",
			Model:      "model-name",
			Proc:       &Proc{PID: 12345, Start: 999999, Boot: "11111111-1111-4111-8111-111111111111"},
		},
	)

	sizes := map[int]int{}
	for i := range 50 {
		f.event(
			Event{
				Kind: EventPrompt,
				Text: fmt.Sprintf("prompt %d: please look at this part of the program and make it better", i),
			},
		)

		for j := range 3 {
			f.event(
				Event{
					Kind:  EventToolStart,
					Call:  fmt.Sprintf("toolu_%d_%d_abcdefghijkl", i, j),
					Name:  "Bash",
					Input: `{"command":"go test ./internal/something/..."}`,
					Act:   Act{Digest: "go test ./internal/something/..."},
				},
			)
			f.event(Event{Kind: EventToolEnd, Call: fmt.Sprintf("toolu_%d_%d_abcdefghijkl", i, j), Name: "Bash"})
		}

		f.event(Event{Kind: EventStop, Text: fmt.Sprint("answer ", i, strings.Repeat(" of some lines", 30))})
		sizes[i+1] = len(jsonOf(t, f.s))
	}

	t.Logf(
		"state.json: %d bytes after 1 round, %d after 5, %d after 20, %d after 50", sizes[1], sizes[5],
		sizes[20], sizes[50],
	)

	if sizes[50] > 96<<10 {
		t.Errorf("%d bytes after 50 ordinary rounds, want under 96 KB", sizes[50])
	}
}

func TestCloneIsIndependent(t *testing.T) {
	c := sample()
	c.State.Files = append(c.State.Files, "/b")
	before := jsonOf(t, c.State)
	k := c.State.Clone()
	k.Turns[0].Ended, k.Messages[0].Text, k.Calls[0].State, k.Files[0], k.Decisions[0].Text = false, "x", CallOpen, "x", "x"
	k.Proc.PID, k.LastFull.Number, k.Gap.Reason, k.EndedIDs[0], k.Losses.Bad[0].Why = 1, 1, "x", 1, "x"
	if got := jsonOf(t, c.State); got != before {
		t.Errorf("a change of the clone shows in the original:\n%s\nwas\n%s", got, before)
	}
}

func TestDecodeStateRefuses(t *testing.T) {
	for _, text := range []string{
		"", "{", "[]", "null", "{}", `{"key":{"agent":"a"}}`, `{"format":2,"key":{"agent":"a","session":"s"}}`,
	} {
		if s, err := DecodeState([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, s)
		}
	}
	if s, err := DecodeState(
		[]byte(`{"key":{"agent":"a","session":"s"},"later":1}`),
	); err != nil ||
		s.Key.Agent != "a" {
		t.Errorf("an older form with a key of a later one: got %+v, %v, want it read", s, err)
	}
}

func FuzzDecodeState(f *testing.F) {
	f.Add(
		[]byte(
			`{"format":1,"key":{"agent":"a","session":"s"},"turns":[{"n":1}],"messages":[{"num":1,"role":"user","text":"x"}],"calls":[{"id":"c","state":"open"}]}`,
		),
		"go",
	)
	f.Fuzz(func(t *testing.T, data []byte, word string) {
		s, err := DecodeState(data)
		if err != nil {
			return
		}

		for _, k := range someKinds {
			s.Apply(
				Event{
					At:   epoch,
					Key:  s.Key,
					Kind: k,
					Text: word,
					Call: word,
					Entries: []Entry{
						{ID: word, Kind: EntryUser, Text: word},
						{Kind: EntryAssistant, Text: word, Group: word},
						{Kind: EntryCall, Call: word},
						{Kind: EntryTurnEnd},
					},
				},
			)
		}

		defaultGates().Decide(s, CauseHeartbeat, true, Condition{}, epoch)
		s.Clone()
	})
}
