package jsontext

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Splice replaces text[start:end].
func Splice(b []byte, start, end int, with string) []byte {
	out := make([]byte, 0, len(b)+len(with))
	out = append(out, b[:start]...)
	out = append(out, with...)
	return append(out, b[end:]...)
}

// Cut takes the n-th item out of a container, with one comma and the white space that is then left over. Comments stay,
// but for those inside the item.
func Cut(b []byte, c Container, n int) []byte {
	it := c.Items[n]
	start, end := c.Open+1, c.End-1 // nothing is left in the container
	switch {
	case n > 0:
		start, end = c.Items[n-1].End, it.End
	case len(c.Items) > 1:
		start, end = it.Start, c.Items[1].Start
	}

	if !HasComment(b[start:it.Start]) && !HasComment(b[it.End:end]) {
		return Splice(b, start, end, "")
	}

	start, end = it.Start, it.End
	if comma := SkipSpace(b, end); comma < len(b) && b[comma] == ',' {
		b = Splice(b, comma, comma+1, "")
	} else if n > 0 {
		comma = SkipSpace(b, c.Items[n-1].End)
		b = Splice(b, comma, comma+1, "")
		start, end = start-1, end-1
	}

	// An item with a line of its own takes the line with it. Else the line's end may belong to a comment.
	rest := bytes.TrimPrefix(bytes.TrimLeft(b[end:], " \t"), []byte("\r"))
	if bytes.HasPrefix(rest, []byte("\n")) {
		start -= len(lead(b, start))
	}

	return Splice(b, start, end, "")
}

// HasComment says whether there is a comment in a part of a text that begins outside of strings and comments.
func HasComment(part []byte) bool {
	for i := 0; i < len(part); i++ {
		switch part[i] {
		case '"', '\'':
			if i = stringEnd(part, i) - 1; i < 0 {
				return false
			}
		case '/':
			if comment(part, i) > 0 {
				return true
			}
		}
	}
	return false
}

// lead is the white space directly before an offset, with the end of the line before. What stands before that may be a
// comment's own.
func lead(b []byte, at int) string {
	before := bytes.TrimRight(b[:at], " \t")
	before = bytes.TrimSuffix(bytes.TrimSuffix(before, []byte("\n")), []byte("\r"))
	return string(b[len(before):at])
}

// Put puts an item behind the last one of a container, or into it when it is empty. It is set as the items before it;
// in an empty container, as the rest of the text. A comment behind the last item stays in that item's line.
func Put(b []byte, c Container, lay Layout, render func(Layout) string) []byte {
	outer := lineIndent(b, c.Open)
	lay.indent = outer + lay.unit
	if len(c.Items) == 0 {
		start := c.Open + 1 // behind the comments in it
		for at := start; at < c.End-1; at++ {
			if n := comment(b, at); n > 0 {
				at += n - 1
				start = at + 1
			}
		}

		if start == c.Open+1 && !lay.lines {
			return Splice(b, start, c.End-1, render(lay))
		}

		return Splice(b, start, c.End-1, lay.eol+lay.indent+render(lay)+lay.eol+outer)
	}

	last := c.Items[len(c.Items)-1].End
	gap := lead(b, c.Items[0].Start)
	n := strings.LastIndexByte(gap, '\n')
	if lay.lines = n >= 0; !lay.lines {
		return Splice(b, last, last, ","+gap+render(lay))
	}

	lay.indent = gap[n+1:]
	line := lay.eol + lay.indent + render(lay)
	end, comma := lineRest(b, last)
	if comma {
		return Splice(b, end, end, line+",")
	}

	return Splice(b, last, end, ","+string(b[last:end])+line)
}

// lineRest steps over what else stands in the line of an item: its comma and its comments.
func lineRest(b []byte, at int) (end int, comma bool) {
	for {
		end = at
		for at < len(b) && (b[at] == ' ' || b[at] == '\t') {
			at++
		}

		if at < len(b) && b[at] == ',' && !comma {
			comma = true
			at++
		} else if n := comment(b, at); n > 0 {
			at += n
		} else {
			return end, comma
		}
	}
}

// Layout is how a text is set: on lines or all on one, its line ends, one step of indent, and the indent of the item at
// hand.
type Layout struct {
	lines  bool
	eol    string
	unit   string
	indent string
}

// LayoutOf looks at how the outermost object is set.
func LayoutOf(b []byte, root Container) Layout {
	lay := Layout{lines: true, eol: "\n", unit: "  "}
	if bytes.Contains(b, []byte("\r\n")) {
		lay.eol = "\r\n"
	}
	if len(root.Items) == 0 {
		return lay
	}

	gap := lead(b, root.Items[0].Start)
	n := strings.LastIndexByte(gap, '\n')
	if lay.lines = n >= 0; lay.lines && gap[n+1:] != "" {
		lay.unit = strings.TrimPrefix(gap[n+1:], lineIndent(b, root.Open))
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
