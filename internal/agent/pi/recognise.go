package pi

import (
	"bytes"
	"encoding/json"

	"belay/internal/agent"
)

// Recognise knows the header of both programs, which is the first record. What names OpenClaw is OpenClaw's; everything
// else is pi's, and what Titled knows is oh-my-pi's. Behind a header that a crash cut short, the records alone may be
// another agent's.
func (a *Agent) Recognise(head []byte) agent.Score {
	head = bytes.TrimLeft(head, "\xef\xbb\xbf \t\r\n\x00")
	has := func(text []byte, word string) bool { return bytes.Contains(text, []byte(word)) }
	if !bytes.HasPrefix(head, []byte("{")) || Titled(head) ||
		has(head, openclaw) != (a.name == openclaw) {
		return agent.NotMine
	}

	first, _, _ := bytes.Cut(head, []byte("\n"))
	switch {
	case json.Valid(first) && has(first, `"session"`) && has(first, `"version"`):
		return agent.Mine
	case has(head, `"session"`) && (has(head, `"version"`) || has(head, `"parentId"`) || has(head, `"message"`)):
		return agent.Alike
	}

	return agent.NotMine
}

// Titled knows oh-my-pi's files: by the title in the first line or, in files of the time before there was one, by the
// one thing that only its messages say.
func Titled(head []byte) bool {
	return bytes.HasPrefix(head, []byte(`{"type":"title","v":1,`)) ||
		bytes.Contains(head, []byte(`"type":"session"`)) && bytes.Contains(head, []byte(`"attribution":"`))
}
