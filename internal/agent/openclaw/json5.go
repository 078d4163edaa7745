package openclaw

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OpenClaw's settings are JSON5: JSON with comments, trailing commas, single quotes and keys without quotes. They are edited
// as text here: what is found stays where it is, byte for byte, but for what is put in or cut out.

// ErrBadSettings: the settings are no JSON5 object. A person must mend them; nothing is written.
var ErrBadSettings = errors.New("settings are no JSON5 object")

const maxDepth = 200

// value is one value in a text: text[start:end].
type value struct {
	start, end int
	kind       byte // '{', '[', '"' for a string, or 'v'
	items      []item
}

// item is a member of an object, or an element of a list (without a key).
type item struct {
	key   string
	start int // of its key, or of its value
	value value
}

// scanner reads JSON5. The first fault ends it: i goes behind the end of the text.
type scanner struct {
	text  string
	i     int
	bad   bool
	depth int
}

func parseSettings(text string) (value, error) {
	s := scanner{text: text, i: len(text) - len(strings.TrimPrefix(text, "\uFEFF"))}
	s.space()
	v := s.value()
	s.space()
	if s.bad || s.i != len(text) || v.kind != '{' {
		return v, ErrBadSettings
	}
	return v, nil
}

func (s *scanner) fail() { s.bad, s.i = true, len(s.text) }

func (s *scanner) peek() byte {
	if s.i < len(s.text) {
		return s.text[s.i]
	}
	return 0
}

// space steps over white space and comments.
func (s *scanner) space() {
	for s.i < len(s.text) {
		r, size := utf8.DecodeRuneInString(s.text[s.i:])
		if unicode.IsSpace(r) || r == '\uFEFF' {
			s.i += size
		} else if !s.comment() {
			return
		}
	}
}

// comment steps over one comment, if there is one.
func (s *scanner) comment() bool {
	rest := s.text[s.i:]
	switch {
	case strings.HasPrefix(rest, "//"):
		n := strings.IndexAny(rest, "\n\r")
		if n < 0 {
			n = len(rest)
		}
		s.i += n
	case strings.HasPrefix(rest, "/*"):
		n := strings.Index(rest[2:], "*/")
		if n < 0 {
			s.fail()
			return false
		}
		s.i += n + 4
	default:
		return false
	}
	return true
}

func (s *scanner) value() value {
	v := value{start: s.i, kind: 'v'}
	switch c := s.peek(); c {
	case '{', '[':
		v.kind = c
		v.items = s.list(c)
	case '"', '\'':
		v.kind = '"'
		s.quoted()
	default:
		if s.word() == "" {
			s.fail()
		}
	}
	v.end = s.i
	return v
}

// list reads the items of an object or a list.
func (s *scanner) list(open byte) []item {
	closing := byte('}')
	if open == '[' {
		closing = ']'
	}
	if s.depth++; s.depth > maxDepth {
		s.fail()
		return nil
	}
	defer func() { s.depth-- }()
	var items []item
	for s.i++; ; {
		s.space()
		if s.peek() == closing {
			s.i++
			return items
		}
		it := item{start: s.i}
		if open == '{' {
			if c := s.peek(); c == '"' || c == '\'' {
				it.key = s.quoted()
			} else if it.key = s.word(); it.key == "" {
				s.fail()
			}
			s.space()
			if s.peek() != ':' {
				s.fail()
				return nil
			}
			s.i++
			s.space()
		}
		if it.value = s.value(); s.bad {
			return nil
		}
		items = append(items, it)
		s.space()
		switch s.peek() {
		case ',':
			s.i++
		case closing:
		default:
			s.fail()
			return nil
		}
	}
}

// quoted reads a string and gives its words.
func (s *scanner) quoted() string {
	quote, start := s.text[s.i], s.i
	for s.i++; s.i < len(s.text); s.i++ {
		switch s.text[s.i] {
		case '\\':
			s.i++
		case quote:
			s.i++
			return unquote(s.text[start:s.i])
		}
	}
	s.fail()
	return ""
}

// unquote gives the words of a string. What JSON does not know of its escapes stays as it is: no name here has any.
func unquote(raw string) string {
	body := raw[1 : len(raw)-1]
	if strings.IndexByte(body, '\\') < 0 {
		return body
	}
	var words string
	if raw[0] == '"' && json.Unmarshal([]byte(raw), &words) == nil {
		return words
	}
	return body
}

// word reads a key without quotes, a number or a name.
func (s *scanner) word() string {
	start := s.i
	for s.i < len(s.text) && !strings.ContainsRune(" \t\r\n,:{}[]\"'/", rune(s.text[s.i])) {
		s.i++
	}
	return s.text[start:s.i]
}

// member finds the last member with a key: the one that counts.
func (v value) member(key string) (value, bool) {
	for i := len(v.items) - 1; v.kind == '{' && i >= 0; i-- {
		if v.items[i].key == key {
			return v.items[i].value, true
		}
	}
	return value{}, false
}

// find follows keys into objects.
func (v value) find(keys ...string) (value, bool) {
	ok := true
	for _, k := range keys {
		if v, ok = v.member(k); !ok {
			return v, false
		}
	}
	return v, true
}

// text of a string value.
func (v value) words(text string) string {
	if v.kind != '"' {
		return ""
	}
	return unquote(text[v.start:v.end])
}

// index finds a string in a list.
func (v value) index(text, words string) int {
	for i, it := range v.items {
		if v.kind == '[' && it.value.kind == '"' && it.value.words(text) == words {
			return i
		}
	}
	return -1
}

// put adds an item at the end of an object or a list, set as the items before it: on a line of its own behind the comment
// that belongs to the last one, or beside it.
func put(text string, to value, rendered string) string {
	n := len(to.items)
	if n == 0 {
		return text[:to.start+1] + rendered + text[to.start+1:]
	}
	end := to.items[n-1].value.end
	gap := lead(text, to.items[n-1].start)
	if !strings.Contains(gap, "\n") {
		return text[:end] + ", " + rendered + text[end:]
	}
	pos, comma := lineRest(text, end)
	if comma {
		return text[:pos] + gap + rendered + "," + text[pos:]
	}
	return text[:end] + "," + text[end:pos] + gap + rendered + text[pos:]
}

// lineRest steps over what else stands in the line of an item: its comma and its comments.
func lineRest(text string, at int) (end int, comma bool) {
	for end = at; at < len(text); {
		rest := text[at:]
		switch {
		case rest[0] == ' ' || rest[0] == '\t':
			at++
			continue
		case rest[0] == ',' && !comma:
			comma = true
			at++
		case strings.HasPrefix(rest, "//"), strings.HasPrefix(rest, "/*"):
			s := scanner{text: text, i: at}
			s.comment()
			at = s.i
		default:
			return end, comma
		}
		end = at
	}
	return end, comma
}

// lead is the white space directly before an item.
func lead(text string, at int) string {
	i := at
	for i > 0 && (text[i-1] == ' ' || text[i-1] == '\t') {
		i--
	}
	if i > 0 && text[i-1] == '\n' {
		i--
		if i > 0 && text[i-1] == '\r' {
			i--
		}
	}
	return text[i:at]
}

// cut takes the n-th item out, with one comma. It is the opposite of put.
func cut(text string, from value, n int) string {
	it := from.items[n]
	start, end := it.start, it.value.end
	if n > 0 {
		start -= len(lead(text, start))
	}
	if comma, ok := commaAfter(text, end); ok {
		for end = comma + 1; n == 0 && end < len(text) && text[end] == ' '; {
			end++
		}
		return text[:start] + text[end:]
	}
	if n > 0 {
		if comma, ok := commaAfter(text, from.items[n-1].value.end); ok && comma < start {
			return text[:comma] + text[comma+1:start] + text[end:]
		}
	}
	return text[:start] + text[end:]
}

func commaAfter(text string, at int) (comma int, ok bool) {
	s := scanner{text: text, i: at}
	s.space()
	return s.i, s.peek() == ','
}
