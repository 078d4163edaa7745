package openclaw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/pi"
	"belay/internal/lazyre"
	"belay/internal/redact"
)

// Errors of Decode.
var (
	// ErrNoSession is returned for an event that belay knows and whose payload names no session.
	ErrNoSession = errors.New("payload names no session")
	// ErrBadPayload is returned for a payload that is no JSON object.
	ErrBadPayload = errors.New("payload is no JSON object")
)

// hookPayload is what the plugin sends: who it is about, and a few fields of the event, bounded and without what nobody
// needs.
type hookPayload struct {
	Session   string `json:"session_id"`
	SessKey   string `json:"session_key"`
	AgentID   string `json:"agent_id"`
	Workspace string `json:"workspace"`
	Database  string `json:"database"`
	Model     string `json:"model"`
	Run       string `json:"run_id"`
	Child     string `json:"child_id"` // the event is a sub-agent's; session_id is its parent's
	Trigger   string `json:"trigger"`  // user, heartbeat, cron, memory, ...

	Source  string          `json:"source"` // session_open
	Prompt  string          `json:"prompt"`
	Tool    string          `json:"toolName"`
	Call    string          `json:"toolCallId"`
	Params  json.RawMessage `json:"params"`
	Content json.RawMessage `json:"content"` // of a tool's result, or of the last answer
	Status  string          `json:"status"`  // details.status of a tool's result
	IsError bool            `json:"isError"`
	Error   string          `json:"error"`
	Success any             `json:"success"`
	Reason  string          `json:"reason"`
	Next    string          `json:"nextSessionId"`
	Label   string          `json:"label"`
	Count   int             `json:"count"`
}

// Decode maps one payload of the plugin to events. An event that belay does not know means nothing.
func (a *Agent) Decode(ctx context.Context, h agent.Hook) (agent.Incoming, error) {
	var p hookPayload
	if h.Event == "wake" { // the plugin had belay-hook look for a daemon: this says that there is one
		return agent.Incoming{}, nil
	}

	if err := json.Unmarshal(h.Payload, &p); err != nil {
		// A field of another type than expected is OpenClaw's doing and costs that field; all others are filled in.
		if wrong := new(json.UnmarshalTypeError); !errors.As(err, &wrong) || wrong.Field == "" {
			return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w: %w", name, h.Event, ErrBadPayload, err)
		}
	}

	in, known := meaning(h.Event, p, checkpoint.Event{})
	if !known {
		return agent.Incoming{}, nil
	}
	if p.Session == "" || len(p.Session) > maxID {
		return agent.Incoming{}, fmt.Errorf("decode %s %s payload: %w", name, h.Event, ErrNoSession)
	}
	if len(in.Events) > 0 {
		in, _ = meaning(h.Event, p, a.frame(ctx, p))
	}

	return in, nil
}

// Bounds of single payload fields. Nothing longer is real.
const (
	maxID      = 256
	maxPath    = 4096
	maxFailure = 1024 // text of an error
)

// frame is what every event of one payload has in common.
func (a *Agent) frame(ctx context.Context, p hookPayload) checkpoint.Event {
	workspace := payload.RealPath(bounded(p.Workspace, maxPath))
	e := checkpoint.Event{
		Key:       checkpoint.NewKey(name, a.account(p), pi.Name(p.Session), workspace),
		Turn:      bounded(p.Run, maxID),
		Workspace: workspace,
		Model:     pi.Name(p.Model),
	}

	if e.Key.Child = bounded(p.Child, maxID); e.Key.Child == "" {
		e.Transcript = a.transcript(ctx, bounded(p.Database, maxPath), p.Session)
	}

	return e
}

func bounded(s string, most int) string {
	if len(s) > most || strings.IndexByte(s, 0) >= 0 {
		return ""
	}
	return s
}

// transcript is the database when it holds transcripts, else the session's file beside it.
func (a *Agent) transcript(ctx context.Context, database, session string) string {
	if !filepath.IsAbs(database) {
		return ""
	}

	ctx, cancel := context.WithTimeout(ctx, time.Second) // a hook waits for the answer
	defer cancel()
	if a.holds(ctx, database) {
		return database
	}

	return sessionFile(filepath.Join(filepath.Dir(filepath.Dir(database)), "sessions"), session)
}

// sessionName is what OpenClaw takes for a session's id; it may be a name of the user's.
var sessionName = lazyre.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// sessionFile is a session's transcript in a folder of the file era: under its id, else that of a topic or a fork, the
// newest. None yet is no fault: the event has what there is.
func sessionFile(dir, session string) string {
	if !sessionName().MatchString(session) {
		return ""
	}
	if file := filepath.Join(dir, session+".jsonl"); isFile(file) {
		return file
	}

	var newest string
	var changed time.Time
	for _, form := range []string{session + "-topic-*.jsonl", "*_" + session + ".jsonl"} {
		// the patterns are well formed; a folder with a bracket in its name is passed over
		names, _ := filepath.Glob(filepath.Join(dir, form))
		for _, file := range names {
			of, ok := pi.SessionOfName(filepath.Base(file))
			if info, err := os.Stat(file); ok && of == session && err == nil && !info.ModTime().Before(changed) {
				newest, changed = file, info.ModTime()
			}
		}
	}

	return newest
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// account tells apart what may use the same session ids, and what must never be told to each other: state folders,
// agents of one gateway, and the chats of one agent. The owner's own sessions with the agent "main" of the default
// state have none.
func (a *Agent) account(p hookPayload) string {
	var parts []string
	dir := filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(p.Database))))
	if filepath.IsAbs(p.Database) && payload.RealPath(dir) != a.plain {
		parts = append(parts, payload.RealPath(dir))
	}

	if id := pi.Name(p.AgentID); id != "" && id != "main" {
		parts = append(parts, id)
	}
	if chat := chatOf(p.SessKey); chat != "" {
		parts = append(parts, chat)
	}

	return strings.Join(parts, " ")
}

// chatOf names the chat that a session key stands for, as a hash: the key holds names and numbers of people.
func chatOf(key string) string {
	parts := strings.SplitN(key, ":", 3) // agent:<agent id>:<rest>
	if len(parts) < 3 || parts[2] == "main" || strings.HasPrefix(parts[2], "explicit:") {
		return ""
	}
	h := fnv.New64a()
	h.Write([]byte(parts[2])) // cannot fail
	return "chat-" + strconv.FormatUint(h.Sum64(), 16)
}

// meaning is the pure part of Decode: what one event says. A false means that belay does not know the event.
func meaning(event string, p hookPayload, e checkpoint.Event) (agent.Incoming, bool) {
	ask := agent.AskNothing
	aside := p.Trigger != "" && p.Trigger != "user"
	switch event {
	case "session_open":
		e.Kind, e.Source = checkpoint.EventStart, pi.Name(p.Source)
		ask = agent.AskStart
	case "before_prompt_build":
		said, machine, turn := pi.Said(p.Prompt)
		e.Kind, e.Text, e.Aside = checkpoint.EventPrompt, said, aside || machine
		if machine && !turn {
			e.Turn = "" // the turn that was there goes on
		}
		if !aside && e.Key.Child == "" {
			ask = agent.AskCarry
		}

	case "before_tool_call":
		e = call(p, e, checkpoint.EventToolStart)
	case "after_tool_call":
		e = call(p, e, checkpoint.EventToolEnd)
		text := pi.Content(p.Content)
		if e.Failed = p.IsError || p.Error != "" || p.Status == "error" || p.Status == "failed"; text == "" {
			text = p.Error
		}
		e.Output, e.Background = pi.ToolOutput(text), pi.GoesOn(text, p.Status)

	case "agent_end":
		e = turnEnd(p, e)
		e.Aside = aside
	case "before_compaction":
		e.Kind, e.Reason = checkpoint.EventCompacting, pi.Name(p.Reason)
	case "after_compaction":
		e.Kind, e.Reason = checkpoint.EventCompacted, pi.Name(p.Reason)
	case "before_reset":
		e.Kind, e.Source, e.Turn = checkpoint.EventStart, "clear", ""
	case "session_end":
		return sessionEnd(p, e), true
	case "subagent_spawned", "subagent_ended":
		e.Kind, e.Child, e.ChildName, e.Key.Child = checkpoint.EventChildStart, bounded(
			p.Child, maxID,
		), pi.Name(
			p.Label,
		), ""
		if event == "subagent_ended" {
			e.Kind = checkpoint.EventChildEnd
		}

	case "dropped":
		e.Kind, e.Count = checkpoint.EventDropped, max(p.Count, 0)
	default:
		return agent.Incoming{}, false
	}

	return agent.Incoming{Events: []checkpoint.Event{e}, Ask: ask}, true
}

// call fills what both tool events have.
func call(p hookPayload, e checkpoint.Event, kind checkpoint.EventKind) checkpoint.Event {
	e.Kind, e.Call, e.Name, e.Turn = kind, pi.Name(p.Call), pi.Name(p.Tool), ""
	if len(p.Params) > 0 && string(p.Params) != "null" {
		e.Input = pi.ToolInput(p.Params)
	}
	return e
}

// turnEnd is how a turn ended. The text of one that failed is an error's, and no words of the model.
func turnEnd(p hookPayload, e checkpoint.Event) checkpoint.Event {
	e.Kind = checkpoint.EventStop
	failed := p.Success == false
	switch {
	case failed && strings.Contains(strings.ToLower(p.Error), "abort"):
		e.Outcome = checkpoint.OutcomeInterrupted
	case failed:
		e.Outcome, e.Reason = checkpoint.OutcomeFailed, redact.Cut(p.Error, maxFailure)
	default:
		if answer, quiet := pi.Answered(pi.Content(p.Content), p.Prompt); !quiet {
			e.Text = answer
		}
	}

	return e
}

// sessionEnd is a good-bye, or the beginning of a new part under the same id. A reset by hand was told by before_reset,
// and a compaction ends only a session that goes on under another id.
func sessionEnd(p hookPayload, e checkpoint.Event) agent.Incoming {
	e.Kind, e.Reason, e.Turn = checkpoint.EventEnd, pi.Name(p.Reason), ""
	same := p.Next == "" || p.Next == p.Session
	switch p.Reason {
	case "new", "reset", "compaction":
		if same {
			return agent.Incoming{}
		}
	case "idle", "daily":
		if p.Next == p.Session {
			e.Kind, e.Source, e.Reason = checkpoint.EventStart, "clear", ""
		}
	}

	return agent.Incoming{Events: []checkpoint.Event{e}}
}
