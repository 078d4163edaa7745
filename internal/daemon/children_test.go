package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/wire"
)

// geminiSession is a session of an agent whose files tell of sub-agents and whose compactions no hook announces.
func geminiSession(t *testing.T, r *running) (path string, hook func(event, rest string) string) {
	t.Helper()
	path = filepath.Join(home(t), ".gemini", "tmp", "proj", "chats", "session-2026-01-05T10-00-"+sessionA[:8]+".jsonl")
	if err := os.MkdirAll(filepath.Join(filepath.Dir(path), sessionA), 0o700); err != nil {
		t.Fatal(err)
	}

	appendLines(
		t,
		path,
		fmt.Sprintf(
			`{"sessionId":%q,"projectHash":"ab","startTime":"2026-01-05T10:00:00.000Z","kind":"main"}`,
			sessionA,
		),
		geminiLine("m1", "user", "please start the work", "01"),
	)

	return path, func(event, rest string) string {
		t.Helper()
		reply, body := r.do(
			wire.Request{Op: "hook", Agent: "gemini", Event: event},
			[]byte(
				fmt.Sprintf(
					`{"hook_event_name":%q,"session_id":%q,"transcript_path":%q,"cwd":"/proj","timestamp":"2026-01-05T10:00:30.000Z"%s}`,
					event, sessionA, path, rest,
				),
			),
		)

		if !reply.OK {
			t.Fatalf("hook %s: %+v", event, reply)
		}

		return injected(t, body)
	}
}

func geminiLine(id, kind, text, second string) string {
	return fmt.Sprintf(
		`{"id":%q,"timestamp":"2026-01-05T10:00:%s.000Z","type":%q,"content":%q}`, id, second, kind, text,
	)
}

// TestSubAgentsInFiles: what a session's file tells of a sub-agent opens and closes a session of the sub-agent's own.
func TestSubAgentsInFiles(t *testing.T) {
	home(t)
	r := start(t, tempDir(t))
	path, hook := geminiSession(t, r)
	hook("SessionStart", `,"source":"startup"`)
	hook("BeforeAgent", `,"prompt":"please start the work"`)
	child := filepath.Join(filepath.Dir(path), sessionA, "helper.jsonl")
	appendLines(
		t, child,
		`{"sessionId":"helper","projectHash":"ab","startTime":"2026-01-05T10:00:05.000Z","kind":"subagent"}`,
		geminiLine("c1", "user", "a task", "06"),
	)

	appendLines(t, path, geminiLine("g1", "gemini", "I ask.", "02"))
	key := findKey(t, r, sessionA)
	running := func() string {
		s, _ := session.Ask(
			t.Context(), r.active(key), func(st *checkpoint.State) *checkpoint.State { return st.Clone() },
		)

		var list []string
		for _, c := range s.Children {
			list = append(list, fmt.Sprint(c.ID, " ", c.Running))
		}

		return strings.Join(list, ", ")
	}

	until(t, "the sub-agent is found", func() bool { return running() == "helper true" })
	key.Child = "helper"
	words := func() string {
		s, _ := session.Ask(
			t.Context(), r.active(key), func(st *checkpoint.State) *checkpoint.State { return st.Clone() },
		)

		if s.Parent != sessionA || len(s.Messages) == 0 {
			return ""
		}

		return s.Messages[0].Text
	}

	until(t, "its own file is read", func() bool { return r.l.sessions.Known(key) && words() == "a task" })
	appendLines(
		t, path,
		`{"id":"g1","timestamp":"2026-01-05T10:00:02.000Z","type":"gemini","content":"I ask.","toolCalls":[{"id":"x","name":"invoke_agent","args":{},"status":"success","agentId":"helper"}]}`,
	)

	key.Child = ""
	until(t, "its end is told", func() bool { return running() == "helper false" })
}

// TestQuietCompaction: no hook comes after the compaction; the brief for it goes out with the next prompt, once.
func TestQuietCompaction(t *testing.T) {
	home(t)
	r := start(t, tempDir(t))
	path, hook := geminiSession(t, r)
	hook("SessionStart", `,"source":"startup"`)
	hook("BeforeAgent", `,"prompt":"please start the work"`)
	hook("AfterAgent", `,"prompt":"please start the work","prompt_response":"done"`)
	until(t, "the file is read", func() bool { // before or after the first prompt's hook
		cursor, ok := session.Ask(
			t.Context(), r.active(findKey(t, r, sessionA)),
			func(st *checkpoint.State) checkpoint.Cursor { return st.Cursor },
		)
		return ok && cursor != ""
	})

	appendLines(
		t,
		path,
		`{"$set":{"messages":[`+geminiLine("s", "user", "<state_snapshot>all</state_snapshot>", "20")+","+
			geminiLine("t", "gemini", "Got it. Thanks for the additional context!", "20")+`]}}`,
	)

	until(t, "the boundary is in a FULL", func() bool { // its own, or that of the first sight
		in, _ := session.Ask(t.Context(), r.active(findKey(t, r, sessionA)), func(st *checkpoint.State) bool {
			return st.Boundary != 0 && st.OwedFull == "" && st.LastFull != nil
		})
		return in
	})

	if got := hook("BeforeAgent", `,"prompt":"go on"`); !strings.Contains(got, "please start the work") {
		t.Errorf("the next prompt carries %q, want the person's words from before the boundary", got)
	}
	if got := hook("BeforeAgent", `,"prompt":"and on"`); got != "" {
		t.Errorf("the prompt after it carries %q, want nothing", got)
	}
}
