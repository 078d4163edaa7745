package redact

import "strings"

// maxHeader bounds the value of a header that is taken whole.
const maxHeader = 8 << 10

// matchAuthorization finds the value of an Authorization header in a request, a map or a call that sets it.
func matchAuthorization(t *text, at, after int) (span, bool) {
	p, ok := t.separator(after, sepHeader)
	if !ok || wordBefore(t.s, at) && isAlnum(t.s[at-1]) {
		return span{}, false
	}

	word := run(t.s, p.begin, isWord)
	scheme := strings.ToLower(t.s[p.begin:word])
	begin := word
	for begin < p.hi && t.s[begin] == ' ' {
		begin++
	}

	switch scheme {
	case "bearer", "basic", "token", "apikey", "api-key", "bot", "key", "negotiate":
		if begin == word {
			return span{}, false
		}

	case "digest", "aws4-hmac-sha256":
		end := t.valueEnd(p)
		return span{start: begin, end: end}, end-begin >= 16
	default:
		begin = p.begin
	}

	end := t.bareEnd(begin, min(p.hi, begin+maxJudged))
	v := t.s[begin:end]
	if len(v) < 8 || isPlaceholder(v) || !hasDigits(v) && count(v).turns < 6 || isPath(v) || isCode(v, t.charAt(end)) {
		return span{}, false
	}
	if scheme != "" && begin == p.begin && !looksKey(v) && len(v) < 16 {
		return span{}, false // prose behind a colon
	}

	end = t.bareEnd(begin, p.hi)
	return span{start: begin, end: end, kind: kindOf(t.s[begin:end], "credential")}, true
}

// matchCookie finds the values of Cookie and Set-Cookie.
func matchCookie(t *text, at, after int) (span, bool) {
	p, ok := t.separator(after, sepHeader)
	if !ok {
		return span{}, false
	}

	look := p
	look.hi = min(p.hi, p.begin+maxJudged)
	v := t.s[p.begin:t.valueEnd(look)]
	eq := strings.IndexByte(v, '=')
	if eq < 1 || len(v)-eq < 8 || !hasDigits(v[eq:]) || isPlaceholder(v[eq+1:]) || run(v, 0, isName) != eq {
		return span{}, false
	}

	return span{start: p.begin, end: t.valueEnd(p)}, true
}

// valueEnd is the end of a header's value: its closing quote; without one a line end, or a quote that opens no value of
// a name in it (what another name has in quotes would stay behind without its name).
func (t *text) valueEnd(p place) int {
	hi := min(p.hi, p.begin+maxHeader)
	i := p.begin
	for i < hi {
		c, after, depth := next(t.s, i, hi)
		if c == '\n' {
			return i
		}

		if isQuote(c) && (p.quote == 0 || c == p.quote && depth <= p.depth) {
			end, ok := t.quotedPart(p.begin, i, after, hi)
			if p.quote != 0 || !ok {
				return i
			}
			after = end
		}

		i = after
	}

	for i > p.begin && i == hi && hi < p.hi && t.s[i-1] >= 0x80 {
		i-- // the bound cut a rune
	}

	return i
}

// quotedPart is the end of the quoted value that begins with the quote at i, when a name and a sign stand before it.
func (t *text) quotedPart(begin, i, after, hi int) (end int, ok bool) {
	sign := i
	for sign > begin && isBlank(t.s[sign-1]) {
		sign--
	}

	if sign == begin || t.s[sign-1] != '=' && t.s[sign-1] != ':' {
		return 0, false
	}

	quote, _, depth := next(t.s, i, hi)
	for j := after; j < hi && j-after < maxQuoted; {
		c, k, d := next(t.s, j, hi)
		if c == '\n' || c == quote && d < depth {
			return j, true // torn, or the end of what it all stands in
		}
		if j = k; c == quote && d == depth || j >= hi {
			return j, true
		}
	}

	return 0, false
}

// matchCommand finds passwords in the arguments of well-known commands.
func matchCommand(t *text, at, after int) (span, bool) {
	if t.s[at] != ' ' && inWord(t.s, at) {
		return span{}, false
	}

	flags := commandFlags(strings.ToLower(t.s[at:after]))
	hi := min(t.limit(at), after+200)
	if t.s[after-1] == ' ' {
		after--
	}

	for i := after; i < hi; {
		c, j, _ := next(t.s, i, hi)
		if c == '\n' || c == '|' || c == ';' {
			break
		}
		if c != ' ' {
			i = j
			continue
		}

		for _, f := range flags {
			if begin := j + len(f.text); strings.HasPrefix(t.s[j:hi], f.text) {
				if sp, ok := t.argument(begin, min(t.limit(at), begin+400), f.pair); ok {
					return sp, true
				}
			}
		}

		i = j
	}

	return span{}, false
}

type flag struct {
	text string
	pair bool // its value is user:password
}

func commandFlags(command string) []flag {
	switch command {
	case "mysql", "mariadb":
		return []flag{{"-p", false}}
	case "redis-cli":
		return []flag{{"-a ", false}}
	case "curl ":
		return []flag{{"-u ", true}, {"--user ", true}}
	case "sshpass":
		return []flag{{"-p ", false}, {"-p", false}}
	}
	return []flag{{"-p ", false}}
}

// argument reads a flag's value at i.
func (t *text) argument(i, hi int, pair bool) (span, bool) {
	p := place{begin: i, hi: hi}
	if i < hi {
		if c, after, depth := next(t.s, i, hi); isQuote(c) {
			p = place{begin: after, hi: hi, quote: c, depth: depth}
		}
	}

	end := t.bareEnd(p.begin, hi)
	if p.quote != 0 {
		end = t.valueEnd(p)
	}

	begin := p.begin
	if pair {
		colon := strings.IndexByte(t.s[begin:end], ':')
		if colon < 0 {
			return span{}, false
		}
		begin += colon + 1
	}

	v := t.s[begin:end]
	if len(v) < 3 || isPlaceholder(v) || v[0] == '-' || v[0] == '/' {
		return span{}, false
	}

	return span{start: begin, end: end, kind: kindOf(v, "password")}, true
}
