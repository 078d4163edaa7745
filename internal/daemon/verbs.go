package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"belay/checkpoint"
	"belay/internal/daemon/socket"
	"belay/internal/redact"
	"belay/internal/state"
	"belay/internal/state/query"
	"belay/internal/wire"
	"belay/recovery"
)

// verbFlags are the flags of the original scripts' verbs.
type verbFlags struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Text       string `json:"text"`
	Input      string `json:"input"`
	Transcript string `json:"transcript"`
	Heartbeat  bool   `json:"heartbeat"`
	Failed     bool   `json:"failed"`
	JSON       bool   `json:"json"`
}

// otherAgent is the agent of a verb or an event that names none.
const otherAgent = "other"

// verb answers a verb of the original scripts. The text for the terminal is the reply's body; a refused gate is no error.
func (d *Daemon) verb(ctx context.Context, req wire.Request) *socket.Answer {
	var f verbFlags
	if len(req.Body) > 0 {
		if err := json.Unmarshal(req.Body, &f); err != nil {
			return textAnswer(socket.Failure(wire.CodeBadRequest, "flags: "+err.Error(), "a flag with a value: --name=value"))
		}
	}
	if req.Agent == "" {
		req.Agent = otherAgent
	}
	if req.Session == "" && req.Event != "status" && req.Event != "recover" {
		return textAnswer(socket.Failure(wire.CodeBadRequest, "no session", "give --session ID or set BELAY_SESSION"))
	}
	w := wire.Event{Text: f.Text, Name: f.Name, Call: f.ID, Input: f.Input, Failed: f.Failed, Transcript: f.Transcript}
	switch req.Event {
	case "increment":
		w.Kind = string(checkpoint.EventStop)
	case "tool-start":
		w.Kind, w.Bare = string(checkpoint.EventToolStart), true
	case "tool-end":
		w.Kind, w.Bare = string(checkpoint.EventToolEnd), true
	case "check-sparse", "check-full":
		return d.check(ctx, req, f)
	case "status":
		return d.verbStatus(req)
	case "recover":
		return d.verbRecover(req)
	default:
		return textAnswer(socket.Failure(wire.CodeUnknownOp, "unknown verb "+req.Event, "increment, tool-start, tool-end, check-sparse, check-full, status, recover"))
	}
	e, err := fromWire(req, w)
	if err != nil {
		return textAnswer(socket.Failure(wire.CodeBadRequest, err.Error(), ""))
	}
	r := d.take(ctx, e)
	if r.err != nil {
		return textAnswer(socket.Failure(wire.CodeInternal, r.err.Error(), ""))
	}
	ans := d.eventAnswer(req, r)
	ans.Body = []byte(decisionText(r) + "\n")
	return ans
}

// textAnswer gives a failure a line for the terminal too.
func textAnswer(a *socket.Answer) *socket.Answer {
	a.Body = []byte("belay: " + a.Reply.Message + "\n")
	if a.Reply.Hint != "" {
		a.Body = append(a.Body, a.Reply.Hint+"\n"...)
	}
	return a
}

// decisionText is one line of what the gates said.
func decisionText(r result) string {
	d := r.decision
	switch {
	case d.Code == checkpoint.CodeNoTrigger || d.Code == "":
		return "counted"
	case d.Take && r.number > 0:
		return fmt.Sprintf("taken %d (%s: %s)", r.number, d.Level, d.Text)
	case d.Take:
		return fmt.Sprintf("taking %s: %s", d.Level, d.Text)
	case d.Owed:
		return d.Text + " (owed)"
	}
	return d.Text
}

// checkOp is op check (body {"kind":"sparse"|"full","heartbeat":bool}) and op checkpoint: both wait for the file.
func (d *Daemon) checkOp(ctx context.Context, req wire.Request) *socket.Answer {
	var body struct {
		Kind      string `json:"kind"`
		Heartbeat bool   `json:"heartbeat"`
	}
	if len(req.Body) > 0 {
		if err := json.Unmarshal(req.Body, &body); err != nil {
			return socket.Failure(wire.CodeBadRequest, "body: "+err.Error(), "")
		}
	}
	if req.Op == "check" {
		req.Event = "check-" + body.Kind
		return d.check(ctx, req, verbFlags{Heartbeat: body.Heartbeat})
	}
	return d.whenWritten(ctx, req, func(s *session, reply chan<- result) { s.force(checkpoint.CauseManual, reply) })
}

func (d *Daemon) check(ctx context.Context, req wire.Request, f verbFlags) *socket.Answer {
	return d.whenWritten(ctx, req, func(s *session, reply chan<- result) {
		if req.Event == "check-sparse" {
			s.checkSparse(reply)
			return
		}
		s.checkFull(f.Heartbeat, reply)
	})
}

// checkSparse answers for the last round: its checkpoint when its decision took one, else the gates' answer now.
func (s *session) checkSparse(reply chan<- result) {
	st := s.state
	switch {
	case s.due != nil:
		s.waiters = append(s.waiters, waiter{reply: reply})
		return
	case st.LastSparse != nil && st.SinceSparse == 0 && st.Rounds > 0:
		reply <- result{number: st.LastSparse.Number, decision: checkpoint.Decision{Take: true, Level: st.LastSparse.Level, Code: checkpoint.CodePassed, Text: "all gates passed"}}
		return
	}
	s.ask("", true, reply)
}

func (s *session) checkFull(heartbeat bool, reply chan<- result) {
	if !heartbeat {
		s.ask(checkpoint.CauseHeartbeat, false, reply)
		return
	}
	r := s.event(checkpoint.Event{Kind: checkpoint.EventBeat, Aside: true})
	if s.due != nil && r.err == nil {
		s.waiters = append(s.waiters, waiter{reply: reply})
		return
	}
	reply <- r
}

// ask puts a question to the gates now and waits for the file when they take it.
func (s *session) ask(full checkpoint.Cause, round bool, reply chan<- result) {
	now := time.Now()
	dec := s.settle(s.gate(full, round, now), now)
	if dec.Take {
		s.waiters = append(s.waiters, waiter{reply: reply})
		return
	}
	reply <- result{decision: dec}
}

// whenWritten runs a question in the session that a request names and answers when its checkpoint, if any, is in the store.
func (d *Daemon) whenWritten(ctx context.Context, req wire.Request, ask func(*session, chan<- result)) *socket.Answer {
	e, err := fromWire(req, wire.Event{Kind: string(checkpoint.EventBeat)})
	if err != nil {
		return textAnswer(socket.Failure(wire.CodeBadRequest, err.Error(), "give --session ID or set BELAY_SESSION"))
	}
	key := d.resolve(e.Key)
	if !d.known(key) {
		return textAnswer(socket.Failure(wire.CodeNotFound, "no session "+req.Session+" of "+e.Key.Agent, "belay list shows the sessions"))
	}
	s := d.session(key)
	reply := make(chan result, 1)
	if !s.do(ctx, func() { ask(s, reply) }) {
		return textAnswer(socket.Failure(wire.CodeStopping, "the session is stopping", "try again"))
	}
	return &socket.Answer{Reply: wire.Reply{OK: true}, Finish: func(ctx context.Context, a *socket.Answer) {
		ctx, cancel := context.WithTimeout(ctx, d.times.writeBudget)
		defer cancel()
		select {
		case r := <-reply:
			a.Reply.Decision = wireDecision(r)
			a.Body = []byte(decisionText(r) + "\n")
			if r.err != nil {
				a.Reply.OK, a.Reply.Code, a.Reply.Message = false, wire.CodeDegraded, r.err.Error()
				a.Body = []byte("belay: " + r.err.Error() + "\n")
			}
		case <-s.done:
			a.Reply = socket.Failure(wire.CodeStopping, "the session is stopping", "try again").Reply
		case <-ctx.Done():
			a.Reply = socket.Failure(wire.CodeInternal, "the checkpoint is not written yet", "belay status shows what holds it up").Reply
		}
	}}
}

func (d *Daemon) verbStatus(req wire.Request) *socket.Answer {
	return &socket.Answer{Reply: wire.Reply{OK: true}, Finish: func(ctx context.Context, a *socket.Answer) {
		var v any
		if req.Session == "" {
			v = d.status(ctx)
		} else {
			st, err := d.sessionStatus(ctx, state.Name{Agent: named(req.Agent), Session: req.Session, Workspace: realPath(req.Workspace)})
			if err != nil {
				*a = *textAnswer(socket.Failure(wire.CodeNotFound, "session "+req.Session+": "+err.Error(), "belay list shows the sessions"))
				return
			}
			v = st
		}
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			*a = *textAnswer(socket.Failure(wire.CodeInternal, err.Error(), ""))
			return
		}
		a.Body = append(text, '\n')
	}}
}

func named(agent string) string {
	if agent == otherAgent {
		return ""
	}
	return agent
}

func (d *Daemon) verbRecover(req wire.Request) *socket.Answer {
	return &socket.Answer{Reply: wire.Reply{OK: true}, Finish: func(ctx context.Context, a *socket.Answer) {
		r, err := d.folder().Recover(ctx, query.Question{Name: state.Name{Agent: named(req.Agent), Session: req.Session, Workspace: realPath(req.Workspace)},
			Options: recovery.Options{Start: recovery.StartManual, MaxBytes: d.set.Load().BriefBytes}})
		if err != nil {
			*a = *textAnswer(socket.Failure(wire.CodeNotFound, err.Error(), "belay list shows the sessions"))
			return
		}
		a.Body = []byte(redact.Text(r.Text) + "\n")
	}}
}
