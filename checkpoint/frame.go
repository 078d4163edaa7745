package checkpoint

import (
	"fmt"
	"strings"
)

// The frame around everything that belay puts into an agent's context. The marker is a random word per brief: recovered
// text cannot guess it, and a reader that meets the frame again in a transcript knows its own words.
const (
	frameOpen  = "<belay-record k=\""
	frameClose = "</belay-record k=\""
	frameEnd   = "\">"
)

// Frame puts body between belay's markers.
func Frame(marker, body string) string {
	return fmt.Sprintf("%s%s%s\n%s\n%s%s%s", frameOpen, marker, frameEnd, strings.TrimRight(body, "\n"), frameClose, marker, frameEnd)
}

// StripOwn takes belay's own blocks out of a text and returns their markers. A block whose end is missing (cut by the
// agent) goes to the end of the text.
func StripOwn(text string) (rest string, markers []string) {
	for {
		i := strings.Index(text, frameOpen)
		if i < 0 {
			return text, markers
		}
		after := text[i+len(frameOpen):]
		j := strings.Index(after, frameEnd)
		if j < 0 || j > 64 {
			// No marker of ours: step over the look-alike.
			head, tail := text[:i+len(frameOpen)], after
			tail, more := StripOwn(tail)
			return head + tail, append(markers, more...)
		}
		marker := after[:j]
		markers = append(markers, marker)
		end := frameClose + marker + frameEnd
		k := strings.Index(after, end)
		if k < 0 {
			return text[:i], markers
		}
		text = text[:i] + after[k+len(end):]
	}
}
