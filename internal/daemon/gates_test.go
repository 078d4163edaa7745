package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"belay/internal/wire"
)

func (r *running) verb(session, verb string, flags string) string {
	r.t.Helper()
	reply, body := r.do(
		wire.Request{Op: "verb", Event: verb, Session: session, Workspace: "/proj", Body: []byte(flags)}, nil,
	)

	if !reply.OK {
		r.t.Fatalf("%s: %+v", verb, reply)
	}

	return strings.TrimSpace(string(body))
}

// undrained keeps the daemon from its spool until the test's end: each look into it holds checkpoints up for a moment.
func (r *running) undrained() (end func()) {
	r.l.drain.turn.Lock()
	return r.l.drain.turn.Unlock
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
	if got := r.verb(
		"s", "check-full", "{}",
	); !strings.HasPrefix(got, "time gate: ") ||
		!strings.HasSuffix(got, "left (owed)") {
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
