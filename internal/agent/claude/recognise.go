package claude

import "bytes"

// Recognise knows Claude Code's records by the fields that only they have.
func (*Agent) Recognise(head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if bytes.Contains(first, []byte(`"session"`)) && bytes.Contains(first, []byte(`"version"`)) && !bytes.Contains(first, []byte(`"sessionId"`)) {
		return false // pi's and OpenClaw's header; their records may name a sessionId too
	}
	return bytes.Contains(head, []byte(`"sessionId"`)) || bytes.Contains(head, []byte(`"leafUuid"`))
}
