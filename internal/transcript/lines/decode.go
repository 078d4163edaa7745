package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// Decode unmarshals a record into v. Fields of an unexpected type are left at zero and are no error: other versions of
// the same program write other types. The only error is a line that is no JSON value; Rescue may still find something
// in it.
func Decode(record []byte, v any) error {
	err := json.Unmarshal(record, v)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return nil
	}
	return err
}

// Broken counts what decoding a record turns into U+FFFD: bytes that are no UTF-8, and escapes of half a surrogate
// pair.
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
	return len(b) >= 6 && b[0] == '\\' && b[1] == 'u' && (b[2] == 'd' || b[2] == 'D') &&
		strings.IndexByte(digits, b[3]) >= 0
}

// Clean makes a decoded string fit for a prompt and a terminal: valid UTF-8 without control characters other than
// newline and tab.
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
