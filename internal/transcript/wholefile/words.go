package wholefile

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/redact"
	"belay/internal/transcript/lines"
)

const maxIdent = 256

// Ident makes a name that a document gives (ids, tools, models) safe to keep, and of a bounded length.
func Ident(s string) string {
	s = lines.Clean(s)
	if len(s) <= maxIdent {
		return s
	}
	return strings.ToValidUTF8(s[:64], "") + "#" + strconv.FormatUint(checkpoint.Hash(s), 16)
}

// Words makes text of the conversation safe to keep: without blocks of belay's own, control characters and secrets, and
// cut. Markers are those of belay's own blocks.
func Words(s string) (said string, markers []string) {
	rest, markers := payload.StripOwn(s)
	return redact.Cut(strings.TrimSpace(lines.Clean(rest)), checkpoint.CutText), markers
}

// ToolText is a tool's input or output, safe to keep: a string's words, any other value as compact JSON.
func ToolText(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}

	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return ToolWords(s)
	}

	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return ToolWords(string(raw))
	}

	return ToolWords(compact.String())
}

// ToolWords is a tool's input or output that is text, safe to keep.
func ToolWords(s string) string {
	return redact.Cut(lines.Clean(payload.WithoutOwn(s)), checkpoint.CutTool)
}

// Said gives the entries of a person's words: the words, and belay's own blocks in them.
func Said(id, turn string, at time.Time, raw string) []checkpoint.Entry {
	text, markers := Words(raw)
	var list []checkpoint.Entry
	for _, m := range markers {
		list = append(list, checkpoint.Entry{ID: m, Kind: checkpoint.EntryOwn, At: at})
	}

	if text != "" {
		list = append(list, checkpoint.Entry{ID: id, Kind: checkpoint.EntryUser, At: at, Turn: turn, Text: text})
	}

	return list
}

// Names gives the messages of a document without ids the same name in each rewrite: what they say, and which of the
// equal ones they are. The zero Names is not usable; see NewNames.
type Names struct{ seen map[uint64]uint32 }

// NewNames begins at a document's beginning.
func NewNames() *Names { return &Names{map[uint64]uint32{}} }

// Of names the next message by all that it says.
func (n *Names) Of(what ...string) string {
	h := checkpoint.Hash(strings.Join(what, "\x00"))
	n.seen[h]++
	return "m" + strconv.FormatUint(h, 36) + "." + strconv.FormatUint(uint64(n.seen[h]), 10)
}
