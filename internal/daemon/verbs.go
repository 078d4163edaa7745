package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	"belay/checkpoint"
	"belay/internal/daemon/session"
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

// verb answers a verb of the original scripts. The text for the terminal is the reply's body; a refused gate is no
// error.
func (l *life) verb(ctx context.Context, req wire.Request) *socket.Answer {
	var f verbFlags
	if len(req.Body) > 0 {
		if err := json.Unmarshal(req.Body, &f); err != nil {
			return textAnswer(
				socket.Failure(wire.CodeBadRequest, "flags: "+err.Error(), "a flag with a value: --name=value"),
			)
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
		return l.check(ctx, req, f)
	case "status":
		return l.verbStatus(req)
	case "recover":
		return l.verbRecover(req)
	default:
		return textAnswer(socket.Failure(wire.CodeUnknownOp, "unknown verb "+req.Event,
			"increment, tool-start, tool-end, check-sparse, check-full, status, recover"))
	}

	e, err := fromWire(req, w)
	if err != nil {
		return textAnswer(socket.Failure(wire.CodeBadRequest, err.Error(), ""))
	}

	r := l.take(ctx, e)
	if r.Err != nil {
		return textAnswer(socket.Failure(wire.CodeInternal, r.Err.Error(), ""))
	}

	ans := l.eventAnswer(req, r)
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
func decisionText(r session.Result) string {
	d := r.Decision
	switch {
	case d.Code == checkpoint.CodeNoTrigger || d.Code == "":
		return "counted"
	case d.Take && r.Number > 0:
		return fmt.Sprintf("taken %d (%s: %s)", r.Number, d.Level, d.Text)
	case d.Take:
		return fmt.Sprintf("taking %s: %s", d.Level, d.Text)
	case d.Owed:
		return d.Text + " (owed)"
	}

	return d.Text
}

// checkOp is op check (body {"kind":"sparse"|"full","heartbeat":bool}) and op checkpoint: both wait for the file.
func (l *life) checkOp(ctx context.Context, req wire.Request) *socket.Answer {
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
		return l.check(ctx, req, verbFlags{Heartbeat: body.Heartbeat})
	}

	return l.whenWritten(ctx, req, func(s *session.Session) (<-chan session.Result, bool) {
		return s.Checkpoint(ctx, checkpoint.CauseManual)
	})
}

func (l *life) check(ctx context.Context, req wire.Request, f verbFlags) *socket.Answer {
	return l.whenWritten(ctx, req, func(s *session.Session) (<-chan session.Result, bool) {
		if req.Event == "check-sparse" {
			return s.CheckSparse(ctx)
		}
		return s.CheckFull(ctx, f.Heartbeat)
	})
}

// whenWritten puts a question to the session that a request names and answers when its checkpoint, if any, is in the
// store.
func (l *life) whenWritten(
	ctx context.Context, req wire.Request, question func(*session.Session) (<-chan session.Result, bool),
) *socket.Answer {
	e, err := fromWire(req, wire.Event{Kind: string(checkpoint.EventBeat)})
	if err != nil {
		return textAnswer(socket.Failure(wire.CodeBadRequest, err.Error(), "give --session ID or set BELAY_SESSION"))
	}

	key := l.sessions.resolve(e.Key)
	if !l.sessions.Known(key) {
		return textAnswer(socket.Failure(wire.CodeNotFound, "no session "+req.Session+" of "+e.Key.Agent,
			"belay list shows the sessions"))
	}

	stopping := textAnswer(socket.Failure(wire.CodeStopping, session.ErrStopping.Error(), "try again"))
	s, err := l.sessions.Session(ctx, key)
	if err != nil {
		return stopping
	}

	result, ok := question(s)
	if !ok {
		return stopping
	}

	return &socket.Answer{Reply: wire.Reply{OK: true}, Finish: func(ctx context.Context, a *socket.Answer) {
		ctx, cancel := context.WithTimeout(ctx, l.times.socket.Write)
		defer cancel()
		select {
		case r := <-result:
			a.Reply.Decision = wireDecision(r)
			a.Body = []byte(decisionText(r) + "\n")
			if r.Err != nil {
				a.Reply.OK, a.Reply.Code, a.Reply.Message = false, wire.CodeDegraded, r.Err.Error()
				a.Body = []byte("belay: " + r.Err.Error() + "\n")
			}

		case <-s.Done():
			a.Reply = stopping.Reply
		case <-ctx.Done():
			a.Reply = socket.Failure(wire.CodeInternal, "the checkpoint is not written yet",
				"belay status shows what holds it up").Reply
		}
	}}
}

func (l *life) verbStatus(req wire.Request) *socket.Answer {
	return &socket.Answer{Reply: wire.Reply{OK: true}, Finish: func(ctx context.Context, a *socket.Answer) {
		var v any
		if req.Session == "" {
			v = l.status(ctx)
		} else {
			st, err := l.sessionStatus(ctx, verbName(req))
			if err != nil {
				*a = *textAnswer(socket.Failure(wire.CodeNotFound, "session "+req.Session+": "+err.Error(),
					"belay list shows the sessions"))
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

// verbName is the session that a verb names, of any agent when it names none.
func verbName(req wire.Request) state.Name {
	n := state.Name{Agent: req.Agent, Session: req.Session, Workspace: realPath(req.Workspace)}
	if n.Agent == otherAgent {
		n.Agent = ""
	}
	return n
}

func (l *life) verbRecover(req wire.Request) *socket.Answer {
	return &socket.Answer{Reply: wire.Reply{OK: true}, Finish: func(ctx context.Context, a *socket.Answer) {
		r, err := l.folder().Recover(ctx, query.Question{Name: verbName(req),
			Options: recovery.Options{Start: recovery.StartManual, MaxBytes: l.settings.Load().BriefBytes}})
		if err != nil {
			*a = *textAnswer(socket.Failure(wire.CodeNotFound, err.Error(), "belay list shows the sessions"))
			return
		}
		a.Body = []byte(redact.Text(r.Text) + "\n")
	}}
}
