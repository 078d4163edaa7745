package all

import (
	"os"
	"testing"

	"belay/internal/agent"
	"belay/internal/transcript/sqlite"
)

// TestRecognise: the agent that is surest of a file has it, and nobody where two are.
func TestRecognise(t *testing.T) {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}

	const (
		claude = `{"type":"user","uuid":"u","sessionId":"s","message":{}}` + "\n"
		pi     = `{"type":"session","version":3,"id":"x","cwd":"/"}` + "\n"
		gemini = `{"sessionId":"s","projectHash":"h","startTime":"t"}` + "\n"
		open   = `{"type":"custom","customType":"openclaw.cache","parentId":null}` + "\n"
	)

	for _, c := range []struct{ name, head, want string }{
		{"Claude Code's", claude, "claude-code"},
		{"Claude Code's, of which only the last prompt is left", `{"type":"summary","leafUuid":"u"}`, "claude-code"},
		{"Claude Code's behind the stub of a header", read("../claude/testdata/reader/cases/T08-torn-header.jsonl"), "claude-code"},
		{"Claude Code's records behind another's header", gemini + claude, ""},
		{"pi's", pi, "pi"},
		{"pi's, with a word of another's", pi + `{"type":"message","parentId":null,"message":{"sessionId":"s"}}`, "pi"},
		{"pi's without its header", `{"type":"sess` + "\n" + `{"type":"message","session":"s","parentId":null,"message":{}}`, "pi"},
		{"OpenClaw's", pi + open, "openclaw"},
		{"Gemini's", gemini, "gemini"},
		{"Gemini's, a document", "{\n  \"sessionId\": \"s\",\n  \"projectHash\": \"h\",\n  \"messages\": []\n}", "gemini"},
		{"ChatSession's", `{"sessionId":"s","agentType":"x","messages":[]}`, "chat-session"},
		{"Copilot's", `{"type":"session.start","data":{"sessionId":"s","copilotVersion":"1"}}`, "copilot"},
		{"a database of nobody's", sqlite.Header + claude + pi, ""},
		{"nothing", "", ""},
	} {
		name := ""
		if a, ok := agent.Recognise(All(agent.Host{}), []byte(c.head)); ok {
			name = a.Name()
		}
		if name != c.want {
			t.Errorf("%s: got %q, want %q", c.name, name, c.want)
		}
	}
}
