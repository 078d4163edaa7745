package redact

import "strings"

// What people say of a password and a PIN in a sentence. A plain word behind "the password is" is not taken: as often
// as not it is "wrong", "required" or "stored". What has digits among letters is no word.

// connectives stand between a telling word and its value in a sentence, each with the blank behind it.
var connectives = []string{
	"is ",
	"is: ",
	"is now ",
	"is still ",
	"was ",
	"to ",
	"will be ",
	"equals ",
	"ist ",
	"ist: ",
	"lautet ",
	"lautet: ",
	"war ",
	"est ",
	"est : ",
	"es ",
	"es: ",
	"è ",
	"é ",
	"é: ",
	"era ",
	"jest ",
	"är ",
	"wordt ",
}

// connective is the length of the longest one that s begins with, 0 when there is none.
func connective(s string) (n int) {
	for _, c := range connectives {
		if len(c) > n && strings.HasPrefix(s, c) {
			n = len(c)
		}
	}
	return n
}

// spokenRules are the words for a password in other languages, as far as they are not written with "passw", and PIN.
func spokenRules() []rule {
	return []rule{
		{
			"password",
			true,
			[]string{"kennwort", "wachtwoord", "trase\u00f1a", "trasena", "senord", "senha"},
			matchNamed(password),
		},
		{"password", true, wordEnds("passe"), matchPasse},
		{"pin", true, append(wordEnds("pin"), "pin-"), matchPIN},
	}
}

// matchPasse finds "mot de passe".
func matchPasse(t *text, at, after int) (span, bool) {
	before := t.s[max(t.done, at-len("mot de ")):at]
	if !strings.EqualFold(before, "mot de ") && !strings.EqualFold(before, "mot_de_") {
		return span{}, false
	}
	return matchNamed(password)(t, at, after)
}

// matchPIN finds the four to eight digits of a PIN: "the PIN is 1234", pin=1234, "card_pin": "1234".
func matchPIN(t *text, at, after int) (span, bool) {
	if at > 0 && isAlnum(t.s[at-1]) && wordBefore(t.s, at) && !(isUpper(t.s[at]) && isLower(t.s[at-1])) ||
		escaped(t.s, at) {
		return span{}, false // spin; but cardPin
	}

	i := at + len("pin")
	for _, more := range []string{" code", "-code", " number", "-number"} {
		if end := i + len(more); end <= len(t.s) && strings.EqualFold(t.s[i:end], more) {
			i = end
			break
		}
	}

	p, ok := t.separator(i, sepSpoken)
	if !ok {
		return span{}, false
	}

	end := run(t.s[:min(p.hi, p.begin+9)], p.begin, isDigit)
	if n := end - p.begin; n < 4 || n > 8 {
		return span{}, false
	}

	switch c := t.charAt(end); {
	case p.quote != 0 && end < p.hi && c != p.quote, isWord(c), c >= 0x80, strings.IndexByte(":/%+*", c) >= 0 && c != 0:
		return span{}, false
	case c == '.' && end+1 < len(t.s) && isAlnum(t.s[end+1]):
		return span{}, false
	}

	return span{start: p.begin, end: end, quote: p.number}, true
}

// foreignWords are the words for a password in scripts that the triggers do not reach, without what may be a capital.
var foreignWords = []string{"ароль", "密码", "密碼", "パスワード", "비밀번호"}

// foreignLinks may stand between such a word and its value.
var foreignLinks = []string{":", "：", "=", "是", "为", "為", "は", "은", "는", "это", "-", "—"}

// foreign finds passwords behind foreignWords.
func (t *text) foreign() (found []span) {
	for _, word := range foreignWords {
		for from := 0; ; {
			i := strings.Index(t.s[from:], word)
			if i < 0 {
				break
			}

			from += i + len(word)
			p := place{hi: t.limit(from), sep: ' '}
			p.begin = blanks(t.s, from, p.hi)
			for _, link := range foreignLinks {
				if p.begin <= p.hi && strings.HasPrefix(t.s[p.begin:p.hi], link) {
					p.begin = blanks(t.s, p.begin+len(link), p.hi)
					break
				}
			}

			if p, ok := t.open(p, false); ok {
				if sp, ok := t.value(p, password); ok {
					sp.kind = kindOf(t.s[sp.start:sp.end], "password")
					found = append(found, sp)
				}
			}
		}
	}
	return found
}

// isTechnical says whether a value names a method or an encoding: base64, sha256, argon2id, aes-256-gcm.
func isTechnical(v string) bool {
	v = strings.ToLower(v)
	head := run(v, 0, isLower)
	if head == len(v) || !isDigit(v[head]) && v[head] != '-' {
		return false
	}

	switch v[:head] {
	case "base",
		"sha",
		"argon",
		"pbkdf",
		"aes",
		"utf",
		"oauth",
		"ed",
		"rsa",
		"hmac",
		"md",
		"crc",
		"http",
		"tls",
		"ssl",
		"pkcs",
		"blake",
		"sm",
		"win",
		"python",
		"node",
		"user",
		"step",
		"option",
		"field",
		"page",
		"line",
		"version":
		return true
	}

	return false
}
