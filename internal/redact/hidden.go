package redact

import "encoding/base64"

// A key with a known beginning is known in base64 too: its beginning has three forms there, one for each place in a
// group of three bytes that it can begin at. What is found so is decoded and must be a key there.

const (
	minHidden  = 4   // characters of a beginning's form that make a trigger
	lookHidden = 128 // characters that are decoded: longer keys go to the end of their run
)

// hiddenRules are the forms of the prefixes in base64. Those with fewer than four characters have none that tells.
func hiddenRules() (out []rule) {
	for _, p := range prefixes {
		for _, start := range p.starts {
			if len(start) < minHidden || p.kind == "private-key" || p.kind == "jwt" {
				continue
			}
			for k := range 3 {
				encoded := base64.RawStdEncoding.EncodeToString([]byte("xx"[:k] + start))
				form := encoded[skipped(k) : (k+len(start))*8/6]
				out = append(out, rule{p.kind, false, []string{form[:min(len(form), 12)]}, p.hidden(start, k)})
			}
		}
	}
	return out
}

// skipped is how many characters of a group are not of the beginning's own when k bytes stand before it in the group.
func skipped(k int) int { return (k*8 + 5) / 6 }

// hidden decodes what stands around a trigger that is start in base64 with k bytes before it in its group.
func (p prefix) hidden(start string, k int) matcher {
	return func(t *text, at, _ int) (span, bool) {
		begin, first := at-skipped(k), k // first: where it begins in what is decoded
		if begin < t.done || run(t.s[:at], begin, isBase64URL) < at || escaped(t.s, at) {
			return span{}, false
		}
		if before := begin - 4; before >= t.done && run(t.s[:begin], before, isBase64URL) == begin {
			begin, first = before, k+3 // tells whether a word goes on
		}

		hi := t.limit(at)
		letters, places := t.base64From(begin, hi)
		if len(letters)%4 == 1 {
			letters = letters[:len(letters)-1]
		}

		raw, err := base64.RawStdEncoding.DecodeString(letters)
		if err != nil || len(raw) < first+len(start) || string(raw[first:first+len(start)]) != start {
			return span{}, false
		}

		sp, ok := p.match(&text{s: string(raw)}, first, first+len(start))
		if !ok {
			return span{}, false
		}

		last := min((sp.end*4+2)/3, len(letters)) - 1
		end := places[last] + 1
		if sp.end >= len(raw)-2 { // it may be longer than what was decoded
			end = t.base64End(places[last], hi)
		}

		return span{start: places[first*4/3], end: run(t.s[:hi], end, func(c byte) bool { return c == '=' })}, true
	}
}

// base64From reads the next characters of base64, in the alphabet that has + and /, and where each stands. Line ends
// inside it are passed over.
func (t *text) base64From(i, hi int) (letters string, places []int) {
	b := make([]byte, 0, lookHidden)
	for i < hi && len(b) < lookHidden {
		c, after, _ := next(t.s, i, hi)
		switch {
		case c == '-':
			c = '+'
		case c == '_':
			c = '/'
		case c == '\n' && len(b) > 0:
			i = after
			continue
		}

		if !isAlnumSlash(c) {
			break
		}

		b, places = append(b, c), append(places, i)
		i = after
	}

	return string(b), places
}

// base64End is the end of the base64 that goes on at i.
func (t *text) base64End(i, hi int) int {
	end := i
	for i < hi {
		c, after, _ := next(t.s, i, hi)
		if c != '\n' && !isBase64URL(c) {
			break
		}
		if i = after; c != '\n' {
			end = after
		}
	}

	return end
}

func isBase64URL(c byte) bool { return isAlnum(c) || c == '+' || c == '/' || c == '-' || c == '_' }
