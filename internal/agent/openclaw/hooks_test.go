package openclaw

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
)

const uuid = "257fccb8-de32-43b0-86dc-87cc6b7f483c"

// tell is what an incoming means, in one line.
func tell(in agent.Incoming) string {
	var list []string
	for _, e := range in.Events {
		s := string(e.Kind)
		for _, v := range []string{
			e.Source, e.Turn, e.Text, e.Call, e.Name, e.Input, e.Output, e.Reason, string(e.Outcome),
			e.Child, e.ChildName, e.Key.Child,
		} {
			if v != "" {
				s += " " + v
			}
		}

		if e.Aside {
			s += " aside"
		}
		if e.Failed {
			s += " failed"
		}
		if e.Background {
			s += " background"
		}
		if e.Count > 0 {
			s += fmt.Sprint(" ", e.Count)
		}

		list = append(list, s)
	}

	switch in.Ask {
	case agent.AskStart:
		list = append(list, "ask start")
	case agent.AskCarry:
		list = append(list, "ask carry")
	}

	return strings.Join(list, "; ")
}

func TestDecode(t *testing.T) {
	const who = `"session_id":"` + uuid + `","session_key":"agent:main:main","agent_id":"main","workspace":"/w","run_id":"r1"`
	for _, c := range []struct{ event, body, want string }{
		{"session_open", `"source":"resume","trigger":"user"`, "start resume r1; ask start"},
		{"before_prompt_build", `"prompt":"do it","trigger":"user"`, "prompt r1 do it; ask carry"},
		{"before_prompt_build", `"prompt":"Sender (untrusted metadata):\n` + "```json\\n{}\\n```" + `\n\ndo it"`, "prompt r1 do it; ask carry"},
		{"before_prompt_build", `"prompt":"<belay-record k=\"m\">\nold\n</belay-record k=\"m\">\ndo it"`, "prompt r1 do it; ask carry"},
		{"before_prompt_build", `"prompt":"tick","trigger":"heartbeat"`, "prompt r1 tick aside"},
		{"before_prompt_build", `"prompt":"job","trigger":"cron"`, "prompt r1 job aside"},
		{"before_prompt_build", `"prompt":"[System] Your previous turn was interrupted by a gateway restart","trigger":"user"`,
			"prompt [System] Your previous turn was interrupted by a gateway restart aside; ask carry"},
		{"before_tool_call", `"toolName":"exec","toolCallId":"c1","params":{"command":"ls"}`, `tool-start c1 exec {"command":"ls"}`},
		{"after_tool_call", `"toolName":"exec","toolCallId":"c1","content":[{"type":"text","text":"out"}],"status":"completed"`, "tool-end c1 exec out"},
		{"after_tool_call", `"toolName":"read","toolCallId":"c1","content":[{"type":"text","text":"no such file"}],"status":"error"`, "tool-end c1 read no such file failed"},
		{"after_tool_call", `"toolName":"read","toolCallId":"c1","error":"Aborted"`, "tool-end c1 read Aborted failed"},
		{"after_tool_call", `"toolName":"exec","toolCallId":"c1","content":"Command still running (session x)","status":"running"`, "tool-end c1 exec Command still running (session x) background"},
		{"agent_end", `"success":true,"content":[{"type":"text","text":"done"}],"trigger":"user"`, "stop r1 done"},
		{"agent_end", `"success":false,"error":"HTTP 400","content":"x","trigger":"user"`, "stop r1 HTTP 400 failed"},
		{"agent_end", `"success":false,"error":"This operation was aborted"`, "stop r1 interrupted"},
		{"agent_end", `"success":true,"content":"HEARTBEAT_OK","trigger":"heartbeat"`, "stop r1 aside"},
		{"before_compaction", ``, "compacting r1"},
		{"after_compaction", ``, "compacted r1"},
		{"before_reset", `"reason":"new"`, "start clear"},
		{"session_end", `"reason":"shutdown"`, "end shutdown"},
		{"session_end", `"reason":"new"`, ""},
		{"session_end", `"reason":"new","nextSessionId":"other"`, "end new"},
		{"session_end", `"reason":"daily","nextSessionId":"` + uuid + `"`, "start clear"},
		{"session_end", `"reason":"compaction"`, ""},
		{"session_end", `"reason":"compaction","nextSessionId":"` + uuid + `"`, ""},
		{"session_end", `"reason":"compaction","nextSessionId":"other"`, "end compaction"},
		{"subagent_spawned", `"child_id":"k1","label":"helper"`, "child-start r1 k1 helper"},
		{"subagent_ended", `"child_id":"k1"`, "child-end r1 k1"},
		{"before_tool_call", `"child_id":"k1","toolName":"exec","toolCallId":"c2"`, "tool-start c2 exec k1"},
		{"before_prompt_build", `"child_id":"k1","prompt":"sub"`, "prompt r1 sub k1"},
		{"dropped", `"count":3`, "dropped r1 3"},
		{"wake", ``, ""}, {"llm_input", ``, ""},
		{"agent_end", `"success":7,"content":"done","count":"x"`, "stop r1 done"},
	} {
		body := "{" + who + "}"
		if c.body != "" {
			body = "{" + who + "," + c.body + "}"
		}

		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: c.event, Payload: []byte(body)})
		if err != nil {
			t.Errorf("%s %s: %v", c.event, c.body, err)
		}
		if got := tell(in); got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.event, c.body, got, c.want)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct {
		event, body string
		want        error
	}{
		{"agent_end", `{`, ErrBadPayload}, {"agent_end", ``, ErrBadPayload}, {"agent_end", `[]`, ErrBadPayload}, {"agent_end", `{}`, ErrNoSession},
		{"agent_end", `{"session_id":"` + strings.Repeat("x", 300) + `"}`, ErrNoSession}, {"wake", ``, nil}, {"gateway_start", `{}`, nil},
	} {
		if in, err := New(
			agent.Host{},
		).Decode(
			t.Context(), agent.Hook{Event: c.event, Payload: []byte(c.body)},
		); !errors.Is(err, c.want) ||
			len(in.Events) > 0 {
			t.Errorf("%s %.40s: got %v, %v, want %v", c.event, c.body, in.Events, err, c.want)
		}
	}
}

// TestKeys: whose session it is. Chats of one agent are told apart, so that none is given what was said in another.
func TestKeys(t *testing.T) {
	home := t.TempDir()
	a := New(agenttest.Host(home))
	key := func(session, sessKey, id, state string) checkpoint.Key {
		body, err := json.Marshal(
			map[string]string{"session_id": session, "session_key": sessKey, "agent_id": id, "workspace": "/w",
				"database": filepath.Join(state, "agents", id, "agent", databaseName)},
		)

		if err != nil {
			t.Fatal(err)
		}

		in, err := a.Decode(t.Context(), agent.Hook{Event: "agent_end", Payload: body})
		if err != nil {
			t.Fatal(err)
		}

		return in.Events[0].Key
	}

	own := filepath.Join(home, ".openclaw")
	if got, want := key(
		uuid, "agent:main:main", "main", own,
	), (checkpoint.Key{Agent: name, Session: uuid}); got != want {
		t.Errorf("the owner's session: got %+v, want %+v", got, want)
	}

	if got, want := key(
		"lab1", "agent:main:explicit:lab1", "main", own,
	), (checkpoint.Key{Agent: name, Session: "lab1", Workspace: "/w"}); got != want {
		t.Errorf("a named session: got %+v, want %+v", got, want)
	}

	accounts := map[string]bool{}
	for _, k := range []checkpoint.Key{key(uuid, "agent:main:telegram:group:1", "main", own), key(uuid, "agent:main:telegram:group:2", "main", own),
		key(uuid, "agent:ops:main", "ops", own), key(uuid, "agent:main:main", "main", "/srv/oc")} {
		if k.Account == "" || strings.Contains(k.Account, "group") {
			t.Errorf("got account %q, want one that does not tell of the chat", k.Account)
		}
		accounts[k.Account] = true
	}

	if len(accounts) != 4 {
		t.Errorf("got accounts %v, want four", accounts)
	}
}

// TestTranscriptOfAnEvent: the database when it holds transcripts, else the file beside it.
func TestTranscriptOfAnEvent(t *testing.T) {
	state := t.TempDir()
	s := newStore(t, filepath.Join(state, "agents", "main", "agent", databaseName), schema23)
	old := newStore(
		t, filepath.Join(state, "agents", "old", "agent", databaseName), "create table schema_meta (role text)",
	)

	file := filepath.Join(state, "agents", "old", "sessions", uuid+".jsonl")
	a := New(agent.Host{})
	if got := a.transcript(t.Context(), s.path, uuid); got != s.path {
		t.Errorf("got %q, want the database", got)
	}
	if got := a.transcript(t.Context(), old.path, uuid); got != "" {
		t.Errorf("no file yet: got %q, want none", got)
	}

	putFile(t, file)
	if got := a.transcript(t.Context(), old.path, uuid); got != file {
		t.Errorf("got %q, want %q", got, file)
	}

	for id, name := range map[string]string{"lab1": "lab1.jsonl", // a name of the user's
		"7f0c2d3e-1111-4222-8333-444455556666": "7f0c2d3e-1111-4222-8333-444455556666-topic-12.jsonl",
		"7f0c2d3e-1111-4222-8333-444455556667": "2026-11-30T15-09-47-095Z_7f0c2d3e-1111-4222-8333-444455556667.jsonl"} {
		file := filepath.Join(filepath.Dir(file), name)
		putFile(t, file)
		putFile(t, strings.TrimSuffix(file, ".jsonl")+".trajectory.jsonl")
		if got := a.transcript(t.Context(), old.path, id); got != file {
			t.Errorf("session %s: got %q, want %q", id, got, file)
		}
	}

	if got := a.transcript(t.Context(), old.path, "../x"); got != "" {
		t.Errorf("an id that is no name: got %q, want none", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("agent_end", `{"session_id":"s","content":[{"type":"text","text":"x"}]}`)
	f.Add("before_prompt_build", `{"session_id":"s","prompt":"x"}`)
	f.Add("after_tool_call", `{"session_id":"s","content":7,"params":[]}`)
	a := New(agent.Host{})
	f.Fuzz(func(t *testing.T, event, body string) {
		in, err := a.Decode(t.Context(), agent.Hook{Event: event, Payload: []byte(body)})
		for _, e := range in.Events {
			if err != nil || e.Key.Session == "" || e.Kind == "" {
				t.Errorf("got %+v, %v", e, err)
			}
		}
	})
}
