package redact

import (
	"strings"
	"unicode/utf8"
)

// next reads one logical character at i. A run of backslashes with what it escapes is one character, however deep: \n
// and \\n are a line end, \" and \\\" are quotes, \u003d is an equals sign. depth is the number of backslashes. What is
// not ASCII comes back as bytes of 0x80 and more. i must be below hi.
func next(s string, i, hi int) (c byte, after, depth int) {
	if s[i] != '\\' {
		return s[i], i + 1, 0
	}

	j := i
	for j < hi && s[j] == '\\' {
		j++
	}

	if j == hi {
		return '\\', j, 0
	}

	switch s[j] {
	case 'n', 'r':
		return '\n', j + 1, j - i
	case 't', 'b', 'f':
		return ' ', j + 1, j - i
	case '"', '\'', '/', '`':
		return s[j], j + 1, j - i
	case 'u':
		if v, ok := hex4(s[j+1 : min(hi, j+5)]); ok {
			return lowByte(v), j + 5, j - i
		}
	}

	return '\\', j, 0
}

func hex4(s string) (v int, ok bool) {
	if len(s) != 4 {
		return 0, false
	}

	for i := range 4 {
		d := strings.IndexByte("0123456789abcdef", s[i]|0x20)
		if d < 0 || s[i] < '0' {
			return 0, false
		}
		v = v<<4 | d
	}

	return v, true
}

func lowByte(v int) byte {
	switch {
	case v == '\r':
		return '\n'
	case v < 0x80:
		return byte(v)
	}
	return 0x80
}

// unescape reads all escapes of s. Runes beyond ASCII that were escaped come out as U+FFFD: it serves for hashing and
// judging, not for keeping.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}

	var b strings.Builder
	for i := 0; i < len(s); {
		c, after, depth := next(s, i, len(s))
		if depth > 0 && c >= 0x80 {
			b.WriteRune(utf8.RuneError)
		} else {
			b.WriteByte(c)
		}
		i = after
	}

	return b.String()
}

// escaped says whether the letter at i is the letter of an escape such as \n.
func escaped(s string, i int) bool {
	if strings.IndexByte("nrtbfu", s[i]) < 0 {
		return false
	}

	n := 0
	for j := i - 1; j >= 0 && s[j] == '\\' && n < 64; j-- {
		n++
	}

	return n%2 == 1
}

// wordBefore says whether the character before i is part of the same word. The end of an escape (\n, \u0022, %3D) is
// not.
func wordBefore(s string, i int) bool {
	if i == 0 || !isWord(s[i-1]) {
		return false
	}

	switch {
	case i >= 2 && s[i-2] == '\\' && strings.IndexByte("nrtbf", s[i-1]) >= 0:
		return false
	case i >= 3 && s[i-3] == '%' && isHex(s[i-1]) && isHex(s[i-2]):
		return false
	case i >= 6 && s[i-6] == '\\' && s[i-5] == 'u':
		_, ok := hex4(s[i-4 : i])
		return !ok
	}

	return true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isAlpha(c byte) bool { return isUpper(c) || isLower(c) }
func isAlnum(c byte) bool { return isAlpha(c) || isDigit(c) }
func isWord(c byte) bool  { return isAlnum(c) || c == '_' || c == '-' }
func isHex(c byte) bool   { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }
func isToken(c byte) bool { return isWord(c) || c == '.' || isBase64(c) }
func isBase64(c byte) bool {
	return isAlnum(c) || c == '+' || c == '/' || c == '='
}
func isName(c byte) bool { return isWord(c) || c == '.' }
