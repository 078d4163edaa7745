package claude

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"belay/internal/agent"
)

// secretsOf are the values that the files of rows X01 and X02 name, in payload fields of every event.
var secretsOf = map[string][]string{
	"X01-secrets.jsonl": {
		"sb_secret_probe_example_0000_abcd_efgh",
		"tok_live_EXAMPLE0EXAMPLE0EXAMPLE0",
		"eyJEXAMPLE0EXAMPLE0EXAMPLE0EXAMPL",
		"AKIAIOSFODNN7EXAMPLE",
		"xk-EXAMPLE0EXAMPLE0EXAMPLE0EXAM",
		"battery staple",
	},
	"X02-secret-forms.jsonl": {"RVhBTVBMRQ", "EXAMPLE-pass", "EXAMPLE0EXAMPLE0", "EXAMPLEpass"},
}

// testNoLeak sends every line of a transcript file through every text field of every event.
func testNoLeak(t *testing.T, file string) {
	a := ofUser("/home/u")
	for _, line := range jsonLines(t, file) {
		var rec struct {
			Message struct{ Content json.RawMessage }
		}
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}

		var text string
		if json.Unmarshal(rec.Message.Content, &text) != nil {
			text = string(rec.Message.Content)
			var blocks []struct {
				Text, Content string
				Input         json.RawMessage
			}

			if json.Unmarshal(rec.Message.Content, &blocks) == nil && blocks[0].Text+blocks[0].Content != "" {
				text = blocks[0].Text + blocks[0].Content
			}
		}

		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}

		for _, form := range []string{
			`"UserPromptSubmit","prompt":%s`, `"Stop","last_assistant_message":%s`,
			`"StopFailure","last_assistant_message":%s`,
			`"PostCompact","compact_summary":%s`, `"PostToolUseFailure","error":%s`,
			`"PreToolUse","tool_input":{"command":%s}`,
			`"PostToolUse","tool_response":{"stdout":%s}`, `"PostToolUse","tool_response":%s`,
			`"SessionEnd","reason":%s`,
			`"SubagentStop","agent_id":"a","agent_type":"t","last_assistant_message":%s`, `"SessionStart","model":%s`,
		} {
			payload := `{"session_id":"s","hook_event_name":` + fmt.Sprintf(form, quoted) + `}`
			in, err := a.Decode(t.Context(), agent.Hook{Payload: []byte(payload)})
			if err != nil {
				t.Fatal(err)
			}

			kept, err := json.Marshal(in.Events)
			if err != nil {
				t.Fatal(err)
			}

			for _, secret := range secretsOf[file] {
				if strings.Contains(string(kept), secret) {
					t.Errorf("%.40s… keeps %s:\n%s", form, secret, kept)
				}
			}
		}
	}
}

func TestX01SecretsNeverLeaveDecode(t *testing.T) { testNoLeak(t, "X01-secrets.jsonl") }

func TestX02SecretFormsNeverLeaveDecode(t *testing.T) { testNoLeak(t, "X02-secret-forms.jsonl") }
