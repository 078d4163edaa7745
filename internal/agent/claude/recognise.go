package claude

import (
	"bytes"
	"encoding/json"
)

// Recognise knows Claude Code's records by the fields that only they have together. Other programs name a sessionId
// too: pi's and OpenClaw's header comes first in their files, Gemini's records have a projectHash, ChatSession's an
// agentType, Copilot's first one a copilotVersion; a database may hold all these words. A first line that a crash cut
// short says nothing: the records behind it do.
func (*Agent) Recognise(head []byte) bool {
	if bytes.HasPrefix(head, []byte("SQLite format 3\x00")) {
		return false // another agent's database, whatever words are in it
	}
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if bytes.HasPrefix(head, []byte("SQLite format 3\x00")) || bytes.Contains(first, []byte(`"copilotVersion"`)) {
		return false
	}
	if json.Valid(first) && bytes.Contains(first, []byte(`"session"`)) && bytes.Contains(first, []byte(`"version"`)) &&
		!bytes.Contains(first, []byte(`"sessionId"`)) {
		return false
	}
	if bytes.Contains(head, []byte(`"projectHash"`)) || bytes.Contains(head, []byte(`"agentType"`)) &&
		!bytes.Contains(head, []byte(`"uuid"`)) {
		return false
	}
	return bytes.Contains(head, []byte(`"sessionId"`)) || bytes.Contains(head, []byte(`"leafUuid"`))
}
