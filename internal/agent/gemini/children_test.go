package gemini

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
)

// family is a session that asked for sub-agents, with the folder of their files.
func family(t *testing.T) (path string, child func(id, began, lines string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "chats", "session-2026-01-05T10-00-11111111.jsonl")
	session := "11111111-1111-4111-8111-111111111111"
	put(
		t,
		path,
		head+said(
			"m1", "user", "go",
		)+"\n"+`{"id":"g1","timestamp":"2026-01-05T10:00:05.000Z","type":"gemini","content":"I ask."}`+"\n",
	)

	return path, func(id, began, lines string) {
		put(
			t,
			filepath.Join(filepath.Dir(path), session, id+".jsonl"),
			fmt.Sprintf(
				`{"sessionId":%q,"projectHash":"ab","startTime":"2026-01-05T10:00:%s.000Z","kind":"subagent"}`,
				id, began,
			)+"\n"+lines,
		)
	}
}

// children are what entries tell of sub-agents.
func children(entries []checkpoint.Entry) string {
	var list []string
	for _, e := range entries {
		if e.Child != "" {
			list = append(list, strings.TrimPrefix(string(e.Kind), "child-")+" "+strings.TrimSpace(e.Child+" "+e.Name))
		}
	}
	return strings.Join(list, ", ")
}

// TestChildrenAreFound: by their files, what those say and what the session's own says when a call has ended.
func TestChildrenAreFound(t *testing.T) {
	path, child := family(t)
	src := agent.Source{Path: path, Session: "11111111-1111-4111-8111-111111111111"}
	child("past", "01", said("p1", "user", "an old task")+"\n")
	child("one", "06", said("c1", "user", "a task")+"\n")
	dir := filepath.Join(filepath.Dir(path), src.Session)
	put(t, filepath.Join(dir, "main.jsonl"), head)      // whatever its place: it is none
	put(t, filepath.Join(dir, "notes.txt"), "a person") // likewise
	tr := openTranscript(src)
	first := readAll(t, tr, "", checkpoint.ReadOptions{})
	if got, want := children(first.Entries), "start past, end past, start one"; got != want {
		t.Errorf("first: got %q, want %q", got, want)
	}
	if got := children(readAll(t, tr, first.Cursor, checkpoint.ReadOptions{}).Entries); got != "" {
		t.Errorf("again: got %q, want nothing new", got)
	}

	child("two", "07", said("c2", "user", "another task")+"\n")
	next := readAll(t, tr, first.Cursor, checkpoint.ReadOptions{})
	if got, want := children(next.Entries), "start two"; got != want {
		t.Errorf("a second one: got %q, want %q", got, want)
	}

	if got, want := children(
		readAll(t, openTranscript(src), next.Cursor, checkpoint.ReadOptions{}).Entries,
	), "end past"; got != want {
		t.Errorf("another reader: got %q, want %q: who works is known", got, want)
	}

	more(t, path, `{"id":"g1","timestamp":"2026-01-05T10:00:05.000Z","type":"gemini","content":"I ask.","toolCalls":[`+
		`{"id":"x","name":"invoke_agent","args":{"agent_name":"generalist","prompt":"a task"},"status":"success","agentId":"one"}]}`+"\n")
	if got, want := children(
		readAll(t, tr, next.Cursor, checkpoint.ReadOptions{}).Entries,
	), "end one generalist, end two"; got != want {
		t.Errorf("the calls have ended: got %q, want %q", got, want)
	}

	own := readAll(
		t,
		openTranscript(agent.Source{Path: filepath.Join(dir, "one.jsonl"), Session: src.Session, Child: "one"}),
		"", checkpoint.ReadOptions{},
	)

	if got, want := tell(own.Entries), "user c1 a task"; got != want {
		t.Errorf("the sub-agent's own file: got %q, want %q", got, want)
	}

	if got := readAll(
		t, openTranscript(agent.Source{Path: path, Session: ".."}), "", checkpoint.ReadOptions{},
	); strings.Contains(
		children(got.Entries), "start",
	) {
		t.Errorf("a session named like a folder above: got %q, want none that began", children(got.Entries))
	}
}

// TestToolsOfChildren: the hooks of a sub-agent's tools name its session and nothing else.
func TestToolsOfChildren(t *testing.T) {
	path, child := family(t)
	a := &Agent{}
	tell := func(payload string) string {
		t.Helper()
		in, err := a.Decode(
			t.Context(),
			agent.Hook{Payload: []byte(strings.Replace(payload, `"s"`, `"11111111-1111-4111-8111-111111111111"`, 1))},
		)

		if err != nil {
			t.Fatal(err)
		}

		var list []string
		for _, e := range in.Events {
			list = append(
				list,
				strings.Join(
					strings.Fields(fmt.Sprint(e.Kind, " ", e.Key.Child, " ", e.Child, " ", e.ChildName, " ", e.Call)),
					" ",
				),
			)
		}

		return strings.Join(list, ", ")
	}

	ask := func(name string) string { return `{"agent_name":"` + name + `","prompt":"a task"}` }
	answer := func(id, at, rest string) string {
		return `{"id":"` + id + `","timestamp":"2026-01-05T10:00:` + at + `.000Z","type":"gemini","content":"I work."` + rest + "}\n"
	}
	id := func(msg, tool, input string) string { return callID(msg, callBase(tool, []byte(input)), 0) }
	ls, build := `{"command":"ls"}`, `{"command":"make"}`
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}

	expect(
		"the call of a sub-agent", tell(tool("BeforeTool", path, "06", agentTool, ask("generalist"))),
		"tool-start "+id("g1", agentTool, ask("generalist")),
	)

	expect(
		"the call of another", tell(tool("BeforeTool", path, "06", agentTool, ask("expert"))),
		"tool-start "+id("g1", agentTool, ask("expert")),
	)

	child("past", "01", said("p1", "user", "a task")+"\n"+answer("c0", "02", ""))
	child("one", "07", said("c1", "user", "a task")+"\n")
	child("two", "08", said("d1", "user", "a task")+"\n")
	expect(
		"a tool while they have not answered", tell(tool("BeforeTool", path, "08", "run_shell_command", ls)),
		"tool-start "+id("g1", "run_shell_command", ls),
	)

	child("one", "07", said("c1", "user", "a task")+"\n"+answer("c2", "09", ""))
	first := id("c2", "run_shell_command", build)
	expect(
		"a sub-agent's tool", tell(tool("BeforeTool", path, "10", "run_shell_command", build)),
		"child-start one generalist, start one generalist, tool-start one "+first,
	)

	child("two", "08", said("d1", "user", "a task")+"\n"+answer("d2", "11", ""))
	expect("the other's", tell(tool("BeforeTool", path, "12", "run_shell_command", `{"command":"pwd"}`)),
		"child-start two expert, start two expert, tool-start two "+id("d2", "run_shell_command", `{"command":"pwd"}`))
	child(
		"two",
		"08",
		said(
			"d1", "user", "a task",
		)+"\n"+answer(
			"d2", "11",
			`,"toolCalls":[{"name":"run_shell_command","args":{"command":"pwd"},"status":"success"}]`,
		),
	)

	expect("its end", tell(tool("AfterTool", path, "13", "run_shell_command", build)), "tool-end one "+first)
	a = &Agent{} // the daemon is another one now
	expect(
		"its end, after a restart", tell(tool("AfterTool", path, "13", "run_shell_command", build)),
		"child-start one, start one, tool-end one "+first,
	)

	if err := os.RemoveAll(filepath.Join(filepath.Dir(path), "11111111-1111-4111-8111-111111111111")); err != nil {
		t.Fatal(err)
	}

	expect(
		"nobody's", tell(tool("BeforeTool", path, "14", "run_shell_command", build)),
		"tool-start "+id("g1", "run_shell_command", build),
	)
}
