package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent"
)

func TestDecodeSideAgentsAreNoNoise(t *testing.T) {
	for _, tt := range []struct{ name, fields, want string }{
		{"compaction helper now", `"agent_id":"a1","agent_type":""`, ""},
		{"compaction helper before", `"agent_id":"acompact-fffbd0","agent_type":"x"`, ""},
		{"no id", `"agent_type":"Explore"`, ""},
		{"type not told", `"agent_id":"a1"`, "child-end child=\"a1\"\nend on=\"a1\""},
	} {
		in := decode(t, []byte(`{"session_id":"s","hook_event_name":"SubagentStop",`+tt.fields+`}`))
		if got := sayAll(in); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestDecodeBackground(t *testing.T) {
	for response, want := range map[string]bool{
		`{"stdout":"","stderr":"","backgroundTaskId":"bae407b"}`: true,
		`{"isAsync":true}`:                        true,
		`{"status":"async_launched"}`:             true,
		`{"stdout":"done"}`:                       false,
		`{"isAsync":"yes","backgroundTaskId":""}`: false,
		`"text"`:             false,
		`[{"isAsync":true}]`: false,
		`null`:               false,
	} {
		in := decode(t, []byte(`{"session_id":"s","hook_event_name":"PostToolUse","tool_response":`+response+`}`))
		if got := in.Events[0].Background; got != want {
			t.Errorf("%s: background %v, want %v", response, got, want)
		}
	}
}

// TestDecodeOddPayloads: what is there is used, whatever the rest is.
func TestDecodeOddPayloads(t *testing.T) {
	const p = `"session_id":"s","hook_event_name":`
	for _, tt := range []struct{ name, payload, want string }{
		{"other types", `{` + p + `"Stop","last_assistant_message":{"a":1},"cwd":7,"prompt_id":[],"permission_mode":null}`, "stop"},
		{"name from the command line", `{"session_id":"s"}`, "stop"},
		{"payload's name wins", `{` + p + `"SessionEnd"}`, "end"},
		{"unknown event", `{` + p + `"Brandnew"}`, ""},
		{"unknown event without session", `{"hook_event_name":"Brandnew"}`, ""},
		{"byte order mark", "\ufeff{" + p + `"SessionEnd"}`, "end"},
		{"interrupt", `{` + p + `"PostToolUseFailure","error":"stopped","is_interrupt":true}`, `tool-end reason="interrupt" out="stopped" failed`},
		{"program's own turn", `{` + p + `"UserPromptSubmit","prompt":"<task-notification>x"}`, `prompt text="<task-notification>x" aside`},
		{"control characters", `{` + p + `"UserPromptSubmit","prompt":"a\u0000b\u001b[31m\r\n\tc\ud83d"}`, "prompt text=\"ab[31m\\n\\tc\ufffd\""},
		{"long ids are dropped", `{` + p + `"PreToolUse","tool_use_id":"` + strings.Repeat("x", 300) + `","tool_name":"T"}`, `tool-start name="T"`},
		{"response as text", `{` + p + `"PostToolUse","tool_response":"line\nline"}`, `tool-end out="line\nline"`},
	} {
		in, err := ofUser("/home/u").Decode(t.Context(), agent.Hook{Event: "Stop", Payload: []byte(tt.payload)})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := sayAll(in); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	for _, tt := range []struct {
		name, payload string
		cut           bool
		want          error
	}{
		{"empty", "", false, ErrBadPayload},
		{"empty and cut", "", true, ErrBadPayload},
		{"null", "null", false, ErrBadPayload},
		{"list", `[1]`, true, ErrBadPayload},
		{"half", `{"session_id":"s","hook_event_name":"Stop"`, false, ErrBadPayload},
		{"two documents", `{"session_id":"s"}{}`, false, ErrBadPayload},
		{"no session", `{"hook_event_name":"Stop"}`, false, ErrNoSession},
		{"session of another type", `{"hook_event_name":"Stop","session_id":5}`, false, ErrNoSession},
		{"session without end", `{"hook_event_name":"Stop","session_id":"` + strings.Repeat("x", 1000) + `"}`, false, ErrNoSession},
		{"cut before the session", `{"hook_event_name":"Stop","cwd":"/x`, true, ErrNoSession},
	} {
		in, err := ofUser(
			"/home/u",
		).Decode(
			t.Context(), agent.Hook{Event: "Stop", Payload: []byte(tt.payload), Cut: tt.cut},
		)
		if !errors.Is(err, tt.want) || len(in.Events) != 0 {
			t.Errorf("%s: events %q, error %v; want none and %v", tt.name, sayAll(in), err, tt.want)
		}
	}
}

// TestDecodeCutPayload: what stood before the cut is used, and no half word of it.
func TestDecodeCutPayload(t *testing.T) {
	long := strings.Repeat("word ", 2000)
	for _, tt := range []struct{ name, payload, want, not string }{
		{"in the prompt", `{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"` + long + `ghp_0123456789abc`, "word word", "ghp_"},
		{"inside an escape", `{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"` + long + `\ud83d\ude0`, "word word", "\ufffd"},
		{"in the response", `{"session_id":"s","hook_event_name":"PostToolUse","tool_name":"Bash","tool_response":{"stdout":"` + long, `{"stdout":"word`, "nothing"},
	} {
		in, err := ofUser("/home/u").Decode(t.Context(), agent.Hook{Payload: []byte(tt.payload), Cut: true})
		if err != nil || len(in.Events) != 1 {
			t.Errorf("%s: %d events, error %v; want 1", tt.name, len(in.Events), err)
			continue
		}

		got := in.Events[0].Text + in.Events[0].Output
		if !strings.HasPrefix(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("%s: got %.80q…, want it to begin with %q and not to hold %q", tt.name, got, tt.want, tt.not)
		}
	}
}

// TestDecodeNeverKeepsOwnBlocks: words that belay gave are not kept as the user's or the model's, however deep a tool's
// output has them.
func TestDecodeNeverKeepsOwnBlocks(t *testing.T) {
	block := checkpoint.Frame("m4rk", "old words")
	inner, _ := json.Marshal(map[string]string{"content": "A " + block + " B"}) // escapes < too
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]string{"content": "A " + block + " B"}); err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{"A " + block + " B", string(inner), line.String(), "A " + block[:20] + strings.Repeat("x", 5)} {
		for _, form := range []string{
			`{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":%s}`,
			`{"session_id":"s","hook_event_name":"PostToolUse","tool_response":{"stdout":%s,"end":1}}`,
		} {
			quoted, _ := json.Marshal(text)
			e := decode(t, fmt.Appendf(nil, form, quoted)).Events[0]
			got := e.Text + e.Output
			if strings.Contains(got, "old words") || !strings.Contains(got, "A ") {
				t.Errorf("kept %q of %q", got, text)
			}
			if strings.Contains(text, " B") && !strings.Contains(got, " B") {
				t.Errorf("lost the words behind the block: %q", got)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"session_id":"s","hook_event_name":"Stop","last_assistant_message":"done"}`,
		`{"session_id":"s","hook_event_name":"PostToolUse","tool_input":{"a":[1,{"b":"\ud83d"}]},"tool_response":"x"}`,
		`{"session_id":"s","hook_event_name":"SubagentStop","agent_id":"agent-1","cwd":"/a/../b"}`,
		`{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"<belay-record k=\"a\">x</belay-record k=\"a\">`,
		`{"session_id":"s","prompt":"\ud8`, `{"a":`, `null`, "\ufeff{}",
	} {
		f.Add([]byte(seed), true, "Stop")
		f.Add([]byte(seed), false, "PreToolUse")
	}

	a := ofUser("/home/u")
	f.Fuzz(func(t *testing.T, payload []byte, cut bool, event string) {
		in, err := a.Decode(t.Context(), agent.Hook{Event: event, Payload: payload, Cut: cut, Cwd: "/"})
		if err != nil && len(in.Events) > 0 {
			t.Errorf("events and an error: %v", err)
		}

		for _, e := range in.Events {
			if e.Key.Session == "" || e.Kind == "" {
				t.Errorf("event without session or kind: %+v", e)
			}
			for _, s := range []string{e.Text, e.Input, e.Output, e.Name, e.Reason, e.Key.Session, e.Workspace} {
				if !utf8.ValidString(s) || len(s) > checkpoint.CutText {
					t.Errorf("%d bytes, or no UTF-8: %.100q", len(s), s)
				}
			}
		}
	})
}
