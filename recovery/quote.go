package recovery

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"belay/checkpoint"
)

// Recovered text is a record. It must not be able to end its frame, to look like a live turn, to name a tag that some agent
// obeys, or to carry characters that people do not see.

var (
	// ownName is belay's frame name in any spelling: spaced, upper case, with another dash.
	ownName = regexp.MustCompile(`(?i)belay[\s_\x{2010}-\x{2015}-]*record`)
	// tag is what agents and models read as structure, plain or escaped.
	tag = regexp.MustCompile(`(?i)(<|&lt;|\\u003c)(\s*/?\s*)(system|user|assistant|human|developer|tool|function|hook|command|local-command|antml|instruction|context|session|reminder|recovered|result|invoke|environment|turn_aborted|im_start|im_end|\|)`)
	// fenceLine is a line of dashes or equal signs that poses as a border.
	fenceLine = regexp.MustCompile(`(?m)^[ \t]*(-{3,}|={3,})`)
)

// clean makes text harmless without changing what it says.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return '\n'
		case unicode.IsControl(r) || hidden(r):
			return -1
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
	s = ownName.ReplaceAllString(s, "belay·record")
	return tag.ReplaceAllString(s, "‹$2$3")
}

// hidden are the characters that change how text looks and are not seen: bidi marks, zero width, tags, line separators.
func hidden(r rune) bool {
	switch {
	case r >= 0x200B && r <= 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2060 && r <= 0x206F, r == 0xFEFF, r == 0x00AD, r == 0x061C, r == 0x180E,
		r >= 0xE0000 && r <= 0xE007F, r == 0x2028, r == 0x2029, r >= 0xFFF9 && r <= 0xFFFB:
		return true
	}
	return false
}

// flat is clean text on one line.
func flat(s string) string { return strings.Join(strings.Fields(clean(s)), " ") }

// quote sets every line of a text off with "> ", and ends with a newline.
func quote(s string) string {
	s = strings.TrimRight(clean(s), " \t\n")
	s = fenceLine.ReplaceAllString(s, "·$1")
	return "> " + strings.ReplaceAll(s, "\n", "\n> ") + "\n"
}

// quoted is a head and a quoted text within limit bytes; a text that does not fit is shortened with a mark.
func quoted(head, text string, limit int) string {
	full := head + quote(text)
	if len(full) <= limit {
		return full
	}
	// Quoting adds bytes for each line: shrink until it fits. Each round removes at least what is over.
	for room := limit - len(head) - 4; room > 8; {
		cut, _ := checkpoint.Shorten(clean(text), room)
		full = head + quote(cut)
		if len(full) <= limit {
			return full
		}
		room -= max(len(full)-limit, 1)
	}
	return ""
}

// fit is the last guard of the cap: whole runes, never more than limit bytes.
func fit(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	if limit <= 1 {
		return ""
	}
	n := limit - 1
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "\n"
}
