package codex

import (
	"context"
	"encoding/json"
	"errors"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

const (
	seenKeys    = 64 << 10 // records that a reader remembers
	warmBytes   = 1 << 20  // read before a cursor of an earlier run, to know those again
	rolledBytes = 64 << 20 // read backward at most for turns that are rolled back
	readRaw     = 64 << 20 // one Read looks at most at so many bytes of the file
	readDecoded = 4 << 20  // and decodes at most so many
	readEntries = 4000     // and gives about so many entries
)

// cursor is what a checkpoint.Cursor of this reader says: the place in the unpacked file, and what was told last, so that
// a later reader goes on exactly where this one stopped. Workspace and model only need to be compared: hashes.
type cursor struct {
	lines.Pos
	In    uint32   `json:"r,omitempty"` // the rollout that the place is in: hash of its id
	Turn  string   `json:"u,omitempty"` // the turn that began last
	Place uint32   `json:"w,omitempty"`
	Model uint32   `json:"m,omitempty"`
	Kinds bool     `json:"k,omitempty"` // this version says what a message in the user's role is
	Said  lastSaid `json:"a,omitzero"`
}

// readCursor decodes a cursor. One that cannot be understood is a place that is nowhere: reading starts anew.
func readCursor(c checkpoint.Cursor) cursor {
	var cur cursor
	if err := json.Unmarshal([]byte(c), &cur); err != nil || cur.Off < 0 || cur.Said.Len < 0 {
		return cursor{Pos: lines.Pos{Off: -1}}
	}
	return cur
}

func (c cursor) encode() checkpoint.Cursor {
	b, _ := json.Marshal(c) // numbers, flags and strings always encode
	return checkpoint.Cursor(b)
}

// reader reads one thread's rollout. File order is the truth; ordinals and stamps are not asked.
type reader struct {
	src  agent.Source
	file rollout

	parts  []part // rollouts that this one goes on from, oldest first
	linked bool   // they were looked for
	id     uint32 // hash of this one's own id

	next  checkpoint.Cursor // where the last Read ended; what follows was not seen yet
	seen  *lines.Seen       // records up to there, in what the file holds now
	known *lines.Seen       // records given before the file's past changed; nil when it did not
}

func openTranscript(src agent.Source) checkpoint.Transcript {
	return &reader{src: src, file: rollout{path: src.Path}}
}

func (r *reader) Close() error { return errors.Join(r.unlink(), r.file.close()) }

func (r *reader) Read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	batch, err := r.read(ctx, from, opt)
	if err != nil {
		// What was read was not given to anybody: it must not count as seen when it is read again.
		r.next = ""
		return checkpoint.Batch{Cursor: from}, err
	}
	r.next = batch.Cursor
	return batch, nil
}

func (r *reader) read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	if from == "" {
		// A file that was renamed away in the meantime is not what first sight is of.
		if err := r.Close(); err != nil {
			return checkpoint.Batch{}, err
		}
	}
	f, err := r.file.open(ctx)
	if err == nil {
		err = r.link()
	}
	if err != nil {
		return checkpoint.Batch{}, err
	}
	if from == "" {
		r.seen, r.known = lines.NewSeen(seenKeys), nil
		if !opt.Whole {
			return r.firstSight(ctx, f, opt)
		}
		batch, err := r.forward(ctx, f, cursor{In: r.first()}, opt)
		batch.First = true
		return batch, err
	}
	cur, gone, err := r.goneBack(ctx, readCursor(from))
	if err != nil {
		return checkpoint.Batch{}, err
	}
	if from != r.next {
		// Another run's cursor, or an older one of ours because what we gave could not be kept: what is after it is new.
		r.seen, r.known = lines.NewSeen(seenKeys), nil
		in, _, err := r.from(ctx, f, cur)
		if err == nil {
			err = r.warm(in, cur.Pos)
		}
		if err != nil {
			return checkpoint.Batch{}, err
		}
	}
	batch, err := r.forward(ctx, f, cur, opt)
	batch.Entries = append(gone, batch.Entries...)
	return batch, err
}

// warm learns the records just before a cursor, when there is something after it and the file still is what the cursor
// is of.
func (r *reader) warm(f *lines.File, pos lines.Pos) error {
	size, err := f.Size()
	if err != nil || pos.Off <= 0 || size <= pos.Off {
		return err
	}
	if ok, err := f.Holds(pos); err != nil || !ok {
		return err
	}
	return f.Backward(pos.Off, warmBytes, func(l lines.Line) bool {
		if matters(l.Data) {
			r.seen.Add(keyOf(l.Data))
		}
		return true
	})
}

// collector is a new one for the file as it is now.
func (r *reader) collector(cur cursor) collector {
	return collector{cur: cur, seen: r.seen, known: r.known, foreign: r.file.foreign(r.src)}
}

// forward reads on from cur, to the end of the rollout that it is in.
func (r *reader) forward(ctx context.Context, own *lines.File, cur cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	f, end, err := r.from(ctx, own, cur)
	if err != nil {
		return checkpoint.Batch{}, err
	}
	most := int64(readRaw)
	if end > 0 {
		most = min(most, max(end-cur.Off, 1))
	}
	c := r.collector(cur)
	c.before = func(end int64, fn func(lines.Line) bool) error { return f.Backward(end, rolledBytes, fn) }
	span, err := f.Read(cur.Pos, lines.Options{
		Final: opt.Final,
		Max:   most,
		Changed: func() {
			c.known, c.seen = c.seen, lines.NewSeen(seenKeys)
			c.cur = cursor{In: cur.In}
			r.file.forget()
			c.foreign = r.file.foreign(r.src)
			c.entries = append(c.entries, checkpoint.Entry{Op: checkpoint.Reset})
		},
	}, func(l lines.Line) bool {
		if end == 0 || l.End <= end {
			c.line(l)
		}
		return c.decoded < readDecoded && len(c.entries) < readEntries && ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return checkpoint.Batch{}, err
	}
	r.seen, r.known = c.seen, c.known
	c.cur.Pos = span.Pos
	c.losses.Torn = span.Losses.Torn
	span.Losses.Add(c.losses)
	switch {
	case end > 0 && (span.Pos.Off >= end || !span.More):
		c.cur.Pos, span.More = lines.Pos{}, true
		if c.cur.In, err = r.leave(cur.In); err != nil {
			return checkpoint.Batch{}, err
		}
	case !span.More:
		r.file.tellDamage(&span.Losses)
	}
	if end == 0 {
		c.cur.In = r.id
	}
	return checkpoint.Batch{Entries: c.entries, Cursor: c.cur.encode(), Losses: span.Losses, More: span.More}, nil
}

// First sight of a file that is larger than firstWhole gives its head and its newest part only.
const (
	firstWhole   = 256 << 10
	firstHead    = 1 << 20 // the first prompt is looked for so far
	firstPrompts = 20
	firstBytes   = 4 << 20  // of records; one record counts at most
	firstRecord  = 64 << 10 // so many, or a huge tool result would push out the user's words
	firstRaw     = 32 << 20 // and so many bytes are looked at whatever they are
)

func (r *reader) firstSight(ctx context.Context, own *lines.File, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	size, err := own.Size()
	if err != nil {
		return checkpoint.Batch{}, err
	}
	in, before := r.id, int64(0) // the rollout in which the newest part begins, and the bytes that older ones count
	if n := len(r.parts) - 1; n >= 0 && size < firstWhole {
		in, size = r.parts[n].id, r.parts[n].end
	}
	for _, p := range r.parts {
		if p.id == in {
			break
		}
		before += p.end
	}
	var head headPart
	var start int64
	var f *lines.File
	if before+size > firstWhole {
		head, f, start, err = r.window(ctx, own, in, size)
	}
	if err != nil {
		return checkpoint.Batch{}, err
	}
	if before+start <= head.end {
		batch, err := r.forward(ctx, own, cursor{In: r.first()}, opt)
		batch.First = true
		return batch, err
	}
	cur := head.cur
	cur.Said, cur.In = lastSaid{}, in
	if cur.Pos, err = f.At(start); err != nil {
		return checkpoint.Batch{}, err
	}
	for _, key := range head.keys {
		r.seen.Add(key)
	}
	batch, err := r.forward(ctx, own, cur, opt)
	if err != nil {
		return batch, err
	}
	batch.Entries = append(head.entries, batch.Entries...)
	batch.First, batch.Skipped = true, before+start-head.end
	head.losses.Add(batch.Losses)
	batch.Losses = head.losses
	return batch, nil
}

// window reads the head of the conversation and finds where its newest part begins in one of its rollouts.
func (r *reader) window(ctx context.Context, own *lines.File, in uint32, size int64) (head headPart, f *lines.File, start int64, err error) {
	oldest, _, err := r.from(ctx, own, cursor{In: r.first()})
	if err == nil {
		head, err = r.head(oldest)
	}
	if err == nil {
		f, _, err = r.from(ctx, own, cursor{In: in})
	}
	if err == nil {
		start, err = r.newest(f, size, head.cur)
	}
	return head, f, start, err
}

// headPart is what first sight keeps of a file's beginning.
type headPart struct {
	entries []checkpoint.Entry
	keys    []string
	losses  checkpoint.Losses
	cur     cursor
	end     int64
}

// head reads to the first prompt.
func (r *reader) head(f *lines.File) (headPart, error) {
	c := r.collector(cursor{})
	c.seen = lines.NewSeen(seenKeys)
	var h headPart
	span, err := f.Read(lines.Pos{}, lines.Options{Max: firstHead}, func(l lines.Line) bool {
		if c.line(l); !c.has(isPrompt) {
			return true
		}
		h.keys = append(h.keys, keyOf(l.Data))
		return false
	})
	if err != nil {
		return h, err
	}
	h.cur, h.end, h.losses = c.cur, span.Pos.Off, span.Losses
	h.losses.Add(c.losses)
	for _, e := range c.entries {
		if e.Kind == checkpoint.EntryMeta || isPrompt(e) {
			h.entries = append(h.entries, e)
		}
	}
	return h, nil
}

// newest finds where first sight's newest part begins: enough prompts or a compaction end it, but not before an answer of
// the model's was met, since that is what a recovery needs most.
func (r *reader) newest(f *lines.File, size int64, head cursor) (start int64, err error) {
	start = size
	prompts, bytes, enough, answered := 0, 0, false, false
	err = f.Backward(size, firstRaw, func(l lines.Line) bool {
		start = l.Off
		if !matters(l.Data) {
			return true
		}
		bytes += min(len(l.Data), firstRecord)
		c := r.collector(head)
		c.seen, c.known = lines.NewSeen(1), nil
		c.line(l)
		if c.has(isPrompt) {
			prompts++
		}
		answered = answered || c.has(isAnswer)
		enough = enough || prompts >= firstPrompts || c.has(isCompaction)
		return bytes < firstBytes && !(enough && answered)
	})
	return start, err
}
