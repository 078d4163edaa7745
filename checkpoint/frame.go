package checkpoint

import (
	"fmt"
	"strings"
)

// The frame around everything that belay puts into an agent's context. The marker is a random word per brief: recovered
// text cannot guess it, and a reader that meets the frame again in a transcript knows its own words
// (internal/agent/kit/payload).
const (
	frameOpen  = "<belay-record k=\""
	frameClose = "</belay-record k=\""
	frameEnd   = "\">"
)

// Frame puts body between belay's markers.
func Frame(marker, body string) string {
	return fmt.Sprintf(
		"%s%s%s\n%s\n%s%s%s", frameOpen, marker, frameEnd, strings.TrimRight(body, "\n"), frameClose, marker,
		frameEnd,
	)
}
