package copilot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/kit/settings"
	"belay/internal/transcript/wholefile"
)

// ErrNoSession is returned for an event that belay knows, in a payload that names no session.
var ErrNoSession = errors.New("payload names no session")

// Decode maps one hook call to events: the command line names the event, as the payload does not. An event that belay
// does not know means nothing; a known one without a session is ErrNoSession; a payload that is no JSON object is an
// error, unless it was cut and something of it stands whole.
func (a *Agent) Decode(_ context.Context, h agent.Hook) (agent.Incoming, error) {
	p, err := payload.ParsePayload(h.Payload, h.Cut)
	if err != nil {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, h.Event, err)
	}

	e, known := meaning(h.Event, p)
	if !known {
		return agent.Incoming{}, nil
	}

	session := ident(p, "sessionId")
	if session == "" {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, h.Event, ErrNoSession)
	}

	e.Workspace = payload.RealPath(p.Path("cwd"))
	e.Key = checkpoint.NewKey(name, "", session, e.Workspace)
	if e.Transcript = p.Path("transcriptPath"); e.Transcript == "" && a.home != "" && checkpoint.IsUUID(session) {
		e.Transcript = filepath.Join(a.sessions(), session, eventsFile)
	}

	in := agent.Incoming{Events: []checkpoint.Event{e}}
	if e.Kind == checkpoint.EventStart {
		in.Ask = agent.AskStart
	}

	return in, nil
}

// ident is a field that names something.
func ident(p payload.Payload, key string) string { return wholefile.Ident(p.Text(key)) }

// meaning is the pure part of Decode: what one event says. False means that belay does not know the event.
func meaning(event string, p payload.Payload) (e checkpoint.Event, known bool) {
	switch event {
	case "sessionStart":
		e.Kind, e.Source = checkpoint.EventStart, ident(p, "source") // new, resume, startup
		if e.Source == "new" {
			e.Source = "startup"
		}

	case "userPromptSubmitted":
		e.Kind = checkpoint.EventPrompt
		e.Text, _ = wholefile.Words(p.Text("prompt"))
	case "agentStop":
		e.Kind, e.Reason = checkpoint.EventStop, ident(p, "stopReason")
	case "preCompact":
		e.Kind, e.Reason = checkpoint.EventCompacting, ident(p, "trigger")
	case "sessionEnd":
		e.Kind, e.Reason = checkpoint.EventEnd, ident(p, "reason")
	default:
		return e, false
	}
	return e, true
}

// Reply is the one JSON document with which a session's start puts a text into the context; nothing at other events.
func (a *Agent) Reply(event, text string) []byte {
	if text == "" || event != "sessionStart" {
		return nil
	}
	return settings.Document("additionalContext", text)
}
