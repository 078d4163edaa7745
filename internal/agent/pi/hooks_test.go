package pi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
)

const testSession = "01a22cfe-40bf-7693-af7c-0149fbf06f2c"

// decode gives what an event means; body is what the extension sends beside the session.
func decode(t *testing.T, event, body string) agent.Incoming {
	t.Helper()
	payload := `{"session_id":"` + testSession + `","session_file":"/s/1_` + testSession + `.jsonl","cwd":"/no/such/work","model":"m"` + body + `}`
	in, err := Pi(agent.Host{}).Decode(t.Context(), agent.Hook{Event: event, Payload: []byte(payload), PID: 7})
	if err != nil {
		t.Fatalf("%s %s: %v", event, body, err)
	}
	return in
}

// line is an event in one line: what a reader of the table below needs to see.
func line(e checkpoint.Event) string {
	var b strings.Builder
	b.WriteString(string(e.Kind))
	for _, f := range []struct{ name, value string }{
		{"source", e.Source}, {"reason", e.Reason}, {"outcome", string(e.Outcome)}, {"call", e.Call}, {"name", e.Name},
		{"input", e.Input}, {"output", e.Output}, {"text", e.Text},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, " %s=%s", f.name, f.value)
		}
	}

	if e.Failed {
		b.WriteString(" failed")
	}
	if e.Aside {
		b.WriteString(" aside")
	}
	if e.Count != 0 {
		fmt.Fprintf(&b, " count=%d", e.Count)
	}

	return b.String()
}

func TestEventsMean(t *testing.T) {
	answer := func(stop string) string {
		return `,"message":{"role":"assistant","stopReason":"` + stop + `","errorMessage":"529 busy","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"All"},{"type":"text","text":"done."}]}`
	}
	for _, tt := range []struct{ event, body, want string }{
		{"session_start", `,"reason":"startup","has_words":false`, "start source=startup; owed"},
		{"session_start", `,"reason":"startup","has_words":true`, "start source=resume; owed"},
		{"session_start", `,"has_words":false`, "start source=startup; owed"},
		{"session_start", `,"reason":"new"`, "start source=clear"},
		{"session_start", `,"reason":"reload","has_words":true`, "start source=resume"},
		{"session_start", `,"reason":"resume","has_words":true`, "start source=resume; owed"},
		{"session_start", `,"reason":"fork","has_words":true`, "start source=fork; owed"},
		{"before_agent_start", `,"prompt":" please start\n","images":0,"custom":false`, "prompt text=please start"},
		{"before_agent_start", `,"prompt":"look","images":2`, "prompt text=look\n[image]\n[image]"},
		{"before_agent_start", `,"prompt":[{"type":"text","text":"a notice"}],"custom":true`, "prompt text=a notice aside"},
		{"before_agent_start", `,"prompt":"go on <belay-record k=\"x\">\nold words\n</belay-record k=\"x\"> now"`, "prompt text=go on  now"},
		{"tool_execution_start", `,"toolCallId":"c1","toolName":"bash","args":{"command":"ls"}`, `tool-start call=c1 name=bash input={"command":"ls"}`},
		{"tool_execution_start", `,"toolCallId":"c1","toolName":"write","args":"huge ... text"`, `tool-start call=c1 name=write input=huge ... text`},
		{"tool_execution_start", `,"toolCallId":"c1","toolName":"odd"`, `tool-start call=c1 name=odd`},
		{"tool_execution_end", `,"toolCallId":"c1","toolName":"bash","isError":false,"result":{"content":[{"type":"text","text":"a"},{"type":"image"}]}`, "tool-end call=c1 name=bash output=a\n[image]"},
		{"tool_execution_end", `,"toolCallId":"c1","toolName":"bash","isError":true,"result":{"content":[{"type":"text","text":"no"}]}`, "tool-end call=c1 name=bash output=no failed"},
		{"agent_end", answer("stop"), "stop text=All\ndone."},
		{"agent_end", answer("error"), "stop reason=529 busy outcome=failed"},
		{"agent_end", answer("aborted"), "stop outcome=interrupted"},
		{"agent_settled", answer("stop") + `,"aborted":false`, "stop text=All\ndone."},
		{"agent_settled", `,"aborted":true`, "stop outcome=interrupted"},
		{"session_before_compact", `,"reason":"threshold"`, "compacting reason=threshold"},
		{"session_compact", `,"reason":"manual","summary":"what was"`, "compacted reason=manual text=what was"},
		{"session_shutdown", `,"reason":"quit"`, "end reason=quit"},
		{"session_shutdown", `,"reason":"new"`, "end reason=clear"},
		{"session_shutdown", `,"reason":"reload"`, ""},
		{"dropped", `,"count":12`, "dropped count=12"},
	} {
		in := decode(t, tt.event, tt.body)
		var got []string
		for _, e := range in.Events {
			got = append(got, line(e))
			if e.Key != (checkpoint.Key{Agent: "pi", Session: testSession}) {
				t.Errorf("%s: got key %+v, want pi's with the session alone", tt.event, e.Key)
			}
			if e.Kind != checkpoint.EventOwed &&
				(e.Workspace != "/no/such/work" || e.Transcript != "/s/1_"+testSession+".jsonl" || e.Model != "m") {
				t.Errorf("%s: got workspace %q, transcript %q, model %q", tt.event, e.Workspace, e.Transcript, e.Model)
			}
		}

		if s := strings.Join(got, "; "); s != tt.want {
			t.Errorf("%s%s:\ngot  %q\nwant %q", tt.event, tt.body, s, tt.want)
		}
		if carries := in.Ask == agent.AskCarry; carries != (tt.event == "before_agent_start") {
			t.Errorf("%s: got ask %v", tt.event, in.Ask)
		}
	}
}

func TestEventsThatMeanNothing(t *testing.T) {
	for _, tt := range []struct {
		event, payload string
		want           error
	}{
		{"wake", "", nil},
		{"tool_call", "{}", nil},
		{"session_start", "", ErrBadPayload},
		{"session_start", "null", ErrBadPayload},
		{"session_start", "[]", ErrBadPayload},
		{"session_start", `{"session_id":7}`, ErrNoSession},
		{"agent_end", `{"session_id":"` + strings.Repeat("x", maxID+1) + `"}`, ErrNoSession},
	} {
		in, err := Pi(agent.Host{}).Decode(t.Context(), agent.Hook{Event: tt.event, Payload: []byte(tt.payload)})
		if !errors.Is(err, tt.want) || len(in.Events) != 0 {
			t.Errorf(
				"%s %q: got %d events and %v, want none and %v", tt.event, tt.payload, len(in.Events), err,
				tt.want,
			)
		}
	}
}

func TestSessionNamedByAPerson(t *testing.T) {
	dir := t.TempDir()
	in, err := Pi(
		agent.Host{},
	).Decode(
		t.Context(),
		agent.Hook{Event: "session_start", Payload: []byte(`{"session_id":"mine","cwd":"` + dir + `"}`)},
	)

	if err != nil || in.Events[0].Key.Workspace != payload.RealPath(dir) {
		t.Errorf("got %+v, %v, want a key with the folder: the name may be used twice", in.Events, err)
	}
}

func TestSecretsStayOut(t *testing.T) {
	const secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	for _, tt := range []struct{ event, body string }{
		{"before_agent_start", `,"prompt":"use ` + secret + `"`},
		{"tool_execution_start", `,"toolCallId":"c","toolName":"bash","args":{"command":"curl -H 'Authorization: Bearer ` + secret + `'"}`},
		{"tool_execution_end", `,"toolCallId":"c","result":{"content":[{"type":"text","text":"token ` + secret + `"}]}`},
		{"agent_end", `,"message":{"role":"assistant","stopReason":"stop","content":[{"type":"text","text":"` + secret + `"}]}`},
		{"agent_end", `,"message":{"role":"assistant","stopReason":"error","errorMessage":"` + secret + `"}`},
		{"session_compact", `,"summary":"` + secret + `"`},
	} {
		for _, e := range decode(t, tt.event, tt.body).Events {
			if strings.Contains(fmt.Sprintf("%+v", e), "ghp_abc") {
				t.Errorf("%s: the secret is in %+v", tt.event, e)
			}
		}
	}
}

// TestEventsAndFileAreOneConversation: a captured session, told once by its file and once by its events, gives the same
// prompt, call and last words, so that nothing counts twice.
func TestEventsAndFileAreOneConversation(t *testing.T) {
	b := whole(t, "testdata/pi/normal.final.jsonl", true)
	s := checkpoint.NewState(checkpoint.NewKey("pi", "", testSession, ""))
	n := 0
	apply := func(e checkpoint.Event) {
		n++
		e.Seq, e.At = uint64(n), time.Unix(1700000000+int64(n), 0)
		s.Apply(e)
	}

	for _, in := range []agent.Incoming{
		decode(t, "session_start", `,"reason":"startup"`),
		decode(t, "before_agent_start", `,"prompt":"please start the work"`),
		decode(t, "tool_execution_start", `,"toolCallId":"call_lab000200","toolName":"bash","args":{"command":"echo hello-from-tool && ls"}`),
		decode(t, "tool_execution_end", `,"toolCallId":"call_lab000200","toolName":"bash","result":{"content":[{"type":"text","text":"hello"}]}`),
		decode(t, "agent_end", `,"message":{"role":"assistant","stopReason":"stop","content":[{"type":"text","text":"Round one is done: notes read, out.txt written."}]}`),
	} {
		for _, e := range in.Events {
			apply(e)
		}
	}

	if s.Rounds != 1 {
		t.Fatalf("got %d rounds from the events, want 1", s.Rounds)
	}

	var first []checkpoint.Entry // the file's first round
	for _, e := range b.Entries {
		first = append(first, e)
		if e.Kind == checkpoint.EntryTurnEnd {
			break
		}
	}

	apply(checkpoint.Event{Kind: checkpoint.EventEntries, Entries: first})
	if s.Rounds != 1 {
		t.Errorf("got %d rounds after the file told the same, want 1", s.Rounds)
	}
	if got := countText(s, "please start the work"); got != 1 {
		t.Errorf("the prompt is there %d times, want once", got)
	}
	if got := countText(s, "Round one is done: notes read, out.txt written."); got != 1 {
		t.Errorf("the last answer is there %d times, want once", got)
	}
}

func countText(s *checkpoint.State, text string) int {
	n := 0
	for _, m := range s.Messages {
		if m.Text == text {
			n++
		}
	}
	return n
}

func FuzzDecode(f *testing.F) {
	for _, e := range Pi(agent.Host{}).Events() {
		f.Add(
			e.Name,
			[]byte(
				`{"session_id":"s","cwd":"/","reason":"x","prompt":["a",{"type":"text"}],"images":1e99,"toolCallId":"c","args":[1],"result":{"content":{}},"message":{"content":"\ud83d"},"count":-1}`,
			),
		)
	}

	f.Add("dropped", []byte(`{"session_id":"s","count":1e300}`))
	f.Fuzz(func(t *testing.T, event string, payload []byte) {
		in, err := Pi(agent.Host{}).Decode(t.Context(), agent.Hook{Event: event, Payload: payload})
		if err != nil && len(in.Events) > 0 {
			t.Errorf("%d events and %v", len(in.Events), err)
		}

		for _, e := range in.Events {
			for _, s := range []string{e.Text, e.Input, e.Output, e.Reason, e.Name, e.Call, e.Source} {
				if !utf8.ValidString(s) || len(s) > checkpoint.CutText {
					t.Errorf("%s: %q is no text that can be kept", event, s)
				}
			}

			if e.Count < 0 {
				t.Errorf("count %d", e.Count)
			}

			checkpoint.NewState(e.Key).Apply(e) // must not panic
		}
	})
}

// TestCapturedEvents: what the lab's recorder was given, in the words of the extension.
func TestCapturedEvents(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "hooks-captured", "pi")
	for event, want := range map[string]string{
		"session_start": "start", "before_agent_start": "prompt", "tool_execution_start": "tool-start",
		"tool_execution_end": "tool-end", "session_shutdown": "end",
	} {
		data, err := os.ReadFile(filepath.Join(dir, event+".json"))
		if err != nil {
			t.Skipf("the captured events are not here: %v", err)
		}

		n := 0
		elements([]byte(strings.TrimSpace(string(data))), func(one []byte) {
			payload := strings.NewReplacer(
				`"_sessionId"`, `"session_id"`, `"_sessionFile"`, `"session_file"`, `"_cwd"`, `"cwd"`,
			).Replace(
				string(memberRaw(one, "event")),
			)

			in, err := Pi(agent.Host{}).Decode(t.Context(), agent.Hook{Event: event, Payload: []byte(payload)})
			if err != nil || len(in.Events) == 0 || string(in.Events[0].Kind) != want {
				t.Errorf("%s: got %+v, %v, want %s", event, in.Events, err, want)
			}

			n++
		})

		if n == 0 {
			t.Errorf("%s: no captured event was read", event)
		}
	}
}
