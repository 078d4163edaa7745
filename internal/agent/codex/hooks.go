package codex

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
)

// Errors of Decode.
var (
	// ErrNoSession is returned for an event that belay knows and whose payload names no session.
	ErrNoSession = errors.New("payload names no session")
	// ErrBadPayload is returned for a payload that is no JSON object.
	ErrBadPayload = payload.ErrNoObject
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
	if e := in.Events; event == "PostToolUse" {
		e[0].Failed = commandFailed(e[0].Transcript, e[0].Call)
	}

	return in, nil
}

// frame is what every event of one payload has in common. The agent's process is the hook's parent, which belay-hook
// tells: Codex names none.
func (a *Agent) frame(p payload.Payload, h agent.Hook) checkpoint.Event {
	cwd := p.Path("cwd")
	if cwd == "" && len(h.Cwd) <= maxPath {
		cwd = h.Cwd // hooks run in the session's folder
	}

	cwd = payload.RealPath(cwd)
	transcript := p.Path("transcript_path") // of the thread that the event is about; null for threads without a file
	e := checkpoint.Event{
		Key:        checkpoint.NewKey(name, a.account(transcript), p.ID("session_id"), cwd),
		Turn:       p.ID("turn_id"),
		Transcript: transcript,
		Workspace:  cwd,
		Model:      label(p, "model"),
		Mode:       label(p, "permission_mode"),
	}

	e.Key.Child = p.ID("agent_id")
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
		e.Kind, e.Text = checkpoint.EventPrompt, said(p.Text("prompt"))
		ask = agent.AskCarry
	case "PreToolUse":
		e = call(p, e, checkpoint.EventToolStart)
	case "PostToolUse":
		e = call(p, e, checkpoint.EventToolEnd)
		e.Output = toolOutput(p["tool_response"])
	case "PreCompact":
		e.Kind, e.Reason = checkpoint.EventCompacting, label(p, "trigger")
	case "PostCompact":
		e.Kind, e.Reason = checkpoint.EventCompacted, label(p, "trigger")
	case "Stop":
		e.Kind, e.Text = checkpoint.EventStop, said(p.Text("last_assistant_message"))
	case "Interrupt":
		e.Kind, e.Outcome = checkpoint.EventStop, checkpoint.OutcomeInterrupted
	case "SessionEnd":
		e.Kind, e.Reason = checkpoint.EventEnd, label(p, "reason")
	case "SubagentStart":
		return agent.Incoming{Events: childStart(p, e)}, true
	case "SubagentStop":
		return agent.Incoming{Events: childStop(p, e)}, true
	default:
		return agent.Incoming{}, false
	}

	if e.Key.Child != "" {
		ask = agent.AskNothing // a brief is for the session that a person talks to
	}

	return agent.Incoming{Events: []checkpoint.Event{e}, Ask: ask}, true
}

// call fills what all tool events have.
func call(p payload.Payload, e checkpoint.Event, kind checkpoint.EventKind) checkpoint.Event {
	e.Kind = kind
	e.Call = p.ID("tool_use_id")
	e.Name = toolName(p.Text("tool_name"))
	e.Input = toolInput(e.Name, p["tool_input"])
	return e
}

// endBytes is how far from a rollout's end the end of a command is looked for: its output is in it, shortened by Codex.
const endBytes = 256 << 10

// commandFailed says whether the rollout tells that a command failed. The hook's payload does not say it, and an
// outcome that is known never changes again; Codex writes a command's end before it calls the hook (seen in 0.169).
// What cannot be read or is not there did not fail.
func commandFailed(transcript, call string) (failed bool) {
	if !filepath.IsAbs(transcript) || call == "" {
		return false
	}

	f := lines.Open(transcript)
	defer f.Close() // read only
	size, err := f.Size()
	if err != nil {
		return false
	}

	// An error ends the search as the file's start does.
	_ = f.Backward(size, endBytes, func(l lines.Line) bool {
		if !bytes.Contains(l.Data, []byte(`"CommandExecution"`)) || !bytes.Contains(l.Data, []byte(call)) {
			return true
		}

		rec, err := decodeLine(l.Data)
		if it := rec.Payload.Item; err == nil && it.Type == "CommandExecution" && it.ID == call {
			failed = it.failed()
			return false
		}

		return true
	})

	return failed
}

// childStart tells the parent of a new sub-agent, and opens the sub-agent's own session. The payload's transcript is
// the child's, and its turn too.
func childStart(p payload.Payload, e checkpoint.Event) []checkpoint.Event {
	if e.Key.Child == "" {
		return nil
	}
	parent := toParent(p, e, checkpoint.EventChildStart)
	parent.Transcript, parent.Turn = "", ""
	e.Kind, e.Parent, e.ChildName = checkpoint.EventStart, e.Key.Session, parent.ChildName
	return []checkpoint.Event{parent, e}
}

// childStop tells both that a sub-agent ended. Its end is neither a round nor the end of a chain of the parent. Here
// the payload's transcript is the parent's.
func childStop(p payload.Payload, e checkpoint.Event) []checkpoint.Event {
	if e.Key.Child == "" {
		return nil
	}

	parent := toParent(p, e, checkpoint.EventChildEnd)
	parent.Turn = ""
	e.Kind, e.Parent, e.ChildName = checkpoint.EventEnd, e.Key.Session, parent.ChildName
	e.Text = said(p.Text("last_assistant_message"))
	e.Transcript = p.Path("agent_transcript_path")
	return []checkpoint.Event{parent, e}
}

func toParent(p payload.Payload, e checkpoint.Event, kind checkpoint.EventKind) checkpoint.Event {
	e.Kind, e.Child, e.ChildName = kind, e.Key.Child, label(p, "agent_type")
	e.Key = e.Key.Parent()
	return e
}

// account tells the sessions of several homes apart. A rollout is at <home>/sessions/2026/11/30/<name>; the default
// home has no account.
func (a *Agent) account(transcript string) string {
	sessions := filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(transcript))))
	if !filepath.IsAbs(transcript) || filepath.Base(sessions) != "sessions" {
		return ""
	}

	home := filepath.Dir(sessions)
	if home == a.plain {
		return ""
	}
	if home = payload.RealPath(home); a.plain != "" && home == payload.RealPath(a.plain) {
		return ""
	}

	return home
}

// Reply is the one JSON document with which a hook puts a text into the context; nothing where that is not possible or
// there is no text. Codex refuses a document with any other field.
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

// label is a short word for people: a tool, a model, a reason.
func label(p payload.Payload, key string) string { return words(p.Text(key), maxName) }
