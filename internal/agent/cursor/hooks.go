package cursor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/kit/settings"
	"belay/internal/transcript/wholefile"
)

// ErrNoSession is returned for an event that belay knows, in a payload that names no session.
var ErrNoSession = errors.New("payload names no session")

// Decode maps one hook call to events. An event that belay does not know means nothing; a known one without a session
// is ErrNoSession; a payload that is no JSON object is an error, unless it was cut and something of it stands whole.
func (a *Agent) Decode(_ context.Context, h agent.Hook) (agent.Incoming, error) {
	p, err := payload.ParsePayload(h.Payload, h.Cut)
	if err != nil {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, h.Event, err)
	}

	event := cmp.Or(p.Text("hook_event_name"), h.Event)
	e, known := meaning(event, p)
	if !known {
		return agent.Incoming{}, nil
	}

	session := cmp.Or(ident(p, "conversation_id"), ident(p, "session_id"))
	if session == "" {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, event, ErrNoSession)
	}

	var roots []json.RawMessage

	// the hook's own folder is Cursor's, not the session's
	if json.Unmarshal(p["workspace_roots"], &roots) == nil && len(roots) > 0 {
		e.Workspace = payload.RealPath(payload.Payload{"root": roots[0]}.Path("root"))
	}

	e.Key = checkpoint.NewKey(name, "", session, e.Workspace)
	e.Turn, e.Model = ident(p, "generation_id"), ident(p, "model") // a generation is what answers one prompt
	e.Transcript = cmp.Or(p.Path("transcript_path"), a.transcriptOf(session, e.Workspace))
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
		e.Kind = checkpoint.EventStart
	case "beforeSubmitPrompt":
		e.Kind = checkpoint.EventPrompt
		e.Text, _ = wholefile.Words(asked(p.Text("prompt")))
	case "preToolUse":
		e.Kind = checkpoint.EventToolStart
	case "postToolUse":
		e.Kind, e.Output = checkpoint.EventToolEnd, wholefile.ToolText(p["tool_output"])
	case "postToolUseFailure":
		e.Kind, e.Output, e.Failed = checkpoint.EventToolEnd, wholefile.ToolText(p["error_message"]), true
	case "preCompact":
		e.Kind, e.Reason = checkpoint.EventCompacting, ident(p, "trigger")
	case "stop":
		e.Kind, e.Outcome = checkpoint.EventStop, outcomes[p.Text("status")]
	case "sessionEnd":
		e.Kind, e.Reason = checkpoint.EventEnd, ident(p, "reason")
	default:
		return e, false
	}

	if e.Kind == checkpoint.EventToolStart || e.Kind == checkpoint.EventToolEnd {
		// some are two ids on two lines
		e.Call = wholefile.Ident(strings.Join(strings.Fields(p.Text("tool_use_id")), "+"))
		e.Name, e.Input = ident(p, "tool_name"), wholefile.ToolText(p["tool_input"])
		e.Alike = alike(p.Text("tool_name"), p["tool_input"])
	}

	return e, true
}

// outcomes are the words of the stop hook's status; any other is an end like all.
var outcomes = map[string]checkpoint.Outcome{
	"aborted": checkpoint.OutcomeInterrupted,
	"error":   checkpoint.OutcomeFailed,
}

// Reply is the one JSON document with which a session's start puts a text into the context; nothing at other events.
func (a *Agent) Reply(event, text string) []byte {
	if text == "" || event != "sessionStart" {
		return nil
	}
	return settings.Document("additional_context", text)
}
