package claude

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
)

// TestO02ReplyIsOneDocument: one JSON document that gives the very text back, or nothing.
func TestO02ReplyIsOneDocument(t *testing.T) {
	a := New(agent.Host{})
	for _, event := range []string{"SessionStart", "UserPromptSubmit"} {
		text := "line one\n\"quoted\" <b> & \\ \u2028 日本"
		var doc struct {
			Output struct {
				Event   string `json:"hookEventName"`
				Context string `json:"additionalContext"`
			} `json:"hookSpecificOutput"`
		}

		out := a.Reply(event, text)
		if err := json.Unmarshal(out, &doc); err != nil || doc.Output.Event != event || doc.Output.Context != text {
			t.Errorf("%s: %s (%v), want the text %q", event, out, err, text)
		}
		if out := a.Reply(event, ""); out != nil {
			t.Errorf("%s without text: %q, want nothing", event, out)
		}
	}

	for _, event := range []string{"Stop", "PreToolUse", "SessionEnd", "Brandnew", ""} {
		if out := a.Reply(event, "text"); out != nil {
			t.Errorf("%s: %q, want nothing", event, out)
		}
	}
}

func TestResumeCommandIsSafeInAShell(t *testing.T) {
	for _, id := range []string{"11111111-1111-4111-8111-111111111111", "a b", "$(id)", "it's", "", "`x`;&", "a\nb"} {
		// The shell itself says what the words are.
		out, err := exec.Command(
			"/bin/sh", "-c", `claude() { printf '%s|' "$@"; }; `+New(agent.Host{}).ResumeCommand(id),
		).Output()
		if want := "--resume|" + id + "|"; err != nil || string(out) != want {
			t.Errorf("%q: words %q (%v), want %q", id, out, err, want)
		}
	}
}

func TestEventsAndLimits(t *testing.T) {
	a := New(agent.Host{})
	if a.Name() != "claude-code" {
		t.Errorf("name %q", a.Name())
	}

	want := map[string]agent.EventSpec{
		"SessionStart":     {Name: "SessionStart", Waits: true},
		"UserPromptSubmit": {Name: "UserPromptSubmit"},
		"SessionEnd":       {Name: "SessionEnd"},
	}

	for _, e := range a.Events() {
		w, ok := want[e.Name]
		if !ok {
			w = agent.EventSpec{Name: e.Name}
		}
		if e != w {
			t.Errorf("got %+v, want %+v", e, w)
		}

		carries := e.Name == "SessionStart" || e.Name == "UserPromptSubmit"
		if reply := a.Reply(e.Name, "x"); len(reply) > 0 != carries {
			t.Errorf("%s: a text can be put in: %v, but the reply is %q", e.Name, carries, reply)
		}
	}

	if l := a.Limits(); l.BriefBytes != 9000 || !l.LateText || l.Repairs || l.QuietCompaction {
		t.Errorf("limits %+v", l)
	}
}

func FuzzShellWord(f *testing.F) {
	f.Add("a'b c")
	f.Add("~")
	f.Fuzz(func(t *testing.T, word string) {
		if !utf8.ValidString(word) || strings.IndexByte(word, 0) >= 0 {
			return
		}
		got := payload.ShellWords("exec " + payload.ShellWord(word) + " x")
		if len(got) != 3 || got[1] != word {
			t.Errorf("%q came back as %q", word, got)
		}
	})
}

func BenchmarkDecodeHugeResponse(b *testing.B) {
	payload := []byte(
		`{"session_id":"s","hook_event_name":"PostToolUse","tool_use_id":"t","tool_response":{"stdout":"` +
			strings.Repeat("some words of output\\n", 700_000) + `"}}`,
	)

	a := New(agent.Host{})
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if _, err := a.Decode(b.Context(), agent.Hook{Payload: payload}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeStop(b *testing.B) {
	payload := []byte(
		`{"session_id":"11111111-1111-4111-8111-111111111111","transcript_path":"/h/.claude/projects/-p/1.jsonl",` +
			`"cwd":"/","hook_event_name":"Stop","last_assistant_message":"Changed one line in uploader.go."}`,
	)

	a := New(agent.Host{})
	for b.Loop() {
		if _, err := a.Decode(b.Context(), agent.Hook{Payload: payload}); err != nil {
			b.Fatal(err)
		}
	}
}
