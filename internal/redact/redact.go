// Package redact takes secrets out of text before belay keeps it anywhere.
//
// Text, Cut and Bytes replace each secret by a mark such as [secret:github-token:1a2b]: its kind and four digits of a
// hash, so that equal secrets look equal and nothing of the value is left.
//
// It promises: valid UTF-8 in gives valid UTF-8 out, a JSON line stays a JSON line, what was redacted stays as it is
// when redacted again, and time grows with the length of the input only. Escapes (\n, \", \u0022) at any depth are
// understood, so a key inside JSON inside JSON is found as well. No rule crosses a line end, except for PEM blocks,
// wrapped base64 and the soft line ends of quoted-printable.
//
// It does not promise to find every secret: it knows the shapes that the field uses (prefixes.go, vendors.go, rules.go)
// and values under telling names, also as people say them (spoken.go): "the password is hunter22", "the PIN is 1234",
// in a dozen languages. A bare password that is a plain word is found only in quotes, or where it is all of a line of
// settings or of a part of a query: behind "the password is" stands "wrong" as often as a password. Of what encodings
// hide, \uXXXX, %XX and quoted-printable are read, three deep, and in base64 a key with a known beginning, a JWT, a
// private key and user:password; other base64, hex and compressed data are not. It removes no control characters. The
// mark of a PIN has no digits of a hash: they would tell it.
//
// The kept rule set of the field, gitleaks, is not linked but is the oracle of a test, in a module of its own (folder
// oracle): what its rules find in made-up keys of each of its 215 families, this package takes out. Linked it cost too
// much: 7.4 MB of program and 24 MB of memory (its own expressions, compiled at the start in 0.4 s; its settings alone
// bring 3 MB), for less than 1 MB/s where this package does over 200 (the mirror needs 100); and its expressions know
// neither JSON in JSON nor a key that a cut goes through.
package redact

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// lookPast is how far Cut looks beyond a cut for the rest of a secret.
const lookPast = 1 << 10

// maxPasses bounds the passes over one text. Taking a secret out can show that its surroundings are one too; two passes
// settle all but made-up input.
const maxPasses = 6

// Warm builds the rules, which the first text would otherwise wait for. It may run beside anything.
func Warm() { triggers() }

// Text returns s with its secrets replaced by marks.
func Text(s string) string {
	for range maxPasses {
		t := text{s: s}
		spans := t.spans()
		if len(spans) == 0 {
			break
		}
		s = string(t.replace(make([]byte, 0, len(s)+32*len(spans)), spans, len(s)))
	}
	return s
}

// Bytes appends line to dst, with its secrets replaced by marks. A line that is JSON stays JSON. Any bytes are allowed.
func Bytes(dst, line []byte) []byte {
	if len(line) == 0 {
		return dst
	}

	t := text{s: unsafe.String(&line[0], len(line)), json: looksJSON(line)} // read only, and not kept
	spans := t.spans()
	if len(spans) == 0 {
		return append(dst, line...)
	}

	begin := len(dst)
	dst = t.replace(dst, spans, len(line))
	for range maxPasses - 1 {
		again := text{s: string(dst[begin:]), json: t.json}
		spans = again.spans()
		if len(spans) == 0 {
			break
		}
		dst = again.replace(dst[:begin], spans, len(again.s))
	}

	return dst
}

// looksJSON says whether a line is JSON by its first byte. In JSON an unescaped quote always ends a string.
func looksJSON(line []byte) bool {
	for _, c := range line {
		switch c {
		case ' ', '\t', '\r':
		case '{', '[', '"':
			return true
		default:
			return false
		}
	}
	return false
}

// Cut redacts s as if it were whole and shortens it to at most limit bytes: head and tail stay, with a visible mark
// between them. Of a long s only the kept parts and 1 KB beyond each cut are looked at; a secret that touches a cut
// goes whole. A limit too small for the mark keeps a head only.
func Cut(s string, limit int) string {
	if limit <= 0 {
		return ""
	}
	if len(s) <= limit+4*lookPast {
		return shorten(Text(s), limit)
	}

	half := max(limit-len(leftOut(len(s))), 2) / 2
	head, headEnd := cutHead(s, half)
	tail, tailStart := cutTail(s, half)
	if len(head)+len(tail)+len(leftOut(len(s))) > limit {
		return shorten(Text(head+tail), limit)
	}

	// The joint may make a new secret of two halves: Text looks once more.
	return shorten(Text(head+leftOut(tailStart-headEnd)+tail), limit)
}

// cutHead returns the redacted beginning of s, at most half bytes, and how far into s it reaches.
func cutHead(s string, half int) (string, int) {
	t := text{s: s[:runeStart(s, half+lookPast)]}
	spans := t.spans()
	end := runeStart(s, half)
	for _, sp := range spans {
		if sp.start < end && end < sp.end {
			end = sp.end // touches the cut: its mark stands for the whole
		}
	}

	out := string(t.replace(nil, spans, end))
	return out[:markBorder(out, half)], end
}

// cutTail is cutHead for the end of s; it returns where the kept part begins.
func cutTail(s string, half int) (string, int) {
	base := runeStart(s, len(s)-half-lookPast)
	t := text{s: s[base:]}
	start := runeStart(s, len(s)-half) - base
	start = skipToken(t.s, start)
	spans := t.spans()
	var kept []span
	for _, sp := range spans {
		if sp.end <= start {
			continue
		}
		if sp.start < start {
			start = sp.start
		}
		kept = append(kept, span{sp.start - start, sp.end - start, sp.kind, sp.quote})
	}

	t.s = t.s[start:]
	out := string(t.replace(nil, kept, len(t.s)))
	if n := len(out) - half; n > 0 {
		out = out[markBorderAfter(out, n):]
	}

	return out, base + start
}

// skipToken moves a tail's start behind a run of token characters that began before the part that is looked at: nobody
// can say whether it is the end of a long key. Runs of a few characters over and over are none.
func skipToken(s string, start int) int {
	seen := map[byte]bool{}
	for i := range start {
		if !isToken(s[i]) {
			return start
		}
		seen[s[i]] = true
	}

	if len(seen) < 4 {
		return start
	}

	for start < len(s) && isToken(s[start]) {
		start++
	}

	return start
}

// shorten cuts a redacted text to limit bytes without cutting a rune or a mark.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}

	room := limit - len(leftOut(len(s)))
	if room < 2 {
		return s[:markBorder(s, limit)]
	}

	head := markBorder(s, (room+1)/2)
	tail := markBorderAfter(s, len(s)-room/2)
	return s[:head] + leftOut(tail-head) + s[tail:]
}

// leftOut is the visible mark of a cut. Its length grows with n.
func leftOut(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return fmt.Sprintf(" … %s bytes left out … ", digits)
}

// runeStart is the last place at or before i that does not lie inside a rune.
func runeStart(s string, i int) int {
	if i >= len(s) {
		return len(s)
	}

	i = max(i, 0)
	for j := i; j >= 0 && j > i-utf8.UTFMax; j-- {
		if utf8.RuneStart(s[j]) {
			return j
		}
	}

	return i // no UTF-8 at all
}

// markBorder is the last place at or before i that lies neither inside a rune nor inside a mark.
func markBorder(s string, i int) int {
	i = runeStart(s, i)
	if a := strings.LastIndex(s[max(0, i-maxMark):i], markOpen); a >= 0 {
		a += max(0, i-maxMark)
		if strings.IndexByte(s[a:i], ']') < 0 {
			return a
		}
	}

	return i
}

// markBorderAfter is the first place at or after i that lies neither inside a rune nor inside a mark.
func markBorderAfter(s string, i int) int {
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}

	if b := markBorder(s, i); b < i {
		if e := strings.IndexByte(s[i:], ']'); e >= 0 && e < maxMark {
			return i + e + 1
		}
	}

	return i
}

// The form of a mark.
const (
	markOpen = "[secret:"
	maxMark  = 40
)

// appendMark writes the mark of a secret. The hash is over the value with its escapes read, so that a key looks the
// same in a text and in a JSON line.
func appendMark(dst []byte, kind, raw string) []byte {
	sum := sha256.Sum256([]byte(unescape(raw)))
	if kind == "pin" { // the hash of so few digits would tell them
		sum = [sha256.Size]byte{}
	}
	return fmt.Appendf(dst, "%s%s:%x]", markOpen, kind, sum[:2])
}

// markEnd is the end of the mark that begins at i, 0 when there is none.
func markEnd(s string, i int) int {
	if i < 0 || !strings.HasPrefix(s[i:], markOpen) {
		return 0
	}

	j := run(s, i+len(markOpen), func(c byte) bool { return isLower(c) || c == '-' })
	if j+6 > len(s) || s[j] != ':' || s[j+5] != ']' || j+6-i > maxMark {
		return 0
	}
	if _, ok := hex4(s[j+1 : j+5]); !ok {
		return 0
	}

	return j + 6
}
