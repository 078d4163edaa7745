package pi

import "bytes"

// Recognise knows the session header of both programs. What names OpenClaw is OpenClaw's; everything else is pi's.
func (a *Agent) Recognise(head []byte) bool {
	header := bytes.Contains(head, []byte(`"session"`)) && (bytes.Contains(head, []byte(`"parentId"`)) || bytes.Contains(head, []byte(`"version"`)) || bytes.Contains(head, []byte(`"message"`)))
	return header && bytes.Contains(head, []byte(`openclaw`)) == (a.name == OpenClaw().name)
}
