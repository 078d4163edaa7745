package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/wire"
)

func (r *running) verb(session, verb string, flags string) string {
	r.t.Helper()
	reply, body := r.do(wire.Request{Op: "verb", Event: verb, Session: session, Workspace: "/proj", Body: []byte(flags)}, nil)
	if !reply.OK {
		r.t.Fatalf("%s: %+v", verb, reply)
	}
	return strings.TrimSpace(string(body))
}

// undrained keeps the daemon from its spool until the test's end: each look into it holds checkpoints up for a moment.
func (r *running) undrained() (end func()) {
	r.d.drain.Lock()
	return r.d.drain.Unlock
}

func TestGatesSayWhyAndCheckSparseSaysWhatWasTaken(t *testing.T) {
	r := start(t, tempDir(t))
	defer r.undrained()()
	for i := range 4 {
		want := fmt.Sprintf("round gate: %d of 5", i+1)
		if got := r.verb("s", "increment", "{}"); got != want {
			t.Errorf("round %d: %q, want %q", i+1, got, want)
		}
	}
	if got := r.verb("s", "check-sparse", "{}"); got != "round gate: 4 of 5" {
		t.Errorf("check-sparse before: %q", got)
	}
	if got := r.verb("s", "increment", "{}"); got != "taking SPARSE: all gates passed" {
		t.Errorf("round 5: %q", got)
	}
	if got := r.verb("s", "check-sparse", "{}"); got != "taken 1 (SPARSE: all gates passed)" {
		t.Errorf("check-sparse after: %q", got)
	}
	if got := r.verb("s", "check-full", "{}"); got != "taken 2 (FULL: heartbeat)" {
		t.Errorf("check-full: %q", got)
	}
	if got := r.verb("s", "check-full", `{"heartbeat":true}`); got != "nothing new" {
		t.Errorf("check-full --heartbeat with nothing new: %q", got)
	}
	r.verb("s", "increment", "{}")
	if got := r.verb("s", "check-full", "{}"); !strings.HasPrefix(got, "time gate: ") || !strings.HasSuffix(got, "left (owed)") {
		t.Errorf("check-full under the time gate: %q", got)
	}
}

func TestOwedIsTakenOnceWhenTheGateOpens(t *testing.T) {
	r := start(t, tempDir(t), func(d *Daemon) { d.opt.Gates.FullTime = 2 * time.Second })
	defer r.undrained()()
	turn := func(i int) wire.Reply {
		r.event("s", wire.Event{Kind: "prompt", Text: fmt.Sprint("q", i)})
		r.event("s", wire.Event{Kind: "tool-start", Call: fmt.Sprint("c", i), Name: "Read"})
		r.event("s", wire.Event{Kind: "tool-end", Call: fmt.Sprint("c", i)})
		return r.event("s", wire.Event{Kind: "stop", Text: "a"})
	}
	if d := turn(1).Decision; d == nil || !d.Take || d.Text != "tool chain ended" {
		t.Errorf("first chain: %+v", d)
	}
	until(t, "the first one is written", func() bool { return len(r.checkpoints("tester", "s")) == 1 })
	if d := turn(2).Decision; d == nil || d.Take || !d.Owed || d.Code != "time_gate" {
		t.Errorf("second chain at once: %+v, want it owed", d)
	}
	until(t, "the owed one is taken", func() bool { return len(r.checkpoints("tester", "s")) == 2 })
	time.Sleep(2500 * time.Millisecond) // the gate opens again, and nothing is owed
	if got := len(r.checkpoints("tester", "s")); got != 2 {
		t.Errorf("%d checkpoints after a silence, want 2", got)
	}
}

func TestForcedCheckpoints(t *testing.T) {
	for name, c := range map[string]struct {
		e     wire.Event
		cause checkpoint.Cause
	}{
		"session end":       {wire.Event{Kind: "end", Reason: "bye"}, checkpoint.CauseEnd},
		"before compaction": {wire.Event{Kind: "compacting"}, checkpoint.CauseCompaction},
		"decision":          {wire.Event{Kind: "mark", Text: "tabs", Decision: true}, checkpoint.CauseDecision},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, tempDir(t))
			r.rounds("s", 0, 1)
			if d := r.event("s", c.e).Decision; d == nil || !d.Take || d.Text != "forced: "+string(c.cause) {
				t.Errorf("decision %+v", d)
			}
			until(t, "it is taken", func() bool { return len(r.checkpoints("tester", "s")) == 1 })
		})
	}
}

// A trigger that comes while a checkpoint is being written is not in it: it is owed, and taken after it.
func TestATriggerDuringAWriteIsOwed(t *testing.T) {
	f, wait := &faulty{}, make(chan struct{})
	f.block.Store(&wait)
	r := start(t, tempDir(t), withFaults(f))
	r.rounds("s", 0, 1)
	c := r.dial()
	if err := c.Send(eventCheckpoint("s"), nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the write is under way", func() bool { return f.puts.Load() == 1 })
	r.event("s", wire.Event{Kind: "prompt", Text: "said during the write"})
	if d := r.event("s", wire.Event{Kind: "compacting"}).Decision; d == nil || !d.Owed || d.Code != "in_progress" {
		t.Errorf("decision %+v, want it owed", d)
	}
	f.block.Store(nil)
	close(wait)
	until(t, "the owed one is taken", func() bool { return len(r.checkpoints("tester", "s")) == 2 })
	if got := r.newest("s"); got.Cause != checkpoint.CauseCompaction || len(got.State.Messages) != 3 {
		t.Errorf("cause %s with %d messages, want compaction with 3", got.Cause, len(got.State.Messages))
	}
}

func TestBothKindsAreOneFull(t *testing.T) {
	r := start(t, tempDir(t))
	r.rounds("s", 0, 4)
	r.event("s", wire.Event{Kind: "prompt", Text: "the fifth"})
	r.event("s", wire.Event{Kind: "tool-start", Call: "c", Name: "Read"})
	r.event("s", wire.Event{Kind: "tool-end", Call: "c"})
	r.event("s", wire.Event{Kind: "stop", Text: "a"})
	until(t, "a FULL", func() bool { return len(r.checkpoints("tester", "s")) == 1 })
	st := r.session("tester", "s")
	if st.LastFullCheckpoint == nil || st.LastSparseCheckpoint == nil || r.checkpoints("tester", "s")[0].Level != checkpoint.Full {
		t.Errorf("stamps: full %v, sparse %v; want both moved by one FULL", st.LastFullCheckpoint, st.LastSparseCheckpoint)
	}
}

func TestReloadChangesTheGates(t *testing.T) {
	r := start(t, tempDir(t))
	r.rounds("s", 0, 1)
	opt := r.d.opt
	opt.Gates.SparseRounds = 2
	r.d.Reload(opt)
	if d := r.rounds("s", 1, 1).Decision; d == nil || !d.Take {
		t.Errorf("second round with a gate of two: %+v", d)
	}
}
