package gemini

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/jsonedit"
)

// Errors of Decode.
var (
	// ErrNoSession is returned for an event that belay knows and whose payload names no session.
	ErrNoSession = errors.New("payload names no session")
	// ErrBadPayload is returned for a payload that is no JSON object.
	ErrBadPayload = errors.New("payload is no JSON object")
)

// payload is a hook's JSON object. Its accessors give the empty value for a field that is absent, of another type than
// expected, or beyond its bound: the payload's form is the program's and may change in any release.
type payload map[string]json.RawMessage

// parsePayload reads the object. Of a payload that was cut on its way it takes the members that stand whole before the cut.
func parsePayload(b []byte, cut bool) (payload, error) {
	b = bytes.TrimPrefix(b, []byte(jsonedit.BOM))
	var p payload
	err := json.Unmarshal(b, &p)
	switch {
	case err == nil && p != nil:
		return p, nil
	case cut:
		if p = salvage(b); len(p) > 0 {
			return p, nil
		}
	}
	if err == nil {
		return nil, ErrBadPayload // null
	}
	return nil, fmt.Errorf("%w: %w", ErrBadPayload, err)
}

// salvage reads as many members as stand whole in a broken object.
func salvage(b []byte) payload {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	p := payload{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			break
		}
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			break
		}
		if k, ok := key.(string); ok {
			p[k] = raw
		}
	}
	return p
}

func (p payload) text(key string) string {
	var s string
	if json.Unmarshal(p[key], &s) != nil {
		return ""
	}
	return s
}

// bounded is a string that identifies something: cutting it would make it another.
func (p payload) bounded(key string, most int) string {
	if s := p.text(key); len(s) <= most && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return ""
}

func (p payload) name(key string) string { return words(p.text(key), maxName) }

// Decode maps one hook call to events. An event that belay does not know means nothing; a known one without a session
// is ErrNoSession; a payload that is no JSON object is ErrBadPayload unless it was cut, when what stands whole counts.
//
// It looks at the end of the session's transcript, for what the payload does not say: which message of the model's asked
// for a tool call, and which of the texts of a turn is its last.
func (a *Agent) Decode(h agent.Hook) (agent.Incoming, error) {
	p, err := parsePayload(h.Payload, h.Cut)
	if err != nil {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, h.Event, err)
	}
	event := p.text("hook_event_name")
	if event == "" {
		event = h.Event
	}
	if !known(event, p) {
		return agent.Incoming{}, nil
	}
	session := p.bounded("session_id", maxID)
	if session == "" {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, event, ErrNoSession)
	}
	cwd := p.bounded("cwd", maxPath)
	if cwd == "" && len(h.Cwd) <= maxPath {
		cwd = h.Cwd // hooks run in the session's folder
	}
	cwd = realPath(cwd)
	e := checkpoint.Event{
		Transcript: p.bounded("transcript_path", maxPath),
		Workspace:  cwd,
	}
	e.Key = checkpoint.NewKey(name, a.account(e.Transcript), session, cwd)
	ask := a.meaning(event, p, h, &e)
	return agent.Incoming{Events: []checkpoint.Event{e}, Ask: ask}, nil
}

// known says whether an event means something.
func known(event string, p payload) bool {
	if event == "PreCompress" { // before each call of the model, whether or not anything is compressed
		return p.text("trigger") == "manual"
	}
	for _, e := range hookEvents() {
		if e.name == event {
			return true
		}
	}
	return false
}

// meaning fills in what an event says.
func (a *Agent) meaning(event string, p payload, h agent.Hook, e *checkpoint.Event) agent.Ask {
	session := e.Key.Account + "\x00" + e.Key.Session
	switch event {
	case "SessionStart":
		e.Kind, e.Source = checkpoint.EventStart, p.name("source")
		e.Transcript = liveFile(e.Transcript, e.Key.Session)
		a.pairs.turn(session)
		return agent.AskStart
	case "BeforeAgent":
		e.Kind = checkpoint.EventPrompt
		e.Text, e.Aside = personal(p.text("prompt"))
		a.pairs.turn(session)
		return agent.AskCarry
	case "BeforeTool":
		base, at, msg := a.called(p, h, e)
		e.Kind, e.Call = checkpoint.EventToolStart, a.pairs.started(session, base, at, msg)
	case "AfterTool":
		base, at, msg := a.called(p, h, e)
		e.Kind, e.Call = checkpoint.EventToolEnd, a.pairs.ended(session, base, at, msg)
		e.Output, e.Failed = response(e.Name, p["tool_response"])
		e.Background = commandGoesOn(e.Name, e.Output)
	case "AfterAgent":
		e.Kind, e.Text = checkpoint.EventStop, lastAnswer(p, e.Transcript)
	case "PreCompress":
		e.Kind, e.Reason = checkpoint.EventCompacting, p.name("trigger")
	case "SessionEnd":
		e.Kind, e.Reason = checkpoint.EventEnd, p.name("reason")
		a.pairs.turn(session)
	}
	return agent.AskNothing
}

// called fills in what all tool events have, and gives what the call's id is made of.
func (a *Agent) called(p payload, h agent.Hook, e *checkpoint.Event) (base, at, msg string) {
	e.Name, e.Input = p.name("tool_name"), toolText(p["tool_input"])
	if at = p.bounded("timestamp", maxName); at == "" {
		at = strconv.FormatUint(checkpoint.Hash(string(h.Payload)), 16) // the same for a hook that comes twice
	}
	return callBase(p.text("tool_name"), p["tool_input"]), at, newestAnswer(e.Transcript, stamp(at)).ID
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

// lastAnswer is the last text of a turn. The payload joins all texts of the turn, some of them doubled; the transcript has
// them one by one, the last one too.
func lastAnswer(p payload, transcript string) string {
	said := p.text("prompt_response")
	if said == "[no response text]" {
		said = ""
	}
	last := newestAnswer(transcript, stamp(p.text("timestamp"))).text()
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
		if home = realPath(home); a.plain != "" && home == realPath(a.plain) {
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
