package claude

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"belay/checkpoint"
	"belay/internal/jsonedit"
	"belay/internal/lazyre"
	"belay/internal/redact"
)

// payload is a hook's JSON object. Its accessors give the empty value for a field that is absent, of another type than
// expected, or beyond its bound: the payload's form is Claude Code's and may change in any release.
type payload map[string]json.RawMessage

// tornWord is how much of the end of a cut text is looked at for a place between two words. A secret must not survive
// because its second half is missing.
const tornWord = 4 << 10

// parsePayload reads the object. Of a payload that was cut on its way it takes what stands whole before the cut, and the
// head of the value that was cut.
func parsePayload(b []byte, cut bool) (payload, error) {
	b = bytes.TrimPrefix(b, []byte(bom))
	var p payload
	err := json.Unmarshal(b, &p)
	if err == nil && p != nil {
		return p, nil
	}
	if cut {
		if p = salvage(b); len(p) > 0 {
			return p, nil
		}
	}
	if err == nil {
		return nil, ErrBadPayload // null
	}
	return nil, fmt.Errorf("%w: %w", ErrBadPayload, err)
}

// salvage reads as many members as stand in a broken object.
func salvage(b []byte) payload {
	start := jsonedit.SkipSpace(b, 0)
	if start >= len(b) || b[start] != '{' {
		return nil
	}
	p := payload{}
	members, _ := jsonedit.Members(b, start)
	for _, m := range members {
		if m.End >= 0 {
			if raw := b[m.Value:m.End]; json.Valid(raw) {
				p[m.Key] = raw
			}
			continue
		}
		if head, ok := headOf(b[m.Value:]); ok {
			p[m.Key] = head
		}
	}
	return p
}

// headOf makes a JSON string of the head of a value whose end is missing. A string's own words are kept, an object or a
// list becomes the text that it is.
func headOf(torn []byte) (json.RawMessage, bool) {
	const most = 1 << 20
	torn = torn[:min(len(torn), most)]
	if len(torn) == 0 || strings.IndexByte(`"{[`, torn[0]) < 0 {
		return nil, false // half a number or word
	}
	text := string(torn)
	if torn[0] == '"' {
		// The cut may lie inside an escape: at most \ud83d\ude00 less one byte.
		ok := false
		for i := 0; i < 12 && i < len(torn) && !ok; i++ {
			ok = json.Unmarshal(append(bytes.Clone(torn[:len(torn)-i]), '"'), &text) == nil
		}
		if !ok {
			return nil, false
		}
	}
	near := max(0, len(text)-tornWord)
	if i := strings.LastIndexFunc(text[near:], unicode.IsSpace); i >= 0 {
		near += i
	}
	head, err := json.Marshal(strings.ToValidUTF8(text[:near], ""))
	return head, err == nil
}

// text is a string field as it came.
func (p payload) text(key string) string {
	var s string
	if json.Unmarshal(p[key], &s) != nil {
		return ""
	}
	return s
}

// id is a string that identifies something: cutting it would make it another.
func (p payload) id(key string) string { return p.bounded(key, maxID) }

// path is a string that names a file; any byte but NUL may be in it.
func (p payload) path(key string) string {
	s := p.bounded(key, maxPath)
	if strings.IndexByte(s, 0) >= 0 {
		return ""
	}
	return s
}

func (p payload) bounded(key string, most int) string {
	if s := p.text(key); len(s) <= most {
		return s
	}
	return ""
}

// name is a short word for people: a tool, a model, a reason.
func (p payload) name(key string) string { return words(p.text(key), maxName) }

func (p payload) flag(key string) bool {
	var b bool
	return json.Unmarshal(p[key], &b) == nil && b
}

// words makes text fit to keep: without blocks of belay's own, control characters and secrets, and cut to most bytes.
func words(s string, most int) string { return redact.Cut(printable(withoutOwn(s)), most) }

// The frame of belay's own blocks, as checkpoint.Frame writes it and as it looks inside of JSON, at any depth: tools print
// transcripts, and programs print what tools printed.
var (
	ownOpen  = lazyre.New(`(?:<|\\+u003c)belay-record k=\\*"([^"\\<>]{1,64})\\*"(?:>|\\+u003e)`)
	ownClose = lazyre.New(`(?:<|\\+u003c)/belay-record k=\\*"([^"\\<>]{1,64})\\*"(?:>|\\+u003e)`)
)

// withoutOwn takes belay's own blocks out of a text. A block whose end is missing goes to the end of the text.
func withoutOwn(s string) string {
	if !strings.Contains(s, "belay-record") {
		return s
	}
	var kept strings.Builder
	for {
		at := ownOpen().FindStringSubmatchIndex(s)
		if at == nil {
			kept.WriteString(s)
			return kept.String()
		}
		kept.WriteString(s[:at[0]])
		marker := s[at[2]:at[3]]
		for s = s[at[1]:]; ; { // a block holds no closing marker but its own, unless the text was made to mislead
			to := ownClose().FindStringSubmatchIndex(s)
			if to == nil {
				return kept.String()
			}
			closed := s[to[2]:to[3]] == marker
			if s = s[to[1]:]; closed {
				break
			}
		}
	}
}

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
	// Claude Code writes compact JSON: of a huge value only the ends are kept, and it is not read once more for a space.
	if len(raw) > 1<<20 || json.Compact(&compact, raw) != nil {
		return words(string(raw), checkpoint.CutTool)
	}
	return words(compact.String(), checkpoint.CutTool)
}
