package codex

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent"
)

func ofUser(home string) *Agent { return &Agent{home: home, plain: home} }

func decode(t testing.TB, event, payload string) agent.Incoming {
	t.Helper()
	in, err := ofUser(
		"/home/u/.codex",
	).Decode(
		t.Context(), agent.Hook{Event: event, Payload: []byte(payload), PID: 7, Cwd: "/home/u/proj"},
	)

	if err != nil {
		t.Fatalf("%s: %v", payload, err)
	}

	return in
}

// say is an event as a line, for tables.
func say(e checkpoint.Event) string {
	s := string(e.Kind)
	if e.Key.Child != "" {
		s += " of the child"
	}

	for _, f := range []struct{ name, value string }{
		{"source", e.Source}, {"reason", e.Reason}, {"outcome", string(e.Outcome)}, {"text", e.Text}, {"call", e.Call}, {"name", e.Name}, {"in", e.Input},
		{"out", e.Output}, {"child", e.ChildName}, {"parent", e.Parent},
	} {
		if f.value != "" {
			s += fmt.Sprintf(" %s=%q", f.name, f.value)
		}
	}

	return s
}

func sayAll(in agent.Incoming) string {
	var list []string
	for _, e := range in.Events {
		list = append(list, say(e))
	}
	return strings.Join(list, "\n")
}

// TestCapturedHooks: what each call that Codex 0.169 really made means.
func TestCapturedHooks(t *testing.T) {
	want := map[string]string{
		"SessionStart":     "start source=\"startup\"\nstart source=\"resume\"",
		"UserPromptSubmit": `prompt text="please start the work"`,
		"PreToolUse":       `tool-start call="call_lab000100" name="Bash" in="{\"command\":\"cat '/home/u/proj/notes.txt'\"}"`,
		"PostToolUse":      `tool-end call="call_lab000100" name="Bash" in="{\"command\":\"cat '/home/u/proj/notes.txt'\"}" out="first line of the notes\nsecond line\n"`,
		"Stop":             `stop text="Round one is done: notes read, out.txt written."`,
		"Interrupt":        `stop outcome="interrupted"`,
		"SessionEnd":       `end reason="other"`,
	}
	for name, want := range want {
		var calls []struct{ Stdin json.RawMessage }
		if err := json.Unmarshal(
			[]byte(read(t, filepath.Join("testdata", "hooks", name+".json"))), &calls,
		); err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, c := range calls {
			in := decode(t, name, string(c.Stdin))
			got = append(got, sayAll(in))
			e := in.Events[0]
			if !checkpoint.IsUUID(e.Key.Session) || e.Key.Account != "" || e.Workspace != "/home/u/proj" ||
				!strings.Contains(e.Transcript, e.Key.Session) {
				t.Errorf("%s: key %+v, workspace %q, transcript %q", name, e.Key, e.Workspace, e.Transcript)
			}
			if wants := name != "SessionStart" && name != "SessionEnd"; checkpoint.IsUUID(e.Turn) != wants {
				t.Errorf("%s: turn %q, want one: %v", name, e.Turn, wants)
			}

			ask := map[string]agent.Ask{"SessionStart": agent.AskStart, "UserPromptSubmit": agent.AskCarry}[name]
			if in.Ask != ask {
				t.Errorf("%s: asks %v, want %v", name, in.Ask, ask)
			}
		}

		if g := strings.Join(got, "\n"); g != want {
			t.Errorf("%s: got %s\nwant %s", name, g, want)
		}
	}
}

// TestHooksOf0171: five whole runs, with a compaction, a sub-agent and an interrupt.
func TestHooksOf0171(t *testing.T) {
	var got []string
	lines := bufio.NewScanner(strings.NewReader(read(t, filepath.Join("testdata", "hooks", "0.171-hook-stdin.jsonl"))))
	for lines.Scan() {
		in := decode(t, "", lines.Text())
		for _, e := range in.Events {
			e.Input, e.Output, e.Text, e.Parent = "", "", "", ""
			got = append(got, say(e))
		}

		if child := in.Events[0].Key.Child; child != "" && !strings.Contains(in.Events[0].Transcript, child) {
			t.Errorf("%s: transcript %q, want the child's", lines.Text(), in.Events[0].Transcript)
		}
	}

	const round = "tool-start call=%[1]q name=\"Bash\"|tool-start call=%[2]q name=\"Bash\"|tool-end call=%[2]q name=\"Bash\"|tool-end call=%[1]q name=\"Bash\"|"
	want := `start source="startup"|prompt|` + fmt.Sprintf(round, "call_1_0", "call_1_1") + `stop|end reason="other"|` +
		`start source="resume"|prompt|stop|end reason="other"|` +
		`start source="startup"|prompt|` + fmt.Sprintf(round, "call_5_0", "call_5_1") + `compacting reason="auto"|compacted reason="auto"|start source="compact"|stop|` +
		`start source="startup"|prompt|tool-start call="call_8_0" name="spawn_agent"|tool-end call="call_8_0" name="spawn_agent"|` +
		`child-start child="default"|start of the child child="default"|prompt of the child|tool-start call="call_9_0" name="multi_agent_v1wait_agent"|` +
		`child-end child="default"|end of the child child="default"|tool-end call="call_9_0" name="multi_agent_v1wait_agent"|stop|end reason="other"|` +
		`start source="startup"|prompt|stop outcome="interrupted"|end reason="other"`

	if g := strings.Join(got, "|"); !strings.HasSuffix(g, want) {
		t.Errorf("got %s\nwant %s", strings.ReplaceAll(g, "|", "\n"), strings.ReplaceAll(want, "|", "\n"))
	}
}

// TestSubAgents: both sessions are told, each with its own transcript.
func TestSubAgents(t *testing.T) {
	const common = `"session_id":"s","turn_id":"t","cwd":"/p","agent_id":"c","agent_type":"helper",`
	start := decode(t, "", `{`+common+`"hook_event_name":"SubagentStart","transcript_path":"/child"}`)
	stop := decode(
		t, "",
		`{`+common+`"hook_event_name":"SubagentStop","transcript_path":"/parent","agent_transcript_path":"/child","last_assistant_message":"done"}`,
	)

	for i, tt := range []struct {
		e                       checkpoint.Event
		child, about, file, say string
	}{
		{start.Events[0], "", "c", "", `child-start child="helper"`},
		{start.Events[1], "c", "", "/child", `start of the child child="helper" parent="s"`},
		{stop.Events[0], "", "c", "/parent", `child-end child="helper"`},
		{stop.Events[1], "c", "", "/child", `end of the child text="done" child="helper" parent="s"`},
	} {
		if tt.e.Key.Child != tt.child || tt.e.Child != tt.about || tt.e.Transcript != tt.file || say(tt.e) != tt.say {
			t.Errorf(
				"%d: got %s, key %+v, about %q, file %q; want %+v", i, say(tt.e), tt.e.Key, tt.e.Child,
				tt.e.Transcript, tt,
			)
		}
	}

	if in := decode(t, "", `{"session_id":"s","hook_event_name":"SubagentStop"}`); len(in.Events) > 0 {
		t.Errorf("a sub-agent without an id: got %s, want nothing", sayAll(in))
	}

	if in := decode(
		t, "", `{`+common+`"hook_event_name":"UserPromptSubmit","prompt":"x"}`,
	); in.Ask != agent.AskNothing {
		t.Errorf("a sub-agent asks for a brief: %v", in.Ask)
	}
}

// TestOddPayloads: what is there is used, whatever the rest is.
func TestOddPayloads(t *testing.T) {
	const p = `"session_id":"s","hook_event_name":`
	for _, tt := range []struct{ name, payload, want string }{
		{"other types", `{` + p + `"Stop","last_assistant_message":{"a":1},"cwd":7,"turn_id":[],"permission_mode":null}`, "stop"},
		{"no answer", `{` + p + `"Stop","last_assistant_message":null,"transcript_path":null}`, "stop"},
		{"name from the command line", `{"session_id":"s"}`, "stop"},
		{"payload's name wins", `{` + p + `"SessionEnd"}`, "end"},
		{"unknown event", `{` + p + `"PermissionRequest"}`, ""},
		{"byte order mark", "\ufeff{" + p + `"SessionEnd"}`, "end"},
		{"a patch", `{` + p + `"PreToolUse","tool_name":"apply_patch","tool_input":{"command":"*** Add File: a.go\n+x"},"tool_use_id":"c"}`,
			`tool-start call="c" name="apply_patch" in="{\"command\":\"*** Add File: a.go\\n+x\",\"path\":\"a.go\"}"`},
		{"a response of items", `{` + p + `"PostToolUse","tool_name":"mcp__x__y","tool_response":[{"type":"text","text":"hi"}]}`, `tool-end name="mcp__x__y" out="hi"`},
		{"our own brief in the prompt", `{` + p + `"UserPromptSubmit","prompt":"go <belay-record k=\"m\">old</belay-record k=\"m\"> on"}`, `prompt text="go  on"`},
		{"control characters", `{` + p + `"UserPromptSubmit","prompt":"a\u0000b\u001b[31m\r\n\tc\ud83d"}`, "prompt text=\"ab[31m\\n\\tc\ufffd\""},
		{"long ids are dropped", `{` + p + `"PreToolUse","tool_use_id":"` + strings.Repeat("x", 300) + `","tool_name":"T"}`, `tool-start name="T"`},
	} {
		if got := sayAll(decode(t, "Stop", tt.payload)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}

	for _, tt := range []struct {
		payload string
		cut     bool
		want    error
	}{
		{"", false, ErrBadPayload}, {"", true, ErrBadPayload}, {"null", false, ErrBadPayload}, {"[1]", true, ErrBadPayload},
		{`{"hook_event_name":"Stop"}`, false, ErrNoSession}, {`{"hook_event_name":"Stop","session_id":5}`, false, ErrNoSession},
	} {
		in, err := ofUser("/h").Decode(t.Context(), agent.Hook{Event: "Stop", Payload: []byte(tt.payload), Cut: tt.cut})
		if !errors.Is(err, tt.want) || len(in.Events) > 0 {
			t.Errorf("%q: got %s, %v, want %v", tt.payload, sayAll(in), err, tt.want)
		}
	}

	in, err := ofUser(
		"/h",
	).Decode(
		t.Context(),
		agent.Hook{
			Cut:     true,
			Payload: []byte(`{"session_id":"s","hook_event_name":"Stop","last_assistant_message":"one two thr`),
		},
	)

	if got := sayAll(in); err != nil || got != `stop text="one two"` {
		t.Errorf("cut payload: got %s, %v, want what stood whole", got, err)
	}
}

// TestFailedCommands: the payload does not say how a command ended; the rollout, which has it by then, does.
func TestFailedCommands(t *testing.T) {
	end := func(call, status string, code int) string {
		return event(
			fmt.Sprintf(
				`{"type":"item_completed","item":{"type":"CommandExecution","id":%q,"status":%q,"exit_code":%d}}`,
				call, status, code,
			),
		)
	}

	path := filepath.Join(t.TempDir(), nameOf(threadOne))
	write(
		t,
		path,
		meta(
			threadOne, "/p",
		)+end(
			"bad", "failed", 3,
		)+end(
			"good", "completed", 0,
		)+end(
			"odd", "completed", 1,
		)+rec(
			"world_state", `{}`,
		),
	)

	for call, want := range map[string]bool{"bad": true, "good": false, "odd": true, "unknown": false, "": false} {
		in := decode(
			t,
			"",
			fmt.Sprintf(
				`{"session_id":"s","hook_event_name":"PostToolUse","transcript_path":%q,"tool_use_id":%q}`,
				path, call,
			),
		)
		if got := in.Events[0].Failed; got != want {
			t.Errorf("%q: failed %v, want %v", call, got, want)
		}
	}

	for _, path := range []string{"/dev/null", "/", "/none", "relative"} {
		in := decode(
			t,
			"",
			fmt.Sprintf(
				`{"session_id":"s","hook_event_name":"PostToolUse","transcript_path":%q,"tool_use_id":"c"}`,
				path,
			),
		)
		if in.Events[0].Failed {
			t.Errorf("%s: a command failed that nobody knows", path)
		}
	}
}

// TestAccount tells the sessions of several homes apart.
func TestAccount(t *testing.T) {
	for path, want := range map[string]string{
		"/home/u/.codex/" + nameOf(threadOne): "", "/srv/codex/" + nameOf(threadOne): "/srv/codex", "": "", "relative/" + nameOf(threadOne): "", "/x.jsonl": "",
	} {
		if got := ofUser("/home/u/.codex").account(path); got != want {
			t.Errorf("%s: got account %q, want %q", path, got, want)
		}
	}
}

func TestReply(t *testing.T) {
	a := New(agent.Host{})
	for _, event := range []string{"SessionStart", "UserPromptSubmit"} {
		want := `{"hookSpecificOutput":{"hookEventName":"` + event + `","additionalContext":"a <b>\n\"c\""}}`
		if got := string(a.Reply(event, "a <b>\n\"c\"")); got != want {
			t.Errorf("%s: got %s, want %s", event, got, want)
		}
	}

	for _, event := range []string{"Stop", "SessionEnd", "SubagentStart", ""} {
		if got := a.Reply(event, "text"); got != nil {
			t.Errorf("%s: got %s, want nothing: it would be an error", event, got)
		}
	}

	if got := a.Reply("SessionStart", ""); got != nil {
		t.Errorf("no text: got %s, want nothing", got)
	}
}

// TestWhatIsTold: limits and events as they were seen.
func TestWhatIsTold(t *testing.T) {
	a := New(agent.Host{})
	if l := a.Limits(); l.BriefBytes != 9000 || !l.LateText || l.Repairs || l.QuietCompaction {
		t.Errorf("limits %+v", l)
	}

	waits := ""
	for _, e := range a.Events() {
		if e.Waits {
			waits += e.Name + " "
		}
	}

	for _, e := range hookEvents() {
		if short := e.Name == "SessionEnd" || e.Name == "Interrupt"; short != (e.Budget == time.Second) {
			t.Errorf("%s: budget %v", e.Name, e.Budget)
		}
	}

	if waits != "SessionStart " {
		t.Errorf("events that wait: %s", waits)
	}
	if got := a.ResumeCommand("a b"); got != "codex resume 'a b'" {
		t.Errorf("resume command: %s", got)
	}
}

func FuzzDecode(f *testing.F) {
	for _, l := range bytes.Split([]byte(read(f, filepath.Join("testdata", "hooks", "0.171-hook-stdin.jsonl"))), []byte("\n")) {
		f.Add(l, false)
	}

	f.Add([]byte(`{"session_id":"s","hook_event_name":"PreToolUse","tool_input":{"command":"x`), true)
	f.Fuzz(func(t *testing.T, payload []byte, cut bool) {
		in, err := ofUser("/h").Decode(t.Context(), agent.Hook{Event: "Stop", Payload: payload, Cut: cut})
		if err != nil && len(in.Events) > 0 {
			t.Errorf("events and an error: %v", err)
		}

		for _, e := range in.Events {
			if len(e.Text) > checkpoint.CutText || len(e.Output) > checkpoint.CutTool ||
				len(e.Input) > checkpoint.CutTool {
				t.Errorf("%s is too large", say(e))
			}
			for _, s := range []string{
				e.Text, e.Input, e.Output, e.Name, e.ChildName, e.Model, e.Mode, e.Source, e.Reason,
			} {
				if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
					t.Errorf("not fit to keep: %q", s)
				}
			}
		}
	})
}
