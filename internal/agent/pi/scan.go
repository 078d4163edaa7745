package pi

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"belay/internal/jsontext"
)

// The first stage works on bytes: it finds the members of a record without decoding them. It accepts every valid JSON
// object and some broken ones; what is kept of a record goes through encoding/json afterwards.

// fields visits the members of a JSON object. It says whether obj has the outer form of one object and nothing after
// it.
func fields(obj []byte, visit func(key, value []byte)) bool {
	i := jsontext.SkipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return false
	}

	i = jsontext.SkipSpace(obj, i+1)
	if i < len(obj) && obj[i] == '}' {
		return jsontext.SkipSpace(obj, i+1) == len(obj)
	}

	for {
		if i >= len(obj) || obj[i] != '"' {
			return false
		}

		end := jsontext.ValueEnd(obj, i)
		if end < 0 {
			return false
		}

		key := obj[i+1 : end-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			key = []byte(text(obj[i:end]))
		}

		i = jsontext.SkipSpace(obj, end)
		if i >= len(obj) || obj[i] != ':' {
			return false
		}

		i = jsontext.SkipSpace(obj, i+1)
		end = jsontext.ValueEnd(obj, i)
		if end < 0 {
			return false
		}

		visit(key, obj[i:end])
		i = jsontext.SkipSpace(obj, end)
		if i >= len(obj) {
			return false
		}
		if obj[i] == '}' {
			return jsontext.SkipSpace(obj, i+1) == len(obj)
		}
		if obj[i] != ',' {
			return false
		}

		i = jsontext.SkipSpace(obj, i+1)
	}
}

// elements visits the elements of a JSON array; anything else has none.
func elements(list []byte, visit func(value []byte)) {
	if len(list) == 0 || list[0] != '[' {
		return
	}

	i := jsontext.SkipSpace(list, 1)
	for i < len(list) && list[i] != ']' {
		end := jsontext.ValueEnd(list, i)
		if end < 0 {
			return
		}

		visit(list[i:end])
		i = jsontext.SkipSpace(list, end)
		if i < len(list) && list[i] == ',' {
			i = jsontext.SkipSpace(list, i+1)
		}
	}
}

// text decodes a JSON string; anything else is "".
func text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}

	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}

	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}

	return s
}

// number decodes a JSON number; anything else is 0.
func number(raw []byte) float64 {
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0
	}
	return n
}

// escaped reads a \uXXXX at the beginning of b.
func escaped(b []byte) (unit uint16, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return uint16(n), err == nil
}

func isHigh(u uint16) bool { return u >= 0xD800 && u < 0xDC00 }
func isLow(u uint16) bool  { return u >= 0xDC00 && u < 0xE000 }
