// Package records reads transcripts of lines in which each line is a record that stands for itself, and no record takes
// back or rewrites another. It is the leaf that the readers of such files share; what a record means is theirs (Form).
//
// It promises, beside what package jsonl does:
//   - A record is given once, and a cursor goes on exactly where it was made, in whichever process: what a Form has to
//     remember between records is in the cursor.
//   - One bad line costs that line only and is counted. Records that a crash left glued on one line are found again.
//   - A file whose past changed is told by a Reset and read anew.
//   - First sight of a large file costs the same whatever its size.
//
// Where records have ids (Form.ID), one that stands in the file again is counted and not given again: the newest 32,000 ids
// are remembered, and those of the last MB before a cursor are learned anew by another process. Where they have none, nobody
// can tell a copy from the same words said twice.
package records

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"belay/checkpoint"
	"belay/internal/transcript/lines"
)

const (
	readRaw     = 64 << 20 // one Read looks at most at so many bytes of the file
	readDecoded = 4 << 20  // and decodes at most so many
	readEntries = 4000     // and gives about so many entries
	seenIDs     = 64 << 10 // records that a reader remembers
	warmBytes   = 1 << 20  // read before a cursor of an earlier run, to know those again
)

// First sight of a file that is larger than firstWhole gives its head and its newest part only.
const (
	firstWhole   = 256 << 10
	firstHead    = 1 << 20 // the first prompt is looked for so far
	firstPrompts = 20
	firstBytes   = 4 << 20  // of records; one record counts at most
	firstRecord  = 64 << 10 // so many, or a huge tool result would push out the user's words
	firstRaw     = 32 << 20 // and so many bytes are looked at whatever they are
)

// Form is what a reader's records mean. S is what has to be remembered from one record to the next; it goes into the cursor,
// so that it is small, bounded, and has a JSON form.
type Form[S comparable] struct {
	// Line gives the entries of one record. An error says that the line is none.
	Line func(s *S, l lines.Line) ([]checkpoint.Entry, error)
	// Key is one that every record has: by it whole records are known in a line that is spoilt.
	Key string
	// ID is what a record is known by when it stands in the file again; nil where records have no id, and empty for one
	// without.
	ID func(record []byte) string
}

// Reader is a checkpoint.Transcript over one such file.
type Reader[S comparable] struct {
	form Form[S]
	file *lines.File

	next checkpoint.Cursor // where the last Read ended; what follows was not seen yet
	seen *lines.Seen       // records up to there
}

// Open prepares to read path, which need not be there.
func Open[S comparable](path string, form Form[S]) *Reader[S] {
	return &Reader[S]{form: form, file: lines.Open(path)}
}

// cursor is what a checkpoint.Cursor of this reader says.
type cursor[S comparable] struct {
	lines.Pos
	State S `json:"s,omitzero"`
}

// readCursor decodes a cursor. One that cannot be understood is a place that is nowhere: reading starts anew.
func readCursor[S comparable](c checkpoint.Cursor) cursor[S] {
	var cur cursor[S]
	if err := json.Unmarshal([]byte(c), &cur); err != nil || cur.Off < 0 {
		return cursor[S]{Pos: lines.Pos{Off: -1}}
	}
	return cur
}

func (c cursor[S]) encode() checkpoint.Cursor {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("cursor has no JSON form: %v", err)) // a Form's fault
	}
	return checkpoint.Cursor(b)
}

// Close lets the file go.
func (r *Reader[S]) Close() error { return r.file.Close() }

// Read implements checkpoint.Transcript.
func (r *Reader[S]) Read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	batch, err := r.read(ctx, from, opt)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		r.next = "" // what was read was not given to anybody: it must not count as seen when it is read again
		return checkpoint.Batch{Cursor: from}, err
	}
	r.next = batch.Cursor
	return batch, nil
}

func (r *Reader[S]) read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	if from != "" {
		cur := readCursor[S](from)
		if from != r.next { // another run's, or an older one because what we gave could not be kept
			r.seen = lines.NewSeen(seenIDs)
			if err := r.warm(cur.Pos); err != nil {
				return checkpoint.Batch{}, err
			}
		}
		return r.forward(ctx, cur, opt)
	}
	r.seen = lines.NewSeen(seenIDs)
	// A file that was renamed away in the meantime is not what first sight is of.
	if err := r.file.Close(); err != nil {
		return checkpoint.Batch{}, err
	}
	if !opt.Whole {
		return r.firstSight(ctx, opt)
	}
	batch, err := r.forward(ctx, cursor[S]{}, opt)
	batch.First = true
	return batch, err
}

// warm learns the ids just before a cursor, when there is something after it and the file still is what the cursor is of.
func (r *Reader[S]) warm(pos lines.Pos) error {
	if r.form.ID == nil || pos.Off <= 0 {
		return nil
	}
	size, err := r.file.Size()
	if err != nil || size <= pos.Off {
		return err
	}
	if ok, err := r.file.Holds(pos); err != nil || !ok {
		return err
	}
	return r.file.Backward(pos.Off, warmBytes, func(l lines.Line) bool {
		if id := r.form.ID(l.Data); id != "" {
			r.seen.Add(id)
		}
		return true
	})
}

// forward reads on from cur.
func (r *Reader[S]) forward(ctx context.Context, cur cursor[S], opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	t := taking[S]{form: r.form, state: cur.State, seen: r.seen}
	span, err := r.file.Read(cur.Pos, lines.Options{
		Final: opt.Final,
		Max:   readRaw,
		Changed: func() {
			var none S
			t.state, t.seen = none, lines.NewSeen(seenIDs)
			t.entries = append(t.entries, checkpoint.Entry{Op: checkpoint.Reset})
		},
	}, func(l lines.Line) bool {
		t.line(l)
		return t.decoded < readDecoded && len(t.entries) < readEntries && ctx.Err() == nil
	})
	if err != nil {
		return checkpoint.Batch{}, err
	}
	r.seen = t.seen
	t.losses.Torn = span.Losses.Torn
	span.Losses.Add(t.losses)
	return checkpoint.Batch{Entries: t.entries, Cursor: cursor[S]{span.Pos, t.state}.encode(), Losses: span.Losses, More: span.More}, nil
}

// taking gathers what some lines come to.
type taking[S comparable] struct {
	form    Form[S]
	state   S
	seen    *lines.Seen // nil where doubles are no matter
	entries []checkpoint.Entry
	losses  checkpoint.Losses
	decoded int
}

func (t *taking[S]) line(l lines.Line) {
	t.decoded += len(l.Data)
	if t.record(l) == nil {
		return
	}
	found, lost := lines.Rescue(l.Data, t.form.Key)
	rescued := 0
	for _, data := range found {
		one := l
		if one.Data = data; t.record(one) == nil {
			rescued++
		}
	}
	t.losses.Rescued += rescued
	switch {
	case rescued == 0:
		lines.CountBad(&t.losses, l, "no record")
	case lost:
		lines.CountBad(&t.losses, l, "a stub beside a record")
	}
}

// record takes one record. A rest comes again when its newline is there, so that it leaves no trace in what is remembered.
func (t *taking[S]) record(l lines.Line) error {
	state := t.state
	list, err := t.form.Line(&state, l)
	if err != nil {
		return err
	}
	if t.doubled(l) {
		t.losses.Repeats++
		return nil
	}
	if !l.Rest {
		t.state = state
	}
	t.losses.Replaced += lines.Broken(l.Data)
	t.entries = append(t.entries, list...)
	return nil
}

// doubled says whether a record was read before. A rest is remembered when its newline is there.
func (t *taking[S]) doubled(l lines.Line) bool {
	if t.form.ID == nil || t.seen == nil {
		return false
	}
	id := t.form.ID(l.Data)
	if id == "" || l.Rest {
		return id != "" && t.seen.Has(id)
	}
	return !t.seen.Add(id)
}

func (t *taking[S]) has(kinds ...checkpoint.EntryKind) bool {
	return slices.ContainsFunc(t.entries, func(e checkpoint.Entry) bool { return slices.Contains(kinds, e.Kind) })
}

// firstSight gives what the head says and the first prompt, and the newest part.
func (r *Reader[S]) firstSight(ctx context.Context, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	size, err := r.file.Size()
	if err != nil {
		return checkpoint.Batch{}, err
	}
	head := taking[S]{form: r.form}
	var span lines.Span
	var start int64
	if size > firstWhole {
		span, err = r.file.Read(lines.Pos{}, lines.Options{Max: firstHead}, func(l lines.Line) bool {
			head.line(l)
			return !head.has(checkpoint.EntryUser)
		})
		if err == nil {
			start, err = r.newest(size)
		}
	}
	cur := cursor[S]{}
	if err == nil && start > span.Pos.Off {
		cur.State = head.state
		cur.Pos, err = r.file.At(start)
	}
	if err != nil {
		return checkpoint.Batch{}, err
	}
	batch, err := r.forward(ctx, cur, opt)
	batch.First = true
	if err != nil || cur.Off == 0 {
		return batch, err
	}
	kept := slices.DeleteFunc(head.entries, func(e checkpoint.Entry) bool {
		return e.Kind != checkpoint.EntryMeta && e.Kind != checkpoint.EntryUser
	})
	batch.Entries = append(kept, batch.Entries...)
	batch.Skipped = start - span.Pos.Off
	span.Losses.Add(head.losses)
	span.Losses.Add(batch.Losses)
	batch.Losses = span.Losses
	return batch, nil
}

// newest finds where first sight's newest part begins: enough prompts or a compaction end it, but not before an answer of
// the model's was met, since that is what a recovery needs most.
func (r *Reader[S]) newest(size int64) (start int64, err error) {
	start = size
	prompts, bytes, enough, answered := 0, 0, false, false
	err = r.file.Backward(size, firstRaw, func(l lines.Line) bool {
		start = l.Off
		bytes += min(len(l.Data), firstRecord)
		one := taking[S]{form: r.form}
		one.line(l)
		if one.has(checkpoint.EntryUser) {
			prompts++
		}
		answered = answered || one.has(checkpoint.EntryAssistant)
		enough = enough || prompts >= firstPrompts || one.has(checkpoint.EntryCompaction)
		return bytes < firstBytes && !(enough && answered)
	})
	return start, err
}
