package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
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

// label is a short word for people: a tool, a model, a reason.
func label(p payload.Payload, key string) string { return words(p.Text(key), maxName) }

// Decode maps one hook call to events. An event that belay does not know means nothing; a known one without a session
// is ErrNoSession; a payload that is no JSON object is ErrBadPayload unless it was cut, when what stands whole counts.
//
// It looks at the end of the session's transcript, for what the payload does not say: which message of the model's
// asked for a tool call, and which of the texts of a turn is its last.
func (a *Agent) Decode(_ context.Context, h agent.Hook) (agent.Incoming, error) {
	p, err := payload.ParsePayload(h.Payload, h.Cut)
	if err != nil {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, h.Event, err)
	}

	event := p.Text("hook_event_name")
	if event == "" {
		event = h.Event
	}
	if !known(event, p) {
		return agent.Incoming{}, nil
	}

	session := p.ID("session_id")
	if session == "" {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, event, ErrNoSession)
	}

	cwd := p.Path("cwd")
	if cwd == "" && len(h.Cwd) <= maxPath {
		cwd = h.Cwd // hooks run in the session's folder
	}

	cwd = payload.RealPath(cwd)
	e := checkpoint.Event{
		Transcript: p.Path("transcript_path"),
		Workspace:  cwd,
	}

	e.Key = checkpoint.NewKey(name, a.account(e.Transcript), session, cwd)
	before, ask := a.meaning(event, p, h, &e)
	return agent.Incoming{Events: append(before, e), Ask: ask}, nil
}

// known says whether an event means something.
func known(event string, p payload.Payload) bool {
	if event == "PreCompress" { // before each call of the model, whether or not anything is compressed
		return p.Text("trigger") == "manual"
	}

	for _, e := range hookEvents() {
		if e.Name == event {
			return true
		}
	}

	return false
}

// meaning fills in what an event says, and gives what must be told before it.
func (a *Agent) meaning(
	event string,
	p payload.Payload,
	h agent.Hook,
	e *checkpoint.Event,
) (before []checkpoint.Event, ask agent.Ask) {
	session := e.Key.Account + "\x00" + e.Key.Session
	switch event {
	case "SessionStart":
		e.Kind, e.Source = checkpoint.EventStart, label(p, "source")
		e.Transcript = liveFile(e.Transcript, e.Key.Session)
		a.pairs.turn(session)
		return nil, agent.AskStart

	case "BeforeAgent":
		e.Kind = checkpoint.EventPrompt
		e.Text, e.Aside = personal(p.Text("prompt"))
		a.pairs.turn(session)
		return nil, agent.AskCarry

	case "BeforeTool", "AfterTool":
		base, at := called(p, h, e)
		var msg string
		before, msg = a.toolOf(session, base, stamp(at), e)
		if e.Key.Child != "" {
			session = childSession(session, e.Key.Child)
		}

		if event == "BeforeTool" {
			e.Kind, e.Call = checkpoint.EventToolStart, a.pairs.started(session, base, at, msg)
			if e.Name == agentTool {
				a.pairs.asks(session, e.Call, agentName(p["tool_input"]))
			}
			break
		}

		e.Kind, e.Call = checkpoint.EventToolEnd, a.pairs.ended(session, base, at, msg)
		e.Output, e.Failed = response(e.Name, p["tool_response"])
		e.Background = commandGoesOn(e.Name, e.Output)

	case "AfterAgent":
		e.Kind, e.Text = checkpoint.EventStop, lastAnswer(p, e.Transcript)
	case "PreCompress":
		e.Kind, e.Reason = checkpoint.EventCompacting, label(p, "trigger")
	case "SessionEnd":
		e.Kind, e.Reason = checkpoint.EventEnd, label(p, "reason")
		a.pairs.turn(session)
	}

	return before, agent.AskNothing
}

// called fills in what all tool events have, and gives what the call's id is made of, beside the message that asked for
// it.
func called(p payload.Payload, h agent.Hook, e *checkpoint.Event) (base, at string) {
	e.Name, e.Input = label(p, "tool_name"), toolText(p["tool_input"])
	if at = p.ID("timestamp"); at == "" {
		at = strconv.FormatUint(checkpoint.Hash(string(h.Payload)), 16) // the same for a hook that comes twice
	}
	return callBase(p.Text("tool_name"), p["tool_input"]), at
}

// response is a tool's output and whether it failed.
func response(tool string, raw json.RawMessage) (output string, failed bool) {
	var r struct {
		Content json.RawMessage `json:"llmContent"`
		Display json.RawMessage `json:"returnDisplay"`
		Error   json.RawMessage `json:"error"`
	}

	if json.Unmarshal(raw, &r) != nil {
		return toolText(raw), false
	}

	for _, said := range [][]byte{r.Content, r.Display, r.Error} {
		if output == "" {
			output = toolText(said)
		}
	}

	return output, len(r.Error) > 0 && string(r.Error) != "null" || commandFailed(tool, output)
}

// lastAnswer is the last text of a turn. The payload joins all texts of the turn, some of them doubled; the transcript
// has them one by one, the last one too.
func lastAnswer(p payload.Payload, transcript string) string {
	said := p.Text("prompt_response")
	if said == "[no response text]" {
		said = ""
	}

	last := newestAnswer(transcript, stamp(p.Text("timestamp"))).text()
	if flat := squeeze(last); flat != "" && strings.Contains(squeeze(said), flat) {
		said = last
	}

	return strings.TrimSpace(words(said, checkpoint.CutText))
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// account tells the sessions of several homes apart. The place of a transcript is <home>/tmp/<project>/chats/<file>, a
// sub-agent's one deeper; the default home has no account.
func (a *Agent) account(transcript string) string {
	if !filepath.IsAbs(transcript) {
		return ""
	}

	for dir := filepath.Dir(transcript); len(dir) > 1; dir = filepath.Dir(dir) {
		if filepath.Base(dir) != "chats" || filepath.Base(filepath.Dir(filepath.Dir(dir))) != "tmp" {
			continue
		}

		home := filepath.Dir(filepath.Dir(filepath.Dir(dir)))
		if home == a.plain {
			return ""
		}
		if home = payload.RealPath(home); a.plain != "" && home == payload.RealPath(a.plain) {
			return ""
		}

		return home
	}

	return ""
}

// Reply is the one JSON document with which a hook puts a text into the context; nothing where that is not possible or
// there is no text: even an empty document would be looked at, and what is no JSON would be shown to the person.
func (a *Agent) Reply(event, text string) []byte {
	if text == "" || event != "SessionStart" && event != "BeforeAgent" {
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
