// Package payload is what the agents' folders have in common where they take what another program wrote: its texts, in
// which belay's own blocks may come back; its hook payloads, which may have been cut; the paths that it names; the
// words of a shell command.
//
// It promises:
//   - A block of belay's own is found in plain text, inside of JSON at any depth, and as a program escapes it for HTML;
//     the time that takes grows with the text and no faster.
//   - What is salvaged from a cut payload never ends inside a word: half a secret is none that a rule knows.
//   - Nothing here keeps anything, or knows an agent.
//
// It does not redact and does not bound: who keeps a text does that (redact).
package payload

import (
	"slices"
	"strings"
)

const (
	// word is in both ends of the frame of belay's own blocks, as checkpoint.Frame writes it.
	word = "belay-record"

	maxMarker   = 64 // bytes
	mostMarkers = 64 // of one text: no agent was told so often
)

// frame is one end of a block, by its place in a text.
type frame struct {
	start, end int
	marker     string
}

// StripOwn takes belay's own blocks out of a text and gives their markers, each once. A block whose end is missing goes
// to the end of the text: some agents cut the middle out of what is too long. One pass, whatever the text holds.
func StripOwn(s string) (rest string, markers []string) {
	open, ok := next(s, false)
	if !ok {
		return s, nil
	}

	var kept strings.Builder
	for ; ok; open, ok = next(s, false) {
		kept.WriteString(s[:open.start])
		markers = withMarker(markers, open.marker)
		s = s[open.end:]

		// a block holds no closing marker but its own, unless the text was made to mislead
		for closed := false; !closed; {
			end, ok := next(s, true)
			if !ok {
				return kept.String(), markers
			}
			closed = end.marker == open.marker
			s = s[end.end:]
		}
	}

	kept.WriteString(s)
	return kept.String(), markers
}

// WithoutOwn is a text without belay's own blocks.
func WithoutOwn(s string) string {
	rest, _ := StripOwn(s)
	return rest
}

// Markers are those of belay's own blocks in a record, in any string at any depth, each once.
func Markers(record string) (markers []string) {
	for {
		f, ok := next(record, false)
		if !ok {
			return markers
		}
		markers = withMarker(markers, f.marker)
		record = record[f.end:]
	}
}

func withMarker(list []string, marker string) []string {
	if len(list) == mostMarkers || slices.Contains(list, marker) {
		return list
	}
	return append(list, marker)
}

// next gives the first opening or closing frame of a text.
func next(s string, closing bool) (frame, bool) {
	for from := 0; ; {
		i := strings.Index(s[from:], word)
		if i < 0 {
			return frame{}, false
		}

		at := from + i
		if f, ok := frameAround(s, at, closing); ok {
			return f, true
		}

		from = at + len(word)
	}
}

// frameAround reads a frame by its word's place. Its signs may stand as they are, in a JSON string of any depth (each <
// and > as \u003c and \u003e, each quote behind backslashes), or escaped for HTML.
func frameAround(s string, at int, closing bool) (f frame, ok bool) {
	head := s[:at]
	if closing {
		if head, ok = strings.CutSuffix(head, "/"); !ok {
			return f, false
		}
	}

	if head, ok = signBefore(head, "<", "&lt;", "u003c"); !ok {
		return f, false
	}

	tail, ok := strings.CutPrefix(s[at+len(word):], " k=")
	if ok {
		tail, ok = quoteAfter(tail)
	}

	n := strings.IndexAny(tail[:min(len(tail), maxMarker+1)], `"\<>&`)
	if !ok || n < 1 {
		return f, false
	}

	f.start, f.marker = len(head), tail[:n]
	if tail, ok = quoteAfter(tail[n:]); ok {
		tail, ok = signAfter(tail, ">", "&gt;", "u003e")
	}

	f.end = len(s) - len(tail)
	return f, ok
}

// signBefore takes a sign off a text's end, in one of its three forms.
func signBefore(s, plain, html, code string) (string, bool) {
	for _, form := range []string{plain, html} {
		if rest, ok := strings.CutSuffix(s, form); ok {
			return rest, true
		}
	}

	if rest, ok := strings.CutSuffix(s, code); ok {
		bare := strings.TrimRight(rest, `\`)
		return bare, len(bare) < len(rest)
	}

	return s, false
}

// signAfter takes a sign off a text's beginning.
func signAfter(s, plain, html, code string) (string, bool) {
	for _, form := range []string{plain, html} {
		if rest, ok := strings.CutPrefix(s, form); ok {
			return rest, true
		}
	}

	bare := strings.TrimLeft(s, `\`)
	rest, ok := strings.CutPrefix(bare, code)
	return rest, ok && len(bare) < len(s)
}

func quoteAfter(s string) (string, bool) {
	if rest, ok := strings.CutPrefix(s, "&quot;"); ok {
		return rest, true
	}
	return strings.CutPrefix(strings.TrimLeft(s, `\`), `"`)
}
