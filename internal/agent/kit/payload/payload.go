package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"belay/internal/jsontext"
)

// ErrNoObject is returned for a payload that is no JSON object.
var ErrNoObject = errors.New("payload is no JSON object")

const (
	// MaxID is the longest id that is one.
	MaxID = 256
	// MaxPath is the longest path that is one.
	MaxPath = 4096

	mostHead = 1 << 20
	// tornWord is how much of the end of a cut text is looked at for a place between two words. A secret must not
	// survive because its second half is missing.
	tornWord = 4 << 10
)

// Payload is a hook's JSON object. Its accessors give the empty value for a field that is absent, of another type than
// expected, or beyond its bound: the form is the agent's and may change in any release.
type Payload map[string]json.RawMessage

// ParsePayload reads the object. Of a payload that was cut on its way it takes what stands whole before the cut, and
// the head of the value that was cut.
func ParsePayload(b []byte, cut bool) (Payload, error) {
	b = bytes.TrimPrefix(b, []byte(jsontext.BOM))
	var p Payload
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
		return nil, ErrNoObject // null
	}

	return nil, fmt.Errorf("%w: %w", ErrNoObject, err)
}

// salvage reads as many members as stand in a broken object.
func salvage(b []byte) Payload {
	start := jsontext.SkipSpace(b, 0)
	if start >= len(b) || b[start] != '{' {
		return nil
	}

	p := Payload{}
	for _, m := range jsontext.Read(b, start).Items {
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
	torn = torn[:min(len(torn), mostHead)]
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

// Text is a string field as it came.
func (p Payload) Text(key string) string {
	var s string
	if json.Unmarshal(p[key], &s) != nil {
		return ""
	}
	return s
}

// ID is a string that identifies something: cutting it would make it another.
func (p Payload) ID(key string) string {
	if s := p.Text(key); len(s) <= MaxID && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return ""
}

// Path is a string that names a file; any byte but NUL may be in it.
func (p Payload) Path(key string) string {
	if s := p.Text(key); len(s) <= MaxPath && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return ""
}

// Flag is a field that is true or not.
func (p Payload) Flag(key string) bool {
	var b bool
	return json.Unmarshal(p[key], &b) == nil && b
}

// RealPath follows links where a path leads somewhere on this machine, and else is its plain form. A relative one is
// not ours to complete.
func RealPath(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return filepath.Clean(path)
}
