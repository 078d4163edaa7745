package document

import (
	"slices"
	"strings"

	"belay/internal/lazyre"
)

// The frame of belay's own blocks, as checkpoint.Frame writes it, and as it looks inside JSON at any depth.
var (
	ownOpen  = lazyre.New(`(?:<|\\+u003c)belay-record k=\\*"([^"\\<>]{1,64})\\*"(?:>|\\+u003e)`)
	ownClose = lazyre.New(`(?:<|\\+u003c)/belay-record k=\\*"([^"\\<>]{1,64})\\*"(?:>|\\+u003e)`)
)

// stripOwn takes belay's own blocks out of a text and gives their markers. A block whose end is missing goes to the end of
// the text.
func stripOwn(s string) (rest string, markers []string) {
	if !strings.Contains(s, "belay-record") {
		return s, nil
	}
	var kept strings.Builder
	for {
		at := ownOpen().FindStringSubmatchIndex(s)
		if at == nil {
			kept.WriteString(s)
			return kept.String(), markers
		}
		kept.WriteString(s[:at[0]])
		marker := s[at[2]:at[3]]
		if !slices.Contains(markers, marker) {
			markers = append(markers, marker)
		}
		for s = s[at[1]:]; ; { // a block holds no closing marker but its own, unless the text was made to mislead
			to := ownClose().FindStringSubmatchIndex(s)
			if to == nil {
				return kept.String(), markers
			}
			closed := s[to[2]:to[3]] == marker
			if s = s[to[1]:]; closed {
				break
			}
		}
	}
}
