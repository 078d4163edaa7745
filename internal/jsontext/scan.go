// Package jsontext finds where things stand in a JSON text and edits the text in place, so that everything outside
// the edit stays byte for byte: order, spaces, line ends, comments, keys that nobody knows.
//
// One scanner reads JSON, JSON with comments and JSON5. It decodes nothing but keys, takes comments for white space,
// and copes with a text that ends anywhere; it accepts more than any of the three. Ask Object whether a text is what
// it should be before you edit it.
package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// BOM may stand before JSON that an editor on Windows wrote.
const BOM = "\xef\xbb\xbf"

// ErrNoObject: the text is not one object of its dialect. A person must mend it.
var ErrNoObject = errors.New("settings are no JSON object")

// Dialect is the kind of JSON that a program reads.
type Dialect int

const (
	JSON     Dialect = iota
	Comments         // JSON with // and /* */
	JSON5            // and with trailing commas, single quotes and keys without quotes
)

// maxDepth bounds how deep a JSON5 text may be nested.
const maxDepth = 200

// Item is a member of an object, or an element of a list (without a key), by offsets into the text.
type Item struct {
	Key        string
	Start      int // of its key; of its value in a list
	Value, End int // the value is text[Value:End]; End is -1 where the text ends inside it
}

// Container is an object or a list, by offsets into its text.
type Container struct {
	Open, End int // text[Open:End]; End is -1 where the text ends, or cannot be read, before it does
	Items     []Item
}

// Find gives the last member with a key: the one that counts for a reader of JSON.
func (c Container) Find(key string) (Item, bool) {
	if i := c.Index(key); i >= 0 {
		return c.Items[i], true
	}
	return Item{}, false
}

// Index is the place of that member; -1 when there is none.
func (c Container) Index(key string) int {
	for i := len(c.Items) - 1; i >= 0; i-- {
		if c.Items[i].Key == key {
			return i
		}
	}
	return -1
}

// Object gives the object that a text is, and an error for any other text.
func (d Dialect) Object(b []byte) (Container, error) {
	start := SkipSpace(b, bomEnd(b))
	if d == JSON5 {
		if end := valid(b, start, 0); end < 0 || SkipSpace(b, end) < len(b) {
			return Container{}, ErrNoObject
		}
	} else {
		var v json.RawMessage
		if err := d.Decode(b, &v); err != nil {
			return Container{}, fmt.Errorf("%w: %w", ErrNoObject, err)
		}
	}

	if b[start] != '{' {
		return Container{}, ErrNoObject
	}

	return Read(b, start), nil
}

// Blank says whether a text holds nothing; comments are nothing where the dialect has them.
func (d Dialect) Blank(b []byte) bool {
	if d == JSON {
		return len(bytes.TrimSpace(b[bomEnd(b):])) == 0
	}
	return SkipSpace(b, bomEnd(b)) == len(b)
}

// Decode is json.Unmarshal for a text that may begin with a byte-order mark and may have comments.
func (d Dialect) Decode(b []byte, into any) error {
	if d == Comments {
		b = withoutComments(b)
	}
	return json.Unmarshal(b[bomEnd(b):], into)
}

func bomEnd(b []byte) int { return len(b) - len(bytes.TrimPrefix(b, []byte(BOM))) }

// withoutComments is a text of the same length with spaces in place of comments.
func withoutComments(b []byte) []byte {
	out := bytes.Clone(b)
	for i := 0; i < len(b); {
		end := i + 1
		if b[i] == '"' {
			if end = stringEnd(b, i); end < 0 {
				return out
			}
		} else if n := comment(b, i); n > 0 {
			end = i + n
			for ; i < end; i++ {
				out[i] = ' '
			}
		}

		i = end
	}

	return out
}

// valid gives the offset after the value that begins at i, or -1 when it is no JSON5.
func valid(b []byte, i, depth int) int {
	end := ValueEnd(b, i)
	if end < 0 || b[i] != '{' && b[i] != '[' {
		return end
	}

	c := Read(b, i)
	if c.End != end || depth > maxDepth {
		return -1
	}

	for _, it := range c.Items {
		if it.End < 0 || valid(b, it.Value, depth+1) != it.End {
			return -1
		}
	}

	return end
}

// Read lists the items of the object or list that begins at i.
func Read(b []byte, i int) Container {
	c := Container{Open: i, End: -1}
	object := i < len(b) && b[i] == '{'
	for i++; ; i++ {
		i = SkipSpace(b, i)
		if closes(b, i, object) {
			c.End = i + 1
			return c
		}

		it := Item{Start: i, Value: i}
		if object && !it.readKey(b) {
			return c
		}

		it.End = ValueEnd(b, it.Value)
		c.Items = append(c.Items, it)
		if it.End < 0 {
			return c
		}

		i = SkipSpace(b, it.End)
		if closes(b, i, object) {
			c.End = i + 1
			return c
		}
		if i >= len(b) || b[i] != ',' {
			return c
		}
	}
}

// closes says whether the object or the list ends at i.
func closes(b []byte, i int, object bool) bool {
	return i < len(b) && (object && b[i] == '}' || !object && b[i] == ']')
}

// readKey reads the key at Start and finds its value.
func (it *Item) readKey(b []byte) bool {
	end := -1
	if it.Start < len(b) && b[it.Start] != '{' && b[it.Start] != '[' {
		end = ValueEnd(b, it.Start)
	}
	if end < 0 {
		return false
	}

	it.Key = Words(b[it.Start:end])
	colon := SkipSpace(b, end)
	if colon >= len(b) || b[colon] != ':' {
		return false
	}

	it.Value = SkipSpace(b, colon+1)
	return true
}

// Words are those of a string or of a key without quotes. What JSON does not know of a string's escapes stays as it is.
func Words(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' && raw[0] != '\'' {
		return string(raw)
	}

	body := raw[1 : len(raw)-1]
	if bytes.IndexByte(body, '\\') < 0 {
		return string(body)
	}

	var words string
	if raw[0] == '"' && json.Unmarshal(raw, &words) == nil {
		return words
	}

	return string(body)
}

// Lookup follows keys into objects, from a container on. An item without an end is not found.
func Lookup(b []byte, c Container, keys ...string) (it Item, ok bool) {
	for n, key := range keys {
		if n > 0 {
			if b[it.Value] != '{' {
				return it, false
			}
			c = Read(b, it.Value)
		}
		if it, ok = c.Find(key); !ok || it.End < 0 {
			return it, false
		}
	}
	return it, ok
}

// SkipSpace is the offset of the first byte from i on that is neither white space nor in a comment.
func SkipSpace(b []byte, i int) int {
	for i < len(b) {
		switch c := b[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '/':
			n := comment(b, i)
			if n == 0 {
				return i
			}
			i += n

		case c < utf8.RuneSelf && c != '\v' && c != '\f':
			return i
		default:
			r, size := utf8.DecodeRune(b[i:])
			if !unicode.IsSpace(r) && r != '\uFEFF' {
				return i
			}
			i += size
		}
	}
	return i
}

// comment is the length of the comment that begins at i; 0 when there is none, or one without an end.
func comment(b []byte, i int) int {
	rest := b[i:]
	switch {
	case bytes.HasPrefix(rest, []byte("//")):
		if n := bytes.IndexAny(rest, "\r\n"); n >= 0 {
			return n
		}
		return len(rest)
	case bytes.HasPrefix(rest, []byte("/*")):
		if n := bytes.Index(rest[2:], []byte("*/")); n >= 0 {
			return n + 4
		}
	}

	return 0
}

// stringEnd is the offset after the string that begins at i, or -1.
func stringEnd(b []byte, i int) int {
	for j := i + 1; ; {
		n := bytes.IndexByte(b[j:], b[i])
		if n < 0 {
			return -1
		}

		j += n + 1
		slashes := 0
		for k := j - 2; k > i && b[k] == '\\'; k-- {
			slashes++
		}

		if slashes%2 == 0 {
			return j
		}
	}
}

// ValueEnd is the offset after the value that begins at i, or -1. A number or word at the very end of the text counts
// as unfinished.
func ValueEnd(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}

	switch b[i] {
	case '"', '\'':
		return stringEnd(b, i)
	case '{', '[':
		return nestedEnd(b, i)
	}

	if n := bytes.IndexAny(b[i:], " \t\r\n,:{}[]\"'/"); n > 0 {
		return i + n
	}

	return -1
}

func nestedEnd(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"', '\'':
			if i = stringEnd(b, i); i < 0 {
				return -1
			}
			i-- // the loop steps on

		case '/':
			i += max(comment(b, i)-1, 0)
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
