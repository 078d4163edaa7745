package redact

import "strings"

const (
	maxPEM   = 32 << 10 // a longer block is no key
	maxLabel = 40       // bytes between the dashes and "PRIVATE KEY"
)

// matchPEM finds a private key between its BEGIN and END lines, with real or escaped line ends, in source code and with
// line numbers before the lines. A block that was cut is found by the one border that is left.
func matchPEM(t *text, at, after int) (span, bool) {
	label := t.s[max(t.done, at-maxLabel):at]
	if i := strings.LastIndex(label, "-----BEGIN "); i >= 0 {
		return pemFrom(t, at-len(label)+i, after)
	}
	if i := strings.LastIndex(label, "-----END "); i >= 0 {
		return pemTo(t, at-len(label)+i, after)
	}

	return span{}, false
}

func pemFrom(t *text, begin, after int) (span, bool) {
	hi := min(t.limit(begin), after+maxPEM)
	if hi < after { // the string that BEGIN stands in ends before the words "PRIVATE KEY"
		return span{}, false
	}

	body := dashes(t.s, after, hi)
	if body == after {
		return span{}, false
	}

	stop := hi
	if i := strings.Index(t.s[body:hi], "-----"); i >= 0 {
		stop = body + i
	}
	if end, ok := endLine(t.s, stop, hi); ok && looksPEM(unescape(t.s[body:stop])) {
		return span{start: begin, end: end}, true
	}

	// No END line: all that looks like the key's lines.
	end := pemBody(t.s, body, stop)
	if countBase64(t.s[body:end]) < 8 {
		return span{}, false
	}

	return span{start: begin, end: end}, true
}

// pemTo goes back from an END line whose BEGIN was cut away.
func pemTo(t *text, endAt, after int) (span, bool) {
	begin := endAt
	for begin > t.done && endAt-begin < maxPEM {
		c := t.s[begin-1]
		if !isBase64(c) && c != '\\' && c != '\n' && c != '\r' {
			break
		}
		begin--
	}

	for begin < endAt && t.s[begin] == '\\' {
		_, begin, _ = next(t.s, begin, endAt) // never begin inside an escape
	}

	if n := endAt - begin; n < 24 || n >= maxPEM {
		return span{}, false
	}

	return span{start: begin, end: dashes(t.s, after, len(t.s))}, true
}

// dashes skips " BLOCK" and the dashes behind a label; it returns i where there are none.
func dashes(s string, i, hi int) int {
	j := i
	if strings.HasPrefix(s[j:hi], " BLOCK") {
		j += len(" BLOCK")
	}
	if !strings.HasPrefix(s[j:hi], "-----") {
		return i
	}

	return j + len("-----")
}

func endLine(s string, i, hi int) (int, bool) {
	if !strings.HasPrefix(s[i:hi], "-----END ") {
		return 0, false
	}

	rest := s[i+len("-----END ") : hi]
	k := strings.Index(rest, "PRIVATE KEY")
	if k < 0 || k > maxLabel {
		return 0, false
	}

	return dashes(s, i+len("-----END ")+k+len("PRIVATE KEY"), hi), true
}

// looksPEM tells a key from a text that names both borders: nothing but base64 and line ends, or a long line of base64.
func looksPEM(body string) bool {
	pure := true
	for line := range strings.SplitSeq(body, "\n") {
		line = strings.TrimSpace(line)
		n := 0
		for i := range len(line) {
			if !isBase64(line[i]) {
				pure = false
				n = 0
				continue
			}
			if n++; n >= 40 {
				return true
			}
		}
	}

	return pure && countBase64(body) >= 8
}

// pemBody is the end of what may belong to a key: base64, line ends and blanks.
func pemBody(s string, i, hi int) int {
	for i < hi {
		c, after, _ := next(s, i, hi)
		if !isBase64(c) && c != '\n' && c != ' ' {
			break
		}
		i = after
	}
	return i
}

func countBase64(s string) (n int) {
	for i := range len(s) {
		if isBase64(s[i]) {
			n++
		}
	}
	return n
}
