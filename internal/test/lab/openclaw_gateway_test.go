//go:build linux

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/state/query"
)

// What only a gateway does: it takes turns for others, by the clock too, ends in its own time, and compacts.

// gateway starts OpenClaw's daemon and waits until it takes turns. On a busy machine it gives up after a few seconds,
// and says so: then it is started again, as a service manager would.
func (h *home) gateway() *agent {
	h.t.Helper()
	for range 10 {
		a := h.start("gateway", "run", "--port", "18789", "--allow-unconfigured")
		up := false
		h.until("the gateway listens", func() bool {
			c, err := net.DialTimeout("tcp", "127.0.0.1:18789", time.Second)
			if err == nil {
				up = true
				return c.Close() == nil
			}

			select {
			case <-a.done:
				return true
			default:
				return false
			}
		})

		if up {
			h.t.Cleanup(func() {
				if h.t.Failed() {
					h.t.Logf("the gateway printed:\n%s", a.printed())
				}
			})
			return a
		}

		h.t.Logf("the gateway did not start:\n%s", a.printed())
	}

	h.t.Fatal("the gateway does not start")
	return nil
}

// gatewayTurn is a turn of the agent's main session, taken by the gateway.
func gatewayTurn(prompt string) []string {
	return []string{"agent", "--agent", "main", "--json", "-m", prompt}
}

// gatewaySays has the gateway take a turn of the agent's main session over HTTP, which spares the start of a client. It
// gives the first main request of the turn, if there was one, and the answer.
func (h *home) gatewaySays(prompt string) (r Request, asked bool, answer string) {
	h.t.Helper()
	from := len(h.model.Main())
	body, err := json.Marshal(
		map[string]any{"model": "openclaw", "messages": []any{map[string]any{"role": "user", "content": prompt}}},
	)
	if err != nil {
		h.t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(h.t.Context(), longRun+h.prog.slow)
	defer cancel()
	q, err := http.NewRequestWithContext(
		ctx, http.MethodPost, "http://127.0.0.1:18789/v1/chat/completions", bytes.NewReader(body),
	)

	if err != nil {
		h.t.Fatal(err)
	}

	q.Close = true
	q.Header = http.Header{
		"Authorization":          {"Bearer test"},
		"Content-Type":           {"application/json"},
		"X-Openclaw-Session-Key": {"agent:main:main"},
	}

	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		h.t.Fatalf("turn %.40q: %v", prompt, err)
	}

	defer resp.Body.Close() // read only
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatalf("turn %.40q: %v", prompt, err)
	}
	if list := h.model.Main(); len(list) > from {
		return list[from], true, string(data)
	}

	return r, false, string(data)
}

// gatewayRun is a turn that must reach the model.
func (h *home) gatewayRun(prompt string) Request {
	h.t.Helper()
	r, asked, answer := h.gatewaySays(prompt)
	if !asked {
		h.t.Fatalf("turn %.40q asked the model nothing: %s", prompt, answer)
	}
	return r
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

// openclawGoesOn waits for the first turn after a gateway that died in a command: a turn of its own, or up to 2026.7,
// where it takes up none in which a call is open, the person's: that prompt ends the round before it. It gives the
// turn's first request, and how many rounds there are after it.
func (h *home) openclawGoesOn() (r Request, rounds int) {
	h.t.Helper()
	before := len(h.model.Main())
	h.model.Script(Turn{Text: "I look at what was done."}, Turn{Text: "It is all done."})
	h.gateway()
	if files, _ := openclawFiles(h.t); files {
		return h.gatewayRun("please go on"), 2
	}

	h.until("the gateway goes on by itself", func() bool { return len(h.model.Main()) > before })
	return h.model.Main()[before], 1
}

// TestOpenClawGatewayKilled: the turn after the gateway's restart is given the facts, once. When the gateway takes it
// up by itself it is no round of its own.
func TestOpenClawGatewayKilled(t *testing.T) {
	h := newOpenClaw(t)
	g := h.gateway()
	a := h.openclawInTool(gatewayTurn("please start the work")...)
	session := h.newest()
	h.until("the call is known", func() bool { return len(h.status(session).OpenCalls) == 1 })
	a.signal(syscall.SIGKILL) // up to 2026.7 it would take the turn up itself: TestOpenClawFallback
	g.signal(syscall.SIGKILL)
	h.died(session)
	h.killTools()
	r, rounds := h.openclawGoesOn()
	openclawInDoubt(t, r)
	h.until("its turn is a round", func() bool { return h.status(session).MessageCount == rounds })
	if r := h.gatewayRun("and what now"); r.Count(record) != 0 {
		t.Errorf("the next turn: got %d records, want none\n%s", r.Count(record), said(r))
	}

	h.until("that is one more", func() bool { return h.status(session).MessageCount == rounds+1 })
	g.signal(syscall.SIGTERM)
	h.until("the good-bye is heard", func() bool { return h.status(session).State == "ended" })
}

// TestOpenClawGatewayInterrupted: Ctrl-C lets the gateway drain: the running command ends, its turn is a whole round,
// and nobody needs to be told anything after that.
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
	if calls := h.calls(
		session,
	); st.MessageCount != 1 || len(st.OpenCalls) != 0 || calls["touch"] == checkpoint.CallOpen ||
		calls["touch"] == checkpoint.CallDoubt {
		t.Errorf(
			"got %d rounds, open %v, calls %v, want 1 round, and an outcome of each call", st.MessageCount,
			st.OpenCalls, calls,
		)
	}

	if r := h.recover(session); len(r.InDoubt) != 0 {
		t.Errorf("got %v in doubt, want nothing: the gateway waited for the command", r.InDoubt)
	}

	h.model.Script(Turn{Text: "I look at what was done."})
	if r := h.run(local("lab2", "please go on")...); r.Count(record) != 0 {
		t.Errorf("a new session after a clean end: got %d records, want none\n%s", r.Count(record), said(r))
	}
}

// TestOpenClawGatewayInterruptedThenKilled: somebody loses patience with a gateway that drains. Its command is in
// doubt, and the gateway's own turn after the restart is told.
func TestOpenClawGatewayInterruptedThenKilled(t *testing.T) {
	h := newOpenClaw(t)
	g := h.gateway()
	a := h.openclawInTool(gatewayTurn("please start the work")...)
	session := h.newest()
	h.until("the call is known", func() bool { return len(h.status(session).OpenCalls) == 1 })
	if err := syscall.Kill(g.pid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}

	h.until("the gateway drains", func() bool { return strings.Contains(g.printed(), "received SIGINT") })
	a.signal(syscall.SIGKILL)
	g.signal(syscall.SIGKILL)
	h.died(session)
	h.killTools()
	r, _ := h.openclawGoesOn()
	openclawInDoubt(t, r)
}

// TestOpenClawHeartbeatAndCron: a session died in a command, and the turns that come next are a heartbeat and a job of
// the clock. They are told nothing and are no rounds; the person's turn after them is a round, and is told of the dead
// session.
func TestOpenClawHeartbeatAndCron(t *testing.T) {
	h := newOpenClaw(t)
	a := h.openclawInTool(local("lab1", "please start the work")...)
	h.until("the call is known", func() bool { return len(h.status("lab1").OpenCalls) == 1 })
	a.signal(syscall.SIGKILL)
	h.died("lab1")
	h.killTools()
	h.model.Script(
		Turn{When: "please go on", Text: "I look at what was done."}, Turn{Text: "NO_REPLY"},
		Turn{Text: "NO_REPLY"},
	)

	before := len(h.model.Main())
	h.gateway()
	h.openclawOther("system", "event", "--text", "the mail has come", "--mode", "now")
	beat := "the mail has come"
	if files, _ := openclawFiles(t); files {
		beat = "[OpenClaw heartbeat poll]" // it said no more, up to 2026.7
	}
	if r := h.asked(before, beat); r.Count(record) != 0 {
		t.Errorf("the heartbeat: got %d records, want none\n%s", r.Count(record), said(r))
	}

	var job struct{ ID string }
	out := h.openclawOther(
		"cron", "add", "--name", "lab", "--every", "24h", "--session", "isolated", "--message",
		"water the plants", "--no-deliver", "--json",
	)

	if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &job); err != nil || job.ID == "" {
		t.Fatalf("openclaw cron add: no job's id (%v) in\n%s", err, out)
	}

	h.openclawOther("cron", "run", job.ID)
	if r := h.asked(before, "water the plants"); r.Count(record) != 0 {
		t.Errorf("the job: got %d records, want none\n%s", r.Count(record), said(r))
	}

	h.gatewayRun("please go on")
	r := h.asked(before, "please go on")
	if r.Count(record) != 1 || r.Count("lab1") == 0 || doubts(r) != "" {
		t.Errorf(
			"the person's turn: got %d records, want one that names the dead session: the gateway's own live beside it\n%s",
			r.Count(record), said(r),
		)
	}

	h.until("the person's turn is a round", func() bool { return h.status(h.newest()).MessageCount == 1 })
	rounds := 0
	for _, s := range h.sessions() {
		if s.SessionID != "lab1" {
			rounds += s.MessageCount
		}
	}

	if rounds != 1 {
		t.Errorf(
			"got %d rounds in the gateway's sessions, want 1: heartbeat and job are none\n%+v", rounds,
			h.sessions(),
		)
	}
}

// openclawWork are three rounds of the gateway's main session. A window of 64,000 tokens is full after them; what came
// last of them is short, so that it is not full for long.
func (h *home) openclawWork() (session string) {
	h.t.Helper()
	const words = " and a long story"
	story := strings.Repeat(words, 4500)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{openclawExec(quick)}},
		Turn{Text: "The first round is done."},
		Turn{Text: "The second round is done."},
		Turn{
			Text:  "Another command." + story,
			Calls: []Call{openclawExec(quick)},
		},
		Turn{Text: "The third round is done." + strings.Repeat(words, 600)},
	)

	h.gatewayRun("please start the work")
	session = h.newest()
	h.gatewayRun("second round please" + story)
	h.gatewayRun("third round please")
	h.until("three rounds are known", func() bool { return h.status(session).MessageCount == 3 })
	return session
}

// openclawCompacted: a FULL is taken before the compaction, and the next turn is told what the person had said; the one
// after that only after another compaction. It leaves so many rounds in the session that goes on.
func (h *home) openclawCompacted(session string, rounds int, again bool) {
	h.t.Helper()
	h.until("the checkpoint before the compaction is there", func() bool {
		shown, err := ask[query.Shown](h, "show", "--session", session)
		if err != nil {
			h.t.Fatal(err)
		}
		return shown.State.LastFull != nil && shown.State.LastFull.Cause == checkpoint.CauseCompaction
	})

	if r := h.gatewayRun("and what now"); r.Count(record) != 1 || r.Count("please start the work") == 0 {
		h.t.Errorf(
			"after the compaction: got %d records, want one with the person's words\n%s", r.Count(record),
			said(r),
		)
	}

	if r := h.gatewayRun("and then"); (r.Count(record) == 1) != again {
		h.t.Errorf("the turn after that: got %d records, compacted again is %v\n%s", r.Count(record), again, said(r))
	}

	h.until(
		"both turns are rounds, and the compaction is none",
		func() bool { return h.status(h.newest()).MessageCount == rounds },
	)
}

// TestOpenClawCompacted: the gateway compacts a session when it is told to.
func TestOpenClawCompacted(t *testing.T) {
	h := newOpenClaw(t)
	h.gateway()
	session := h.openclawWork()
	if out := h.openclawOther(
		"sessions", "compact", "agent:main:main", "--json",
	); !strings.Contains(
		out, `"compacted": true`,
	) {
		t.Fatalf("the session was not compacted:\n%s", out)
	}

	h.openclawCompacted(session, 5, false)
}

// TestOpenClawCompactedByItself: the model's window is full after three rounds, and nobody has to tell the gateway.
func TestOpenClawCompactedByItself(t *testing.T) {
	h := newOpenClaw(t)
	h.openclawSet("contextWindow: 200000", "contextWindow: 64000")
	h.openclawSet(`mode: "default"`, `mode: "default", keepRecentTokens: 2000`)
	h.gateway()
	// up to 2026.7 it counts what was summed up too: from now on it compacts after every turn
	files, _ := openclawFiles(t)
	h.openclawCompacted(h.openclawWork(), 5, files)
}
