package gemini

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
)

// decode gives the one event of a payload.
func decode(t *testing.T, a *Agent, payload string) (checkpoint.Event, agent.Ask) {
	t.Helper()
	in, err := a.Decode(t.Context(), agent.Hook{Payload: []byte(payload), Cwd: "/proj"})
	if err != nil || len(in.Events) != 1 {
		t.Fatalf("%s: got %d events, %v, want one", payload, len(in.Events), err)
	}
	return in.Events[0], in.Ask
}

// TestCapturedHooks: every call that the real program made means what it says, and hooks and transcript of one session
// tell of the same calls, prompts and last words.
func TestCapturedHooks(t *testing.T) {
	file, err := os.Open("testdata/hooks/0.61-hook-stdin.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	defer file.Close()
	transcript := filepath.Join(t.TempDir(), "session-2026-11-30T15-23-e427d0ca.jsonl")
	data, err := os.ReadFile("testdata/transcripts/0.61-tools-then-resume.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	put(t, transcript, string(data))
	a := &Agent{}
	got := map[checkpoint.EventKind][]string{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p map[string]any
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}

		p["transcript_path"] = transcript
		payload, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}

		in, err := a.Decode(t.Context(), agent.Hook{Payload: payload})
		if err != nil {
			t.Fatalf("%s: %v", payload, err)
		}

		for _, e := range in.Events {
			got[e.Kind] = append(got[e.Kind], e.Call+e.Text+e.Source+e.Reason)
		}
	}

	want := map[checkpoint.EventKind][]string{}
	prompts, answers := []string{}, []string{}
	for _, e := range readAll(t, open(transcript), "", checkpoint.ReadOptions{}).Entries {
		switch e.Kind {
		case checkpoint.EntryCall:
			want[checkpoint.EventToolStart] = append(want[checkpoint.EventToolStart], e.Call)
		case checkpoint.EntryResult:
			want[checkpoint.EventToolEnd] = append(want[checkpoint.EventToolEnd], e.Call)
		case checkpoint.EntryUser:
			prompts = append(prompts, e.Text)
		case checkpoint.EntryAssistant:
			answers = append(answers, e.Text)
		}
	}

	want[checkpoint.EventStart], want[checkpoint.EventEnd] = []string{"startup"}, []string{"exit"}
	want[checkpoint.EventPrompt], want[checkpoint.EventStop] = prompts[:1], answers[1:2]
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}

// TestHookCases: the other captured calls are understood too.
func TestHookCases(t *testing.T) {
	for _, event := range []string{
		"SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "PreCompress", "SessionEnd",
	} {
		data, err := os.ReadFile("testdata/hooks/" + event + ".json")
		if err != nil {
			t.Fatal(err)
		}

		var cases []struct{ Stdin json.RawMessage }
		if err := json.Unmarshal(data, &cases); err != nil {
			t.Fatal(err)
		}

		for _, c := range cases {
			in, err := (&Agent{plain: "/home/u/.gemini"}).Decode(t.Context(), agent.Hook{Payload: c.Stdin})
			n := 1
			if event == "PreCompress" {
				n = 0 // trigger auto: it comes before every call of the model
			}
			if err != nil || len(in.Events) != n {
				t.Fatalf("%s: got %d events, %v, want %d", event, len(in.Events), err, n)
			}

			for _, e := range in.Events {
				if e.Key.Session == "" || e.Key.Account != "" || e.Workspace != "/home/u/proj" ||
					!strings.HasPrefix(e.Transcript, "/home/u/.gemini/tmp/proj/chats/") {
					t.Errorf("%s: got %+v, want session, workspace and transcript, and no account", event, e)
				}
			}
		}
	}
}

func TestMeaning(t *testing.T) {
	const front = `{"session_id":"6a41a4ea-0f75-405d-b062-dcdd2e993c6d","cwd":"/proj","timestamp":"2026-01-05T10:00:00.000Z",`
	tests := []struct {
		payload string
		want    checkpoint.Event
		ask     agent.Ask
	}{
		{
			`"hook_event_name":"SessionStart","source":"resume"}`,
			checkpoint.Event{Kind: checkpoint.EventStart, Source: "resume"},
			agent.AskStart,
		},
		{
			`"hook_event_name":"BeforeAgent","prompt":"<hook_context>x &lt;/hook_context&gt;</hook_context>\n\nplease go on"}`,
			checkpoint.Event{Kind: checkpoint.EventPrompt, Text: "please go on"},
			agent.AskCarry,
		},
		{
			`"hook_event_name":"BeforeAgent","prompt":"/deploy now"}`,
			checkpoint.Event{Kind: checkpoint.EventPrompt, Text: "/deploy now", Aside: true},
			agent.AskCarry,
		},
		{
			`"hook_event_name":"BeforeAgent","prompt":"look at @a\n--- Content from referenced files ---\nlots"}`,
			checkpoint.Event{Kind: checkpoint.EventPrompt, Text: "look at @a"},
			agent.AskCarry,
		},
		{
			`"hook_event_name":"AfterAgent","prompt":"p","prompt_response":" two \nwords "}`,
			checkpoint.Event{Kind: checkpoint.EventStop, Text: "two \nwords"},
			agent.AskNothing,
		},
		{
			`"hook_event_name":"AfterAgent","prompt_response":"[no response text]"}`,
			checkpoint.Event{Kind: checkpoint.EventStop},
			agent.AskNothing,
		},
		{
			`"hook_event_name":"PreCompress","trigger":"manual"}`,
			checkpoint.Event{Kind: checkpoint.EventCompacting, Reason: "manual"},
			agent.AskNothing,
		},
		{
			`"hook_event_name":"SessionEnd","reason":"exit"}`,
			checkpoint.Event{Kind: checkpoint.EventEnd, Reason: "exit"},
			agent.AskNothing,
		},
	}

	for _, tt := range tests {
		got, ask := decode(t, &Agent{}, front+tt.payload)
		tt.want.Key, tt.want.Workspace = checkpoint.NewKey(
			"gemini", "", "6a41a4ea-0f75-405d-b062-dcdd2e993c6d", "/proj",
		), "/proj"

		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", tt.want); g != w || ask != tt.ask {
			t.Errorf("%s: got %s %v, want %s %v", tt.payload, g, ask, w, tt.ask)
		}
	}

	for _, tt := range []struct {
		payload string
		cut     bool
		want    error
		events  int
	}{
		{`{"hook_event_name":"BeforeAgent","prompt":"x"}`, false, ErrNoSession, 0},
		{`{"hook_event_name":"AfterModel","session_id":"s"}`, false, nil, 0},
		{`{"hook_event_name":"PreCompress","trigger":"auto","session_id":"s"}`, false, nil, 0},
		{`null`, false, ErrBadPayload, 0},
		{`{"hook_event_name":"AfterTool","session_id":"s","tool_name":"x","tool_response":{"llmContent":"lo`, false, ErrBadPayload, 0},
		{`{"hook_event_name":"AfterTool","session_id":"s","tool_name":"x","tool_response":{"llmContent":"lo`, true, nil, 1},
	} {
		in, err := (&Agent{}).Decode(t.Context(), agent.Hook{Payload: []byte(tt.payload), Cut: tt.cut})
		if !errors.Is(err, tt.want) || len(in.Events) != tt.events {
			t.Errorf("%s: got %d events, %v, want %d, %v", tt.payload, len(in.Events), err, tt.events, tt.want)
		}
	}
}

// tool is a payload of a tool event.
func tool(event, path, at, name, input string) string {
	return fmt.Sprintf(
		`{"hook_event_name":%q,"session_id":"s","transcript_path":%q,"timestamp":"2026-01-05T10:00:%s.000Z","tool_name":%q,"tool_input":%s,"tool_response":{"llmContent":"out"}}`,
		event, path, at, name, input,
	)
}

// TestCallIDs: a call has one id, whoever tells of it, whichever order calls end in, and however often a hook comes.
func TestCallIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.jsonl")
	call := func(command, rest string) string {
		return `{"name":"run_shell_command","args":{"command":"` + command + `","wait_for_previous":true},"status":"success"` + rest + `}`
	}
	asked := `{"id":"g1","timestamp":"2026-01-05T10:00:05.000Z","type":"gemini","content":"I run."`
	put(t, path, head+said("m1", "user", "go")+"\n"+asked+"}\n")
	a := &Agent{}
	id := func(payload string) string {
		e, _ := decode(t, a, payload)
		return e.Call
	}

	ls, ls2 := `{"command":"ls"}`, `{"command":"ls","wait_for_previous":false}`
	one := id(tool("BeforeTool", path, "06", "run_shell_command", ls))
	two := id(tool("BeforeTool", path, "07", "run_shell_command", ls2))
	other := id(tool("BeforeTool", path, "07", "run_shell_command", `{"command":"make"}`))
	if again := id(
		tool("BeforeTool", path, "06", "run_shell_command", ls),
	); again != one || one == two || two == other ||
		one == other {
		t.Errorf("starts: got %q, %q, %q and %q for the first again", one, two, other, again)
	}

	if got := id(tool("AfterTool", path, "08", "run_shell_command", `{"command":"make"}`)); got != other {
		t.Errorf("the other ends first: got %q, want %q", got, other)
	}

	if got, again := id(
		tool("AfterTool", path, "09", "run_shell_command", ls),
	), id(
		tool("AfterTool", path, "09", "run_shell_command", ls),
	); got != one ||
		again != one {
		t.Errorf("the first of two equal ones: got %q, and again %q, want %q", got, again, one)
	}

	if got := id(tool("AfterTool", path, "10", "run_shell_command", ls)); got != two {
		t.Errorf("the second of two equal ones: got %q, want %q", got, two)
	}

	a = &Agent{} // the daemon is another one now
	if got := id(tool("AfterTool", path, "08", "run_shell_command", `{"command":"make"}`)); got != other {
		t.Errorf("after a restart: got %q, want %q", got, other)
	}

	more(
		t,
		path,
		asked+`,"toolCalls":[`+call(
			"ls", "",
		)+","+call(
			"ls", "",
		)+","+call(
			"make", "",
		)+"]}\n"+said(
			"m2", "user", "and again",
		)+"\n"+
			`{"id":"g2","timestamp":"2026-01-05T10:00:20.000Z","type":"gemini","content":"Again."}`+"\n",
	)

	var file []string
	for _, e := range readAll(t, open(path), "", checkpoint.ReadOptions{}).Entries {
		if e.Kind == checkpoint.EntryCall {
			file = append(file, e.Call)
		}
	}

	if got, want := fmt.Sprint(file), fmt.Sprint([]string{one, two, other}); got != want {
		t.Errorf("the transcript: got %s, want %s", got, want)
	}
	if got := id(tool("AfterTool", path, "08", "run_shell_command", `{"command":"make"}`)); got != other {
		t.Errorf("a late hook: got %q, want %q", got, other)
	}
	if got := id(tool("BeforeTool", path, "21", "run_shell_command", ls)); got == one || got == two {
		t.Errorf("the same command in a later turn: got %q, want another id", got)
	}
}

// TestCallIDsWithoutTranscript: hooks alone are enough.
func TestCallIDsWithoutTranscript(t *testing.T) {
	a := &Agent{}
	absent := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.jsonl")
	start, _ := decode(t, a, tool("BeforeTool", absent, "06", "read_file", `{"b":1,"a":2}`))
	next, _ := decode(t, a, tool("BeforeTool", absent, "07", "read_file", `{"a":2,"b":1}`))
	end, _ := decode(t, a, tool("AfterTool", absent, "08", "read_file", `{"a":2,"b":1}`))
	if start.Call == "" || start.Call == next.Call || end.Call != start.Call {
		t.Errorf("got %q, %q, and %q for the end of the first", start.Call, next.Call, end.Call)
	}

	// A call that died with its process is not what a call of the next turn ends.
	if _, ask := decode(
		t, a, `{"hook_event_name":"BeforeAgent","session_id":"s","prompt":"go on"}`,
	); ask != agent.AskCarry {
		t.Fatal("BeforeAgent asks for nothing")
	}

	again, _ := decode(t, a, tool("BeforeTool", absent, "20", "read_file", `{"a":2,"b":1}`))
	if done, _ := decode(
		t, a, tool("AfterTool", absent, "21", "read_file", `{"a":2,"b":1}`),
	); done.Call != again.Call ||
		done.Call == next.Call {
		t.Errorf("got %q, want the end of %q", done.Call, again.Call)
	}
}

func TestToolOutcome(t *testing.T) {
	const front = `{"hook_event_name":"AfterTool","session_id":"s","tool_name":"run_shell_command","tool_input":{"command":"x"},"tool_response":`
	for _, tt := range []struct {
		response, output string
		failed           bool
	}{
		{`{"llmContent":"<untrusted_context>\nOutput: a\nProcess Group PGID: 9\n</untrusted_context>","returnDisplay":"a"}`, "<untrusted_context>\nOutput: a\nProcess Group PGID: 9\n</untrusted_context>", false},
		{`{"llmContent":"Output: a\nExit Code: 3\nProcess Group PGID: 9","returnDisplay":"a"}`, "Output: a\nExit Code: 3\nProcess Group PGID: 9", true},
		{`{"llmContent":"<untrusted_context>\nCommand was cancelled by user before it could complete. There was no output before it was cancelled.\n</untrusted_context>"}`,
			"<untrusted_context>\nCommand was cancelled by user before it could complete. There was no output before it was cancelled.\n</untrusted_context>", true},
		{`{"llmContent":"","returnDisplay":{"fileDiff":"+a"}}`, `{"fileDiff":"+a"}`, false},
		{`{"error":{"message":"no such file"}}`, `{"message":"no such file"}`, true},
		{`"words"`, "words", false},
		{`7`, "7", false},
	} {
		e, _ := decode(t, &Agent{}, front+tt.response+"}")
		if e.Output != tt.output || e.Failed != tt.failed {
			t.Errorf("%s: got %q, failed %v, want %q, %v", tt.response, e.Output, e.Failed, tt.output, tt.failed)
		}
	}
}

// TestBrokenOffInTerminal: the calls of a turn that Esc ended stand in a message of their own; they are those that
// hooks told of. A command that goes on in the background is neither done nor failed.
func TestBrokenOffInTerminal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.jsonl")
	asked := `{"id":"g1","timestamp":"2026-01-05T10:00:05.000Z","type":"gemini","content":"I run."}` + "\n"
	put(t, path, head+said("m1", "user", "go")+"\n"+asked)
	start, _ := decode(t, &Agent{}, tool("BeforeTool", path, "06", "run_shell_command", `{"command":"make"}`))
	cut := readAll(t, open(path), "", checkpoint.ReadOptions{}).Cursor
	noted := said("i1", "info", "Request cancelled.") + "\n"
	more(t, path, noted)
	calls := `{"id":"g2","timestamp":"2026-01-05T10:00:07.000Z","type":"gemini","content":"","toolCalls":[{"id":"c","name":"run_shell_command","args":{"command":"make"},"status":"cancelled"}]}` + "\n"
	for _, from := range []checkpoint.Cursor{"", cut, readAll(t, open(path), cut, checkpoint.ReadOptions{}).Cursor} {
		put(
			t,
			path,
			head+said(
				"m1", "user", "go",
			)+"\n"+asked+noted+calls+batch(
				said("m1", "user", "go"), strings.TrimSpace(calls),
			)+"\n",
		)

		var got []string
		for _, e := range readAll(t, open(path), from, checkpoint.ReadOptions{}).Entries {
			if e.Kind == checkpoint.EntryCall {
				got = append(got, e.Call)
			}
		}

		if fmt.Sprint(got) != fmt.Sprint([]string{start.Call}) {
			t.Errorf("from %q: got %q, want %q once", from, got, start.Call)
		}
	}

	e, _ := decode(
		t, &Agent{},
		`{"hook_event_name":"AfterTool","session_id":"s","tool_name":"run_shell_command","tool_response":{"llmContent":"Command moved to background (PID: 7). Output hidden."}}`,
	)

	if !e.Background || e.Failed {
		t.Errorf("got background %v, failed %v, want a command that goes on", e.Background, e.Failed)
	}
}

// TestSecretsInHooks: what is kept of input and output holds none.
func TestSecretsInHooks(t *testing.T) {
	const secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for _, payload := range []string{
		`{"hook_event_name":"BeforeTool","session_id":"s","tool_name":"x","tool_input":{"header":"Authorization: Bearer ` + secret + `"}}`,
		`{"hook_event_name":"AfterTool","session_id":"s","tool_name":"x","tool_response":{"llmContent":"token ` + secret + `"}}`,
		`{"hook_event_name":"BeforeAgent","session_id":"s","prompt":"use ` + secret + `"}`,
	} {
		e, _ := decode(t, &Agent{}, payload)
		if data, err := json.Marshal(e); err != nil || bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s: got %s, %v, want no secret", payload, data, err)
		}
	}
}

func TestReply(t *testing.T) {
	a := New(agent.Host{})
	for _, tt := range []struct{ event, text, want string }{
		{"SessionStart", "", ""},
		{"BeforeAgent", "", ""},
		{"AfterAgent", "text", ""},
		{"SessionStart", "a \"<b>\"", `{"hookSpecificOutput":{"hookEventName":"SessionStart","additionalContext":"a \"<b>\""}}`},
		{"BeforeAgent", "x", `{"hookSpecificOutput":{"hookEventName":"BeforeAgent","additionalContext":"x"}}`},
	} {
		if got := string(a.Reply(tt.event, tt.text)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.event, got, tt.want)
		}
	}
}

func TestAccount(t *testing.T) {
	a := &Agent{plain: "/home/u/.gemini"}
	for path, want := range map[string]string{
		"": "", "relative/x": "",
		"/home/u/.gemini/tmp/p/chats/session-x-aaaaaaaa.jsonl": "",
		"/home/u/.gemini/tmp/p/chats/parent/child.jsonl":       "",
		"/other/.gemini/tmp/p/chats/session-x-aaaaaaaa.jsonl":  "/other/.gemini",
		"/elsewhere/session-x-aaaaaaaa.jsonl":                  "",
	} {
		if got := a.account(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(tool("BeforeTool", "/x.jsonl", "06", "read_file", `{"a":2}`)), true)
	f.Add([]byte(`{"hook_event_name":"AfterAgent","session_id":"s","prompt_response":"x"}`), false)
	f.Fuzz(func(t *testing.T, payload []byte, cut bool) {
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: "BeforeTool", Payload: payload, Cut: cut})
		if err != nil && len(in.Events) > 0 {
			t.Errorf("%v and %d events", err, len(in.Events))
		}

		for _, e := range in.Events {
			if e.Key.Session == "" || len(e.Input) > checkpoint.CutTool ||
				strings.ToValidUTF8(e.Text+e.Input+e.Output+e.Name, "") != e.Text+e.Input+e.Output+e.Name {
				t.Errorf("event is not fit to keep: %+v", e)
			}
		}
	})
}

func BenchmarkTailOfALargeTranscript(b *testing.B) {
	path := filepath.Join(b.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.jsonl")
	line := said("m", "user", strings.Repeat("words ", 1000)) + "\n"
	put(
		b, path,
		head+strings.Repeat(line, 10_000)+said("g", "gemini", "answer")+"\n"+`{"$set":{"lastUpdated":"x"}}`+"\n",
	)

	for b.Loop() {
		if newestAnswer(path, time.Time{}).ID != "g" {
			b.Fatal("the answer is not found")
		}
	}
}
