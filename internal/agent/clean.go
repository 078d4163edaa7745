package agent

import (
	"context"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/redact"
)

// An agent's code takes secrets out of what was said before it cuts it. What is left are the many short words of an event
// (ids, names, models, reasons), of which each agent has its own: they are looked at here, once for all agents.

// CleanEvent gives an event without secrets in any of its words. Paths stay as they are, because they are opened.
func CleanEvent(e checkpoint.Event) checkpoint.Event {
	e.Key, e.Workspace = CleanKey(e.Key), Text(e.Workspace)
	clean(&e.ID, &e.Turn, &e.Text, &e.Source, &e.Reason, &e.Call, &e.Name, &e.Input, &e.Output, &e.Child, &e.ChildName, &e.Parent, &e.Model, &e.Mode)
	return e
}

// CleanKey gives a key without secrets. The same id gives the same key, now and when it comes back out of a file.
func CleanKey(k checkpoint.Key) checkpoint.Key {
	clean(&k.Agent, &k.Account, &k.Session, &k.Child)
	k.Workspace = Text(k.Workspace)
	return k
}

// Text is a string as JSON keeps it: each byte that is no UTF-8 becomes U+FFFD. What names a session must be so from the
// beginning, or the session has another name, and another folder, when it is read back.
func Text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

func clean(words ...*string) {
	for _, w := range words {
		if *w != "" {
			*w = redact.Text(Text(*w))
		}
	}
}

// OpenTranscript opens a transcript of an agent's; what is read of it has no secrets in its words.
func OpenTranscript(a Agent, src Source) checkpoint.Transcript { return cleanTranscript{a.Open(src)} }

type cleanTranscript struct{ checkpoint.Transcript }

func (t cleanTranscript) Read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	b, err := t.Transcript.Read(ctx, from, opt)
	for i := range b.Entries {
		e := &b.Entries[i]
		clean(&e.ID, &e.Group, &e.Turn, &e.Call, &e.Name, &e.Session, &e.Child, &e.Model, &e.Mode)
	}
	b.Cursor = checkpoint.Cursor(redact.Bytes(nil, []byte(b.Cursor))) // its reader's own notes, ids among them
	return b, err
}
