package checkpoint

import "testing"

// The watch sees that the process is gone; its parent tells a moment later why. Both are one death, and the reason stays.
func TestTheParentsWordOnADeathStays(t *testing.T) {
	s := NewState(NewKey("any", "", "11111111-1111-4111-8111-111111111111", ""))
	p := &Proc{PID: 7, Start: 1, Boot: "b"}
	s.Apply(Event{Seq: 1, Kind: EventStart, Proc: p})
	s.Apply(Event{Seq: 2, Kind: EventPrompt, Text: "go", Proc: p})
	s.Apply(Event{Seq: 3, Kind: EventExit, Proc: p, Reason: "its process is gone"})
	f := s.Apply(Event{Seq: 4, Kind: EventExit, Reason: "killed by SIGKILL: out of memory"})
	if s.Deaths != 1 || s.Ending.Reason != "killed by SIGKILL: out of memory" || f.Force != CauseExit {
		t.Errorf("got %d deaths, reason %q, force %q; want one death with its parent's reason and a FULL that holds it", s.Deaths, s.Ending.Reason, f.Force)
	}
	s.Apply(Event{Seq: 5, Kind: EventExit, Proc: p, Reason: "its process is gone"})
	if s.Ending.Reason != "killed by SIGKILL: out of memory" {
		t.Errorf("a later, poorer word took the reason's place: %q", s.Ending.Reason)
	}
}
