package recovery

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/lazyre"
)

// Recovered text is a record. It must not be able to end its frame, to look like a live turn, to name a tag that some
// agent obeys, or to carry characters that people do not see.

// The expressions are anchored and tried only where their first letter stands: run over whole texts they would be most
// of a brief's cost.
var (
	// ownName is belay's frame name in any spelling: spaced, upper case, with another dash or an escaped one.
	ownName = lazyre.New(`^(?i)belay(?:[\W_]|&#?[a-z0-9]{1,8};|%[0-9a-f]{2}|\\[ux][0-9a-f]{2,4}){0,12}record`)
	// tag is what agents and models read as structure, plain or escaped.
	tag = lazyre.New(
		`^(?i)(?:[<＜﹤ᐸ˂⟨〈❮]|&(?:amp;){0,3}(?:lt;?|#0{0,6}60;?|#x0{0,6}3c;?)|\\u003c|\\x3c|%3c)` +
			`(\s{0,8}[/／]?\s{0,8}` +
			`(?:system|user|assistant|human|developer|tool|function|hook|command|local-command|antml|` +
			`instruction|context|session|reminder|recovered|result|invoke|environment|` +
			`turn_|im_start|im_end|bash-|task-|persisted|untrusted|budget|env|[|｜]|belay))`,
	)
	// square are the bracketed forms of the same: [INST], [/INST], [SYSTEM].
	square = lazyre.New(`^(?i)\[(\s{0,8}/?\s{0,8}(?:inst|system|sys)\s{0,8})\]`)
	// fenceLine is a line of dashes or equal signs that poses as a border.
	fenceLine = lazyre.New(`(?m)^[ \t]*(-{3,}|={3,})`)
)

// replace puts repl in the place of each match of an anchored expression, in whatever script its letters are. Only what
// begins with a byte or rune of first is tried.
func replace(s, first string, re *regexp.Regexp, repl string) string {
	const window = 160 // no match is longer
	var b strings.Builder
	for {
		i := strings.IndexAny(s, first)
		if i < 0 {
			break
		}

		b.WriteString(s[:i])
		s = s[i:]
		near, at := latin(s[:min(len(s), window)])
		m := re.FindStringSubmatchIndex(near)
		if m == nil {
			_, n := utf8.DecodeRuneInString(s)
			b.WriteString(s[:n])
			s = s[n:]
			continue
		}

		for j, place := range m {
			if at != nil && place >= 0 {
				m[j] = at[place]
			}
		}

		b.Write(re.ExpandString(nil, repl, s, m))
		s = s[m[1]:]
	}

	if b.Len() == 0 {
		return s
	}

	b.WriteString(s)
	return b.String()
}

// clean makes text harmless without changing what it says. What is clean stays as it is.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r' || r == '\v' || r == '\f' || r == 0x85 || r == 0x2028 || r == 0x2029:
			return '\n'
		case unicode.IsControl(r) || Hidden(r):
			return -1
		case r >= 0xFF21 && r <= 0xFF5A: // full-width letters spell the same words
			return r - 0xFF21 + 'A'
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))

	s = replace(s, "bB", ownName(), "belay·record")
	s = replace(s, `<&\%＜﹤ᐸ˂⟨〈❮`, tag(), "‹$1")
	return replace(s, "[", square(), "($1)")
}

// Hidden says whether a character is one of those that change how text looks and are not seen: bidi marks, zero width,
// fillers, tags, variation selectors (which can smuggle whole texts).
func Hidden(r rune) bool {
	switch {
	case r < 0x00AD:
		return false
	case r >= 0x200B && r <= 0x200F,
		r >= 0x202A && r <= 0x202E,
		r >= 0x2060 && r <= 0x206F,
		r == 0xFEFF,
		r == 0x00AD,
		r == 0x061C,
		r == 0x034F,
		r == 0x115F,
		r == 0x1160,
		r == 0x3164,
		r == 0xFFA0,
		r == 0x17B4,
		r == 0x17B5,
		r >= 0x180B && r <= 0x180F,
		r >= 0xFE00 && r <= 0xFE0F,
		r >= 0xE0000 &&
			r <= 0xE0FFF,
		r == 0x2028,
		r == 0x2029,
		r >= 0xFFF9 && r <= 0xFFFB,
		r >= 0x1D173 && r <= 0x1D17A:
		return true
	}
	return false
}

// flat is clean text on one line.
func flat(s string) string { return strings.Join(strings.Fields(clean(s)), " ") }

// word is a short name on one line: a tool, a sub-agent, a reason, a branch.
func word(s string, most int) string {
	if len(s) > 8*most {
		s = s[:8*most] // no name is that long; clean mends the cut rune
	}
	s, _ = checkpoint.Shorten(flat(s), most)
	return s
}

// code is a one-line text between back-ticks, which it cannot leave.
func code(s string, most int) string {
	return "`" + strings.ReplaceAll(word(s, most), "`", "'") + "`"
}

// quote sets every line of a clean text off with "> ", and ends with a newline.
func quote(s string) string {
	s = strings.TrimRight(s, " \t\n")
	if strings.Contains(s, "---") || strings.Contains(s, "===") {
		s = fenceLine().ReplaceAllString(s, "·$1")
	}
	return "> " + strings.ReplaceAll(s, "\n", "\n> ") + "\n"
}

// quoted is a head and a quoted clean text within limit bytes; a text that does not fit is shortened with a mark, to
// the least room of some letters. It is empty when not even those fit.
func quoted(head, text string, limit int) (out string, cut bool) {
	var full string
	if len(head)+len(text) <= limit {
		if full = head + quote(text); len(full) <= limit {
			return full, false
		}
	}

	// Quoting adds bytes for each line, most where lines are short: shrink in proportion until it fits.
	for room := limit - len(head) - len("> \n"); room >= 4; {
		short, _ := checkpoint.Shorten(text, room)
		full = head + quote(short)
		if len(full) <= limit {
			return full, true
		}
		room = min(room-1, room*(limit-len(head))/(len(full)-len(head)))
	}

	return "", true
}

// bullets is a head and a list of lines within limit bytes: the newest (last) ones that fit, the others counted. It
// gives the number of lines that are left out, and nothing at all when not one fits.
func bullets(head string, lines []string, limit int) (text string, left int) {
	used, first := len(head), len(lines)
	for first > 0 {
		room := limit - used - len(lines[first-1])
		if first > 1 {
			room -= len("- and 999 more\n") // the others may not fit
		}
		if room < 0 {
			break
		}

		first--
		used += len(lines[first])
	}

	if first == len(lines) {
		return "", first
	}
	if first > 0 {
		head += more(first)
	}

	return head + strings.Join(lines[first:], ""), first
}
