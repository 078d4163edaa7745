package redact

import (
	"encoding/base64"
	"slices"
	"strings"
	"sync"
)

// triggers is built from the table at the first text, not at every start of the program, and never changes.
var triggers = sync.OnceValue(func() *index { return buildIndex(rules()) })

// rules is the table of what is looked for. Keys with a known beginning come from prefixes; the others have a matcher
// of their own.
func rules() []rule {
	return slices.Concat(prefixRules(), []rule{
		{"private-key", true, []string{"private key"}, matchPEM},
		{"password", false, []string{"://", `:\/`, `:\\/`, `:\\\\/`, `:\\\\\\\\/`}, matchURL},
		{"webhook", false, []string{"hooks."}, matchHook},
		{"credential", true, []string{"authorization"}, matchAuthorization},
		{"credential", true, []string{"bearer"}, matchBearer},
		{"credential", true, []string{"basic "}, matchBasic},
		{"cookie", true, []string{"cookie"}, matchCookie},
		{
			"password",
			true,
			[]string{"mysql", "mariadb", "mongo", "sshpass", "redis-cli", " login ", "curl "},
			matchCommand,
		},
		{
			"password",
			true,
			[]string{"passw", "passphrase", "passcode", "pwd", "_pass", "dbpass", "pass="},
			matchNamed(password),
		},
		{"credential", true, wordEnds("auth"), matchPair},
		{"secret", true, []string{"secret", "credential"}, matchNamed(strong)},
		{"token", true, []string{"token", "_auth"}, matchNamed(strong)},
		{
			"api-key",
			true,
			[]string{
				"apikey",
				"api_key",
				"api-key",
				"api key",
				"access_key",
				"access-key",
				"accesskey",
				"account_key",
				"accountkey",
				"private_key",
				"privatekey",
				"signing_key",
				"signingkey",
				"encryption_key",
				"encryptionkey",
				"master_key",
				"role_key",
			},
			matchNamed(strong),
		},
		{"key", true, []string{"_key", "ionkey", "ingkey", "sig=", "signature="}, matchNamed(weak)},
		{"key", true, wordEnds("key", "auth", "access", "creds", "api"), matchNamed(faint)},
	}, vendorRules(), spokenRules(), hiddenRules())
}

// wordEnds gives words with what may stand behind a whole name.
func wordEnds(words ...string) []string {
	var out []string
	for _, w := range words {
		for _, end := range "=:\"'\\ " {
			out = append(out, w+string(end))
		}
	}
	return out
}

// matchBearer finds "Bearer <token>" anywhere.
func matchBearer(t *text, at, after int) (span, bool) {
	if wordBefore(t.s, at) {
		return span{}, false
	}

	begin := run(t.s, after, isBlank)
	end := run(t.s, begin, isToken)
	v := t.s[begin:end]
	if begin == after || len(v) < 16 || isPlaceholder(v) || !hasDigits(v) && !looksKey(v) {
		return span{}, false
	}

	return span{start: begin, end: end, kind: kindOf(v, "credential")}, true
}

// matchBasic finds the header value "Basic <base64 of user:password>".
func matchBasic(t *text, at, after int) (span, bool) {
	if wordBefore(t.s, at) {
		return span{}, false
	}
	return t.pair(after)
}

// matchPair finds base64 of user:password under the name auth, as in the settings of container registries.
func matchPair(t *text, at, after int) (span, bool) {
	p, ok := t.separator(after-1, sepAssign)
	if !ok || p.number || p.sep == ' ' {
		return span{}, false
	}
	return t.pair(p.begin)
}

// pair takes base64 of user:password at i. A path may go on behind it: its slashes are letters of base64 too.
func (t *text) pair(i int) (span, bool) {
	end := run(t.s[:min(len(t.s), i+maxHeader)], i, isBase64)
	for range 8 {
		if isPair(t.s[i:end]) {
			return span{start: i, end: end}, true
		}

		slash := strings.LastIndexByte(t.s[i:end], '/')
		if slash < 0 {
			break
		}

		end = i + slash
	}

	return span{}, false
}

// isPair says whether a text is base64 of user:password.
func isPair(s string) bool {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil || len(raw) < 5 {
		return false
	}

	colon := false
	for _, c := range raw {
		if c < ' ' || c > '~' {
			return false
		}
		colon = colon || c == ':'
	}

	return colon
}

// run is the end of the run of characters of a set that begins at i.
func run(s string, i int, set func(byte) bool) int {
	for i < len(s) && set(s[i]) {
		i++
	}
	return i
}

func isUpperDigit(c byte) bool { return isUpper(c) || isDigit(c) }
func isAlnumSlash(c byte) bool { return isAlnum(c) || c == '+' || c == '/' }
func isUnder(c byte) bool      { return isAlnum(c) || c == '_' }
func isDotted(c byte) bool     { return isWord(c) || c == '.' }
func isBlank(c byte) bool      { return c == ' ' || c == '\t' }
func isUpperDash(c byte) bool  { return isUpper(c) || isDigit(c) || c == '-' }
func isHexDash(c byte) bool    { return isHex(c) || c == '-' }
func isTokenDot(c byte) bool   { return isWord(c) || c == '.' || c == '=' }
