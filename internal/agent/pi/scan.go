package pi

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// The first stage works on bytes: it finds the members of a record without decoding them. It accepts every valid JSON
// object and some broken ones; what is kept of a record goes through encoding/json afterwards.

// fields visits the members of a JSON object. It says whether obj has the outer form of one object and nothing after
// it.
func fields(obj []byte, visit func(key, value []byte)) bool {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return false
	}
	i = skipSpace(obj, i+1)
	if i < len(obj) && obj[i] == '}' {
		return skipSpace(obj, i+1) == len(obj)
	}
	for {
		if i >= len(obj) || obj[i] != '"' {
			return false
		}
		end := skipString(obj, i)
		if end < 0 {
			return false
		}
		key := obj[i+1 : end-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			key = []byte(text(obj[i:end]))
		}
		i = skipSpace(obj, end)
		if i >= len(obj) || obj[i] != ':' {
			return false
		}
		i = skipSpace(obj, i+1)
		end = skipValue(obj, i)
		if end < 0 {
			return false
		}
		visit(key, obj[i:end])
		i = skipSpace(obj, end)
		if i >= len(obj) {
			return false
		}
		if obj[i] == '}' {
			return skipSpace(obj, i+1) == len(obj)
		}
		if obj[i] != ',' {
			return false
		}
		i = skipSpace(obj, i+1)
	}
}

// elements visits the elements of a JSON array; anything else has none.
func elements(list []byte, visit func(value []byte)) {
	if len(list) == 0 || list[0] != '[' {
		return
	}
	i := skipSpace(list, 1)
	for i < len(list) && list[i] != ']' {
		end := skipValue(list, i)
		if end < 0 {
			return
		}
		visit(list[i:end])
		i = skipSpace(list, end)
		if i < len(list) && list[i] == ',' {
			i = skipSpace(list, i+1)
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString gives the index after the string that begins at b[i], or -1.
func skipString(b []byte, i int) int {
	for j := i + 1; ; {
		k := bytes.IndexByte(b[j:], '"')
		if k < 0 {
			return -1
		}
		k += j
		slashes := 0
		for k-1-slashes > i && b[k-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return k + 1
		}
		j = k + 1
	}
}

// skipValue gives the index after the value that begins at b[i], or -1.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	start := i
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] != ' ' && b[i] != '\t' && b[i] != '\r' &&
		b[i] != '\n' {
		if b[i] == '"' || b[i] == '{' || b[i] == '[' || b[i] == ':' {
			return -1
		}
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func skipNested(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			end := skipString(b, i)
			if end < 0 {
				return -1
			}
			i = end - 1
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
