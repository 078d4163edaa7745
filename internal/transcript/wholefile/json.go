package wholefile

import (
	"errors"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrBroken says that a document ends before its end, or is no JSON from some place on: it is being written, or was cut
// short.
var ErrBroken = errors.New("document is not whole")

const bom = "\xef\xbb\xbf" // may begin a text, and means nothing

// maxDepth bounds how deep a value may be nested: deeper ones are made to do harm.
const maxDepth = 10_000

// JSON goes through one JSON text without holding it in memory, however large its values are. It checks only as much of
// the text as it needs to find its way.
//
// Object and Array call a function for each value; what the function leaves unread is skipped.
type JSON struct {
	src      io.Reader
	buf      []byte
	pos, end int
	read     int64 // bytes taken from src
	pending  bool  // the value that a function was called for is unread
	text     *text // the string that is being read
}

// NewJSON reads from src.
func NewJSON(src io.Reader) *JSON { return &JSON{src: src, buf: make([]byte, 64<<10)} }

// Off is how many bytes were read so far.
func (j *JSON) Off() int64 { return j.read - int64(j.end-j.pos) }

func (j *JSON) next() (byte, error) {
	for j.pos == j.end {
		n, err := j.src.Read(j.buf)
		j.pos, j.end = 0, n
		j.read += int64(n)
		if n == 0 && errors.Is(err, io.EOF) {
			return 0, ErrBroken
		}
		if n == 0 && err != nil {
			return 0, err
		}
	}

	c := j.buf[j.pos]
	j.pos++
	return c, nil
}

// token is the next byte that is no blank.
func (j *JSON) token() (byte, error) {
	for {
		c, err := j.next()
		if c == bom[0] && err == nil && j.Off() == 1 && j.end-j.pos >= 2 && string(j.buf[j.pos:j.pos+2]) == bom[1:] {
			j.pos += 2
			continue
		}
		if err != nil || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, err
		}
	}
}

// Kind is the first byte of the next value, which stays unread: one of { [ " or that of a word or number.
func (j *JSON) Kind() (byte, error) {
	c, err := j.token()
	if err == nil {
		j.pos--
	}
	return c, err
}

// Object reads an object and calls fn for each member. A value that is none is skipped.
func (j *JSON) Object(fn func(key string) error) error {
	return j.members('{', '}', func() error {
		key, _, err := j.value(1<<10, nil)
		if err != nil {
			return err
		}

		c, err := j.token()
		if err != nil {
			return err
		}
		if c != ':' || len(key) < 2 || key[0] != '"' {
			return ErrBroken
		}

		j.pending = true
		return fn(string(key[1 : len(key)-1]))
	})
}

// Array reads an array and calls fn for each value. A value that is none is skipped.
func (j *JSON) Array(fn func() error) error { return j.members('[', ']', fn) }

func (j *JSON) members(open, closing byte, fn func() error) error {
	kind, err := j.Kind()
	if err != nil {
		return err
	}
	if kind != open {
		return j.Skip()
	}

	j.pos++
	j.pending = false
	for first := true; ; first = false {
		c, err := j.token()
		switch {
		case err != nil:
			return err
		case c == closing:
			return nil
		case !first && c != ',':
			return ErrBroken
		case first:
			j.pos--
		}

		j.pending = true
		if err := fn(); err != nil {
			return err
		}
		if err := j.rest(); err != nil {
			return err
		}
	}
}

// rest skips what a function left of its value.
func (j *JSON) rest() error {
	if j.text != nil {
		t := j.text
		j.text = nil
		if _, err := io.Copy(io.Discard, t); err != nil {
			return err
		}
	}

	if j.pending {
		return j.Skip()
	}

	return nil
}

// Skip passes over the next value.
func (j *JSON) Skip() error {
	_, _, err := j.value(0, nil)
	return err
}

// Value gives the next value's text, at most limit bytes of it; over says that there is more.
func (j *JSON) Value(limit int) (raw []byte, over bool, err error) {
	return j.value(limit, make([]byte, 0, 256))
}

func (j *JSON) value(limit int, raw []byte) ([]byte, bool, error) {
	c, err := j.token()
	depth := 0
	over := false
	for ; err == nil; c, err = j.next() {
		if depth == 0 && len(raw) > 0 &&
			(c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t') {
			j.pos-- // the end of a word or a number
			break
		}

		if len(raw) < limit || len(raw) == 0 {
			raw = append(raw, c)
		} else {
			over = true
		}

		switch c {
		case '"':
			if raw, over, err = j.quoted(limit, raw, over); err != nil {
				return nil, over, err
			}

		case '{', '[':
			if depth++; depth > maxDepth {
				return nil, over, ErrBroken
			}

		case '}', ']', ',', ':':
			if depth == 0 {
				return nil, over, ErrBroken
			}
			if c == '}' || c == ']' {
				depth--
			}

		default:
			continue
		}

		if depth == 0 {
			break
		}
	}

	if errors.Is(err, ErrBroken) && depth == 0 && len(raw) > 0 && raw[0] != '"' {
		err = nil // a word or a number at the very end
	}
	if err != nil {
		return nil, over, err
	}

	j.pending = false
	return raw, over, nil
}

// quoted reads a string to its end.
func (j *JSON) quoted(limit int, raw []byte, over bool) ([]byte, bool, error) {
	for escaped := false; ; {
		if j.pos == j.end {
			if _, err := j.next(); err != nil {
				return raw, over, err
			}
			j.pos--
		}

		begin := j.pos
		ended := false
		for i, c := range j.buf[j.pos:j.end] {
			if escaped {
				escaped = false
			} else if c == '\\' {
				escaped = true
			} else if c == '"' {
				ended = true
				j.pos += i + 1
				break
			}
		}

		if !ended {
			j.pos = j.end
		}

		part := j.buf[begin:j.pos]
		if room := max(limit-len(raw), 0); room < len(part) {
			part, over = part[:room], true
		}

		raw = append(raw, part...)
		if ended {
			return raw, over, nil
		}
	}
}

// Text reads the next value, a string, with its escapes resolved. It is ErrBroken for one that is none.
func (j *JSON) Text() (io.Reader, error) {
	c, err := j.token()
	if err != nil {
		return nil, err
	}
	if c != '"' {
		return nil, ErrBroken
	}

	j.pending = false
	j.text = &text{j: j}
	return j.text, nil
}

// text is a JSON string as it is read.
type text struct {
	j    *JSON
	held []byte // of a character that did not fit
	err  error
}

// Read implements io.Reader.
func (t *text) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(t.held) > 0 {
			c := copy(p[n:], t.held)
			t.held = t.held[c:]
			n += c
			continue
		}

		if t.err != nil {
			break
		}

		n += t.plain(p[n:])
		if n == len(p) {
			break
		}

		c, err := t.j.next()
		switch {
		case err != nil:
			t.err = err
		case c == '"':
			t.err = io.EOF
			if t.j.text == t {
				t.j.text = nil
			}

		case c == '\\':
			t.held, t.err = t.escape(nil)
		default:
			p[n] = c
			n++
		}
	}

	if n > 0 {
		return n, nil
	}

	return 0, t.err
}

// plain copies what needs no resolving, as far as it is at hand.
func (t *text) plain(p []byte) int {
	from := t.j.buf[t.j.pos:t.j.end]
	from = from[:min(len(from), len(p))]
	n := len(from)
	for i, c := range from {
		if c == '"' || c == '\\' {
			n = i
			break
		}
	}

	copy(p, from[:n])
	t.j.pos += n
	return n
}

// escape resolves what follows a backslash.
func (t *text) escape(to []byte) ([]byte, error) {
	c, err := t.j.next()
	if err != nil {
		return to, err
	}

	switch c {
	case 'n':
		return append(to, '\n'), nil
	case 't':
		return append(to, '\t'), nil
	case 'r':
		return append(to, '\r'), nil
	case 'b':
		return append(to, '\b'), nil
	case 'f':
		return append(to, '\f'), nil
	case 'u':
		return t.unit(to)
	}

	return append(to, c), nil
}

// unit resolves \uXXXX, and the second half of a pair when it follows.
func (t *text) unit(to []byte) ([]byte, error) {
	r, err := t.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return utf8.AppendRune(to, r), err
	}

	for _, want := range []byte{'\\', 'u'} {
		c, err := t.j.next()
		if err != nil {
			return to, err
		}

		if c != want {
			t.j.pos-- // half a pair; what follows is read on its own
			if want == 'u' {
				to = utf8.AppendRune(to, utf8.RuneError)
				return t.escape(to)
			}
			return utf8.AppendRune(to, utf8.RuneError), nil
		}
	}

	second, err := t.hex()
	if pair := utf16.DecodeRune(r, second); pair != utf8.RuneError || err != nil {
		return utf8.AppendRune(to, pair), err
	}

	return utf8.AppendRune(utf8.AppendRune(to, utf8.RuneError), second), nil
}

func (t *text) hex() (rune, error) {
	var r rune
	for range 4 {
		c, err := t.j.next()
		if err != nil {
			return 0, err
		}

		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, ErrBroken
		}
	}

	return r, nil
}
