package redact

import (
	"encoding/base64"
	"strings"
	"sync"
)

// triggers is built from the table at the first text, not at every start of the program, and never changes.
var triggers = sync.OnceValue(func() *index { return buildIndex(rules()) })

// rules is the table of what is looked for. Keys with a known beginning come from prefixes; the others have a matcher of
// their own.
func rules() []rule {
	return append(prefixRules(), []rule{
		{"private-key", true, []string{"private key"}, matchPEM},
		{"password", false, []string{"://", `:\/`, `:\\/`, `:\\\\/`, `:\\\\\\\\/`}, matchURL},
		{"credential", true, []string{"authorization"}, matchAuthorization},
		{"credential", true, []string{"bearer"}, matchBearer},
		{"credential", true, []string{"basic "}, matchBasic},
		{"cookie", true, []string{"cookie"}, matchCookie},
		{"password", true, []string{"mysql", "mariadb", "mongo", "sshpass", "redis-cli", " login ", "curl "}, matchCommand},
		{"password", true, []string{"passw", "passphrase", "passcode", "pwd", "_pass", "dbpass", "pass="}, matchNamed(password)},
		{"secret", true, []string{"secret", "credential"}, matchNamed(strong)},
		{"token", true, []string{"token", "_auth"}, matchNamed(strong)},
		{"api-key", true, []string{
			"apikey", "api_key", "api-key", "api key", "access_key", "access-key", "accesskey", "account_key", "accountkey",
			"private_key", "privatekey", "signing_key", "signingkey", "encryption_key", "encryptionkey", "master_key", "role_key",
		}, matchNamed(strong)},
		{"key", true, []string{"_key", "ionkey", "ingkey", "sig=", "signature="}, matchNamed(weak)},
	}...)
}

// prefix is a kind of key that is known by how it begins.
type prefix struct {
	kind   string
	starts []string
	set    func(byte) bool // what may follow
	min    int             // at least so many of it
	check  func(rest string) bool
}

var prefixes = []prefix{
	{"aws-key", []string{"AKIA", "ASIA", "ABIA", "ACCA"}, isUpperDigit, 16, isLen(16)},
	{"github-token", []string{"ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_"}, isUnder, 20, nil},
	{"gitlab-token", []string{"glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glsoat-", "glagent-"}, isWord, 16, hasDigits},
	{"slack-token", []string{"xoxb-", "xoxp-", "xoxa-", "xoxs-", "xoxr-", "xoxo-", "xoxe-", "xoxe.xoxp-", "xoxe.xoxb-", "xapp-"}, isWord, 10, hasDigits},
	{"stripe-key", []string{"sk_live_", "rk_live_", "sk_test_", "rk_test_"}, isAlnum, 10, nil},
	{"stripe-key", []string{"whsec_"}, isAlnumSlash, 16, nil},
	{"anthropic-key", []string{"sk-ant-"}, isWord, 16, nil},
	{"openai-key", []string{"sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-"}, isWord, 16, nil},
	{"openai-key", []string{"sk-"}, isWord, 20, looksKey},
	{"google-key", []string{"AIza"}, isWord, 30, nil},
	{"google-key", []string{"GOCSPX-", "ya29.", "1//0"}, isWord, 20, looksKey},
	{"npm-token", []string{"npm_"}, isAlnum, 30, nil},
	{"pypi-token", []string{"pypi-"}, isWord, 32, looksKey},
	{"hf-token", []string{"hf_"}, isAlnum, 30, nil},
	{"sendgrid-key", []string{"SG."}, isDotted, 38, isSendGrid},
	{"twilio-key", twilioStarts(), isHex, 31, isLen(31)},
	{"supabase-key", []string{"sb_secret_"}, isWord, 16, nil},
	{"supabase-key", []string{"sbp_"}, isAlnum, 32, nil},
	{"age-key", []string{"AGE-SECRET-KEY-1"}, isUpperDigit, 30, nil},
	{"jwt", []string{"eyJ"}, isDotted, 24, isJWT},
	{"digitalocean-token", []string{"dop_v1_", "doo_v1_", "dor_v1_"}, isHex, 40, nil},
	{"vault-token", []string{"hvs.", "hvb."}, isWord, 24, nil},
	{"docker-token", []string{"dckr_pat_"}, isWord, 20, nil},
	{"groq-key", []string{"gsk_"}, isAlnum, 32, nil},
	{"xai-key", []string{"xai-"}, isAlnum, 40, nil},
}

func prefixRules() []rule {
	out := make([]rule, 0, len(prefixes)+8)
	for _, p := range prefixes {
		out = append(out, rule{p.kind, false, p.starts, p.match})
	}
	return append(out, rule{"telegram-token", false, []string{":AA"}, matchTelegram})
}

// match is the matcher of a prefix: the whole run of characters that may follow, and no word before it.
func (p prefix) match(t *text, at, after int) (span, bool) {
	if p.goesOn(t.s, at) || escaped(t.s, at) {
		return span{}, false
	}
	end := run(t.s, after, p.set)
	for end > after && strings.IndexByte(".-=", t.s[end-1]) >= 0 {
		end-- // the end of a sentence, not of the key
	}
	rest := t.s[after:end]
	if len(rest) < p.min || isPlaceholder(rest) || p.check != nil && !p.check(rest) {
		return span{}, false
	}
	if p.kind == "aws-key" {
		end = withAWSSecret(t.s, end)
	}
	return span{start: at, end: end}, true
}

// goesOn says whether the character before i belongs to the same run. One run is looked at once, whatever is in it.
func (p prefix) goesOn(s string, i int) bool {
	if i == 0 {
		return false
	}
	c := s[i-1]
	if isWord(c) {
		return wordBefore(s, i) && (isAlnum(c) || p.set(c))
	}
	return p.set(c)
}

// kindOf names a value by its beginning, so that a key has one mark wherever it stands.
func kindOf(value, otherwise string) string {
	t := text{s: value}
	for _, p := range prefixes {
		for _, start := range p.starts {
			if strings.HasPrefix(value, start) {
				if sp, ok := p.match(&t, 0, len(start)); ok && sp.end == len(value) {
					return p.kind
				}
			}
		}
	}
	return otherwise
}

// withAWSSecret extends the span of an access key id over the secret key that follows it, as in a CSV file.
func withAWSSecret(s string, end int) int {
	i := end
	for i < len(s) && i-end < 4 && strings.IndexByte(",:; |\t", s[i]) >= 0 {
		i++
	}
	stop := run(s[:min(len(s), i+41)], i, isBase64)
	if i > end && stop-i == 40 && looksKey(s[i:stop]) {
		return stop
	}
	return end
}

func matchTelegram(t *text, at, after int) (span, bool) {
	begin := at
	for begin > t.done && at-begin < 12 && isDigit(t.s[begin-1]) {
		begin--
	}
	end := run(t.s, after, isWord)
	if n := at - begin; n < 8 || n > 10 || wordBefore(t.s, begin) && !strings.HasSuffix(t.s[:begin], "bot") || end-after < 30 {
		return span{}, false
	}
	return span{start: begin, end: end}, true
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
	end := run(t.s, after, isBase64)
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(t.s[after:end], "="))
	if err != nil || len(raw) < 5 || wordBefore(t.s, at) {
		return span{}, false
	}
	colon := false
	for _, c := range raw {
		if c < ' ' || c > '~' {
			return span{}, false
		}
		colon = colon || c == ':'
	}
	return span{start: after, end: end}, colon
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

func isLen(n int) func(string) bool {
	return func(rest string) bool { return len(rest) == n }
}

// hasDigits tells a key from a word such as glpat-something-else.
func hasDigits(s string) bool {
	return strings.ContainsAny(s, "0123456789")
}

// looksKey says whether a run looks made by a machine: digits and letters of both cases, or long with many digits.
func looksKey(s string) bool {
	n := count(s)
	return n.digit >= 1 && n.upper >= 2 && n.lower >= 2 || n.digit >= 6 && n.lower+n.upper >= 6 && len(s) >= 24
}

func isSendGrid(rest string) bool {
	a, b, ok := strings.Cut(rest, ".")
	return ok && len(a) >= 16 && len(b) >= 16
}

// isJWT wants a second part; the third may be missing (unsigned, or cut).
func isJWT(rest string) bool {
	a, b, ok := strings.Cut(rest, ".")
	return ok && len(a) >= 8 && len(b) >= 8 && !strings.Contains(rest, "..")
}

func twilioStarts() []string {
	var out []string
	for _, c := range "0123456789abcdef" {
		out = append(out, "SK"+string(c))
	}
	return out
}
