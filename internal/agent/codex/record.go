package codex

import (
	"bytes"
	"encoding/json"
	"strings"

	"belay/internal/lazyre"
	"belay/internal/transcript/lines"
)

// line is one record of a rollout. The format is Codex's own and changes: whatever has an unexpected type is as if it
// were absent.
type line struct {
	Timestamp string `json:"timestamp"`
	Type      string `json:"type"`
	Payload   body   `json:"payload"`
}

// body holds what belay reads of every kind of record; Type says which fields count.
type body struct {
	Type string `json:"type"`
	ID   string `json:"id"`

	// session_meta and turn_context
	SessionID string `json:"session_id"`
	Parent    string `json:"parent_thread_id"`
	Cwd       string `json:"cwd"`
	Model     string `json:"model"`
	TurnID    string `json:"turn_id"`

	// messages
	Role    string  `json:"role"`
	Content content `json:"content"`
	About   struct {
		TurnID string   `json:"turn_id"`
		Kinds  []string `json:"content_item_kinds"`
	} `json:"internal_chat_message_metadata_passthrough"`

	// calls and results
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Action    json.RawMessage `json:"action"`
	Output    json.RawMessage `json:"output"`

	// events
	Message  string          `json:"message"`
	Reason   string          `json:"reason"`
	Error    json.RawMessage `json:"error"`
	NumTurns int             `json:"num_turns"`
	Item     thing           `json:"item"`
}

// thing is what an item_completed event completes.
type thing struct {
	Type     string  `json:"type"`
	ID       string  `json:"id"`
	Status   string  `json:"status"`
	Content  content `json:"content"`
	Output   string  `json:"aggregated_output"`
	ExitCode *int    `json:"exit_code"`
}

// failed says of a command how it ended.
func (t thing) failed() bool {
	return t.Status == "failed" || t.Status == "declined" || t.ExitCode != nil && *t.ExitCode != 0
}

// item is one piece of a message or of a result.
type item struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// content is a list of items; a string stands for one item of text.
type content []item

func (c *content) UnmarshalJSON(b []byte) error {
	var text string
	if len(b) > 0 && b[0] == '"' && json.Unmarshal(b, &text) == nil {
		*c = content{{Type: "text", Text: text}}
		return nil
	}

	var list []item
	if len(b) > 0 && b[0] == '[' {
		if err := lines.Decode(b, &list); err != nil {
			return err
		}
	}

	*c = list
	return nil
}

func (c content) text() string {
	var parts []string
	for _, it := range c {
		if it.Text != "" {
			parts = append(parts, it.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// decodeLine reads one line. The oldest files (2025) have bare items: the line is the payload.
func decodeLine(data []byte) (line, error) {
	var l line
	if err := lines.Decode(data, &l); err != nil {
		return l, err
	}

	switch l.Type {
	case "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
		"local_shell_call":
		err := lines.Decode(data, &l.Payload)
		l.Type = "bare_item"
		return l, err
	}

	return l, nil
}

// matters is the first stage: a look at the head of a line that passes over what cannot give an entry, as most of a
// file's bytes are the program's own notes. It may be true for too many, never false for one that counts.
func matters(b []byte) bool {
	n := len(b)
	if n == 0 || b[0] != '{' || b[n-1] != '}' {
		return true // broken: to be counted, or rescued
	}

	m := typesOf().FindSubmatch(b[:min(n, 256)])
	if m == nil || !dull[string(m[1])] && !dull[string(m[2])] {
		return true
	}

	return bytes.Contains(b[1:], []byte(`{"timestamp":"`)) // another record is glued to it
}

var typesOf = lazyre.New(`^\{"timestamp":"[^"]*",(?:"ordinal":\d+,)?"type":"([a-z_]+)"` +
	`(?:,"payload":\{"type":"([a-z_]+)")?`)

// dull are the kinds of records that belay never looks into.
var dull = map[string]bool{
	"world_state": true, "token_usage_record": true, "token_count": true, "thread_settings_applied": true,
	"reasoning": true, "agent_reasoning": true, "ghost_snapshot": true,
}

// hasOwn says whether a block of belay's own is in b, however the JSON around it spells the rest of its marker.
func hasOwn(b []byte) bool { return bytes.Contains(b, []byte("-record k=")) }
