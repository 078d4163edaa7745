package redact

import (
	"strings"
	"sync"
)

const (
	maxNamePart = 48  // bytes of a name on each side of the telling word
	maxQuoted   = 512 // bytes of a value in quotes
	maxBare     = 4 << 10
	maxJudged   = 128 // bytes of a bare value by which it is judged: what fails costs no more
)

// class says how much a name tells.
type class int

const (
	password class = iota // any value but a placeholder or code
	strong                // a value that is not a plain word
	weak                  // a value with the entropy of a key
	faint                 // a value that nothing but a key looks like
)

// matchNamed finds NAME=value, "name": "value", --name value and their like. The value must look like one: how much so
// depends on the class of the name.
func matchNamed(cl class) matcher {
	return func(t *text, at, after int) (span, bool) {
		if escaped(t.s, at) && cl >= weak {
			return span{}, false
		}

		trigger := strings.ToLower(t.s[at:after])
		begin, end := t.nameAround(at, after)
		if !isName(trigger[len(trigger)-1]) {
			end = after - 1
		}

		name := t.s[begin:end]
		if trigger == "_auth" && end > after || begin < end && otherThing(name, t.s[after:max(after, end)], cl) {
			return span{}, false
		}

		sep := sepAssign
		switch {
		case begin >= 1 && t.s[begin] == '-':
			sep = sepFlag
		case cl == password:
			sep = sepSpoken
		}

		p, ok := t.separator(end, sep)
		if !ok {
			return span{}, false
		}
		if p.quote != 0 && !isQuote(t.charAt(end)) && t.quotedSince(begin, p) {
			return span{}, false // "NAME=" + value: the quote closes
		}

		p.upper = isEnvName(name)
		p.alone = t.aloneBefore(begin)
		return t.value(p, cl)
	}
}

// nameAround is the whole name that a telling word at [at, after) is part of.
func (t *text) nameAround(at, after int) (begin, end int) {
	begin = at
	for begin > t.done && at-begin < maxNamePart && isName(t.s[begin-1]) && wordBefore(t.s, begin) {
		begin--
	}
	return begin, run(t.s[:min(len(t.s), after+maxNamePart)], after, isName)
}

// aloneBefore says whether nothing but blanks, a list's dash or the sign between two parts of a query stands before i.
func (t *text) aloneBefore(i int) bool {
	for n := 0; i > t.done && n < 40; n++ {
		switch c := t.s[i-1]; {
		case c == ' ' || c == '\t' || c == '-' && n > 0:
			i--
		case c == '\n', c == '&', c == '?', c == ';':
			return true
		case isQuote(c), c == 'n' && i >= 2 && t.s[i-2] == '\\':
			return true
		default:
			return false
		}
	}
	return i <= t.done
}

// quotedSince says whether the same quote as that of the value stands just before the name.
func (t *text) quotedSince(begin int, p place) bool {
	i := begin - 1
	for i > 0 && t.s[i-1] == '\\' && begin-i <= p.depth+1 {
		i--
	}
	return i >= 0 && t.s[begin-1] == p.quote && begin-1-i == p.depth
}

// otherWords end the names of things that are about a secret, and are none.
var otherWords = sync.OnceValue(func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(`s izer count counts type name names length len size limit limits path file url uri
		usage budget field label policy regex pattern prefix suffix expiry expires ttl age endpoint stdin ref id ids
		header format enabled required manager provider error page at version arn env index placeholder hint test
		go py ts js rs md txt json yaml yml`) {
		m[w] = true
	}
	return m
})

// otherThing says whether a name with a telling word means something else: the count, the place, the kind of a secret.
func otherThing(name, suffix string, cl class) bool {
	if suffix == "s" {
		return true
	}

	lower := strings.Trim(strings.ToLower(suffix), "_-.")
	lower = lower[strings.LastIndexAny(lower, "_-.")+1:]
	if otherWords()[lower] {
		return true
	}

	for i := range len(lower) - 3 { // at least four letters, as in secretKeyName
		if otherWords()[lower[i:]] {
			return true
		}
	}

	if cl < weak {
		return false
	}

	n := strings.ToLower(name)
	for _, w := range []string{
		"public", "primary", "foreign", "cache", "idempot", "sort", "partition", "unique", "hash", "lookup", "object",
		"s3_key", "storage", "i18n", "lang",
	} {
		if strings.Contains(n, w) {
			return true
		}
	}

	return false
}

// isEnvName says whether a name is written like a variable of the environment.
func isEnvName(name string) bool {
	n := count(name)
	return n.lower == 0 && n.upper >= 3 && strings.IndexByte(name, '.') < 0
}

// place is where a value begins, and how it is written.
type place struct {
	begin  int
	hi     int  // nothing of the value lies behind it
	quote  byte // 0 for none
	depth  int  // of the quote's escape
	sep    byte // : = > , or blank (a flag, or the word "is")
	spaced bool // blanks between separator and value
	upper  bool // the name is an environment variable
	flag   bool
	number bool // a JSON number: outside any string
	alone  bool // the name stands where a line of settings or a query's part begins
}

// seps says which separators may follow a name.
type seps int

const (
	sepAssign seps = iota
	sepSpoken      // as sepAssign, and all that sentences have
	sepFlag
	sepHeader
)

// separator reads what stands between the end of a name and its value: a closing quote, a separator, an opening quote.
func (t *text) separator(i int, kind seps) (place, bool) {
	p := place{hi: t.limit(i)}
	closed, structural := false, false
	if i >= len(t.s) {
		return p, false
	}

	if c, after, _ := next(t.s, i, min(len(t.s), i+64)); isQuote(c) {
		closed = true
		if t.json && i == p.hi {
			structural = true // the end of a JSON string: its value is another one
			p.hi = len(t.s)
		}

		i = after
		if i < p.hi && t.s[i] == ']' {
			i++
		}
	}

	j := blanks(t.s, i, p.hi)
	if j < p.hi && t.s[j] == '?' && !closed {
		j++
	}
	if j >= p.hi {
		return p, false
	}

	end, ok := j, false
	switch c, _, _ := next(t.s, j, p.hi); {
	case c == ':' || c == '=':
		end, p.sep, ok = assignment(t.s, j, p.hi)
	case c == ',' && closed && kind == sepHeader:
		end, p.sep, ok = j+1, c, true
	case c == ',' && closed:
		end, ok = valueKey(t.s, j+1, p.hi)
		p.sep = ':'
	case kind == sepFlag && j > i:
		end, p.sep, p.flag, ok = j, ' ', true, true
	case kind == sepAssign && j > i && strings.HasPrefix(t.s[j:p.hi], "is "):
		end, p.sep, ok = j+len("is "), ' ', true
	case kind == sepSpoken && j > i:
		n := connective(t.s[j:p.hi])
		end, p.sep, ok = j+n, ' ', n > 0
	}

	if !ok {
		return p, false
	}

	p.begin = blanks(t.s, end, p.hi)
	p.spaced = p.begin > end || j > i && p.sep != ':'
	return t.open(p, structural)
}

// assignment reads = or : or := or => at i. Comparisons are none.
func assignment(s string, i, hi int) (end int, sep byte, ok bool) {
	sep, i, _ = next(s, i, hi)
	var c byte
	after := i
	if i < hi {
		c, after, _ = next(s, i, hi)
	}

	switch {
	case sep == '=' && c == '=', c == '~', c == ':':
		return 0, 0, false
	case sep == '=' && c == '>':
		sep, i = '>', after
	case sep == ':' && c == '=':
		i = after
	}

	return i, sep, true
}

// open reads the opening quote of a value.
func (t *text) open(p place, structural bool) (place, bool) {
	if p.begin >= p.hi {
		return p, false
	}

	s := t.s
	at := p.begin
	if strings.IndexByte("fbruFBRU@", s[at]) >= 0 && at+1 < p.hi {
		if c, _, _ := next(s, at+1, p.hi); isQuote(c) {
			at++ // f"..." and its like
		}
	}

	c, after, depth := next(s, at, p.hi)
	if isQuote(c) {
		p.begin, p.quote, p.depth = after, c, depth
		if structural {
			p.hi = t.limit(after)
		}
		return p, p.begin < p.hi
	}

	if structural {
		p.number = true
		return p, isDigit(c)
	}

	return p, c != '\n'
}

// valueKey reads `"value":` as in {"name": "DB_PASSWORD", "value": "..."}.
func valueKey(s string, i, hi int) (int, bool) {
	i = blanks(s, i, hi)
	for _, want := range []string{"q", "value", "q", ":"} {
		if i >= hi {
			return 0, false
		}

		if want == "q" {
			c, after, _ := next(s, i, hi)
			if !isQuote(c) {
				return 0, false
			}
			i = after
			continue
		}

		if !strings.HasPrefix(s[i:hi], want) {
			return 0, false
		}

		i += len(want)
	}

	return i, true
}

func blanks(s string, i, hi int) int {
	for i < hi && i < len(s) && isBlank(s[i]) {
		i++
	}
	return i
}

// value takes the value at a place if it looks like a secret of the class.
func (t *text) value(p place, cl class) (span, bool) {
	s := t.s
	if p.number {
		end := run(s[:p.hi], p.begin, isDigit)
		c := t.charAt(end)
		if cl != password || end-p.begin < 6 || c != ',' && c != '}' && c != ' ' {
			return span{}, false
		}
		return span{start: p.begin, end: end, quote: true}, true
	}

	end := 0
	if p.quote != 0 {
		var ok bool
		if end, ok = t.quotedEnd(p); !ok {
			return span{}, false
		}
	} else {
		end = t.bareEnd(p.begin, min(p.hi, p.begin+maxJudged))
		if p.sep == ':' && isType(s[p.begin:end]) {
			return t.typed(p, end, cl)
		}
	}

	v := s[p.begin:end]
	if v == "" || !judge(unescape(v), p, cl, t.charAt(end), t.isDSN(p.begin)) {
		return span{}, false
	}
	if p.quote == 0 {
		end = t.bareEnd(p.begin, p.hi)
	}

	return span{start: p.begin, end: end, kind: kindOf(s[p.begin:end], "")}, true
}

// typed goes on behind a type: `password: string = "..."`.
func (t *text) typed(p place, i int, cl class) (span, bool) {
	i = blanks(t.s, i, p.hi)
	if i+1 >= p.hi || t.s[i] != '=' || t.s[i+1] == '=' {
		return span{}, false
	}

	p.begin = blanks(t.s, i+1, p.hi)
	p.sep, p.spaced = '=', true
	p, ok := t.open(p, false)
	if !ok || p.quote == 0 {
		return span{}, false
	}

	return t.value(p, cl)
}

// quotedEnd is the end of a value in quotes. Without a closing quote on the line it is the end of the text, else none.
func (t *text) quotedEnd(p place) (int, bool) {
	i := p.begin
	for i < p.hi {
		c, after, depth := next(t.s, i, p.hi)
		if c == p.quote && depth <= p.depth {
			return i, true
		}
		if c == '\n' {
			return 0, false
		}
		if i-p.begin > maxQuoted { // a long text, or a long key
			end := t.bareEnd(p.begin, p.hi)
			return end, end-p.begin > maxQuoted
		}

		i = after
	}

	return p.hi, true
}

// bareEnd is the end of a value without quotes.
func (t *text) bareEnd(i, hi int) int {
	begin := i
	for i < hi && i-begin < maxBare {
		c, after, _ := next(t.s, i, hi)
		if c <= ' ' || c >= 0x7f || isQuote(c) || strings.IndexByte(",;)}<>|&\\", c) >= 0 || c == '(' ||
			c == ']' && i > begin {
			break
		}
		i = after
	}

	for i > begin && (t.s[i-1] == '.' || t.s[i-1] == ':') {
		i-- // the end of a sentence
	}

	return i
}

// charAt is the logical character at i, 0 at the end.
func (t *text) charAt(i int) byte {
	if i >= len(t.s) {
		return 0
	}
	c, _, _ := next(t.s, i, len(t.s))
	return c
}

// isDSN says whether a value stands in a list such as host=db user=app password=...
func (t *text) isDSN(i int) bool {
	before := strings.ToLower(t.s[max(0, i-96):i])
	for _, w := range []string{"user=", "uid=", "user id=", "username=", "host=", "server="} {
		if strings.Contains(before, w) {
			return true
		}
	}
	return false
}
