package claude

import (
	"bytes"

	"belay/internal/agent"
)

// Recognise knows Claude Code's records by the fields that only they have together. A sessionId alone may be another
// program's. A first line that a crash cut short says nothing: the records behind it do.
func (*Agent) Recognise(head []byte) agent.Score {
	head = bytes.TrimLeft(head, "\xef\xbb\xbf \t\r\n\x00")
	if !bytes.HasPrefix(head, []byte("{")) {
		return agent.NotMine // a database, whatever words are in it
	}

	score := agent.NotMine
	for l := range bytes.Lines(head) {
		session := bytes.Contains(l, []byte(`"sessionId"`))
		switch {
		case session && bytes.Contains(l, []byte(`"uuid"`)), bytes.Contains(l, []byte(`"leafUuid"`)):
			return agent.Mine
		case session:
			score = agent.Alike
		}
	}

	return score
}
