package pi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

var errNoRecord = errors.New("not an object with a type")

// promptBytes is how far back a reader looks for the prompt of the turn in which an earlier run stopped.
const promptBytes = 1 << 20

// state is what one record needs to know of those before it.
type state struct {
	Pos    lines.Pos `json:"p"`
	Leaf   uint64    `json:"l,omitempty"` // hash of the newest record's id
	Linked bool      `json:"k,omitempty"` // records of this file name their parents
	Turn   turn      `json:"t,omitzero"`

	tips    map[uint64]bool // leaves of branches that were left: true when their entries were not taken back
	copying bool            // in a run of copies of earlier records
	walked  int64           // bytes read backward in this Read to find where branches begin
	vain    int             // how many of these walks in a row found nothing
}

// Position implements lines.State.
func (s *state) Position() *lines.Pos { return &s.Pos }

// OpenTranscript gives a reader for a .jsonl transcript of pi, or of OpenClaw up to 2026.7. The file need not be there.
func OpenTranscript(src agent.Source) checkpoint.Transcript {
	session := src.Session
	if session == "" {
		session, _ = SessionOfName(filepath.Base(src.Path)) // else the header tells
	}
	return lines.NewReader(src.Path, format(session))
}

// OpenRows gives a reader for a transcript whose records are the rows of a database: all that the package promises
// holds for it.
func OpenRows(src agent.Source, rows lines.Source) checkpoint.Transcript {
	return lines.NewSourceReader(rows, format(src.Session))
}

// format says what the records of one session mean.
func format(session string) lines.Format[state] {
	return lines.Format[state]{
		Keys:  []string{"type"},
		Learn: learn,
		Marks: func(line []byte, answered bool) bool {
			return bytes.Contains(line, []byte(`"user"`)) || bytes.Contains(line, []byte(`"`+typeCompaction+`"`)) ||
				bytes.Contains(line, []byte(`"`+typeReset+`"`)) || !answered &&
				bytes.Contains(line, []byte(`"assistant"`))
		},
		Gap: func(s *state) { s.Leaf, s.copying, s.Turn = root, false, turn{} },
		Begin: func(_ context.Context, s *state) ([]checkpoint.Entry, error) {
			s.walked = 0
			return nil, nil
		},
		Record: func(ctx context.Context, p *lines.Page[state], rec lines.Record) error {
			return records{p, session}.record(ctx, rec)
		},
	}
}

// learn remembers a record that an earlier run gave.
func learn(seen *lines.Seen, l lines.Line) {
	rec, ok := parse(l.Data, l.Off)
	if !ok || rec.typ == typeHeader || !json.Valid(l.Data) {
		return
	}
	if rec.id != "" {
		seen.Add("i" + rec.id)
	}
	if msg := parseMessage(rec.message); rec.typ == typeMessage && msg.stamp > 0 {
		seen.Add("k" + msg.key(rec))
	}
}

// records puts records into the tree and gives what they come to.
type records struct {
	*lines.Page[state]
	session string // of the source, when known
}

// record takes one record. A glued one has no place in the tree: the agent skips its line and knows nothing of it.
func (c records) record(ctx context.Context, r lines.Record) error {
	rec, ok := parse(r.Data, r.Start)
	if !ok || rec.matters() && !json.Valid(r.Data) {
		return errNoRecord
	}

	s := &c.State
	if r.Rest { // it comes again
		s.tips = maps.Clone(s.tips)
	}

	msg := parseMessage(rec.message)
	key, known := c.known(rec, msg)
	if known {
		return nil
	}

	if !r.Glued {
		c.hang(ctx, rec, r.Rest)
	}

	c.findPrompt(ctx, msg)
	c.Add(c.entries(rec, msg, key)...)
	return nil
}

// entries gives what a record says, and keeps in mind the turn that it belongs to.
func (c records) entries(rec record, msg message, key string) []checkpoint.Entry {
	m := mapper{session: c.session, turn: c.State.Turn}
	list := m.entries(rec, msg, key)
	c.State.Turn = m.turn
	c.Losses.Repeats += m.doubles
	return list
}

// known says whether a record was there before: under the same id, or as a copy of an earlier one under another id,
// which OpenClaw appends when it rewrites a part of its transcript, and which a migration leaves. What is not known is
// remembered, and gets its key.
func (c records) known(rec record, msg message) (key string, known bool) {
	key = msg.key(rec)
	if rec.typ == typeHeader {
		return key, false
	}

	s := &c.State
	follows := rec.follows(s.Leaf)
	if rec.id != "" && c.Known("i"+rec.id) {
		c.Losses.Repeats++
		if follows { // the beginning of a replaced file
			s.Leaf = hash(rec.id)
			c.entries(rec, msg, key)
		}
		return key, true
	}

	twin := msg.stamp > 0 && c.Known("k"+key)
	if twin && (!follows || rec.id == "" || s.copying || c.Rewritten()) {
		c.Losses.Repeats++
		s.copying = true
		if rec.id != "" {
			c.Remember("i" + rec.id)
			if !rec.side {
				s.Leaf = hash(rec.id)
			}
		}

		return key, true
	}

	s.copying = false
	if twin {
		key += "." + rec.id // the same words at the same moment, and yet another message
	}
	if rec.id != "" {
		c.Remember("i" + rec.id)
	}
	if msg.stamp > 0 {
		c.Remember("k" + key)
	}

	return key, false
}

// findPrompt looks for the prompt of the turn in which an earlier run stopped, when an answer may say that the turn is
// a heartbeat's.
func (c records) findPrompt(ctx context.Context, answer message) {
	t := &c.State.Turn
	silent := strings.Contains(answer.text, heartbeatOK) || strings.Contains(answer.text, noReply)
	if answer.role != "assistant" || !silent || t.Asked == 0 || t.prompt.ID != "" {
		return
	}

	// A past that cannot be read costs nothing but the mark on the prompt.
	_ = c.Before(ctx, promptBytes, func(l lines.Line) bool {
		rec, ok := parse(l.Data, l.Off)
		if !ok || rec.typ != typeMessage || !json.Valid(l.Data) {
			return true
		}

		msg := parseMessage(rec.message)
		m := mapper{}
		for _, e := range m.entries(rec, msg, msg.key(rec)) {
			if e.Kind == checkpoint.EntryUser && m.turn.Asked == t.Asked {
				t.prompt = e
			}
		}

		return t.prompt.ID == ""
	})
}
