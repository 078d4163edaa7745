package redact

import (
	"math"
	"strings"
)

// judge says whether a value under a telling name is a secret. after is the character behind it, dsn is set in a list
// of connection parameters.
func judge(v string, p place, cl class, after byte, dsn bool) bool {
	if isPlaceholder(v) || isPath(v) || cl != password && (isNumber(v) || isNameLike(v)) {
		return false
	}

	n := count(v)
	if p.quote == 0 && isCode(v, after) && !(p.upper && !p.spaced) {
		return false
	}
	if p.quote == 0 && p.spaced && strings.IndexByte(v, '_') > 0 && isEnvName(v) {
		return false // NAME = OTHER_NAME
	}

	switch cl {
	case password:
		return judgePassword(v, p, n, dsn || p.alone && isWordAlone(v, p, n, after))
	case strong:
		return judgeStrong(v, p, n)
	}

	if cl == faint && (n.digit < 3 || n.turns < 3 || p.sep == ' ') {
		return false
	}

	return len(v) >= 20 && n.digit >= 2 && n.lower+n.upper >= 4 && n.other == strings.Count(v, "%") && !isHash(v) &&
		!isUUID(v) &&
		entropy(v) >= 3.3
}

func judgePassword(v string, p place, n counts, dsn bool) bool {
	marked := n.digit > 0 || n.special > 0
	if p.quote != 0 {
		if n.space > 0 {
			return len(v) >= 8 && p.sep != ' ' && (p.upper && p.sep == '=' || !isSentence(v))
		}
		return len(v) >= 5 && (marked || !isNameLike(v))
	}

	if len(v) < 5 {
		return false
	}

	switch {
	case p.upper && !p.spaced && p.sep == '=', dsn && (!p.spaced || p.alone):
		return true
	case p.sep == ' ' && !p.flag:
		return len(v) >= 6 && n.digit > 0 && n.lower+n.upper > 1 && !isTechnical(v) && !isNameLike(v) && !isUUID(v)
	}

	return len(v) >= 6 && marked && !isType(v) && !isNameLike(v)
}

// isWordAlone says whether a plain word is all of a line of settings: `password: sunshine`, or all of a part of a
// query.
func isWordAlone(v string, p place, n counts, after byte) bool {
	ends := after == 0 || after == '\n' || after == '&' || after == '"' || after == '\'' || after == '\\'
	return ends && len(v) >= 6 && n.lower+n.upper+n.digit+n.special == len(strings.TrimRight(v, "=")) && !isType(v) &&
		!isNameLike(v) &&
		!isSentence(v) &&
		(p.sep == ':' || p.sep == '=')
}

func judgeStrong(v string, p place, n counts) bool {
	letters := n.lower + n.upper
	if len(v) < 8 || n.space > 0 || letters == 0 {
		return false
	}
	if p.sep == ' ' && !p.flag {
		return len(v) >= 12 && n.digit >= 2 && looksKey(v)
	}
	if p.quote == 0 && !p.upper {
		return (n.digit >= 2 || len(v) >= 16 && looksKey(v)) && !isType(v)
	}
	if n.digit == 0 {
		return n.special > 0 && len(v) >= 10 || len(v) >= 20 && n.turns >= 6 && n.other == 0
	}

	return true
}

// counts is what a value is made of.
type counts struct {
	lower, upper, digit, space int
	special                    int // signs that no identifier, path or number has
	other                      int // neither letters, digits nor the signs of base64
	turns                      int // changes between small and capital letters
}

func count(s string) (n counts) {
	for i := range len(s) {
		c := s[i]
		switch {
		case isLower(c):
			n.lower++
			if i > 0 && isUpper(s[i-1]) {
				n.turns++
			}

		case isUpper(c):
			n.upper++
			if i > 0 && isLower(s[i-1]) {
				n.turns++
			}

		case isDigit(c):
			n.digit++
		case c == ' ':
			n.space++
			n.other++
		case strings.IndexByte("!@#$%^&*?~", c) >= 0:
			n.special++
			n.other++
		case !isToken(c):
			n.other++
		}
	}
	return n
}

func entropy(s string) (bits float64) {
	var seen [256]int
	for i := range len(s) {
		seen[s[i]]++
	}

	for _, n := range seen {
		if n > 0 {
			f := float64(n) / float64(len(s))
			bits -= f * math.Log2(f)
		}
	}

	return bits
}

// isPlaceholder says whether a value only stands for one: <token>, ${VAR}, xxxx, your-key-here, none, or a mark of
// ours.
func isPlaceholder(v string) bool {
	if v == "" || strings.HasPrefix(v, markOpen) || strings.Contains(v, "...") || strings.Contains(v, "…") {
		return true
	}

	switch v[0] {
	case '<', '{', '[', '(', ')', '%', '&', '`', '\'', '"', ':', ',', '=':
		return true
	case '$':
		if len(v) > 1 && (v[1] == '{' || v[1] == '(' || isAlpha(v[1]) || v[1] == '_' || v[1] == '@') {
			return true
		}

	case '*':
		if strings.Trim(v, "*") == "" || isAlpha(v[1]) {
			return true
		}
	}

	if strings.Contains(v, "${") || strings.Contains(v, "$(") || strings.Contains(v, "{{") {
		return true
	}
	if strings.Trim(v, "xX*.-_#?0•/+=") == "" {
		return true
	}

	lower := strings.ToLower(v)
	for _, w := range []string{
		"xxxx", "****", "....", "redacted", "changeme", "change_me", "change-me", "placeholder", "your_", "your-",
		"<your", "1234567890abcdef",
	} {
		if strings.Contains(lower, w) {
			return true
		}
	}

	return isPlaceholderWord(lower)
}

func isPlaceholderWord(lower string) bool {
	switch lower {
	case "example", "sample", "dummy", "test", "testing", "todo", "tbd", "none", "null", "nil", "undefined",
		"true", "false", "yes", "no", "string", "str", "text", "number", "bool", "boolean", "object", "any",
		"unknown", "void", "required", "optional", "hidden", "masked", "empty", "default", "value", "secret",
		"password", "passwd", "pass", "pwd", "token", "key", "apikey", "api_key", "bearer", "basic", "user",
		"username", "foo", "bar", "baz", "foobar", "invalid", "missing", "valid", "wrong", "incorrect", "correct",
		"option", "options", "flag", "flags", "argument", "parameter", "prompt", "instead", "using", "when",
		"with", "from", "stdin", "input", "confirm", "compat", "files", "systemd", "enabled", "disabled",
		"varchar", "bytes", "field":
		return true
	}
	return false
}

// isCode says whether a bare value is an expression of a program: a call, an index, a chain of names.
func isCode(v string, after byte) bool {
	if after == '(' || after == '[' || strings.IndexByte(v, '[') > 0 || strings.Contains(v, "->") ||
		strings.Contains(v, "::") {
		return true
	}

	dots := 0
	for part := range strings.SplitSeq(v, ".") {
		if part == "" || !isAlpha(part[0]) && part[0] != '_' || run(part, 0, isUnder) != len(part) || len(part) > 24 {
			return false
		}
		if len(part) >= 20 && looksKey(part) {
			return false
		}
		dots++
	}

	return dots > 1
}

// isPath says whether a value is a place: of a file or on the net.
func isPath(v string) bool {
	switch {
	case strings.HasPrefix(v, "~/"),
		strings.HasPrefix(v, "./"),
		strings.HasPrefix(v, "../"),
		strings.Contains(v, "://"),
		strings.Contains(v, `:\`):
		return true
	case v[0] == '/':
		n := count(v)
		return n.turns < 6
	}
	return false
}

// isHash says whether a value has the form of a common sum.
func isHash(v string) bool {
	switch len(v) {
	case 32, 40, 56, 64, 96, 128:
		return run(v, 0, isHex) == len(v)
	}
	return strings.HasPrefix(v, "sha256-") || strings.HasPrefix(v, "sha512-") || strings.HasPrefix(v, "sha1-")
}

// isNumber says whether a value is a number of a program: 0x5345434d.
func isNumber(v string) bool {
	v = strings.TrimLeft(v, "-+")
	return len(v) <= 20 && strings.HasPrefix(v, "0x") &&
		run(v, 2, func(c byte) bool { return isHex(c) || c == '_' }) == len(v)
}

// isUUID says whether a value has the form of a UUID.
func isUUID(v string) bool {
	if len(v) != 36 {
		return false
	}

	for i := range len(v) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (v[i] == '-') || !dash && !isHex(v[i]) {
			return false
		}
	}

	return true
}

// isType says whether a value is the name of a type: string, Uint8Array, int64.
func isType(v string) bool {
	v = strings.TrimLeft(v, "*&?[]")
	base := strings.TrimRight(strings.TrimSuffix(strings.ToLower(v), "array"), "0123456789[]?|")
	switch base {
	case "string",
		"str",
		"text",
		"number",
		"bool",
		"boolean",
		"any",
		"unknown",
		"int",
		"uint",
		"i",
		"u",
		"f",
		"float",
		"bytes",
		"byte",
		"char",
		"varchar",
		"object",
		"optional",
		"secretstr",
		"object.",
		"void",
		"never",
		"undefined",
		"null",
		"none":
		return true
	}

	return false
}

// isNameLike says whether a value is rather the name of a secret than one: access_token, new-password, auth.password.
func isNameLike(v string) bool {
	lower := strings.ToLower(v)
	for _, w := range []string{"passw", "token", "secret", "apikey", "api_key", "api-key", "credential", "bearer"} {
		if strings.Contains(lower, w) {
			return count(v).digit < 5
		}
	}
	return strings.Contains(lower, "key") && run(v, 0, isUnder) == len(v) && count(v).digit < 5
}

// isSentence tells prose from a passphrase: prose has small words.
func isSentence(v string) bool {
	for w := range strings.FieldsSeq(strings.ToLower(v)) {
		switch strings.Trim(w, ".,:;!?()'\"") {
		case "is",
			"are",
			"was",
			"be",
			"must",
			"the",
			"a",
			"an",
			"to",
			"of",
			"or",
			"and",
			"not",
			"your",
			"for",
			"with",
			"in",
			"at",
			"on",
			"cannot",
			"can",
			"please",
			"should",
			"required",
			"invalid",
			"incorrect",
			"enter",
			"if",
			"you",
			"this",
			"that",
			"password",
			"passwords",
			"has",
			"have",
			"do",
			"does",
			"don't",
			"it",
			"will",
			"field",
			"least",
			"characters",
			"no",
			"by",
			"as",
			"new",
			"old":
			return true
		}
	}
	return false
}
