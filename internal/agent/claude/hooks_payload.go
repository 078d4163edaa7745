package claude

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/redact"
)

// label is a short word for people: a tool, a model, a reason.
func label(p payload.Payload, key string) string { return words(p.Text(key), maxName) }

// words makes text fit to keep: without blocks of belay's own, control characters and secrets, and cut to most bytes.
func words(s string, most int) string { return redact.Cut(printable(payload.WithoutOwn(s)), most) }

// printable is valid UTF-8 without control characters; line ends and tabs stay.
func printable(s string) string {
	i := 0
	for i < len(s) && (s[i] >= ' ' && s[i] < 0x7f || s[i] == '\n' || s[i] == '\t') {
		i++
	}

	if i == len(s) {
		return s // nearly all text, and a tool's output may be megabytes
	}

	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r // broken bytes arrive as U+FFFD
	}, s)
}

// toolText is a tool's input or output as text: a string's words, any other value as compact JSON.
func toolText(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}

	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return words(s, checkpoint.CutTool)
	}

	var compact bytes.Buffer

	// Claude Code writes compact JSON: of a huge value only the ends are kept, and it is not read once more for a
	// space.
	if len(raw) > 1<<20 || json.Compact(&compact, raw) != nil {
		return words(string(raw), checkpoint.CutTool)
	}

	return words(compact.String(), checkpoint.CutTool)
}
