package redact

import (
	"slices"
	"strings"
)

// maxDecode bounds how often an encoding was put around another.
const maxDecode = 3

// view is a text with its needless encodings read: \u0041 and %41 are A. at gives for each byte of it where it stands
// in the text that it was made from.
type view struct {
	s  string
	at []int32
	qp bool // =XX and soft line ends are read too
}

// isQuotedPrintable says whether a text is, or holds, a mail in that form: it cannot be without writing = as =3D, but
// for one that says so.
func isQuotedPrintable(s string) bool {
	return strings.Contains(s, "=3D") || strings.Contains(s, "quoted-printable")
}

// spans are the secrets of the text: those that stand there as they are, and those that show when \uXXXX and %XX are
// read.
func (t *text) spans() []span {
	found := t.find()
	if more := t.foreign(); len(more) > 0 {
		found = joinSpans(append(found, more...))
	}

	v := view{s: t.s, qp: isQuotedPrintable(t.s)}
	for range maxDecode {
		next, ok := v.decode()
		if !ok {
			break
		}

		v = next
		for _, sp := range (&text{s: v.s, json: t.json}).find() {
			sp.start, sp.end = int(v.at[sp.start]), int(v.at[sp.end])
			if sp.quote || t.json && sp.end > (&text{s: t.s, json: true}).limit(sp.start) {
				continue // only what lies in one string
			}
			found = append(found, sp)
		}
	}

	if v.at == nil {
		return found
	}

	return joinSpans(found)
}

// joinSpans puts spans in order and makes one of those that overlap.
func joinSpans(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return a.start - b.start })
	out := all[:0]
	for _, sp := range all {
		if n := len(out); n > 0 && sp.start < out[n-1].end {
			out[n-1].end = max(out[n-1].end, sp.end)
			continue
		}
		out = append(out, sp)
	}

	return out
}

// decode reads one layer of encodings. ok is false when there is none.
func (v view) decode() (out view, ok bool) {
	i := v.nextEncoded(0)
	if i < 0 || len(v.s) > 1<<30 {
		return view{}, false
	}

	b := make([]byte, 0, len(v.s))
	out.at = make([]int32, 0, len(v.s)+1)
	for pos := 0; pos <= len(v.s); {
		stop := i
		if i < 0 {
			stop = len(v.s)
		}

		for ; pos < stop; pos++ {
			b, out.at = append(b, v.s[pos]), append(out.at, v.place(pos))
		}

		if i < 0 {
			break
		}

		c, n := encoded(v.s, i)
		if c != 0 { // the end of a line that goes on
			b, out.at = append(b, c), append(out.at, v.place(i))
		}

		pos = i + n
		i = v.nextEncoded(pos)
	}

	out.s, out.at, out.qp = string(b), append(out.at, v.place(len(v.s))), v.qp
	return out, true
}

func (v view) place(i int) int32 {
	if v.at == nil {
		return int32(i)
	}
	return v.at[i]
}

// nextEncoded is the place of the first encoded character at or after i, -1 when there is none.
func (v view) nextEncoded(i int) int {
	s := v.s
	for ; i+2 < len(s); i++ {
		c := s[i]
		if c != '%' && c != '\\' && (c != '=' || !v.qp) {
			continue
		}
		if _, n := encoded(s, i); n > 0 {
			return i
		}
		if c == '\\' {
			i = run(s, i, func(c byte) bool { return c == '\\' }) - 1 // each run is looked at once
		}
	}

	return -1
}

// encoded reads an encoded printable character at i: %41, =41, or \u0041 behind any number of backslashes. A quote in
// %22 comes back as the other one, which ends no JSON string. n is 0 when there is none; c is 0 for the = at the end of
// a line that goes on in the next.
func encoded(s string, i int) (c byte, n int) {
	v := 0
	if s[i] == '=' {
		if end := softEnd(s, i+1); end > 0 {
			return 0, end - i
		}
		if isLower(s[i+1]) || isLower(s[i+2]) {
			return 0, 0
		}
	}

	if s[i] == '%' || s[i] == '=' {
		if !isHex(s[i+1]) || !isHex(s[i+2]) {
			return 0, 0
		}
		v, _ = hex4("00" + s[i+1:i+3])
		n = 3
	} else {
		after := 0
		if c, after, _ = next(s, i, len(s)); after-i < 6 || s[after-5] != 'u' || c >= 0x80 {
			return 0, 0
		}
		v, n = int(c), after-i
	}

	switch {
	case v == '"' && s[i] != '\\':
		return '\'', n
	case s[i] == '\\' && !isToken(byte(v)) && v != ':': // encoders write < and & like that, and next reads them
		return 0, 0
	case v < ' ', v > '~', v == '"', v == '\\', v == '\'', v == '`':
		return 0, 0
	}

	return byte(v), n
}

// softEnd is where the next line begins when nothing but a line end stands at i, 0 otherwise.
func softEnd(s string, i int) (end int) {
	for n := 0; i < len(s) && n < 2; n++ { // \r\n is two
		c, after, _ := next(s, i, len(s))
		if c != '\n' && c != '\r' {
			break
		}
		i, end = after, after
	}
	return end
}
