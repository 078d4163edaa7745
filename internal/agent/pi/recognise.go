package pi

import "bytes"

// Recognise knows the session header of the programs. What names OpenClaw is OpenClaw's, what Titled knows is oh-my-pi's, and
// everything else is pi's. A database may hold these words too, and is no file of lines.
func (a *Agent) Recognise(head []byte) bool {
	has := func(word string) bool { return bytes.Contains(head, []byte(word)) }
	header := has(`"session"`) && (has(`"parentId"`) || has(`"version"`) || has(`"message"`))
	if !header || bytes.HasPrefix(head, []byte("SQLite format 3\x00")) || Titled(head) {
		return false
	}
	return has(openclaw) == (a.name == openclaw)
}

// Titled knows oh-my-pi's files: by the title in the first line or, in files of the time before there was one, by the one
// thing that only its messages say.
func Titled(head []byte) bool {
	return bytes.HasPrefix(head, []byte(`{"type":"title","v":1,`)) ||
		bytes.Contains(head, []byte(`"type":"session"`)) && bytes.Contains(head, []byte(`"attribution":"`))
}
