//go:build linux

package lab

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/lookup"
)

// What only a gateway does: it takes turns for others, by the clock too, ends in its own time, and compacts.

// gateway starts OpenClaw's daemon and waits until it takes turns.
func (h *home) gateway() *agent {
	h.t.Helper()
	a := h.start("gateway", "run", "--port", "18789", "--allow-unconfigured")
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("the gateway printed:\n%s", a.printed())
		}
	})
	h.until("the gateway listens", func() bool {
		select {
		case <-a.done:
			h.t.Fatalf("the gateway ended with %d", a.cmd.ProcessState.ExitCode())
		default:
		}
		c, err := net.DialTimeout("tcp", "127.0.0.1:18789", time.Second)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	return a
}

// gatewayTurn is a turn of the agent's main session, taken by the gateway.
func gatewayTurn(prompt string) []string {
	return []string{"agent", "--agent", "main", "--json", "-m", prompt}
}

// openclawOther runs a command of OpenClaw's that is no turn, and gives what it printed.
func (h *home) openclawOther(args ...string) string {
	h.t.Helper()
	a := h.start(args...)
	if code := a.wait(); code != 0 {
		h.t.Fatalf("openclaw %q: exit %d, want 0\n%s", args, code, a.printed())
	}
	return a.printed()
}

// asked finds the first main request since a number of them that holds a text, and waits for it.
func (h *home) asked(since int, text string) Request {
	h.t.Helper()
	var r Request
	h.until("a request with "+text, func() bool {
		list := h.model.Main()[since:]
		i := slices.IndexFunc(list, func(r Request) bool { return r.Count(text) > 0 })
		if i >= 0 {
			r = list[i]
		}
		return i >= 0
	})
	return r
}

// TestOpenClawGatewayKilled: the gateway takes the turn up by itself after its restart. That turn is given the facts, once,
// and it is no round of its own.
func TestOpenClawGatewayKilled(t *testing.T) {
	h := newOpenClaw(t)
	g := h.gateway()
	h.openclawInTool(gatewayTurn("please start the work")...)
	session := h.newest()
	h.until("the call is known", func() bool { return len(h.status(session).OpenCalls) == 1 })
	g.signal(syscall.SIGKILL)
	h.died(session)
	h.killTools()
	before := len(h.model.Main())
	h.model.Script(Turn{Text: "I look at what was done."}, Turn{Text: "It is all done."})
	g = h.gateway()
	h.until("the gateway goes on by itself", func() bool { return len(h.model.Main()) > before })
	openclawInDoubt(t, h.model.Main()[before])
	h.until("its turn is a round", func() bool { return h.status(session).MessageCount == 1 })
	before = len(h.model.Main())
	h.run(gatewayTurn("and what now")...)
	if r := h.model.Main()[before]; r.Count(record) != 0 {
		t.Errorf("the next turn: got %d records, want none\n%s", r.Count(record), said(r))
	}
	h.until("that is a second round", func() bool { return h.status(session).MessageCount == 2 })
	g.signal(syscall.SIGTERM)
	h.until("the good-bye is heard", func() bool { return h.status(session).State == "ended" })
}

// TestOpenClawGatewayInterrupted: Ctrl-C lets the gateway drain: the running command ends, its turn is a whole round, and
// nobody needs to be told anything after that.
func TestOpenClawGatewayInterrupted(t *testing.T) {
	h := newOpenClaw(t)
	g := h.gateway()
	h.openclawInTool(gatewayTurn("please start the work")...)
	session := h.newest()
	h.until("the call is known", func() bool { return len(h.status(session).OpenCalls) == 1 })
	if err := syscall.Kill(g.pid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	h.until("the gateway drains", func() bool { return strings.Contains(g.printed(), "received SIGINT") })
	h.killTools() // or it drains for as long as the command takes
	if code := g.wait(); code != 0 {
		t.Errorf("the gateway after SIGINT: exit %d, want 0", code)
	}
	h.until("the good-bye is heard", func() bool { return h.status(session).State == "ended" })
	st := h.status(session)
	if calls := h.calls(session); st.MessageCount != 1 || len(st.OpenCalls) != 0 || calls["touch"] == checkpoint.CallOpen || calls["touch"] == checkpoint.CallDoubt {
		t.Errorf("got %d rounds, open %v, calls %v, want 1 round, and an outcome of each call", st.MessageCount, st.OpenCalls, calls)
	}
	if r := h.recover(session); len(r.InDoubt) != 0 {
		t.Errorf("got %v in doubt, want nothing: the gateway waited for the command", r.InDoubt)
	}
	h.model.Script(Turn{Text: "I look at what was done."})
	if r := h.run(local("lab2", "please go on")...); r.Count(record) != 0 {
		t.Errorf("a new session after a clean end: got %d records, want none\n%s", r.Count(record), said(r))
	}
}

// TestOpenClawGatewayInterruptedThenKilled: somebody loses patience with a gateway that drains. Its command is in doubt, and
// the gateway's own turn after the restart is told.
func TestOpenClawGatewayInterruptedThenKilled(t *testing.T) {
	h := newOpenClaw(t)
	g := h.gateway()
	h.openclawInTool(gatewayTurn("please start the work")...)
	session := h.newest()
	h.until("the call is known", func() bool { return len(h.status(session).OpenCalls) == 1 })
	if err := syscall.Kill(g.pid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	h.until("the gateway drains", func() bool { return strings.Contains(g.printed(), "received SIGINT") })
	g.signal(syscall.SIGKILL)
	h.died(session)
	h.killTools()
	before := len(h.model.Main())
	h.model.Script(Turn{Text: "I look at what was done."}, Turn{Text: "It is all done."})
	h.gateway()
	h.until("the gateway goes on by itself", func() bool { return len(h.model.Main()) > before })
	openclawInDoubt(t, h.model.Main()[before])
}

// TestOpenClawHeartbeatAndCron: a session died in a command, and the turns that come next are a heartbeat and a job of the
// clock. They are told nothing and are no rounds; the person's turn after them is a round, and is told of the dead session.
func TestOpenClawHeartbeatAndCron(t *testing.T) {
	h := newOpenClaw(t)
	a := h.openclawInTool(local("lab1", "please start the work")...)
	h.until("the call is known", func() bool { return len(h.status("lab1").OpenCalls) == 1 })
	a.signal(syscall.SIGKILL)
	h.died("lab1")
	h.killTools()
	h.model.Script(Turn{When: "please go on", Text: "I look at what was done."}, Turn{Text: "NO_REPLY"}, Turn{Text: "NO_REPLY"})
	before := len(h.model.Main())
	h.gateway()
	h.openclawOther("system", "event", "--text", "the mail has come", "--mode", "now")
	if r := h.asked(before, "the mail has come"); r.Count(record) != 0 {
		t.Errorf("the heartbeat: got %d records, want none\n%s", r.Count(record), said(r))
	}
	var job struct{ ID string }
	out := h.openclawOther("cron", "add", "--name", "lab", "--every", "24h", "--session", "isolated", "--message", "water the plants", "--no-deliver", "--json")
	if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &job); err != nil || job.ID == "" {
		t.Fatalf("openclaw cron add: no job's id (%v) in\n%s", err, out)
	}
	h.openclawOther("cron", "run", job.ID)
	if r := h.asked(before, "water the plants"); r.Count(record) != 0 {
		t.Errorf("the job: got %d records, want none\n%s", r.Count(record), said(r))
	}
	h.openclawOther(gatewayTurn("please go on")...)
	r := h.asked(before, "please go on")
	if r.Count(record) != 1 || r.Count("lab1") == 0 || doubts(r) != "" {
		t.Errorf("the person's turn: got %d records, want one that names the dead session: the gateway's own live beside it\n%s", r.Count(record), said(r))
	}
	h.until("the person's turn is a round", func() bool { return h.status(h.newest()).MessageCount == 1 })
	rounds := 0
	for _, s := range h.sessions() {
		if s.SessionID != "lab1" {
			rounds += s.MessageCount
		}
	}
	if rounds != 1 {
		t.Errorf("got %d rounds in the gateway's sessions, want 1: heartbeat and job are none\n%+v", rounds, h.sessions())
	}
}

// TestOpenClawCompacted: the gateway compacts a session when it is told to. A FULL is taken before, and the next turn is
// told what the person had said, once.
func TestOpenClawCompacted(t *testing.T) {
	h := newOpenClaw(t)
	h.gateway()
	h.model.Script(Turn{Text: "A quick command.", Calls: []Call{openclawExec(quick)}}, Turn{Text: "The first round is done."},
		Turn{Text: "The second round is done."}, Turn{Text: "The third round is done."})
	h.run(gatewayTurn("please start the work")...)
	session := h.newest()
	for _, prompt := range []string{"second round please", "third round please"} {
		h.run(gatewayTurn(prompt + strings.Repeat(" and a long story", 5000))...)
	}
	h.until("three rounds are known", func() bool { return h.status(session).MessageCount == 3 })
	if out := h.openclawOther("sessions", "compact", "agent:main:main", "--json"); !strings.Contains(out, `"compacted": true`) {
		t.Fatalf("the session was not compacted:\n%s", out)
	}
	h.until("the checkpoint before the compaction is there", func() bool {
		shown, err := ask[lookup.Shown](h, "show", "--session", session)
		if err != nil {
			t.Fatal(err)
		}
		return shown.State.LastFull != nil && shown.State.LastFull.Cause == checkpoint.CauseCompaction
	})
	before := len(h.model.Main())
	h.run(gatewayTurn("and what now")...)
	if r := h.model.Main()[before]; r.Count(record) != 1 || r.Count("please start the work") == 0 {
		t.Errorf("after the compaction: got %d records, want one with the person's words\n%s", r.Count(record), said(r))
	}
	before = len(h.model.Main())
	h.run(gatewayTurn("and then")...)
	if r := h.model.Main()[before]; r.Count(record) != 0 {
		t.Errorf("the turn after that: got %d records, want none\n%s", r.Count(record), said(r))
	}
	if st := h.status(session); st.MessageCount != 5 {
		t.Errorf("got %d rounds, want 5: the compaction is none", st.MessageCount)
	}
}
