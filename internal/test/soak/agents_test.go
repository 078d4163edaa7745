//go:build linux

package soak

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // writes opencode's database

	"belay/internal/wire"
)

// agents that take part, each with its own hooks and its own kind of transcript.
var agents = []string{"claude-code", "codex", "gemini", "pi", "openclaw", "opencode", "other"}

// moment is what an agent's hook is called for.
type moment int

const (
	begins moment = iota
	asked
	toolBegins
	toolEnds
	handsBack
	ends
)

// hooks are the agents' names of the moments.
var hooks = map[string][6]string{
	"claude-code": {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"},
	"codex":       {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"},
	"gemini":      {"SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd"},
	"pi": {
		"session_start",
		"before_agent_start",
		"tool_execution_start",
		"tool_execution_end",
		"agent_end",
		"session_shutdown",
	},
	"openclaw": {
		"session_open",
		"before_prompt_build",
		"before_tool_call",
		"after_tool_call",
		"agent_end",
		"session_end",
	},
	"opencode": {"session.start", "chat.message", "tool.start", "tool.end", "session.idle", "dispose"},
	"other":    {"start", "prompt", "tool-start", "tool-end", "stop", "end"},
}

// captured are the payloads that real agents sent, by agent and event.
type captured map[string]map[string]any

func readCaptured() (captured, error) {
	c := captured{}
	for agent, dir := range map[string]string{"claude-code": "claude", "codex": "codex", "gemini": "gemini"} {
		for _, event := range hooks[agent] {
			data, err := os.ReadFile(filepath.Join("..", "..", "agent", dir, "testdata", "hooks", event+".json"))
			if err != nil {
				return nil, err
			}

			var calls []struct {
				Stdin map[string]any `json:"stdin"`
			}
			if err := json.Unmarshal(data, &calls); err != nil || len(calls) == 0 {
				return nil, fmt.Errorf("%s of %s: %d calls, %w", event, agent, len(calls), err)
			}

			c[agent+" "+event] = calls[0].Stdin
		}
	}

	return c, nil
}

// talk is one conversation as its agent sees it.
type talk struct {
	agent, id, cwd, file string
	source               string // how it began
	round, call, line    int
	prompt, answer       string
	command, output      string
}

func (t *talk) turn() string   { return fmt.Sprintf("%s-turn-%d", t.id, t.round) }
func (t *talk) callID() string { return fmt.Sprintf("call_%s_%d", t.id[len(t.id)-8:], t.call) }

// request is what the agent's hook client sends at a moment.
func (c captured) request(t *talk, m moment) (wire.Request, []byte) {
	event := hooks[t.agent][m]
	if t.agent == "other" {
		e := wire.Event{Kind: event, Turn: t.turn()}
		switch m {
		case begins:
			e.Source = t.source
		case asked:
			e.Text = t.prompt
		case toolBegins:
			e.Call, e.Name, e.Input = t.callID(), "Bash", t.command
		case toolEnds:
			e.Call, e.Output = t.callID(), t.output
		case handsBack:
			e.Text = t.answer
		}

		return wire.Request{Op: "event", Agent: t.agent, Session: t.id, Workspace: t.cwd, Body: encode(e)}, nil
	}

	return wire.Request{Op: "hook", Agent: t.agent, Event: event, Workspace: t.cwd}, encode(c.payload(t, m))
}

func (c captured) payload(t *talk, m moment) map[string]any {
	switch t.agent {
	case "pi", "openclaw":
		return piPayload(t, m)
	case "opencode":
		return opencodePayload(t, m)
	}

	p := map[string]any{}
	for k, v := range c[t.agent+" "+hooks[t.agent][m]] {
		p[k] = v
	}

	for k, v := range map[string]any{"session_id": t.id, "transcript_path": t.file, "cwd": t.cwd, "source": t.source, "prompt": t.prompt,
		"prompt_id": t.turn(), "turn_id": t.turn(), "tool_use_id": t.callID(), "last_assistant_message": t.answer, "prompt_response": t.answer,
		"tool_input": map[string]any{"command": t.command}, "tool_response": t.output} {
		if _, has := p[k]; has {
			p[k] = v
		}
	}

	return p
}

func piPayload(t *talk, m moment) map[string]any {
	p := map[string]any{
		"session_id":   t.id,
		"cwd":          t.cwd,
		"session_file": t.file, // pi
		"workspace":    t.cwd,
		"agent_id":     "main",
		"run_id":       t.turn(),
		"database":     filepath.Join(filepath.Dir(filepath.Dir(t.file)), "agent", "none.sqlite"),
	}

	content := func(text string) []map[string]any { return []map[string]any{{"type": "text", "text": text}} }
	switch m {
	case begins:
		p["reason"], p["source"] = t.source, t.source
	case asked:
		p["prompt"] = t.prompt
	case toolBegins:
		p["toolCallId"], p["toolName"] = t.callID(), "bash"
		p["args"], p["params"] = map[string]any{"command": t.command}, map[string]any{"command": t.command}
	case toolEnds:
		p["toolCallId"], p["toolName"], p["isError"] = t.callID(), "bash", false
		p["result"], p["content"] = map[string]any{"content": content(t.output)}, content(t.output)
	case handsBack:
		p["success"], p["content"] = true, content(t.answer)
		p["message"] = map[string]any{"role": "assistant", "stopReason": "stop", "content": content(t.answer)}
	case ends:
		p["reason"] = map[string]string{"pi": "quit", "openclaw": "shutdown"}[t.agent]
	}

	return p
}

func opencodePayload(t *talk, m moment) map[string]any {
	p := map[string]any{
		"session_id": t.id,
		"root_id":    t.id,
		"directory":  t.cwd,
		"database":   t.file,
		"message_id": fmt.Sprintf("msg_%s_%d", t.id, t.round),
	}

	state := map[string]any{"status": "running", "input": map[string]any{"command": t.command}}
	switch m {
	case begins:
		p["source"] = t.source
	case asked:
		p["parts"] = []map[string]any{{"type": "text", "text": t.prompt}}
	case toolBegins, toolEnds:
		if m == toolEnds {
			state["status"], state["output"] = "completed", t.output
		}
		p["part"] = map[string]any{"type": "tool", "callID": t.callID(), "tool": "bash", "state": state}

	case handsBack:
		p["text"] = t.answer
	}

	return p
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only maps of strings and numbers are given
	}
	return data
}

// path is where an agent of that kind keeps a session's transcript.
func path(agent, root, id string) string {
	day := time.Now().UTC()
	switch agent {
	case "claude-code":
		return filepath.Join(root, "claude", "projects", "-proj", id+".jsonl")
	case "codex":
		return filepath.Join(
			root, "codex", "sessions", day.Format("2006/01/02"),
			"rollout-"+day.Format("2006-01-02T15-04-05-")+id+".jsonl",
		)

	case "gemini":
		return filepath.Join(
			root, "gemini", "tmp", "proj", "chats", "session-"+day.Format("2006-01-02T15-04-")+id[:8]+".jsonl",
		)

	case "pi":
		return filepath.Join(root, "pi", "sessions", "--proj--", day.Format("2006-01-02T15-04-05-000Z_")+id+".jsonl")
	case "openclaw":
		return filepath.Join(root, "openclaw", "agents", "main", "sessions", id+".jsonl")
	case "opencode":
		return filepath.Join(root, "opencode", "opencode.db")
	}

	return ""
}

// lines are what the agent adds to its transcript at a moment, in the form of the captured files.
func (t *talk) lines(m moment) []string {
	now := time.Now().UTC()
	stamp := now.Format("2006-01-02T15:04:05.000Z")
	t.line++
	id := func(n int) string { return fmt.Sprintf("00000000-%s-%012d", t.id[9:23], n) }
	switch t.agent {
	case "claude-code":
		return claudeLine(
			t,
			m,
			map[string]any{
				"parentUuid":  id(t.line - 1),
				"isSidechain": false,
				"promptId":    t.turn(),
				"uuid":        id(t.line),
				"timestamp":   stamp,
				"userType":    "external",
				"entrypoint":  "sdk-cli",
				"cwd":         t.cwd,
				"sessionId":   t.id,
				"version":     "2.1.328",
				"gitBranch":   "master",
			},
			id(t.line),
		)

	case "codex":
		return codexLines(t, m, stamp, id(t.line))
	case "gemini":
		return geminiLines(t, m, stamp, id)
	case "pi", "openclaw":
		return piLine(t, m, stamp, now.UnixMilli())
	}

	return nil
}

func claudeLine(t *talk, m moment, rec map[string]any, id string) []string {
	model := func(stop string, content ...any) {
		rec["type"] = "assistant"
		rec["message"] = map[string]any{
			"id":          "msg_" + id,
			"type":        "message",
			"role":        "assistant",
			"model":       "claude-sonnet-4-5",
			"stop_reason": stop,
			"content":     content,
		}
	}

	switch m {
	case asked:
		rec["type"], rec["message"] = "user", map[string]any{"role": "user", "content": t.prompt}
	case toolBegins:
		model(
			"tool_use",
			map[string]any{
				"type":  "tool_use",
				"id":    t.callID(),
				"name":  "Bash",
				"input": map[string]any{"command": t.command},
			},
		)

	case toolEnds:
		rec["type"] = "user"
		rec["message"] = map[string]any{
			"role": "user",
			"content": []any{
				map[string]any{
					"type":        "tool_result",
					"tool_use_id": t.callID(),
					"content":     t.output,
					"is_error":    false,
				},
			},
		}

	case handsBack:
		model("end_turn", map[string]any{"type": "text", "text": t.answer})
	default:
		return nil
	}

	return []string{string(encode(rec))}
}

func codexLines(t *talk, m moment, stamp, id string) []string {
	line := func(kind string, payload map[string]any) string {
		return string(encode(map[string]any{"timestamp": stamp, "ordinal": t.line, "type": kind, "payload": payload}))
	}
	turn := map[string]any{"turn_id": t.turn()}
	switch m {
	case begins:
		if t.round > 0 {
			return nil
		}
		return []string{
			line(
				"session_meta",
				map[string]any{
					"session_id":  t.id,
					"id":          t.id,
					"timestamp":   stamp,
					"cwd":         t.cwd,
					"source":      "exec",
					"cli_version": "0.171.0",
				},
			),
		}

	case asked:
		return []string{
			line("response_item", map[string]any{
				"type":    "message",
				"id":      "msg_" + id,
				"role":    "user",
				"content": []any{map[string]any{"type": "input_text", "text": t.prompt}},
				"internal_chat_message_metadata_passthrough": map[string]any{
					"turn_id":            t.turn(),
					"content_item_kinds": []string{"user.text"},
				},
			}),
		}

	case toolBegins:
		return []string{
			line("response_item", map[string]any{
				"type":   "function_call",
				"status": "completed",
				"id":     "fc_" + id,
				"name":   "exec_command",
				"arguments": string(
					encode(map[string]string{"cmd": t.command}),
				),
				"call_id": t.callID(),
				"internal_chat_message_metadata_passthrough": turn,
			}),
		}

	case toolEnds:
		return []string{
			line(
				"response_item",
				map[string]any{
					"type":    "function_call_output",
					"id":      "fco_" + id,
					"call_id": t.callID(),
					"output":  t.output,
					"internal_chat_message_metadata_passthrough": turn,
				},
			),
		}

	case handsBack:
		return []string{
			line("response_item", map[string]any{
				"type":   "message",
				"status": "completed",
				"id":     "msg_" + id,
				"role":   "assistant",
				"content": []any{
					map[string]any{"type": "output_text", "text": t.answer, "annotations": []any{}},
				},
				"internal_chat_message_metadata_passthrough": turn,
			}),
		}
	}

	return nil
}

func geminiLines(t *talk, m moment, stamp string, id func(int) string) []string {
	rec := map[string]any{"id": id(t.line), "timestamp": stamp}
	switch m {
	case begins:
		if t.round > 0 {
			return nil
		}
		return []string{
			string(
				encode(
					map[string]any{
						"sessionId":   t.id,
						"projectHash": "9c09",
						"startTime":   stamp,
						"lastUpdated": stamp,
						"kind":        "main",
					},
				),
			),
		}

	case asked:
		rec["type"], rec["content"] = "user", []any{map[string]any{"text": t.prompt}}
	case toolBegins:
		return nil // Gemini writes a call when it has ended
	case toolEnds:
		rec["type"], rec["content"], rec["model"] = "gemini", "", "gemini-2.5-pro"
		answer := map[string]any{
			"functionResponse": map[string]any{
				"id":       t.callID(),
				"name":     "run_shell_command",
				"response": map[string]any{"output": t.output},
			},
		}

		rec["toolCalls"] = []any{
			map[string]any{
				"id":        t.callID(),
				"name":      "run_shell_command",
				"args":      map[string]any{"command": t.command},
				"result":    []any{answer},
				"status":    "success",
				"timestamp": stamp,
			},
		}

	case handsBack:
		rec["type"], rec["content"], rec["model"] = "gemini", t.answer, "gemini-2.5-pro"
	default:
		return nil
	}

	return []string{string(encode(rec)), fmt.Sprintf(`{"$set":{"lastUpdated":%q}}`, stamp)}
}

func piLine(t *talk, m moment, stamp string, ms int64) []string {
	message := map[string]any{
		"role":      "assistant",
		"timestamp": ms,
		"provider":  "lab",
		"model":     "lab-model",
		"usage":     map[string]any{"input": 1387, "output": 27},
	}

	text := func(s string) map[string]any { return map[string]any{"type": "text", "text": s} }
	switch m {
	case begins:
		if t.round > 0 {
			return nil
		}
		return []string{
			string(
				encode(map[string]any{"type": "session", "version": 3, "id": t.id, "timestamp": stamp, "cwd": t.cwd}),
			),
		}

	case asked:
		message = map[string]any{"role": "user", "content": []any{text(t.prompt)}, "timestamp": ms}
	case toolBegins:
		message["content"], message["stopReason"] = []any{
			map[string]any{
				"type":      "toolCall",
				"id":        t.callID(),
				"name":      "bash",
				"arguments": map[string]any{"command": t.command},
			},
		}, "toolUse"

	case toolEnds:
		message = map[string]any{
			"role":       "toolResult",
			"toolCallId": t.callID(),
			"toolName":   "bash",
			"content":    []any{text(t.output)},
			"isError":    false,
			"timestamp":  ms,
		}

	case handsBack:
		message["content"], message["stopReason"] = []any{text(t.answer)}, "stop"
	default:
		return nil
	}

	return []string{
		string(
			encode(
				map[string]any{
					"type":      "message",
					"id":        fmt.Sprintf("%08x", t.line),
					"parentId":  fmt.Sprintf("%08x", t.line-1),
					"timestamp": stamp,
					"message":   message,
				},
			),
		),
	}
}

// write makes the agent's transcript longer.
func (t *talk) write(m moment, db *sql.DB) error {
	if t.agent == "opencode" {
		return t.rows(m, db)
	}

	lines := t.lines(m)
	if len(lines) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(t.file), 0o700); err != nil {
		return err
	}

	f, err := os.OpenFile(t.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		_ = f.Close() // the write's error says more
		return err
	}

	return f.Close()
}

// schema is what belay reads of opencode's.
const schema = `create table session (id text primary key, project_id text, parent_id text, slug text, directory text, title text, version text, time_created integer, time_updated integer);
create table message (id text primary key, session_id text not null, time_created integer not null, time_updated integer not null, data text not null);
create table part (id text primary key, message_id text not null, session_id text not null, time_created integer not null, time_updated integer not null, data text not null);
create index message_session on message (session_id, time_created, id);
create index part_session on part (session_id);
create index part_message on part (message_id, id)`

func (t *talk) rows(m moment, db *sql.DB) error {
	now := time.Now().UnixMilli()
	id := func(kind string) string { return fmt.Sprintf("%s_%s_%06d", kind, t.id, t.line) }
	user := fmt.Sprintf("msg_%s_%d", t.id, t.round)
	t.line++
	message, role, part := id("msg"), "assistant", map[string]any(nil)
	switch m {
	case begins:
		_, err := db.Exec(
			"insert or ignore into session (id, project_id, slug, directory, title, version, time_created, time_updated) values (?, 'global', 'soak', ?, 'soak', '1.18.33', ?, ?)",
			t.id, t.cwd, now, now,
		)
		return err

	case asked:
		message, role, part = user, "user", map[string]any{"type": "text", "text": t.prompt}
	case toolEnds:
		part = map[string]any{
			"type":   "tool",
			"callID": t.callID(),
			"tool":   "bash",
			"state": map[string]any{
				"status": "completed",
				"input":  map[string]any{"command": t.command},
				"output": t.output,
				"time":   map[string]any{"start": now, "end": now},
			},
		}

	case handsBack:
		part = map[string]any{"type": "text", "text": t.answer, "time": map[string]any{"start": now, "end": now}}
	default:
		return nil
	}

	data := map[string]any{
		"role":       role,
		"time":       map[string]any{"created": now, "completed": now},
		"agent":      "build",
		"modelID":    "m",
		"providerID": "mock",
	}

	if role == "assistant" {
		data["parentID"], data["finish"] = user, "stop"
	}

	if _, err := db.Exec(
		"insert or ignore into message values (?, ?, ?, ?, ?)", message, t.id, now, now, string(encode(data)),
	); err != nil {
		return err
	}

	_, err := db.Exec(
		"insert or ignore into part values (?, ?, ?, ?, ?, ?)", id("prt"), message, t.id, now, now,
		string(encode(part)),
	)

	return err
}
