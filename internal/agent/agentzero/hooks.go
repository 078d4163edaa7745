package agentzero

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
	"belay/internal/transcript/lines"
	"belay/internal/transcript/wholefile"
)

// Errors of Decode.
var (
	// ErrNoSession is returned for an event that belay knows and whose payload names no session.
	ErrNoSession = errors.New("payload names no session")
	// ErrBadPayload is returned for a payload that is no JSON object.
	ErrBadPayload = errors.New("payload is no JSON object")
)

const (
	maxID   = 256
	maxPath = 4096
)

// hookPayload is what the extension sends: who it is about, and what happened.
type hookPayload struct {
	Session string `json:"session_id"`
	Kind    string `json:"context_type"` // user, task, background
	Root    string `json:"root"`         // the program's folder
	File    string `json:"chat_file"`
	Number  int    `json:"agent"` // in the chain
	Profile string `json:"profile"`
	Turn    string `json:"turn"` // the prompt's message id

	Words     bool            `json:"has_words"` // session_start: something was said before
	Prompt    json.RawMessage `json:"prompt"`    // the message's content
	Call      string          `json:"call"`
	Tool      string          `json:"tool_name"`
	Args      json.RawMessage `json:"tool_args"`
	Result    json.RawMessage `json:"result"`
	Answer    string          `json:"last_response"`
	Error     string          `json:"error"`
	Cancelled bool            `json:"cancelled"`
	Count     int             `json:"count"`
}

// Decode maps one event of the extension to events. What belay does not know means nothing, and so does everything of a
// context of type BACKGROUND.
func (a *Agent) Decode(_ context.Context, h agent.Hook) (agent.Incoming, error) {
	if !known(h.Event) {
		return agent.Incoming{}, nil
	}

	var p hookPayload
	if lines.Decode(h.Payload, &p) != nil || len(h.Payload) == 0 ||
		strings.TrimLeft(string(h.Payload[:1]), " \t\r\n{") != "" {
		return agent.Incoming{}, fmt.Errorf("decode %s %s: %w", name, h.Event, ErrBadPayload)
	}

	switch {
	case p.Session == "" || len(p.Session) > maxID:
		return agent.Incoming{}, fmt.Errorf("decode %s %s: %w", name, h.Event, ErrNoSession)
	case strings.EqualFold(p.Kind, typeBackground):
		return agent.Incoming{}, nil
	}

	root := path(p.Root)
	if root != "" {
		root = payload.RealPath(root)
	}

	e := checkpoint.Event{
		Key:        checkpoint.NewKey(name, "", wholefile.Ident(p.Session), root),
		Transcript: path(p.File),
		Workspace:  root,
		Mode:       wholefile.Ident(p.Profile),
		Turn:       wholefile.Ident(p.Turn),
	}

	e.Key.Child = childID(p.Number)
	return meaning(h.Event, p, e), nil
}

func known(event string) bool {
	switch event {
	case "session_start",
		"monologue_start",
		"intervention",
		"tool_execute_before",
		"tool_execute_after",
		"monologue_end",
		"dropped":
		return true
	}
	return false
}

// path is a field that names a file.
func path(s string) string {
	if !filepath.IsAbs(s) || len(s) > maxPath || strings.IndexByte(s, 0) >= 0 {
		return ""
	}
	return filepath.Clean(s)
}

// meaning is the pure part of Decode: what one event says. e holds what all events have.
func meaning(event string, p hookPayload, e checkpoint.Event) agent.Incoming {
	ask := agent.AskNothing
	switch event {
	case "session_start":
		return agent.Incoming{Events: started(p, e)}
	case "monologue_start", "intervention":
		if e.Key.Child != "" && event == "monologue_start" {
			return agent.Incoming{Events: childStart(p, e)}
		}

		e.Kind = checkpoint.EventPrompt
		e.Text, _ = wholefile.Words(promptText(p.Prompt))
		if event == "monologue_start" {
			ask = agent.AskCarry
		}

	case "tool_execute_before", "tool_execute_after":
		if p.Tool == toolResponse {
			return agent.Incoming{} // the final answer is no call
		}

		e.Kind, e.Call, e.Name = checkpoint.EventToolStart, wholefile.Ident(p.Call), wholefile.Ident(p.Tool)
		if event == "tool_execute_before" {
			e.Input = wholefile.ToolText(p.Args)
		} else {
			e.Kind, e.Output = checkpoint.EventToolEnd, wholefile.ToolText(p.Result)
		}

		e.Turn = ""

	case "monologue_end":
		return agent.Incoming{Events: ended(p, e)}
	case "dropped":
		e.Kind, e.Count, e.Turn = checkpoint.EventDropped, max(min(p.Count, 1<<30), 0), ""
	}

	return agent.Incoming{Events: []checkpoint.Event{e}, Ask: ask}
}

// promptText is what a person said in a prompt's content.
func promptText(raw json.RawMessage) string {
	var c struct {
		User         json.RawMessage `json:"user_message"`
		Intervention json.RawMessage `json:"user_intervention"`
	}

	if len(raw) > 0 && raw[0] == '{' && lines.Decode(raw, &c) == nil && len(c.User)+len(c.Intervention) > 0 {
		if s := text(c.User); s != "" {
			return s
		}
		return text(c.Intervention)
	}

	return text(raw)
}

// started maps the first time that this process works on a chat. A brief is given with the first prompt.
func started(p hookPayload, e checkpoint.Event) []checkpoint.Event {
	if e.Key.Child != "" {
		return nil
	}

	e.Kind, e.Source, e.Turn = checkpoint.EventStart, "startup", ""
	if p.Words {
		e.Source = "resume"
	}

	return []checkpoint.Event{e, {Key: e.Key, Kind: checkpoint.EventOwed}}
}

// childStart tells the session of a subordinate that begins to work, and opens its own session.
func childStart(p hookPayload, e checkpoint.Event) []checkpoint.Event {
	parent := toParent(e, checkpoint.EventChildStart)
	start := e
	start.Kind, start.Parent, start.ChildName, start.Turn = checkpoint.EventStart, e.Key.Session, e.Mode, ""
	e.Kind = checkpoint.EventPrompt
	e.Text, _ = wholefile.Words(promptText(p.Prompt))
	return []checkpoint.Event{parent, start, e}
}

func toParent(e checkpoint.Event, kind checkpoint.EventKind) checkpoint.Event {
	e.Kind, e.Child, e.ChildName, e.Turn, e.Mode = kind, e.Key.Child, e.Mode, "", ""
	e.Key = e.Key.Parent()
	return e
}

// ended maps the end of a monologue. The program also ends one to start it over after an error: that ends no round.
func ended(p hookPayload, e checkpoint.Event) []checkpoint.Event {
	a := parseAnswer(p.Answer)
	e.Kind = checkpoint.EventStop
	switch {
	case p.Cancelled:
		e.Outcome = checkpoint.OutcomeInterrupted
	case p.Error != "":
		e.Outcome, e.Reason = checkpoint.OutcomeFailed, wholefile.Ident(wholefile.ToolWords(p.Error))
	case a.tool == toolResponse:
		e.Text, _ = wholefile.Words(a.words)
	case a.tool == "":
		return nil
	}

	if e.Key.Child == "" {
		return []checkpoint.Event{e}
	}

	end := e
	end.Kind, end.Parent = checkpoint.EventEnd, e.Key.Session
	return []checkpoint.Event{toParent(e, checkpoint.EventChildEnd), end}
}
