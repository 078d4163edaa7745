package droid

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/wholefile"
)

// ErrNoSession is returned for an event that belay knows, in a payload that names no session.
var ErrNoSession = errors.New("payload names no session")

// Decode maps one hook call to events. An event that belay does not know means nothing, and so does one of a
// sub-agent's session; a known one without a session is ErrNoSession; a payload that is no JSON object is an error,
// unless it was cut and something of it stands whole.
func (a *Agent) Decode(_ context.Context, h agent.Hook) (agent.Incoming, error) {
	p, err := payload.ParsePayload(h.Payload, h.Cut)
	if err != nil {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, h.Event, err)
	}

	e, ask, known := meaning(cmp.Or(ident(p, "hook_event_name"), h.Event), p)
	if !known {
		return agent.Incoming{}, nil
	}

	session := ident(p, "session_id")
	if session == "" {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, h.Event, ErrNoSession)
	}

	e.Transcript = p.Path("transcript_path")
	if headOf(e.Transcript).Caller != "" {
		return agent.Incoming{}, nil
	}

	e.Workspace, e.Mode = payload.RealPath(p.Path("cwd")), ident(p, "permission_mode")
	e.Key = checkpoint.NewKey(name, "", session, e.Workspace)
	return agent.Incoming{Events: []checkpoint.Event{e}, Ask: ask}, nil
}

// ident is a field that names something.
func ident(p payload.Payload, key string) string { return wholefile.Ident(p.Text(key)) }

// meaning is the pure part of Decode: what one event says. False means that belay does not know the event.
func meaning(event string, p payload.Payload) (e checkpoint.Event, ask agent.Ask, known bool) {
	switch event {
	case "SessionStart":
		e.Kind, e.Source, ask = checkpoint.EventStart, ident(p, "source"), agent.AskStart
	case "UserPromptSubmit":
		e.Kind, e.Turn, ask = checkpoint.EventPrompt, ident(p, "message_id"), agent.AskCarry
		e.Text, _ = wholefile.Words(p.Text("prompt"))
	case "Stop":
		e.Kind = checkpoint.EventStop
	case "PreCompact":
		e.Kind, e.Reason = checkpoint.EventCompacting, ident(p, "trigger")
	case "SessionEnd":
		e.Kind, e.Reason = checkpoint.EventEnd, ident(p, "reason")
	default:
		return e, ask, false
	}
	return e, ask, true
}

// Reply is the one JSON document with which an event puts a text into the context; nothing at other events.
func (a *Agent) Reply(event, text string) []byte {
	if text == "" || event != "SessionStart" && event != "UserPromptSubmit" {
		return nil
	}

	type output struct {
		Event   string `json:"hookEventName"`
		Context string `json:"additionalContext"`
	}

	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(struct { // two strings always encode
		Output output `json:"hookSpecificOutput"`
	}{output{event, text}})
	return bytes.TrimSuffix(doc.Bytes(), []byte("\n"))
}
