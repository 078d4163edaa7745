package pi

import (
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
	ErrBadPayload = errors.New("payload is no JSON object")
)

// Bounds of single payload fields: nothing longer is real.
const (
	maxID      = 256
	maxPath    = 4096
	maxFailure = 1024
)

// hookPayload is what the extension sends with an event: a JSON object. Its accessors give the empty value for a field
// that is absent or of another type than expected.
type hookPayload map[string]json.RawMessage

func (p hookPayload) text(key string) string { return text(p[key]) }
func (p hookPayload) flag(key string) bool   { return string(p[key]) == "true" }

// name is a short word for people, or an id; over its bound it is shortened and keeps a hash.
func (p hookPayload) name(key string) string { return ident(p.text(key)) }

// path is a string that names a file.
func (p hookPayload) path(key string) string {
	s := p.text(key)
	if !filepath.IsAbs(s) || len(s) > maxPath || strings.IndexByte(s, 0) >= 0 {
		return ""
	}
	return s
}

// Decode maps one event of the extension to events. What belay does not know means nothing; a known event without a
// session is ErrNoSession; a payload that is no JSON object is ErrBadPayload.
func (a *Program) Decode(_ context.Context, h agent.Hook) (agent.Incoming, error) {
	if !a.knows(h.Event) {
		return agent.Incoming{}, nil // "wake" among them, which only starts a daemon
	}

	var p hookPayload
	if err := json.Unmarshal(h.Payload, &p); err != nil || p == nil {
		return agent.Incoming{}, fmt.Errorf("decode %s %s: %w", a.name, h.Event, errors.Join(ErrBadPayload, err))
	}

	session := p.text("session_id")
	if session == "" || len(session) > maxID {
		return agent.Incoming{}, fmt.Errorf("decode %s %s: %w", a.name, h.Event, ErrNoSession)
	}

	cwd := p.path("cwd")
	if cwd == "" && filepath.IsAbs(h.Cwd) && len(h.Cwd) <= maxPath {
		cwd = h.Cwd
	}
	if cwd != "" {
		cwd = payload.RealPath(cwd)
	}

	return meaning(h.Event, p, checkpoint.Event{
		Key:        checkpoint.NewKey(a.name, "", session, cwd),
		Transcript: p.path("session_file"),
		Workspace:  cwd,
		Model:      p.name("model"),
	}), nil
}

func (a *Program) knows(event string) bool {
	for _, e := range a.events {
		if e.Name == event {
			return true
		}
	}
	return event == "dropped"
}

// meaning is the pure part of Decode: what one event says. e holds what all events have.
func meaning(event string, p hookPayload, e checkpoint.Event) agent.Incoming {
	ask := agent.AskNothing
	switch event {
	case "session_start":
		return agent.Incoming{Events: started(p, e)}
	case "before_agent_start":
		e = prompted(p, e)
		ask = agent.AskCarry
	case "tool_execution_start":
		e.Kind, e.Call, e.Name, e.Input = checkpoint.EventToolStart, p.name(
			"toolCallId",
		), p.name(
			"toolName",
		), toolArguments(
			p["args"],
		)

	case "tool_execution_end":
		e.Kind, e.Call, e.Name, e.Failed = checkpoint.EventToolEnd, p.name(
			"toolCallId",
		), p.name(
			"toolName",
		), p.flag(
			"isError",
		)

		said, _ := parseContent(memberRaw(p["result"], "content"))
		e.Output = output(said)

	case "agent_end", "agent_settled":
		e = handedBack(p, e)
	case "session_before_compact":
		e.Kind, e.Reason = checkpoint.EventCompacting, p.name("reason")
	case "session_compact":
		e.Kind, e.Reason, e.Text = checkpoint.EventCompacted, p.name("reason"), words(p.text("summary"))
	case "session_shutdown":
		return agent.Incoming{Events: ended(p, e)}
	case "dropped":
		e.Kind, e.Count = checkpoint.EventDropped, int(min(max(number(p["count"]), 0), 1<<30))
	}

	return agent.Incoming{Events: []checkpoint.Event{e}, Ask: ask}
}

// started maps a start. pi says "startup" also when it goes on with a session (--continue, --session): what tells the
// two apart is whether the session has words. A brief is asked for with the first prompt, not here: a person may quit
// before, and then nobody was told anything. So the start owes it.
func started(p hookPayload, e checkpoint.Event) []checkpoint.Event {
	e.Kind = checkpoint.EventStart
	owed := true
	switch reason := p.text("reason"); {
	case reason == "new":
		e.Source, owed = "clear", false
	case reason == "reload":
		e.Source, owed = "resume", false // the same process and conversation, with its extensions loaded again
	case reason == "fork", reason == "resume":
		e.Source = reason
	case p.flag("has_words"):
		e.Source = "resume"
	default: // 0.58 gives no reason
		e.Source = "startup"
	}

	if !owed {
		return []checkpoint.Event{e}
	}

	owe := checkpoint.Event{Key: e.Key, Kind: checkpoint.EventOwed}
	return []checkpoint.Event{e, owe}
}

// prompted maps the beginning of a run, in the very form in which the transcript's reader gives its prompt. A run that
// an extension began is no round.
func prompted(p hookPayload, e checkpoint.Event) checkpoint.Event {
	said := p.text("prompt")
	if said == "" {
		said, _ = parseContent(p["prompt"])
	}

	for range int(min(max(number(p["images"]), 0), 100)) {
		said += "\n[image]"
	}

	said = payload.WithoutOwn(said)
	said = personal(said)
	aside, _ := machinePrompt(said, "")
	e.Kind, e.Text, e.Aside = checkpoint.EventPrompt, words(said), aside || p.flag("custom")
	return e
}

// handedBack maps the end of a run.
func handedBack(p hookPayload, e checkpoint.Event) checkpoint.Event {
	msg := parseMessage(p["message"])
	rest := payload.WithoutOwn(msg.text)
	e.Kind = checkpoint.EventStop
	switch {
	case msg.stop == "aborted" || p.flag("aborted"):
		e.Outcome = checkpoint.OutcomeInterrupted
	case msg.stop == "error":
		e.Outcome, e.Reason = checkpoint.OutcomeFailed, short(msg.fail)
	default:
		e.Text = words(rest)
	}

	return e
}

// ended maps the end of a session in this process. A reload ends nothing.
func ended(p hookPayload, e checkpoint.Event) []checkpoint.Event {
	e.Kind, e.Reason = checkpoint.EventEnd, p.name("reason")
	switch e.Reason {
	case "reload":
		return nil
	case "new":
		e.Reason = "clear"
	}

	return []checkpoint.Event{e}
}

// Reply is the brief itself: the extension makes a message of it. pi takes one with before_agent_start alone.
func (a *Program) Reply(event, text string) []byte {
	if event != "before_agent_start" {
		return nil
	}
	return []byte(text)
}

// toolArguments makes a call's arguments safe to keep. Huge ones come as a text of their two ends.
func toolArguments(raw []byte) string {
	if s := text(raw); s != "" {
		return output(s)
	}
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	return arguments(call{args: raw})
}
