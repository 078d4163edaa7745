package pi

import "bytes"

// Recognise knows the session header of both programs. What names OpenClaw is OpenClaw's; everything else is pi's. A
// database may hold these words too, and is no file of lines.
func (a *Agent) Recognise(head []byte) bool {
	header := !bytes.HasPrefix(head, []byte("SQLite format 3\x00")) && bytes.Contains(head, []byte(`"session"`)) &&
		(bytes.Contains(head, []byte(`"parentId"`)) || bytes.Contains(head, []byte(`"version"`)) ||
			bytes.Contains(head, []byte(`"message"`)))
	return header && bytes.Contains(head, []byte(openclaw)) == (a.name == openclaw)
}
