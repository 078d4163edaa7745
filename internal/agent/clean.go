package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent/kit/tools"
	"belay/internal/redact"
)

// An agent's code takes secrets out of what was said before it cuts it. What is left are the many short words of an
// event (ids, names, models, reasons), of which each agent has its own: they are looked at here, once for all agents.

// CleanEvent gives an event without secrets in any of its words, and with what its call does by a table of tools. Paths
// stay as they are, because they are opened.
func CleanEvent(e checkpoint.Event, table tools.Table) checkpoint.Event {
	e.Key, e.Workspace = CleanKey(e.Key), Text(e.Workspace)
	clean(
		&e.ID, &e.Turn, &e.Text, &e.Source, &e.Reason, &e.Call, &e.Name, &e.Input, &e.Output, &e.Child,
		&e.ChildName, &e.Parent, &e.Model, &e.Mode,
	)

	e.Act = table.Act(e.Name, e.Input)
	return e
}

// CleanKey gives a key without secrets. The same id gives the same key, now and when it comes back out of a file.
func CleanKey(k checkpoint.Key) checkpoint.Key {
	clean(&k.Agent, &k.Account, &k.Session, &k.Child)
	k.Workspace = Text(k.Workspace)
	return k
}

// Text is a string as JSON keeps it: each byte that is no UTF-8 becomes U+FFFD. What names a session must be so from
// the beginning, or the session has another name, and another folder, when it is read back.
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

// OpenTranscript opens a transcript of an agent's; what is read of it has no secrets in its words, and its calls say
// what they do by the agent's tools.
func OpenTranscript(a Agent, src Source) checkpoint.Transcript {
	return &cleanTranscript{Transcript: a.Open(src), tools: a.Tools()}
}

// cleanTranscript gives out a reader's entries and cursors without secrets. A reader knows where it was by the cursor
// that it gave: it gets that one back, whole, for as long as it lives.
type cleanTranscript struct {
	checkpoint.Transcript
	tools tools.Table

	given, clean checkpoint.Cursor // the reader's last one, as it was and as it was given out
}

func (t *cleanTranscript) Read(
	ctx context.Context,
	from checkpoint.Cursor,
	opt checkpoint.ReadOptions,
) (checkpoint.Batch, error) {
	if from == t.clean {
		from = t.given
	}

	b, err := t.Transcript.Read(ctx, from, opt)
	for i := range b.Entries {
		e := &b.Entries[i]
		clean(&e.ID, &e.Group, &e.Turn, &e.Call, &e.Name, &e.Session, &e.Child, &e.Model, &e.Mode)
		e.Act = t.tools.Act(e.Name, e.Input)
	}

	if b.Cursor != "" { // else nothing was read, and where it was still holds
		t.given, t.clean = b.Cursor, cleanCursor(b.Cursor)
		b.Cursor = t.clean
	}

	return b, err
}

// cleanCursor takes secrets out of a cursor: ids of the transcript's records may stand in it. Only its words are looked
// at, so that places and fingerprints stay, and each is what the same word is in an entry.
func cleanCursor(c checkpoint.Cursor) checkpoint.Cursor {
	whole := redact.Bytes(nil, []byte(c))
	if string(whole) == string(c) {
		return c
	}

	d := json.NewDecoder(bytes.NewReader([]byte(c)))
	d.UseNumber() // fingerprints have more digits than a float
	var v any
	if d.Decode(&v) != nil {
		return checkpoint.Cursor(whole)
	}

	data, err := json.Marshal(cleanValue(v))
	if err != nil {
		return checkpoint.Cursor(whole)
	}

	return checkpoint.Cursor(data)
}

func cleanValue(v any) any {
	switch v := v.(type) {
	case string:
		return redact.Text(v)
	case []any:
		for i := range v {
			v[i] = cleanValue(v[i])
		}

	case map[string]any:
		for name := range v {
			v[name] = cleanValue(v[name])
		}
	}
	return v
}
