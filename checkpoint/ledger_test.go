package checkpoint

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// ledger is the calls as one line, "a done, b open".
func ledger(s *State) string {
	var list []string
	for _, c := range s.Calls {
		w := c.ID + " " + string(c.State)
		if c.Background {
			w += " background"
		}
		list = append(list, w)
	}

	return strings.Join(list, ", ")
}

func TestLedgerJoinsBothWitnesses(t *testing.T) {
	tests := []struct {
		name, steps, want string
		chain             bool // a chain is pending at the end
		chains            int  // chain ends told
	}{
		{"hook alone", "P p, T a, Z a", "a done", true, 0},
		{"file alone", "F p, C a, R a", "a done", true, 0},
		{"hook, then file", "P p, T a, C a, Z a, R a", "a done", true, 0},
		{"file, then hook", "P p, C a, T a, R a, Z a", "a done", true, 0},
		{"an id that ended never reopens", "P p, T a, Z a, C a, T a", "a done", true, 0},
		{"parallel", "P p, T a, T b, T c, Z b, Z a", "a done, b done, c open", true, 0},
		{"nested", "P p, T outer, T inner, Z inner, Z outer", "outer done, inner done", true, 0},
		{"results in another order", "F p, C a, C b, R b, R a", "a done, b done", true, 0},
		{"a result before its call", "F p, R a, C a", "a done", false, 0},
		{"an end without its start", "P p, Z a", "a done", true, 0},
		{"made up", "F p, C a, M a", "a in doubt", true, 0},
		{"made up, then a start's late event", "F p, C a, M a, T a", "a in doubt", true, 0},
		{"made up, then a real result", "F p, C a, M a, R a", "a done", true, 0},
		{"made up, then the hook's end", "P p, T a, M a, Z a", "a done", true, 0},
		{"made up after it ended", "P p, T a, Z a, M a", "a done", true, 0},
		{"made up for a call nobody saw", "F p, M a", "a in doubt", false, 0},
		{"Stop ends the chain", "P p, T a, Z a, S x", "a done", false, 1},
		{"Stop ends the chain though a call is open", "P p, T a, S x", "a open", false, 1},
		{"second Stop ends a second chain", "P p, T a, Z a, S x, T b, Z b, S y", "a done, b done", false, 2},
		{"next prompt ends the chain", "P p, T a, Z a, P q", "a done", false, 1},
		{"the file's end of turn ends the chain", "F p, C a, R a, E", "a done", false, 1},
		{"no calls, no chain", "P p, S x", "", false, 0},
		{
			"the file behind the hooks makes no chain",
			"P p, F p, T a, Z a, S x, P q, C a, R a, C b, R b, F q",
			"a done, b done",
			false,
			1,
		},
		{"increment ends the chain", "T a, Z a, I", "a done", false, 1},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			f := newFold(t).steps(c.steps)
			if got := ledger(f.s); got != c.want {
				t.Errorf("ledger %q, want %q", got, c.want)
			}
			if f.s.Chain != c.chain || f.chains != c.chains {
				t.Errorf("chain pending %v, %d ended, want %v and %d", f.s.Chain, f.chains, c.chain, c.chains)
			}
		})
	}
}

// TestCallsUnderTwoIDs: hooks and file name one call each in their own way, and it counts once. A step is as in fold;
// all calls but x are alike.
func TestCallsUnderTwoIDs(t *testing.T) {
	tests := []struct{ name, steps, want string }{
		{"hooks first", "T h1, Z h1, C f1, R f1", "h1 done"},
		{"file first", "C f1, T h1, Z h1, R f1", "f1 done"},
		{"the file's end before the hook's", "C f1, T h1, R f1, Z h1", "f1 done"},
		{"a hook's start alone", "C f1, T h1", "f1 open"},
		{"a hook's end alone", "C f1, Z h1", "f1 done"},
		{"again, after one in doubt", "C f1, M f1, T h1", "f1 in doubt, h1 open"},
		{"a person's words after a call that a hook saw end", "T h1, C f1, Z h1, M f1", "h1 done"},
		{"twice, hooks first", "T h1, Z h1, T h2, C f1, R f1, C f2", "h1 done, h2 open"},
		{"twice, file first", "C f1, T h1, Z h1, R f1, C f2, T h2", "f1 done, f2 open"},
		{"twice at once", "C f1, C f2, T h1, T h2, Z h2", "f1 open, f2 done"},
		{"again, after one that no hook told of", "C f1, R f1, T h1", "f1 done, h1 open"},
		{"neither id ever reopens", "T h1, C f1, Z h1, R f1, T h1, C f1, Z h1", "h1 done"},
		{"another", "T h1, C x, C f1", "h1 open, x open"},
	}

	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			f := newFold(t).steps("P p")
			for _, step := range strings.Split(c.steps, ", ") {
				op, id, _ := strings.Cut(step, " ")
				alike := uint64(7)
				if id == "x" {
					alike = 8
				}

				switch op {
				case "T":
					f.event(Event{Kind: EventToolStart, Call: id, Alike: alike})
				case "Z":
					f.event(Event{Kind: EventToolEnd, Call: id, Alike: alike})
				case "C":
					f.file(Entry{Kind: EntryCall, Call: id, Alike: alike})
				default:
					f.step(step)
				}
			}

			if got := ledger(f.s); got != c.want {
				t.Errorf("ledger %q, want %q", got, c.want)
			}
		})
	}

	late := newFold(t).steps("P p")
	late.file(Entry{Kind: EntryCall, Call: "f1", Alike: 7})
	late.steps("R f1")
	before := late.now.Add(-time.Minute)
	late.event(Event{Kind: EventToolStart, Call: "h1", Alike: 7, At: before})
	late.event(Event{Kind: EventToolEnd, Call: "h1", Alike: 7, At: before})
	if got := ledger(late.s); got != "f1 done" {
		t.Errorf("events that waited in the spool: ledger %q, want the one call", got)
	}
}

func TestBareClients(t *testing.T) {
	start := func(id string) Event { return Event{Kind: EventToolStart, Call: id, Bare: true} }
	end := func(id string) Event { return Event{Kind: EventToolEnd, Call: id, Bare: true} }
	tests := []struct {
		name   string
		events []Event
		want   string
		chains int
	}{
		{"one", []Event{start("a"), end("a")}, "a done", 1},
		{"parallel", []Event{start("a"), start("b"), end("a"), end("b")}, "a done, b done", 1},
		{"nested nameless", []Event{start(""), start(""), end(""), end("")}, "call-1 done, call-2 done", 1},
		{
			"nameless beside a name like ours",
			[]Event{start("call-1"), start(""), end("")},
			"call-1 open, call-2 done",
			0,
		},
		{"nameless end closes no named call", []Event{start("call-abc"), end("")}, "call-abc open", 0},
		{"an end without a start", []Event{end("")}, "", 0},
		{"doubled end", []Event{start("a"), end("a"), end("a")}, "a done", 1},
		{"doubled start", []Event{start("a"), start("a"), end("a")}, "a done", 1},
		{"two chains", []Event{start("a"), end("a"), start("b"), end("b")}, "a done, b done", 2},
		{
			"in the background",
			[]Event{start("a"), {Kind: EventToolEnd, Call: "a", Bare: true, Background: true}},
			"a open background",
			1,
		},
	}

	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			f := newFold(t)
			for _, e := range c.events {
				f.event(e)
			}
			if got := ledger(f.s); got != c.want || f.chains != c.chains {
				t.Errorf("ledger %q, %d chains, want %q and %d", got, f.chains, c.want, c.chains)
			}
		})
	}
}

func TestP40ChainsOfBareClientsTrigger(t *testing.T) {
	m := newSim(t)
	for i := range 4 { // four nested calls, then silence
		m.at(time.Duration(i) * time.Second)
		m.event(Event{Kind: EventToolStart, Bare: true})
	}

	for i := range 4 {
		m.at(time.Duration(10+i) * time.Second)
		if d := m.event(Event{Kind: EventToolEnd, Bare: true}); (d.Code == CodePassed) != (i == 3) {
			t.Errorf("end %d: got %s, want a checkpoint at the last end only", i+1, d.Code)
		}
	}

	m.at(time.Hour)
	m.want("13s FULL tool-chain")
}

func TestNotSeenToStart(t *testing.T) {
	f := newFold(t).steps("P p, T a, Z a, C b")
	if c := f.s.call("b"); !c.NotSeenToStart(f.s) {
		t.Errorf("%+v: want asked for, not seen to start", c)
	}

	f.steps("T b")
	if c := f.s.call("b"); c.NotSeenToStart(f.s) {
		t.Errorf("%+v: want seen to start", c)
	}

	g := newFold(t).steps("F p, C b")
	if c := g.s.call("b"); c.NotSeenToStart(g.s) {
		t.Errorf("%+v: where no starts are seen, a missing one says nothing", c)
	}
}

func TestCallTakesTheHooksTime(t *testing.T) {
	f := newFold(t).steps("P p")
	f.file(
		Entry{Kind: EntryCall, Call: "a", Name: "Bash", Act: Act{Digest: "make"}, At: epoch.Add(-40 * 24 * time.Hour)},
	)
	f.steps("T a")
	want := f.now
	f.steps("T a") // a second witness of the start changes nothing
	if c := f.s.call("a"); !c.At.Equal(want) || c.Digest != "make" {
		t.Errorf("call at %s (%s), want the hook's %s", c.At, c.Digest, want)
	}
}

func TestBackgroundCallHoldsNothingOpen(t *testing.T) {
	f := newFold(t).steps("P p, T a")
	f.event(Event{Kind: EventToolEnd, Call: "a", Background: true})
	f.steps("S x")
	if f.s.InTurn() || f.s.Chain || ledger(f.s) != "a open background" {
		t.Errorf(
			"in turn %v, chain %v, ledger %s; want false, false, a open background", f.s.InTurn(), f.s.Chain,
			ledger(f.s),
		)
	}

	if d := f.s.InDoubt(); len(d) != 1 || d[0].ID != "a" {
		t.Errorf("in doubt %+v, want the background call", d)
	}

	g := newFold(t).steps("F p, C a")
	g.file(Entry{Kind: EntryResult, Call: "a", Background: true}, Entry{Kind: EntryTurnEnd})
	if g.s.InTurn() || ledger(g.s) != "a open background" {
		t.Errorf("in the file: in turn %v, ledger %s", g.s.InTurn(), ledger(g.s))
	}
}

func TestChildrenAreNotTheParents(t *testing.T) {
	f := newFold(t).steps("P p, T task")
	f.event(Event{Kind: EventChildStart, Child: "c1", ChildName: "explorer"})
	f.file(
		Entry{Kind: EntryUser, Text: "sub prompt", Child: "c1"},
		Entry{Kind: EntryCall, Call: "sub", Child: "c1"},
		Entry{Kind: EntryAssistant, Text: "sub answer", Child: "c1"}, Entry{Kind: EntryTurnEnd, Child: "c1"},
	)

	e := f.event(Event{Kind: EventChildEnd, Child: "c1"})
	if e.Round || e.ChainEnd || e.Force != "" || f.s.Rounds != 0 || !f.s.Chain || ledger(f.s) != "task open" ||
		said(f.s) != "user: p" {
		t.Errorf(
			"effect %+v, %d rounds, chain %v, ledger %s, said %s; want none of the child's", e, f.s.Rounds,
			f.s.Chain, ledger(f.s), said(f.s),
		)
	}

	if len(f.s.Children) != 1 || f.s.Children[0].Running || f.s.Children[0].Name != "explorer" {
		t.Errorf("children %+v, want one explorer that ended", f.s.Children)
	}
}

func TestR05DeathLeavesOpenCallsInDoubt(t *testing.T) {
	p := &Proc{PID: 7, Start: 1, Boot: "b"}
	deaths := map[string]func(f *fold) Effect{
		"exit": func(f *fold) Effect { return f.event(Event{Kind: EventExit, Proc: p}) },
		"restart unseen": func(f *fold) Effect {
			return f.event(Event{Kind: EventStart, Source: "resume", Proc: &Proc{PID: 8, Start: 2, Boot: "b"}})
		},
		"end in a turn": func(f *fold) Effect { return f.event(Event{Kind: EventEnd, Proc: p, Reason: "prompt_input_exit"}) },
	}

	for name, death := range deaths {
		t.Run(name, func(t *testing.T) {
			f := newFold(t)
			f.event(Event{Kind: EventStart, Source: "startup", Proc: p})
			f.steps("P p, T done, Z done, T b, T c")
			e := death(f)
			if !e.ChainEnd || e.Force == "" || f.s.Deaths != 1 || f.s.Ending.Clean || !f.s.Ending.InTurn {
				t.Errorf(
					"effect %+v, deaths %d, ending %+v; want a forced FULL, 1, in a turn", e, f.s.Deaths,
					f.s.Ending,
				)
			}

			if got := ledger(f.s); got != "done done, b in doubt, c in doubt" || len(f.s.InDoubt()) != 2 {
				t.Errorf("ledger %s, want b and c in doubt", got)
			}

			f.event(Event{Kind: EventGiven, Marker: "m"})
			if d := f.s.InDoubt(); len(d) != 2 || !d[0].Told {
				t.Errorf("in doubt after the brief %+v, want both told", d)
			}

			f.event(Event{Kind: EventExit, Proc: p}) // late, or of the process before
			f.event(Event{Kind: EventEnd, Proc: p, Reason: "late"})
			if name != "restart unseen" && (f.s.Deaths != 1 || len(f.s.InDoubt()) != 2 || f.s.Live) {
				t.Errorf(
					"after late ends: deaths %d, %d in doubt, live %v; want 1, 2, not live", f.s.Deaths,
					len(f.s.InDoubt()), f.s.Live,
				)
			}
		})
	}
}

func TestS11ExitWhileIdle(t *testing.T) {
	p := &Proc{PID: 7, Start: 1, Boot: "b"}
	f := newFold(t)
	f.event(Event{Kind: EventStart, Proc: p})
	f.steps("P p, S x")
	if e := f.event(Event{Kind: EventExit, Proc: p}); e.Force != CauseExit || f.s.Ending.InTurn || f.s.Ending.Clean {
		t.Errorf("effect %+v, ending %+v; want a forced FULL, died idle", e, f.s.Ending)
	}
	if e := f.event(Event{Kind: EventExit, Proc: p}); e.Force != "" || f.s.Deaths != 1 {
		t.Errorf("a second exit: effect %+v, deaths %d, want nothing", e, f.s.Deaths)
	}
	if f.event(Event{Kind: EventToolEnd, Call: "late", Proc: p}); f.s.Live {
		t.Error("a late event of a process that is gone made the session live")
	}

	f.event(Event{Kind: EventEnd, Proc: p, Reason: "logout"}) // its hook was overtaken by the end of the process
	if !f.s.Ending.Clean || f.s.Live {
		t.Errorf("a late good-bye: ending %+v, live %v, want clean and not live", f.s.Ending, f.s.Live)
	}

	f.event(Event{Kind: EventStart, Source: "resume", Proc: &Proc{PID: 9}})
	f.steps("P q, S y")
	if e := f.event(
		Event{Kind: EventEnd, Reason: "exit"},
	); e.Force != CauseEnd || !f.s.Ending.Clean ||
		f.s.Ending.Reason != "exit" {
		t.Errorf("the next end: effect %+v, ending %+v, want a clean one", e, f.s.Ending)
	}
}

func TestEndOfClientsWithoutProcess(t *testing.T) {
	f := newFold(t).steps("P p, S x")
	f.event(Event{Kind: EventEnd, Reason: "one"})
	f.steps("P q, S y")
	at := f.now
	f.event(Event{Kind: EventEnd, Reason: "two"})
	if f.s.Ending.Reason != "two" || !f.s.Ending.At.After(at) || !f.s.Ending.Clean {
		t.Errorf("ending %+v, want the second one", f.s.Ending)
	}
	if e := f.event(Event{Kind: EventExit}); e.Force != "" || f.s.Deaths != 0 {
		t.Errorf("an exit after the good-bye: effect %+v, deaths %d, want nothing", e, f.s.Deaths)
	}
}

func TestExitOfAnotherProcessIsNotOurs(t *testing.T) {
	f := newFold(t)
	f.event(Event{Kind: EventStart, Proc: &Proc{PID: 8, Start: 2}})
	f.steps("P p")
	if e := f.event(
		Event{Kind: EventExit, Proc: &Proc{PID: 8, Start: 1}},
	); e.Force != "" || !f.s.Live ||
		f.s.Deaths != 0 {
		t.Errorf("effect %+v, live %v, deaths %d, want nothing", e, f.s.Live, f.s.Deaths)
	}
}

func TestH13Sources(t *testing.T) {
	p, other := &Proc{PID: 7, Start: 1}, &Proc{PID: 8, Start: 1}
	tests := []struct {
		source string
		proc   *Proc
		deaths int
		said   string
	}{
		{
			"startup",
			p,
			0,
			"user: p",
		},
		{"resume", p, 0, "user: p"},
		{"compact", p, 0, "user: p"},
		{"fork", p, 0, "user: p"},
		{"some_future_source", p, 0, "user: p"},
		{"", p, 0, "user: p"},
		{"clear", p, 0, ""},
		{
			"startup",
			other,
			1,
			"user: p",
		},
		{"resume", other, 1, "user: p"},
		{"", other, 1, "user: p"},
		{"clear", other, 0, ""},
		{"compact", other, 0, "user: p"},
	}

	for _, c := range tests {
		f := newFold(t)
		f.event(Event{Kind: EventStart, Proc: p})
		f.steps("P p")
		f.event(Event{Kind: EventStart, Source: c.source, Proc: c.proc})
		if f.s.Deaths != c.deaths || said(f.s) != c.said || !f.s.Live || f.s.Source != c.source ||
			*f.s.Proc != *c.proc {
			t.Errorf(
				"source %q, pid %d: deaths %d, said %q, live %v; want %d, %q, live", c.source, c.proc.PID,
				f.s.Deaths, said(f.s), f.s.Live, c.deaths, c.said,
			)
		}
	}
}

func TestClearEmptiesAll(t *testing.T) {
	for _, how := range []string{"hook", "file"} {
		f := newFold(t).steps("P p, T a, T b, Z b")
		f.event(Event{Kind: EventMark, Decision: true, Text: "never again"})
		f.event(Event{Kind: EventMark, Text: "a note"})
		f.event(Event{Kind: EventTask, Text: "secret task"})
		f.event(Event{Kind: EventToolStart, Call: "e", Name: "Edit", Act: Act{File: "/x"}})
		f.event(Event{Kind: EventChildStart, Child: "c"})
		f.event(Event{Kind: EventCompacting})
		f.event(Event{Kind: EventOwed, Marker: "m"})
		if how == "hook" {
			f.event(Event{Kind: EventStart, Source: "clear"})
		} else {
			f.file(Entry{Kind: EntryClear})
		}

		s := f.s
		if said(s) != "" || s.Title != "" || s.Task != "" || s.TaskSet || len(s.Decisions)+len(s.Notes)+len(s.Calls)+len(s.Files)+len(s.Children)+len(s.Turns) != 0 ||
			s.Chain || s.InTurn() || s.OwedTo || s.Compacts || s.Ending != nil ||
			s.Part != 1 {
			t.Errorf("%s: left over %s", how, jsonOf(t, s))
		}

		c := New(s.Clone(), 1, Decision{Level: Full}, f.now)
		if data := string(mustEncode(t, c)); strings.Contains(data, "never again") || strings.Contains(data, "secret") {
			t.Errorf("%s: the next checkpoint holds what was cleared:\n%s", how, data)
		}
	}
}

func TestCompactionOnce(t *testing.T) {
	boundary := Event{Kind: EventEntries, Cursor: "c", Entries: []Entry{{ID: "k", Kind: EntryCompaction}}}
	summary := Event{
		Kind:    EventEntries,
		Cursor:  "c",
		Entries: []Entry{{ID: "k", Kind: EntryCompaction, Text: "what was said"}},
	}

	second := Event{Kind: EventEntries, Cursor: "c", Entries: []Entry{{ID: "k2", Kind: EntryCompaction, Text: "again"}}}
	pre, start, post := Event{
		Kind: EventCompacting,
	}, Event{
		Kind:   EventStart,
		Source: "compact",
	}, Event{
		Kind: EventCompacted,
	}

	tests := []struct {
		name   string
		events []Event
		want   int
	}{
		{"hook and boundary", []Event{pre, boundary, summary, start, post}, 1},
		{"hook, start before the boundary", []Event{pre, start, boundary, summary}, 1},
		{"boundary alone", []Event{boundary, summary}, 1},
		{"boundary, hooks of the start alone", []Event{start, boundary, summary}, 1},
		{"boundary first, then start", []Event{boundary, summary, start}, 1},
		{"twice, by hooks", []Event{pre, boundary, start, pre, second, start}, 2},
		{"twice, the file alone", []Event{boundary, summary, second}, 2},
		{"twice, the second without its hook", []Event{pre, boundary, start, second}, 2},
		{"hook alone", []Event{pre}, 1},
		{"history", []Event{{Kind: EventEntries, First: true, Entries: boundary.Entries}}, 0},
	}

	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			f := newFold(t)
			for _, e := range c.events {
				f.event(e)
			}
			if n := len(f.forced); n != c.want || n > 0 && f.forced[0] != CauseCompaction {
				t.Errorf("forced %v, want %d for the compaction", f.forced, c.want)
			}
		})
	}
}

func TestMarksAndTask(t *testing.T) {
	f := newFold(t).steps("P please fix the uploader now, P ok, P /compact keep everything about the uploader")
	if f.s.Task != "please fix the uploader now" || f.s.Title != "please fix the uploader now" {
		t.Errorf("task %q, title %q, want the newest prompt over 20 characters that is no command", f.s.Task, f.s.Title)
	}

	f.event(Event{Kind: EventTask, Text: "write the docs"})
	f.steps("P and now something entirely different")
	if f.s.Task != "write the docs" {
		t.Errorf("task %q, want the one that was set", f.s.Task)
	}

	if e := f.event(
		Event{Kind: EventMark, Decision: true, Text: strings.Repeat("d", 9999)},
	); e.Force != CauseDecision ||
		len(f.s.Decisions[0].Text) > noteBytes {
		t.Errorf(
			"decision: effect %+v, %d bytes kept, want forced, at most %d", e, len(f.s.Decisions[0].Text),
			noteBytes,
		)
	}

	if e := f.event(Event{Kind: EventMark, Text: "note"}); e != (Effect{}) || len(f.s.Notes) != 1 {
		t.Errorf("note: effect %+v, notes %v, want it kept and no trigger", e, f.s.Notes)
	}
}

func TestBeatsAreNoSignOfLife(t *testing.T) {
	f := newFold(t).steps("P p, S x")
	last, hook := f.s.LastEvent, f.s.LastHook
	f.now = f.now.Add(time.Hour)
	for _, k := range []EventKind{
		EventBeat, EventCheckpoint, EventGiven, EventOwed, EventDegraded, EventProcs, EventMark, EventExit,
	} {
		f.event(Event{Kind: k, Taken: &Taken{}})
	}

	if !f.s.LastEvent.Equal(last) || !f.s.LastHook.Equal(hook) {
		t.Errorf(
			"last sign %s, last hook %s, want those of the Stop, %s and %s", f.s.LastEvent, f.s.LastHook, last,
			hook,
		)
	}
}

func TestGivenIsConfirmedByItsMarker(t *testing.T) {
	f := newFold(t)
	f.event(Event{Kind: EventOwed})
	f.event(Event{Kind: EventGiven, Marker: "m1"})
	f.file(Entry{ID: "other", Kind: EntryOwn})
	if f.s.OwedTo || f.s.Given.Confirmed {
		t.Errorf("owed %v, confirmed %v, want neither", f.s.OwedTo, f.s.Given.Confirmed)
	}

	f.file(Entry{ID: "m1", Kind: EntryOwn})
	if !f.s.Given.Confirmed {
		t.Error("the marker came back in the transcript and the brief is not confirmed")
	}
}

func TestCallsLine(t *testing.T) {
	told := func(a Act) Event {
		return Event{Kind: EventToolStart, Call: "a", Name: "T", Input: `{"x": "y"}`, Act: a}
	}
	tests := []struct {
		name, want string
		event      Event
	}{
		{"what its agent says", "make test", told(Act{Digest: "make test"})},
		{"a record of old", `{"x":"y"}`, told(Act{})},
		{"cut", `{"x":"he […]`, Event{Kind: EventToolStart, Call: "a", Input: "{\"x\":\"he\n […] "}},
		{"a list", "[1,2]", Event{Kind: EventToolStart, Call: "a", Input: "[1, 2]"}},
		{"no arguments", "", Event{Kind: EventToolStart, Call: "a", Input: "{ }"}},
		{"none", "", Event{Kind: EventToolStart, Call: "a", Input: "null"}},
	}

	for _, c := range tests {
		f := newFold(t)
		f.event(c.event)
		if got := f.s.call("a").Digest; got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}

	if got := Line(strings.Repeat("é", 5000)); len(got) > lineBytes || !strings.Contains(got, "[…]") {
		t.Errorf("%d bytes, want at most %d with a mark", len(got), lineBytes)
	}
}

func TestMutates(t *testing.T) {
	reads := Act{Reads: true}
	tests := []struct {
		name   string
		events []Event
		want   bool
	}{
		{"it reads", []Event{{Name: "T", Act: reads}}, false},
		{"nobody says", []Event{{Name: "T"}}, true},
		{"its arguments come later", []Event{{Name: "T"}, {Name: "T", Input: "x", Act: reads}}, false},
		{"its name comes later", []Event{{Input: "x"}, {Name: "T", Act: reads}}, false},
		{"arguments without a name say nothing on a known tool", []Event{{Name: "T", Act: reads}, {Input: "x"}}, false},
		{"known once and for all", []Event{{Name: "T", Input: "x", Act: reads}, {Name: "T", Input: "y"}}, false},
	}

	for _, c := range tests {
		f := newFold(t)
		for _, e := range c.events {
			e.Kind, e.Call = EventToolStart, "a"
			f.event(e)
		}

		if got := f.s.call("a").Mutates; got != c.want {
			t.Errorf("%s: mutates %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFilesTouchedNewestLast(t *testing.T) {
	f := newFold(t)
	for _, p := range []string{"/a", "/b", "/a"} {
		f.event(Event{Kind: EventToolStart, Name: "Edit", Act: Act{File: p}})
	}

	f.event(Event{Kind: EventToolStart, Name: "Read", Act: Act{Reads: true, File: "/only-read"}})
	if want := []string{"/b", "/a"}; !slices.Equal(f.s.Files, want) {
		t.Errorf("files %v, want %v", f.s.Files, want)
	}
}
