package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// Decode unmarshals a record into v. Fields of an unexpected type are left at zero and are no error: other versions of
// the same program write other types. The only error is a line that is no JSON value; Rescue may still find something in
// it.
func Decode(record []byte, v any) error {
	err := json.Unmarshal(record, v)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return nil
	}
	return err
}

// Rescue gives up after so many places where no record begins, or so many of them from which the line is well-formed up to
// its end.
const (
	rescueTries = 4096
	wholeTries  = 8
)

// Rescue finds the whole objects in a line that does not parse: a record behind the stub of one that a crash cut short,
// or several records on one line. An object counts when it has one of the keys. Lost says that something of the line is
// in none of them. The work is linear in the line's length.
func Rescue(line []byte, keys ...string) (records [][]byte, lost bool) {
	tries, toEnd := 0, 0
	for at, from := 0, 0; from < len(line); {
		i := bytes.Index(line[from:], []byte(`{"`))
		if i < 0 {
			return records, lost || len(bytes.Trim(line[at:], blank)) > 0
		}
		from += i
		end, bad := objectEnd(line[from:])
		if end > 0 && hasKey(line[from:from+end], keys) {
			lost = lost || len(bytes.Trim(line[at:from], blank)) > 0
			records = append(records, line[from:from+end])
			from += end
			at = from
			continue
		}
		lost = true
		tries++
		if end == 0 && bad == len(line)-from {
			toEnd++
		}
		if tries >= rescueTries || toEnd >= wholeTries {
			return records, true
		}
		// A stub breaks where the next record begins: at its brace, or just behind that when the stub ended inside a
		// string. Nothing before that place can be the beginning of a whole object.
		if end == 0 && bad < len(line)-from {
			from += max(bad-3, 1)
		} else {
			from++
		}
	}
	return records, lost
}

// objectEnd gives the length of the JSON object at the start of b, or 0 and how many bytes are well-formed.
func objectEnd(b []byte) (end, bad int) {
	var raw json.RawMessage
	err := json.Unmarshal(b, &raw)
	if err == nil {
		return len(b), 0
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return 0, 0
	}
	n := int(syntax.Offset)
	if n > 1 && n <= len(b) && json.Valid(b[:n-1]) {
		return n - 1, 0
	}
	return 0, n
}

func hasKey(record []byte, keys []string) bool {
	var m map[string]json.RawMessage
	if json.Unmarshal(record, &m) != nil {
		return false
	}
	for _, k := range keys {
		if _, ok := m[k]; ok {
			return true
		}
	}
	return false
}

// Broken counts what decoding a record turns into U+FFFD: bytes that are no UTF-8, and escapes of half a surrogate pair.
func Broken(record []byte) (n int) {
	if !utf8.Valid(record) {
		for b := record; len(b) > 0; {
			r, size := utf8.DecodeRune(b)
			if r == utf8.RuneError && size == 1 {
				n++
			}
			b = b[size:]
		}
	}
	for b := record; ; {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 >= len(b) {
			return n
		}
		b = b[i:]
		switch {
		case surrogate(b, "89abAB"): // first half
			b = b[6:]
			if surrogate(b, "cdefCDEF") {
				b = b[6:]
			} else {
				n++
			}
		case surrogate(b, "cdefCDEF"):
			n++
			b = b[6:]
		default:
			b = b[2:]
		}
	}
}

// surrogate says whether b begins with \uDxYY with x one of the digits.
func surrogate(b []byte, digits string) bool {
	return len(b) >= 6 && b[0] == '\\' && b[1] == 'u' && (b[2] == 'd' || b[2] == 'D') && strings.IndexByte(digits, b[3]) >= 0
}

// Clean makes a decoded string fit for a prompt and a terminal: valid UTF-8 without control characters other than newline
// and tab.
func Clean(s string) string {
	bad := func(r rune) bool {
		return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0
	}
	if utf8.ValidString(s) && strings.IndexFunc(s, bad) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if bad(r) {
			return -1
		}
		return r // broken bytes come as U+FFFD
	}, s)
}
