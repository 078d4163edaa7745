package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"belay/checkpoint"
	"belay/internal/agent"
)

// The events of belay's plugin. What they carry is opencode's own objects, each named as opencode names it.
const (
	eventStart      = "session.start" // the first prompt of a session in this process is on its way
	eventPrompt     = "chat.message"
	eventToolStart  = "tool.start" // the part of a call says "running" for the first time
	eventToolEnd    = "tool.end"
	eventIdle       = "session.idle"
	eventCompacting = "session.compacting"
	eventCompacted  = "session.compacted"
	eventDispose    = "dispose" // opencode ends in good order, and the session was idle
	eventDropped    = "dropped" // Count events found no room
)

// Errors of Decode.
var (
	// ErrNoSession is returned for an event that belay knows and whose payload names no session.
	ErrNoSession = errors.New("payload names no session")
	// ErrBadPayload is returned for a payload that is no JSON object.
	ErrBadPayload = errors.New("payload is no JSON object")
)

// hookPayload is what the plugin sends with an event.
type hookPayload struct {
	Session   string        `json:"session_id"`
	Root      string        `json:"root_id"` // of a sub-agent's session: the session that a person talks to
	Agent     string        `json:"agent"`   // of a sub-agent
	Directory string        `json:"directory"`
	Database  string        `json:"database"`
	Model     string        `json:"model"`
	Source    string        `json:"source"`
	Message   string        `json:"message_id"` // of the prompt
	Parts     []part        `json:"parts"`
	Part      part          `json:"part"`
	Text      string        `json:"text"`
	Error     *messageError `json:"error"`
	Count     float64       `json:"count"`
}

// Decode maps one event of the plugin to events. What belay does not know means nothing; a known event without a
// session is ErrNoSession; a payload that is no JSON object is ErrBadPayload.
func (a *Agent) Decode(_ context.Context, h agent.Hook) (agent.Incoming, error) {
	if !a.knows(h.Event) {
		return agent.Incoming{}, nil // "wake" among them, which only starts a daemon
	}

	var p hookPayload
	var object map[string]json.RawMessage
	if err := json.Unmarshal(h.Payload, &object); err != nil || object == nil {
		return agent.Incoming{}, fmt.Errorf("decode %s %s: %w", name, h.Event, errors.Join(ErrBadPayload, err))
	}
	if err := decode(h.Payload, &p); err != nil {
		return agent.Incoming{}, fmt.Errorf("decode %s %s: %w", name, h.Event, errors.Join(ErrBadPayload, err))
	}
	if p.Session == "" || len(p.Session) > maxIdent || len(p.Root) > maxIdent {
		return agent.Incoming{}, fmt.Errorf("decode %s %s: %w", name, h.Event, ErrNoSession)
	}

	return meaning(h.Event, p, frame(p, h)), nil
}

func (a *Agent) knows(event string) bool {
	for _, e := range a.Events() {
		if e.Name == event {
			return true
		}
	}
	return event == eventDropped
}

// frame is what every event of one payload has in common. An id of opencode's is no UUID, so the workspace is part of
// the key; it is the folder in which the session began, wherever it goes on.
func frame(p hookPayload, h agent.Hook) checkpoint.Event {
	dir := cleanPath(p.Directory)
	if dir == "" && filepath.IsAbs(h.Cwd) {
		dir = h.Cwd
	}

	dir = realPath(dir)
	e := checkpoint.Event{
		Key:        checkpoint.NewKey(name, "", p.Session, dir),
		Turn:       ident(p.Message),
		Transcript: cleanPath(p.Database),
		Workspace:  dir,
		Model:      ident(p.Model),
	}

	if p.Root != "" && p.Root != p.Session {
		e.Key.Session, e.Key.Child = p.Root, p.Session
	}

	return e
}

// meaning is the pure part of Decode: what one event says. e holds what all events have.
func meaning(event string, p hookPayload, e checkpoint.Event) agent.Incoming {
	ask := agent.AskNothing
	switch event {
	case eventStart:
		return agent.Incoming{Events: started(p, e)}
	case eventPrompt:
		e.Kind = checkpoint.EventPrompt
		e.Text, _ = promptText(p.Parts)
		if e.Key.Child == "" {
			ask = agent.AskCarry
		}

	case eventToolStart:
		e = call(p, e, checkpoint.EventToolStart)
	case eventToolEnd:
		end, _ := p.Part.State.end() // a call in another state has ended all the same: the plugin says so
		e = call(p, e, checkpoint.EventToolEnd)
		e.Output, e.Failed, e.Background = end.output, end.failed, end.background

	case eventIdle:
		return agent.Incoming{Events: handedBack(p, e)}
	case eventCompacting:
		e.Kind = checkpoint.EventCompacting
	case eventCompacted:
		e.Kind = checkpoint.EventCompacted
	case eventDispose:
		e.Kind, e.Reason = checkpoint.EventEnd, eventDispose
	case eventDropped:
		e.Kind, e.Count = checkpoint.EventDropped, int(min(max(p.Count, 0), 1<<30))
	}

	return agent.Incoming{Events: []checkpoint.Event{e}, Ask: ask}
}

// started maps a start. It owes the brief: the prompt that follows at once carries it. A sub-agent is told nothing, and
// its parent is told of it.
func started(p hookPayload, e checkpoint.Event) []checkpoint.Event {
	e.Kind = checkpoint.EventStart
	if e.Key.Child != "" {
		e.Parent, e.ChildName = e.Key.Session, ident(p.Agent)
		return []checkpoint.Event{toParent(e, checkpoint.EventChildStart), e}
	}

	switch p.Source {
	case "clear": // a new conversation in a process that had one
		e.Source = p.Source
		return []checkpoint.Event{e}
	case "startup", "resume", "fork":
		e.Source = p.Source
	}

	return []checkpoint.Event{e, {Key: e.Key, Kind: checkpoint.EventOwed}}
}

// handedBack maps the end of a turn. A sub-agent's end is no round of its parent's.
func handedBack(p hookPayload, e checkpoint.Event) []checkpoint.Event {
	e.Kind = checkpoint.EventStop
	switch {
	case p.Error != nil && p.Error.Name == aborted:
		e.Outcome = checkpoint.OutcomeInterrupted
	case p.Error != nil:
		e.Outcome, e.Reason = checkpoint.OutcomeFailed, failure(p.Error)
	default:
		e.Text, _ = words(p.Text)
	}

	if e.Key.Child == "" {
		return []checkpoint.Event{e}
	}

	end := e
	end.Kind, end.Text, end.Outcome, end.Parent = checkpoint.EventEnd, "", checkpoint.OutcomeDone, e.Key.Session
	return []checkpoint.Event{e, toParent(e, checkpoint.EventChildEnd), end}
}

func toParent(e checkpoint.Event, kind checkpoint.EventKind) checkpoint.Event {
	return checkpoint.Event{
		Key:        e.Key.Parent(),
		Kind:       kind,
		Child:      e.Key.Child,
		ChildName:  e.ChildName,
		Transcript: e.Transcript,
		Workspace:  e.Workspace,
	}
}

// call fills what both events of a call have.
func call(p hookPayload, e checkpoint.Event, kind checkpoint.EventKind) checkpoint.Event {
	e.Kind, e.Call, e.Name, e.Input = kind, ident(p.Part.ID), ident(p.Part.Tool), arguments(p.Part.State.Input)
	return e
}
