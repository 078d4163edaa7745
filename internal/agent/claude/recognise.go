package claude

import "bytes"

// Recognise knows Claude Code's records by the fields that only they have together. Other programs name a sessionId too:
// pi's and OpenClaw's header comes first in their files, Gemini's records have a projectHash, ChatSession's an agentType.
func (*Agent) Recognise(head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if bytes.Contains(first, []byte(`"session"`)) && bytes.Contains(first, []byte(`"version"`)) && !bytes.Contains(first, []byte(`"sessionId"`)) {
		return false
	}
	if bytes.Contains(head, []byte(`"projectHash"`)) || bytes.Contains(head, []byte(`"agentType"`)) && !bytes.Contains(head, []byte(`"uuid"`)) {
		return false
	}
	return bytes.Contains(head, []byte(`"sessionId"`)) || bytes.Contains(head, []byte(`"leafUuid"`))
}
