package pi

import "belay/internal/agent/kit/payload"

// Said is a user message of OpenClaw's as the reader gives it: without the program's own blocks and belay's. Aside says
// that no person wrote it; turn, that the whole turn is none of a person's.
func Said(text string) (said string, aside, turn bool) {
	rest := payload.WithoutOwn(text)
	said = personal(rest)
	aside, turn = machinePrompt(said, "")
	return words(said), aside, turn
}

// Answered is the model's last answer as the reader gives it. Quiet says that it means "nothing to do".
func Answered(text, prompt string) (answer string, quiet bool) {
	rest := payload.WithoutOwn(text)
	_, quiet = silent(rest, prompt)
	return words(rest), quiet
}

// Content takes the words out of the content of a message: a string, or a list of blocks.
func Content(raw []byte) string {
	text, _ := parseContent(raw)
	return text
}

// ToolInput makes the arguments of a call safe to keep, ToolOutput what it gave, Name an id or a name.
func ToolInput(raw []byte) string   { return arguments(call{args: raw}) }
func ToolOutput(text string) string { return output(text) }
func Name(s string) string          { return ident(s) }

// GoesOn says that a result only tells that its call runs on in the background.
func GoesOn(text, status string) bool { return goesOn(message{text: text, status: status}) }

// Header is what a transcript's first record says of it.
func Header(record []byte) (session, workspace string, ok bool) {
	rec, ok := parse(record, 0)
	if !ok || rec.typ != typeHeader {
		return "", "", false
	}
	return ident(rec.id), ident(text(rec.cwd)), true
}
