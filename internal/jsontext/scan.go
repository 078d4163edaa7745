// Package jsontext edits JSON settings of other programs as text: it finds where things stand and replaces just those
// bytes, so that all that is somebody else's (order, spaces, line ends, keys that nobody knows) stays as it is.
//
// The scanner trusts that the text is JSON (ask json.Valid), except that it may end anywhere. On top of it, Hooks edits
// the one form that several agents share: {"hooks": {"<event>": [{"matcher": "..", "hooks": [{..}]}]}}.
//
// Files puts an edited text in place, of whatever kind, and keeps the way back to the very bytes that were there before.
package jsontext

import (
	"bytes"
	"encoding/json"
	"strings"
)

// BOM may stand before JSON that an editor on Windows wrote.
const BOM = "\xef\xbb\xbf"

// Member is one "key": value of an object, by offsets into its text.
type Member struct {
	Key        string
	Start      int // of the key's opening quote
	Value, End int // the value is text[Value:End]; End is -1 where the text ends inside it
}

// Span is text[Start:End].
type Span struct{ Start, End int }

// Spans are the places of whole members.
func Spans(members []Member) []Span {
	list := make([]Span, len(members))
	for i, m := range members {
		list[i] = Span{m.Start, m.End}
	}
	return list
}

// SkipSpace is the offset of the first byte from i on that is no white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// stringEnd is the offset after the string that begins at i, or -1.
func stringEnd(b []byte, i int) int {
	for j := i + 1; j < len(b); j++ {
		switch b[j] {
		case '\\':
			j++
		case '"':
			return j + 1
		}
	}
	return -1
}

// valueEnd is the offset after the value that begins at i, or -1. A number or word at the very end of the text counts as
// unfinished.
func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	if b[i] == '"' {
		return stringEnd(b, i)
	}
	if b[i] != '{' && b[i] != '[' {
		if n := bytes.IndexAny(b[i:], ",]} \t\r\n"); n >= 0 {
			return i + n
		}
		return -1
	}
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = stringEnd(b, i); i < 0 {
				return -1
			}
			i-- // the loop steps on
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// Members lists the members of the object that begins at i, and the offset after the object (-1 when the text ends
// before it does).
func Members(b []byte, i int) ([]Member, int) {
	var list []Member
	for {
		i = SkipSpace(b, i+1) // over the brace or the comma
		if i < len(b) && b[i] == '}' {
			return list, i + 1
		}
		if i >= len(b) || b[i] != '"' {
			return list, -1
		}
		m := Member{Start: i}
		keyEnd := stringEnd(b, i)
		if keyEnd < 0 || json.Unmarshal(b[i:keyEnd], &m.Key) != nil {
			return list, -1
		}
		colon := SkipSpace(b, keyEnd)
		if colon >= len(b) || b[colon] != ':' {
			return list, -1
		}
		m.Value = SkipSpace(b, colon+1)
		m.End = valueEnd(b, m.Value)
		list = append(list, m)
		if m.End < 0 {
			return list, -1
		}
		if i = SkipSpace(b, m.End); i < len(b) && b[i] == '}' {
			return list, i + 1
		}
		if i >= len(b) || b[i] != ',' {
			return list, -1
		}
	}
}

// Elements lists the elements of the array that begins at i.
func Elements(b []byte, i int) []Span {
	var list []Span
	for {
		i = SkipSpace(b, i+1) // over the bracket or the comma
		if i >= len(b) || b[i] == ']' {
			return list
		}
		end := valueEnd(b, i)
		if end < 0 {
			return list
		}
		list = append(list, Span{i, end})
		if i = SkipSpace(b, end); i >= len(b) || b[i] != ',' {
			return list
		}
	}
}

// Find gives the last Member with a key: the one that counts for a reader of JSON.
func Find(list []Member, key string) (Member, bool) {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Key == key {
			return list[i], true
		}
	}
	return Member{}, false
}

// Splice replaces text[at.Start:at.End].
func Splice(b []byte, at Span, with string) []byte {
	out := make([]byte, 0, len(b)+len(with))
	out = append(out, b[:at.Start]...)
	out = append(out, with...)
	return append(out, b[at.End:]...)
}

// Cut takes the n-th of some items out of their container (begins at open, ends before after), with one comma.
func Cut(b []byte, items []Span, n, open, after int) []byte {
	switch {
	case n > 0:
		return Splice(b, Span{items[n-1].End, items[n].End}, "")
	case len(items) > 1:
		return Splice(b, Span{items[0].Start, items[1].Start}, "")
	default:
		return Splice(b, Span{open + 1, after - 1}, "")
	}
}

// Add puts an item after the last one of a container, or into it when it is empty. It is set as the user sets the
// items before it; into an empty container, as the rest of the file.
func Add(b []byte, items []Span, open, after int, lay Layout, render func(Layout) string) []byte {
	outer := lineIndent(b, open)
	lay.indent = outer + lay.unit
	if len(items) == 0 {
		if !lay.lines {
			return Splice(b, Span{open + 1, after - 1}, render(lay))
		}
		return Splice(b, Span{open + 1, after - 1}, lay.eol+lay.indent+render(lay)+lay.eol+outer)
	}
	gap := string(b[open+1 : items[0].Start])
	if n := strings.LastIndexByte(gap, '\n'); n >= 0 {
		lay.lines, lay.indent = true, gap[n+1:]
		gap = lay.eol + lay.indent
	} else {
		lay.lines = false
	}
	end := items[len(items)-1].End
	return Splice(b, Span{end, end}, ","+gap+render(lay))
}

// Layout is how a text is set: on lines or all on one, its line ends, one step of indent, and the indent of the item at
// hand.
type Layout struct {
	lines  bool
	eol    string
	unit   string
	indent string
}

// LayoutOf looks at how the outermost object (begins at open, first item at first, or -1) is set.
func LayoutOf(b []byte, open, first int) Layout {
	lay := Layout{lines: true, eol: "\n", unit: "  "}
	if bytes.Contains(b, []byte("\r\n")) {
		lay.eol = "\r\n"
	}
	if first < 0 {
		return lay
	}
	gap := string(b[open+1 : first])
	n := strings.LastIndexByte(gap, '\n')
	if lay.lines = n >= 0; lay.lines && gap[n+1:] != "" {
		lay.unit = strings.TrimPrefix(gap[n+1:], lineIndent(b, open))
	}
	return lay
}

// lineIndent is the white space at the start of the line in which an offset lies.
func lineIndent(b []byte, at int) string {
	start := bytes.LastIndexByte(b[:at], '\n') + 1
	line := b[start:at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// Set renders a value, or "key": value, for a Layout.
func (lay Layout) Set(key string, value any) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	colon := ":"
	if lay.lines {
		enc.SetIndent(lay.indent, lay.unit)
		colon = ": "
	}
	_ = enc.Encode(value) // plain structs of strings and numbers always encode
	text := strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "\n", lay.eol)
	if key == "" {
		return text
	}
	return `"` + key + `"` + colon + text
}
