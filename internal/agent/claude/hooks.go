package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
)

// Errors of Decode.
var (
	// ErrNoSession is returned for an event that belay knows and whose payload names no session.
	ErrNoSession = errors.New("payload names no session")
	// ErrBadPayload is returned for a payload that is no JSON object.
	ErrBadPayload = payload.ErrNoObject
)

// Bounds of single payload fields. Nothing longer is real; over the bound a name is shortened and a path or id dropped.
const (
	maxName    = 200
	maxID      = 256
	maxPath    = 4096
	maxFailure = 1024 // text of an API error
)

// Decode maps one hook call to events. An event that belay does not know means nothing; a known one without a session
// is ErrNoSession; a payload that is no JSON object is ErrBadPayload unless it was cut, when its readable head counts.
func (a *Agent) Decode(_ context.Context, h agent.Hook) (agent.Incoming, error) {
	p, err := payload.ParsePayload(h.Payload, h.Cut)
	if err != nil {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, h.Event, err)
	}

	event := p.Text("hook_event_name")
	if event == "" {
		event = h.Event
	}

	in, known := meaning(event, p, a.frame(p, h))
	if !known {
		return agent.Incoming{}, nil
	}
	if p.ID("session_id") == "" {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, event, ErrNoSession)
	}

	return in, nil
}

// frame is what every event of one payload has in common.
func (a *Agent) frame(p payload.Payload, h agent.Hook) checkpoint.Event {
	cwd := p.Path("cwd")
	if cwd == "" && len(h.Cwd) <= maxPath {
		cwd = h.Cwd // hooks run in the session's folder
	}

	cwd = payload.RealPath(cwd)
	transcript := p.Path("transcript_path")
	e := checkpoint.Event{
		Key:        checkpoint.NewKey(name, a.account(transcript), p.ID("session_id"), cwd),
		Turn:       p.ID("prompt_id"),
		Transcript: transcript,
		Workspace:  cwd,
		Model:      label(p, "model"),
		Mode:       label(p, "permission_mode"),
	}

	if child := childID(p); child != "" {
		e.Key.Child = child
		e.Transcript = "" // the payload names the parent's file
	}

	return e
}

// meaning is the pure part of Decode: what one event says. A false means that belay does not know the event.
func meaning(event string, p payload.Payload, e checkpoint.Event) (agent.Incoming, bool) {
	ask := agent.AskNothing
	switch event {
	case "SessionStart":
		e.Kind, e.Source = checkpoint.EventStart, label(p, "source")
		ask = agent.AskStart
	case "UserPromptSubmit":
		e.Kind, e.Text = checkpoint.EventPrompt, said(p, "prompt")
		// the program's own turn when a background task ended
		e.Aside = strings.HasPrefix(e.Text, "<task-notification>")
		ask = agent.AskCarry
		if end, ok := taskEndEvent(e); e.Aside && ok {
			return agent.Incoming{Events: []checkpoint.Event{e, end}, Ask: ask}, true
		}

	case "PreToolUse":
		e = call(p, e, checkpoint.EventToolStart)
	case "PostToolUse":
		e = call(p, e, checkpoint.EventToolEnd)
		e.Output = toolText(p["tool_response"])
		e.Background = background(p)

	case "PostToolUseFailure":
		e = call(p, e, checkpoint.EventToolEnd)
		e.Failed, e.Output = true, words(p.Text("error"), checkpoint.CutTool)
		if p.Flag("is_interrupt") {
			e.Reason = "interrupt"
		}

	case "PreCompact":
		e.Kind, e.Reason = checkpoint.EventCompacting, label(p, "trigger")
	case "PostCompact":
		e.Kind, e.Reason = checkpoint.EventCompacted, label(p, "trigger")
		e.Text = said(p, "compact_summary")
	case "Stop":
		e.Kind, e.Text = checkpoint.EventStop, said(p, "last_assistant_message")
	case "StopFailure":
		// Here last_assistant_message is the error's text and no words of the model.
		e.Kind, e.Outcome, e.Reason = checkpoint.EventStop, checkpoint.OutcomeFailed, failure(p)
	case "SessionEnd":
		e.Kind, e.Reason = checkpoint.EventEnd, label(p, "reason")
	case "SubagentStart":
		return agent.Incoming{Events: childStart(p, e)}, true
	case "SubagentStop":
		return agent.Incoming{Events: childStop(p, e)}, true
	default:
		return agent.Incoming{}, false
	}

	return agent.Incoming{Events: []checkpoint.Event{e}, Ask: ask}, true
}

// said is a field with words of the conversation, in the very form in which the transcript's reader gives them.
func said(p payload.Payload, key string) string {
	return words(strings.TrimSpace(p.Text(key)), checkpoint.CutText)
}

// call fills what all tool events have.
func call(p payload.Payload, e checkpoint.Event, kind checkpoint.EventKind) checkpoint.Event {
	e.Kind = kind
	e.Call = p.ID("tool_use_id")
	e.Name = label(p, "tool_name")
	e.Input = toolText(p["tool_input"])
	return e
}

// background says that a call's result was given while the work goes on: a sub-agent or a command in the background.
func background(p payload.Payload) bool {
	var response struct {
		IsAsync any `json:"isAsync"`
		Status  any `json:"status"`
		Task    any `json:"backgroundTaskId"`
	}

	// A response of another form (a string, a list) says nothing of this.
	if json.Unmarshal(p["tool_response"], &response) != nil {
		return false
	}

	task, _ := response.Task.(string)
	return response.IsAsync == true || response.Status == "async_launched" || task != ""
}

// failure is an API error in one line: its code, details and text.
func failure(p payload.Payload) string {
	var parts []string
	for _, key := range []string{"error", "error_details", "last_assistant_message"} {
		if s := p.Text(key); s != "" {
			parts = append(parts, s)
		}
	}
	return words(strings.Join(parts, ": "), maxFailure)
}

// sideAgent is true for helpers of the program's own, such as the one that writes the summary of a compaction: their
// type is empty. They do no work for the user, and what they say is in PostCompact.
func sideAgent(p payload.Payload) bool {
	_, told := p["agent_type"]
	return told && label(p, "agent_type") == "" || strings.HasPrefix(childID(p), "acompact")
}

// childStart tells the parent of a new sub-agent, and opens the sub-agent's own session.
func childStart(p payload.Payload, e checkpoint.Event) []checkpoint.Event {
	if e.Key.Child == "" || sideAgent(p) {
		return nil
	}
	parent := toParent(p, e, checkpoint.EventChildStart)
	e.Kind, e.Parent = checkpoint.EventStart, e.Key.Session
	e.ChildName = parent.ChildName
	return []checkpoint.Event{parent, e}
}

// childStop tells both that a sub-agent ended. Its end is neither a round nor the end of a chain of the parent.
func childStop(p payload.Payload, e checkpoint.Event) []checkpoint.Event {
	if e.Key.Child == "" || sideAgent(p) {
		return nil // before 2.0.42 the event did not say which sub-agent it was
	}

	parent := toParent(p, e, checkpoint.EventChildEnd)
	e.Kind, e.Parent = checkpoint.EventEnd, e.Key.Session
	e.ChildName = parent.ChildName
	e.Text = said(p, "last_assistant_message")
	e.Transcript = p.Path("agent_transcript_path")
	return []checkpoint.Event{parent, e}
}

func toParent(p payload.Payload, e checkpoint.Event, kind checkpoint.EventKind) checkpoint.Event {
	e.Kind, e.Child, e.ChildName = kind, e.Key.Child, label(p, "agent_type")
	e.Key = e.Key.Parent()
	e.Transcript = p.Path("transcript_path")
	return e
}

// childID is the sub-agent that an event belongs to. Files are named agent-<id>, and some payloads say it that way.
func childID(p payload.Payload) string { return strings.TrimPrefix(p.ID("agent_id"), "agent-") }

// account tells the sessions of several config homes apart. The place of a transcript is <home>/projects/<dir>/<file>;
// the default home has no account.
func (a *Agent) account(transcript string) string {
	projects := filepath.Dir(filepath.Dir(transcript))
	if !filepath.IsAbs(transcript) || filepath.Base(projects) != "projects" {
		return ""
	}

	home := filepath.Dir(projects)
	if home == a.plain {
		return ""
	}
	if home = payload.RealPath(home); a.plain != "" && home == payload.RealPath(a.plain) {
		return ""
	}

	return home
}

// Reply is the one JSON document with which a hook puts a text into the context; nothing where that is not possible or
// there is no text.
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

	// Two strings always encode.
	_ = enc.Encode(struct {
		Output output `json:"hookSpecificOutput"`
	}{output{event, text}})
	return bytes.TrimSuffix(doc.Bytes(), []byte("\n"))
}
