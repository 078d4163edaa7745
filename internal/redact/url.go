package redact

import "strings"

const maxURL = 4 << 10

// matchURL finds the password of user:password@host, and the path of a webhook, which is a key by itself. Keys in the
// query are found by their names.
func matchURL(t *text, at, after int) (span, bool) {
	hi := min(t.limit(at), after+maxURL)
	if t.s[at+1] == '\\' { // :\/\/
		if after >= hi {
			return span{}, false
		}

		c, second, _ := next(t.s, after, hi)
		if c != '/' {
			return span{}, false
		}

		after = second
	}

	colon, atSign, end := 0, 0, after
	for i := after; i < hi; {
		c, next, _ := next(t.s, i, hi)
		if !isURL(c) {
			break
		}
		if c == '/' || c == '?' || c == '#' {
			break
		}
		if c == ':' && colon == 0 {
			colon = i
		}
		if c == '@' {
			atSign = i
		}

		i = next
		end = i
	}

	if colon > 0 && atSign > colon+1 {
		v := t.s[colon+1 : atSign]
		if !isPlaceholder(v) && !isUserWord(v) {
			return span{start: colon + 1, end: atSign, kind: kindOf(v, "password")}, true
		}
	}

	return webhook(t, after, end, hi)
}

// matchHook finds the key in the path behind a host that is for webhooks alone, without a scheme before it.
func matchHook(t *text, at, _ int) (span, bool) {
	if wordBefore(t.s, at) {
		return span{}, false
	}
	hi := min(t.limit(at), at+maxURL)
	return webhook(t, at, run(t.s[:hi], at, isDotted), hi)
}

// isURL says whether a character may stand in the authority of a URL. Brackets are for marks.
func isURL(c byte) bool {
	return c > ' ' && c < 0x7f && !isQuote(c) && strings.IndexByte(`<>\{}|^()`, c) < 0
}

// webhook finds the key in the path of a URL whose host is hooks.* or whose path names a webhook.
func webhook(t *text, host, path, hi int) (span, bool) {
	isHook := strings.HasPrefix(t.s[host:path], "hooks.")
	var segs [][2]int // of the path, at most 12
	begin := path
	i := path
	for i < hi && len(segs) < 12 {
		c, after, _ := next(t.s, i, hi)
		if c == '/' {
			segs = append(segs, [2]int{begin, i})
			begin = after
		} else if !isWord(c) && c != '.' && c != '@' && c != '%' && c != '=' && c != '+' {
			break
		}

		i = after
	}

	segs = append(segs, [2]int{begin, i})
	for n, s := range segs {
		word := t.s[s[0]:s[1]]
		if isHook && n == 1 || strings.HasPrefix(word, "webhook") {
			return hookPath(t, segs[n+1:])
		}
	}

	return span{}, false
}

// hookPath takes all behind the fixed part when one of the segments looks like a key.
func hookPath(t *text, segs [][2]int) (span, bool) {
	for _, s := range segs {
		v := t.s[s[0]:s[1]]
		n := count(v)
		if len(v) >= 12 && !isPlaceholder(v) && n.digit > 0 && n.upper+n.lower > 0 {
			return span{start: segs[0][0], end: segs[len(segs)-1][1], kind: "webhook"}, true
		}
	}
	return span{}, false
}

// isUserWord says whether a password in a URL is only the word for one.
func isUserWord(v string) bool {
	switch strings.ToLower(v) {
	case "password", "passwd", "pass", "pwd", "pw", "secret", "token", "user", "key":
		return true
	}
	return false
}
