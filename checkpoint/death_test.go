package checkpoint

import "testing"

// The watch sees that the process is gone; its parent tells a moment later why. Both are one death, and the reason
// stays.
func TestTheParentsWordOnADeathStays(t *testing.T) {
	s := NewState(NewKey("any", "", "11111111-1111-4111-8111-111111111111", ""))
	p := &Proc{PID: 7, Start: 1, Boot: "b"}
	s.Apply(Event{Seq: 1, Kind: EventStart, Proc: p})
	s.Apply(Event{Seq: 2, Kind: EventPrompt, Text: "go", Proc: p})
	s.Apply(Event{Seq: 3, Kind: EventExit, Proc: p, Reason: "its process is gone"})
	f := s.Apply(Event{Seq: 4, Kind: EventExit, Reason: "killed by SIGKILL: out of memory"})
	if s.Deaths != 1 || s.Ending.Reason != "killed by SIGKILL: out of memory" || f.Force != CauseExit {
		t.Errorf(
			"got %d deaths, reason %q, force %q; want one death with its parent's reason and a FULL that holds it",
			s.Deaths, s.Ending.Reason, f.Force,
		)
	}

	s.Apply(Event{Seq: 5, Kind: EventExit, Proc: p, Reason: "its process is gone"})
	if s.Ending.Reason != "killed by SIGKILL: out of memory" {
		t.Errorf("a later, poorer word took the reason's place: %q", s.Ending.Reason)
	}
}

// The agent ended well, and its end was seen before its last words were: they come from the spool, or from an intake
// that was slow. It was no death, unless something stays broken off.
func TestAGoodByeThatWasOvertakenIsNoDeath(t *testing.T) {
	p := &Proc{PID: 7, Start: 1, Boot: "b"}
	late := []Event{
		{Kind: EventToolEnd, Call: "c1", Proc: p},
		{Kind: EventStop, Text: "Done.", Proc: p},
		{Kind: EventEnd, Reason: "exit", Proc: p},
	}

	for _, c := range []struct {
		name   string
		late   []Event
		clean  bool
		deaths int
		doubts int
	}{
		{"all of them", late, true, 0, 0},
		{"the call's end is missing", late[1:], false, 1, 1},
		{"the good-bye is missing", late[:2], false, 1, 0},
	} {
		s := NewState(NewKey("any", "", "11111111-1111-4111-8111-111111111111", ""))
		events := append([]Event{
			{
				Kind: EventStart,
				Proc: p,
			},
			{Kind: EventPrompt, Text: "go", Proc: p},
			{Kind: EventToolStart, Call: "c1", Name: "Bash", Proc: p},
			{Kind: EventExit, Proc: p, Reason: "its process is gone"},
		}, c.late...)

		for i, e := range events {
			e.Seq = uint64(i + 1)
			s.Apply(e)
		}

		if s.Ending == nil || s.Ending.Clean != c.clean || s.Deaths != c.deaths || len(s.InDoubt()) != c.doubts ||
			s.Live {
			t.Errorf(
				"%s: got ending %+v, %d deaths, %d in doubt, live %v; want clean %v, %d, %d, false", c.name,
				s.Ending, s.Deaths, len(s.InDoubt()), s.Live, c.clean, c.deaths, c.doubts,
			)
		}
	}
}
