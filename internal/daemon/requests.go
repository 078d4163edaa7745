package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/host/proc"
	"belay/internal/redact"
	"belay/internal/wire"
)

// staleAfter is how old a spooled event may be for its process number to mean what it did.
const staleAfter = 10 * time.Second

// client is what a connection said about itself.
type client struct {
	agent string
}

// handle starts an op and gives its answer, which may still be on its way. Events reach their sessions in the order of the
// connection's lines.
func (d *Daemon) handle(ctx context.Context, cl *client, req wire.Request, payload []byte) *answer {
	if !d.waitReady(ctx) {
		return failure(wire.CodeStopping, "belay is not ready yet", "try again; events go to the spool meanwhile")
	}
	switch req.Op {
	case "hello":
		cl.agent = req.Agent
		return d.bodyAnswer(map[string]any{"version": d.opt.Version, "v": wire.Version, "pid": os.Getpid(), "state_dir": d.opt.StateDir})
	case "":
		if cl.agent == "" {
			return failure(wire.CodeBadRequest, "no op", `say {"op":"hello","agent":"..."} first to send bare payloads`)
		}
		req.Op, req.Agent = "hook", cl.agent
		return d.hook(ctx, req, payload)
	case "hook":
		return d.hook(ctx, req, payload)
	case "event":
		return d.eventOp(ctx, req)
	case "verb":
		return d.verb(ctx, req)
	case "mark":
		return d.markOp(ctx, req)
	case "check", "checkpoint":
		return d.checkOp(ctx, req)
	case "status":
		return d.statusOp(ctx, req)
	case "list", "show", "recover":
		return d.lookupOp(ctx, req)
	case "reset":
		return d.resetOp(ctx)
	case "subscribe":
		return d.subscribe(ctx)
	}
	return failure(wire.CodeUnknownOp, "unknown op "+req.Op, "docs/protocol.md lists the ops of protocol version 1")
}

func (d *Daemon) waitReady(ctx context.Context) bool {
	select {
	case <-d.ready:
		return true
	default:
	}
	t := time.NewTimer(d.times.readyBudget)
	defer t.Stop()
	select {
	case <-d.ready:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

func (d *Daemon) bodyAnswer(v any) *answer {
	data, err := json.Marshal(v)
	if err != nil {
		return failure(wire.CodeInternal, err.Error(), "")
	}
	return &answer{reply: wire.Reply{OK: true, Body: data}}
}

func (d *Daemon) agentNamed(name string) agent.Agent {
	for _, a := range d.opt.Agents {
		if a.Name() == name {
			return a
		}
	}
	return nil
}

// hook maps an agent's payload to events.
func (d *Daemon) hook(ctx context.Context, req wire.Request, payload []byte) *answer {
	a := d.agentNamed(req.Agent)
	if a == nil {
		d.counts.dropped.Add(1)
		return failure(wire.CodeUnknownAgent, "no agent named "+req.Agent, "use op event for other programs")
	}
	in, err := a.Decode(ctx, agent.Hook{Event: req.Event, Payload: payload, Cut: req.Cut, PID: req.PID, Cwd: req.Workspace})
	if err != nil {
		d.counts.badFrames.Add(1)
		return failure(wire.CodeBadRequest, err.Error(), "")
	}
	at := time.Now().UTC()
	if req.Spooled > 0 {
		at = time.UnixMilli(req.Spooled).UTC()
	}
	who := process(req.PID)
	if time.Since(at) > staleAfter {
		who = nil // by now the number may be another process's
	}
	var last result
	for i := range in.Events {
		e := &in.Events[i]
		e.At, e.Sum, e.ID = at, checkpoint.Hash(req.Event+"\x00"+string(payload))+uint64(i), eventID(req.ID, i)
		if e.Key.Child == "" && e.Kind != checkpoint.EventEnd {
			e.Proc = who
		}
		if e.Transcript == "" {
			e.Key = d.account(e.Key)
		}
		if last = d.take(ctx, *e); last.err != nil {
			return failure(wire.CodeInternal, last.err.Error(), "")
		}
	}
	ans := d.eventAnswer(req, last)
	switch {
	case len(in.Events) == 0:
	case req.Spooled == 0:
		d.offer(ans, a, in, in.Events[0], req.Event)
	case in.Ask == agent.AskStart && !last.double: // its hook has gone without an answer
		d.owe(d.resolve(in.Events[0].Key))
	}
	return ans
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
func (d *Daemon) eventAnswer(req wire.Request, r result) *answer {
	ans := &answer{reply: wire.Reply{OK: true, Seq: r.seq, Decision: wireDecision(r)}}
	if r.seq == 0 {
		return ans
	}
	if req.Early {
		ans.reply.Kept = wire.KeptEarly
		return ans
	}
	ans.seq = r.seq
	return ans
}

func wireDecision(r result) *wire.Decision {
	d := r.decision
	if d.Code == "" || d.Code == checkpoint.CodeNoTrigger {
		return nil
	}
	return &wire.Decision{Take: d.Take, Kind: string(d.Level), Code: string(d.Code), Text: d.Text, Owed: d.Owed, Number: r.number}
}

// eventOp takes an event of any program, in the wire's own form.
func (d *Daemon) eventOp(ctx context.Context, req wire.Request) *answer {
	var w wire.Event
	if err := json.Unmarshal(req.Body, &w); err != nil {
		return failure(wire.CodeBadRequest, "body: "+err.Error(), `for example {"op":"event","agent":"mine","session":"s1","body":{"kind":"prompt","text":"..."}}`)
	}
	e, err := fromWire(req, w)
	if err != nil {
		return failure(wire.CodeBadRequest, err.Error(), "docs/protocol.md lists the kinds of events")
	}
	if w.Ephemeral {
		return &answer{reply: wire.Reply{OK: true, Kept: wire.KeptNothing}}
	}
	r := d.take(ctx, e)
	if r.err != nil {
		return failure(wire.CodeInternal, r.err.Error(), "")
	}
	return d.eventAnswer(req, r)
}

// kinds are the events that a client may send.
var kinds = map[checkpoint.EventKind]bool{
	checkpoint.EventStart: true, checkpoint.EventPrompt: true, checkpoint.EventStop: true, checkpoint.EventToolStart: true, checkpoint.EventToolEnd: true,
	checkpoint.EventCompacting: true, checkpoint.EventCompacted: true, checkpoint.EventChildStart: true, checkpoint.EventChildEnd: true, checkpoint.EventEnd: true,
	checkpoint.EventExit: true, checkpoint.EventMark: true, checkpoint.EventTask: true, checkpoint.EventBeat: true,
}

// fromWire makes the journal's form of a client's event: redacted and cut here, before anything is kept.
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
	e := checkpoint.Event{At: time.Now().UTC(), Key: key, Kind: kind, ID: req.ID, Turn: brief(w.Turn), Aside: w.Aside, Source: brief(w.Source),
		Reason: brief(w.Reason), Outcome: checkpoint.Outcome(brief(w.Outcome)), Call: brief(w.Call), Name: brief(w.Name), Failed: w.Failed,
		Background: w.Background, Bare: w.Bare, Child: brief(w.Child), ChildName: brief(w.ChildName), Parent: brief(w.Parent), Decision: w.Decision,
		Transcript: w.Transcript, Workspace: work, Model: brief(w.Model), Mode: brief(w.Mode), Text: redact.Cut(w.Text, checkpoint.CutText),
		Input: redact.Cut(w.Input, checkpoint.CutTool), Output: redact.Cut(w.Output, checkpoint.CutTool)}
	if w.PID > 0 {
		e.Proc = process(w.PID)
	}
	return e, nil
}

// Bounds of what a client may name.
const (
	maxPath = 4096
	maxWord = 1024
)

// brief is a client's short field: redacted, and cut where it is none.
func brief(s string) string { return redact.Cut(s, maxWord) }

func (d *Daemon) markOp(ctx context.Context, req wire.Request) *answer {
	var w wire.Event
	if len(req.Body) > 0 {
		if err := json.Unmarshal(req.Body, &w); err != nil {
			return failure(wire.CodeBadRequest, "body: "+err.Error(), "")
		}
	}
	w.Kind = string(checkpoint.EventMark)
	if w.Text == "" {
		return failure(wire.CodeBadRequest, "no text", "belay mark \"what to keep\"")
	}
	e, err := fromWire(req, w)
	if err != nil {
		return failure(wire.CodeBadRequest, err.Error(), "")
	}
	r := d.take(ctx, e)
	if r.err != nil {
		return failure(wire.CodeInternal, r.err.Error(), "")
	}
	return d.eventAnswer(req, r)
}

func (d *Daemon) resetOp(ctx context.Context) *answer {
	if err := d.store.Reset(ctx); err != nil {
		return failure(wire.CodeDegraded, err.Error(), "the store still cannot be written: free space or mend it, then reset again")
	}
	return d.bodyAnswer(d.store.State())
}
