package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/agent"
	"belay/internal/agent/kit/tools"
	"belay/internal/daemon/session"
	"belay/internal/daemon/socket"
	"belay/internal/host/proc"
	"belay/internal/redact"
	"belay/internal/state/query"
	"belay/internal/state/spool"
	"belay/internal/wire"
)

// staleAfter is how old a spooled event may be for its process number to mean what it did.
const staleAfter = 10 * time.Second

// Handle starts an op and gives its answer, which may still be on its way. Events reach their sessions in the order of
// the connection's lines.
func (l *life) Handle(ctx context.Context, cl *socket.Client, req wire.Request, payload []byte) *socket.Answer {
	switch req.Op {
	case "hello":
		cl.Agent = req.Agent
		return l.bodyAnswer(map[string]any{
			"version": l.opt.Version, "v": wire.Version, "pid": os.Getpid(), "state_dir": l.opt.StateDir,
		})

	case "":
		if cl.Agent == "" {
			return socket.Failure(
				wire.CodeBadRequest, "no op", `say {"op":"hello","agent":"..."} first to send bare payloads`,
			)
		}

		req.Op, req.Agent = "hook", cl.Agent
		return l.hook(ctx, req, payload)

	case "hook":
		return l.hook(ctx, req, payload)
	case "event":
		return l.eventOp(ctx, req)
	case "verb":
		return l.verb(ctx, req)
	case "mark":
		return l.markOp(ctx, req)
	case "check", "checkpoint":
		return l.checkOp(ctx, req)
	case "status":
		return l.statusOp(ctx, req)
	case "list", "show", "recover":
		return l.lookupOp(ctx, req)
	case "reset":
		return l.resetOp(ctx)
	case "subscribe":
		return l.feed.Subscribe(ctx)
	}
	return socket.Failure(
		wire.CodeUnknownOp, "unknown op "+req.Op, "docs/protocol.md lists the ops of protocol version 1",
	)
}

// Stored is the newest record on disk.
func (l *life) Stored() uint64 { return l.journal.Health().Stored }

// Kept says where a record is, in the wire's words.
func (l *life) Kept(ctx context.Context, seq uint64) (string, error) {
	err := l.journal.Wait(ctx, seq)
	switch {
	case err == nil:
		return wire.KeptDisk, nil
	case errors.Is(err, journal.ErrMemory):
		return wire.KeptMemory, nil
	}

	return "", err
}

func (l *life) bodyAnswer(v any) *socket.Answer {
	data, err := json.Marshal(v)
	if err != nil {
		return socket.Failure(wire.CodeInternal, err.Error(), "")
	}
	return &socket.Answer{Reply: wire.Reply{OK: true, Body: data}}
}

var errTooMany = errors.New("too many new sessions in a minute; this one is not recorded")

// take hands a clean event to its session, within the bound on new sessions.
func (l *life) take(ctx context.Context, e checkpoint.Event) session.Result {
	l.counts.events.Add(1)
	e.Key = l.sessions.resolve(e.Key)
	if !l.sessions.admit(e.Key) {
		if l.counts.dropped.Add(1)%1000 == 1 {
			l.log.Warn(
				"more new sessions than the limit: they are not recorded",
				zap.Int("per minute", l.opt.SessionsPerMinute),
			)
		}
		return session.Result{Err: errTooMany}
	}

	r := l.sessions.Apply(ctx, e.Key, e)
	l.feed.Publish(socket.Notice{What: "event", Agent: e.Key.Agent, Session: e.Key.Session, Kind: string(e.Kind),
		Seq: r.Seq, Decision: wireDecision(r)})
	return r
}

// hook maps an agent's payload to events.
func (l *life) hook(ctx context.Context, req wire.Request, payload []byte) *socket.Answer {
	a := l.sessions.agent(req.Agent)
	if a == nil {
		l.counts.dropped.Add(1)
		return socket.Failure(wire.CodeUnknownAgent, "no agent named "+req.Agent, "use op event for other programs")
	}

	in, err := a.Decode(
		ctx, agent.Hook{Event: req.Event, Payload: payload, Cut: req.Cut, PID: req.PID, Cwd: req.Workspace},
	)

	if err != nil {
		l.server.Counts.BadFrames.Add(1)
		return socket.Failure(wire.CodeBadRequest, err.Error(), "")
	}

	at := time.Now().UTC()
	if req.Spooled > 0 {
		at = time.UnixMilli(req.Spooled).UTC()
	}

	who := process(req.PID)
	if time.Since(at) > staleAfter {
		who = nil // by now the number may be another process's
	}

	var last session.Result
	for i := range in.Events {
		e := &in.Events[i]
		e.At, e.Sum, e.ID = at, checkpoint.Hash(req.Event+"\x00"+string(payload))+uint64(i), eventID(req.ID, i)
		if e.Key.Child == "" && e.Kind != checkpoint.EventEnd {
			e.Proc = who
		}
		if e.Transcript == "" {
			e.Key = l.sessions.account(e.Key)
		}
		if last = l.take(ctx, agent.CleanEvent(*e, a.Tools())); last.Err != nil {
			return socket.Failure(wire.CodeInternal, last.Err.Error(), "")
		}
	}

	ans := l.eventAnswer(req, last)
	switch {
	case len(in.Events) == 0:
	case req.Spooled == 0:
		l.offer(ans, a, in, in.Events[0], req.Event)
	case in.Ask == agent.AskStart && !last.Double: // its hook has gone without an answer
		l.teller.Missed(ctx, l.sessions.resolve(in.Events[0].Key))
	}

	return ans
}

// takeSpooled takes one event; it is removed from the spool once the journal holds it.
func (l *life) takeSpooled(ctx context.Context, header, payload []byte) error {
	var req wire.Request
	if err := json.Unmarshal(header, &req); err != nil {
		return err
	}
	if req.Spooled == 0 {
		req.Spooled = time.Now().UnixMilli()
	}

	a := l.Handle(ctx, &socket.Client{}, req, payload)
	if !a.Reply.OK {
		return fmt.Errorf("%s: %s", a.Reply.Code, a.Reply.Message)
	}
	if a.Seq == 0 {
		return nil
	}

	kept, err := l.Kept(ctx, a.Seq)
	if err == nil && kept != wire.KeptDisk {
		err = fmt.Errorf("the journal's disk fails: %w", spool.ErrStop) // the file is safer than our memory
	}

	return err
}

// offer adds to a hook's answer the brief that belongs there: at a start by the start's reason, and later, with the
// next event that can carry it, the brief that a start owed. Where there is none to tell, it may be a line on belay's
// own faults.
func (l *life) offer(ans *socket.Answer, a agent.Agent, in agent.Incoming, e checkpoint.Event, event string) {
	if in.Ask == agent.AskNothing {
		return
	}
	ans.Finish = func(ctx context.Context, ans *socket.Answer) {
		b := l.teller.Tell(ctx, in.Ask, l.sessions.resolve(e.Key), e, a)
		if b == nil {
			return
		}

		ans.Written = b.Done

		text := b.Text
		if text == "" && b.Err == nil {
			if line := l.notices.Line(b.Start, l.store.State(), l.counts.dropped.Load(), time.Now()); line != "" {
				text = checkpoint.Frame(query.Marker(), line)
			}
		}

		if text != "" {
			ans.Body = a.Reply(event, text)
		}
	}
}

// eventID gives each event of one call its own id.
func eventID(id string, i int) string {
	if id == "" || i == 0 {
		return id
	}
	return id + "#" + string(rune('0'+i%10))
}

// process finds the agent's process; nil when there is none to be sure of.
func process(pid int) *checkpoint.Proc {
	if pid <= 1 {
		return nil
	}

	p, err := proc.Self(pid)
	if err != nil {
		return nil // gone already, or not to be seen from here
	}

	return &p
}

// eventAnswer is the reply to an event: written when the journal's record is where the client wants it.
func (l *life) eventAnswer(req wire.Request, r session.Result) *socket.Answer {
	ans := &socket.Answer{Reply: wire.Reply{OK: true, Seq: r.Seq, Decision: wireDecision(r)}}
	if r.Seq == 0 {
		return ans
	}
	if req.Early {
		ans.Reply.Kept = wire.KeptEarly
		return ans
	}

	ans.Seq = r.Seq
	return ans
}

func wireDecision(r session.Result) *wire.Decision {
	d := r.Decision
	if d.Code == "" || d.Code == checkpoint.CodeNoTrigger {
		return nil
	}
	return &wire.Decision{Take: d.Take, Kind: string(d.Level), Code: string(d.Code), Text: d.Text,
		Owed: d.Owed, Number: r.Number}
}

// eventOp takes an event of any program, in the wire's own form.
func (l *life) eventOp(ctx context.Context, req wire.Request) *socket.Answer {
	var w wire.Event
	if err := json.Unmarshal(req.Body, &w); err != nil {
		return socket.Failure(wire.CodeBadRequest, "body: "+err.Error(),
			`for example {"op":"event","agent":"mine","session":"s1","body":{"kind":"prompt","text":"..."}}`)
	}

	e, err := fromWire(req, w)
	if err != nil {
		return socket.Failure(wire.CodeBadRequest, err.Error(), "docs/protocol.md lists the kinds of events")
	}
	if w.Ephemeral {
		return &socket.Answer{Reply: wire.Reply{OK: true, Kept: wire.KeptNothing}}
	}

	r := l.take(ctx, e)
	if r.Err != nil {
		return socket.Failure(wire.CodeInternal, r.Err.Error(), "")
	}

	return l.eventAnswer(req, r)
}

// kinds are the events that a client may send.
var kinds = map[checkpoint.EventKind]bool{
	checkpoint.EventStart: true, checkpoint.EventPrompt: true, checkpoint.EventStop: true,
	checkpoint.EventToolStart: true, checkpoint.EventToolEnd: true,
	checkpoint.EventCompacting: true, checkpoint.EventCompacted: true,
	checkpoint.EventChildStart: true, checkpoint.EventChildEnd: true, checkpoint.EventEnd: true,
	checkpoint.EventExit: true, checkpoint.EventMark: true, checkpoint.EventTask: true, checkpoint.EventBeat: true,
}

// fromWire makes the journal's form of a client's event: redacted and cut here, before anything is kept. The tools of
// such a client are unknown, whichever agent it says it is.
func fromWire(req wire.Request, w wire.Event) (checkpoint.Event, error) {
	kind := checkpoint.EventKind(w.Kind)
	if !kinds[kind] {
		return checkpoint.Event{}, errors.New("unknown kind of event: " + w.Kind)
	}
	if req.Session == "" {
		return checkpoint.Event{}, errors.New("no session")
	}

	name := req.Agent
	if name == "" {
		name = otherAgent
	}

	for _, id := range []string{name, req.Account, req.Session, req.Child, w.Transcript, req.Workspace} {
		if len(id) > maxPath {
			return checkpoint.Event{}, fmt.Errorf("an id or path of %d bytes", len(id))
		}
	}

	work := realPath(req.Workspace)
	key := checkpoint.NewKey(name, req.Account, req.Session, work)
	key.Child = req.Child
	e := checkpoint.Event{
		At: time.Now().UTC(), Key: key, Kind: kind, ID: req.ID, Turn: short(w.Turn),
		Aside: w.Aside, Source: short(w.Source), Reason: short(w.Reason), Outcome: checkpoint.Outcome(short(w.Outcome)),
		Call: short(w.Call), Name: short(w.Name), Failed: w.Failed, Background: w.Background, Bare: w.Bare,
		Child: short(w.Child), ChildName: short(w.ChildName), Parent: short(w.Parent),
		Decision: w.Decision, Transcript: w.Transcript, Workspace: work, Model: short(w.Model), Mode: short(w.Mode),
		Text:  redact.Cut(w.Text, checkpoint.CutText),
		Input: redact.Cut(w.Input, checkpoint.CutTool), Output: redact.Cut(w.Output, checkpoint.CutTool),
	}

	if w.PID > 0 {
		e.Proc = process(w.PID)
	}

	return agent.CleanEvent(e, tools.Generic), nil
}

// Bounds of what a client may name.
const (
	maxPath = 4096
	maxWord = 1024
)

// short is a client's short field: redacted, and cut where it is none.
func short(s string) string { return redact.Cut(s, maxWord) }

func (l *life) markOp(ctx context.Context, req wire.Request) *socket.Answer {
	var w wire.Event
	if len(req.Body) > 0 {
		if err := json.Unmarshal(req.Body, &w); err != nil {
			return socket.Failure(wire.CodeBadRequest, "body: "+err.Error(), "")
		}
	}

	w.Kind = string(checkpoint.EventMark)
	if w.Text == "" {
		return socket.Failure(wire.CodeBadRequest, "no text", "belay mark \"what to keep\"")
	}

	e, err := fromWire(req, w)
	if err != nil {
		return socket.Failure(wire.CodeBadRequest, err.Error(), "")
	}

	r := l.take(ctx, e)
	if r.Err != nil {
		return socket.Failure(wire.CodeInternal, r.Err.Error(), "")
	}

	return l.eventAnswer(req, r)
}

func (l *life) resetOp(ctx context.Context) *socket.Answer {
	if err := l.store.Reset(ctx); err != nil {
		return socket.Failure(wire.CodeDegraded, err.Error(),
			"the store still cannot be written: free space or mend it, then reset again")
	}
	return l.bodyAnswer(l.store.State())
}

// realPath compares folders as the kernel does; a path that cannot be resolved stands for itself. A link may lead to a
// name that is no UTF-8, which keys are not.
func realPath(path string) string {
	if path == "" {
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return agent.Text(resolved)
	}
	return agent.Text(filepath.Clean(path))
}
