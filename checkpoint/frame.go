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

// maxMarker bounds what StripOwn takes for a marker of ours.
const maxMarker = 64

// StripOwn takes belay's own blocks out of a text and returns their markers. A block whose end is missing (cut by the
// agent) goes to the end of the text. One pass, whatever the text holds.
func StripOwn(text string) (rest string, markers []string) {
	var kept strings.Builder
	for {
		i := strings.Index(text, frameOpen)
		if i < 0 {
			break
		}
		after := text[i+len(frameOpen):]
		j := strings.Index(after[:min(len(after), maxMarker+len(frameEnd))], frameEnd)
		if j < 0 { // no marker of ours: step over the look-alike
			kept.WriteString(text[:i+len(frameOpen)])
			text = after
			continue
		}
		kept.WriteString(text[:i])
		marker := after[:j]
		markers = append(markers, marker)
		end := frameClose + marker + frameEnd
		k := strings.Index(after, end)
		if k < 0 {
			return kept.String(), markers
		}
		text = after[k+len(end):]
	}
	if kept.Len() == 0 {
		return text, markers
	}
	kept.WriteString(text)
	return kept.String(), markers
}
