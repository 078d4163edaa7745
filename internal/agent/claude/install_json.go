package claude

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A scanner for JSON text that is edited in place: it finds where things stand and trusts that the text is JSON (the
// caller has asked json.Valid), except that it may end anywhere: then the last end is -1.

// bom may stand before JSON that an editor on Windows wrote.
const bom = "\xef\xbb\xbf"

// member is one "key": value of an object, by offsets into its text.
type member struct {
	key        string
	start      int // of the key's opening quote
	value, end int // the value is text[value:end]; end is -1 where the text ends inside it
}

// span is text[start:end].
type span struct{ start, end int }

func skipSpace(b []byte, i int) int {
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

// scanMembers lists the members of the object that begins at i, and the offset after the object (-1 when the text ends
// before it does).
func scanMembers(b []byte, i int) ([]member, int) {
	var list []member
	for {
		i = skipSpace(b, i+1) // over the brace or the comma
		if i < len(b) && b[i] == '}' {
			return list, i + 1
		}
		if i >= len(b) || b[i] != '"' {
			return list, -1
		}
		m := member{start: i}
		keyEnd := stringEnd(b, i)
		if keyEnd < 0 || json.Unmarshal(b[i:keyEnd], &m.key) != nil {
			return list, -1
		}
		colon := skipSpace(b, keyEnd)
		if colon >= len(b) || b[colon] != ':' {
			return list, -1
		}
		m.value = skipSpace(b, colon+1)
		m.end = valueEnd(b, m.value)
		list = append(list, m)
		if m.end < 0 {
			return list, -1
		}
		if i = skipSpace(b, m.end); i < len(b) && b[i] == '}' {
			return list, i + 1
		}
		if i >= len(b) || b[i] != ',' {
			return list, -1
		}
	}
}

// scanElements lists the elements of the array that begins at i.
func scanElements(b []byte, i int) []span {
	var list []span
	for {
		i = skipSpace(b, i+1) // over the bracket or the comma
		if i >= len(b) || b[i] == ']' {
			return list
		}
		end := valueEnd(b, i)
		if end < 0 {
			return list
		}
		list = append(list, span{i, end})
		if i = skipSpace(b, end); i >= len(b) || b[i] != ',' {
			return list
		}
	}
}

// find gives the last member with a key: the one that counts for a reader of JSON.
func find(list []member, key string) (member, bool) {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].key == key {
			return list[i], true
		}
	}
	return member{}, false
}

// splice replaces text[at.start:at.end].
func splice(b []byte, at span, with string) []byte {
	out := make([]byte, 0, len(b)+len(with))
	out = append(out, b[:at.start]...)
	out = append(out, with...)
	return append(out, b[at.end:]...)
}

// cutItem takes the n-th of some items out of their container (begins at open, ends before after), with one comma.
func cutItem(b []byte, items []span, n, open, after int) []byte {
	switch {
	case n > 0:
		return splice(b, span{items[n-1].end, items[n].end}, "")
	case len(items) > 1:
		return splice(b, span{items[0].start, items[1].start}, "")
	default:
		return splice(b, span{open + 1, after - 1}, "")
	}
}

// addItem puts an item after the last one of a container, or into it when it is empty. It is set as the user sets the
// items before it; into an empty container, as the rest of the file.
func addItem(b []byte, items []span, open, after int, lay layout, render func(layout) string) []byte {
	outer := lineIndent(b, open)
	lay.indent = outer + lay.unit
	if len(items) == 0 {
		if !lay.lines {
			return splice(b, span{open + 1, after - 1}, render(lay))
		}
		return splice(b, span{open + 1, after - 1}, lay.eol+lay.indent+render(lay)+lay.eol+outer)
	}
	gap := string(b[open+1 : items[0].start])
	if n := strings.LastIndexByte(gap, '\n'); n >= 0 {
		lay.lines, lay.indent = true, gap[n+1:]
		gap = lay.eol + lay.indent
	} else {
		lay.lines = false
	}
	end := items[len(items)-1].end
	return splice(b, span{end, end}, ","+gap+render(lay))
}

// layout is how a text is set: on lines or all on one, its line ends, one step of indent, and the indent of the item at
// hand.
type layout struct {
	lines  bool
	eol    string
	unit   string
	indent string
}

// layoutOf looks at how the outermost object (begins at open, first item at first, or -1) is set.
func layoutOf(b []byte, open, first int) layout {
	lay := layout{lines: true, eol: "\n", unit: "  "}
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

// set renders a value, or "key": value, for a layout.
func (lay layout) set(key string, value any) string {
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
