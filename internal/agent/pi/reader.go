package pi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

// Bounds of a reader.
const (
	pageEntries  = 2000      // entries of one Read, about
	headBytes    = 256 << 10 // first sight: where the first prompt is looked for
	windowBytes  = 4 << 20   // first sight: the newest part
	windowAsks   = 20        // user prompts in it
	seenIDs      = 64 << 10  // record ids that are remembered
	warmBytes    = 1 << 20   // read before a cursor of an earlier run to remember its ids
	walkBytes    = 64 << 20  // read backward in one Read to find where a branch begins
	walkBytesMin = 1 << 20
	maxTips      = 16
)

// cursor is the JSON form of checkpoint.Cursor.
type cursor struct {
	Pos    lines.Pos `json:"p"`
	Leaf   uint64    `json:"l,omitempty"` // hash of the newest record's id
	Linked bool      `json:"k,omitempty"` // records of this file name their parents
	Turn   turn      `json:"t,omitzero"`
}

// reader implements checkpoint.Transcript.
type reader struct {
	file Rows              // a lines.File, or the rows of a database
	last checkpoint.Cursor // what the state below belongs to
	state
	seen    *lines.Seen
	ids     int  // added to seen
	whole   bool // seen holds every id before the cursor
	warm    bool // seen was filled, or needs not be
	walkMax int64
}

// state is what a record changes besides the entries it gives.
type state struct {
	mapper
	leaf    uint64
	linked  bool
	tips    map[uint64]bool // leaves of branches that were left: true when their entries were not taken back
	copying bool            // in a run of copies of earlier records
	again   bool            // the file was replaced: known records come again from its beginning
}

// page is the Batch in the making.
type page struct {
	checkpoint.Batch
	from    lines.Pos
	changed bool  // the Reset is in it
	walks   int64 // bytes left for walking backward
	dry     bool  // the record at hand has no newline yet: it is told and not remembered
}

// OpenTranscript gives a reader for a .jsonl transcript of pi, or of OpenClaw up to 2026.7. The file need not be there.
func OpenTranscript(src agent.Source) checkpoint.Transcript {
	r := &reader{file: lines.Open(src.Path)}
	r.session = src.Session
	if r.session == "" {
		r.session, _ = SessionOfName(filepath.Base(src.Path)) // else the header tells
	}
	return r
}

func (r *reader) Close() error { return r.file.Close() }

// Read implements checkpoint.Transcript.
func (r *reader) Read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	if err := ctx.Err(); err != nil {
		return checkpoint.Batch{Cursor: from}, err
	}
	c, known := decodeCursor(from)
	if r.seen == nil || from != r.last || !known {
		r.begin(c, known)
	}
	r.last = "" // until this Read has succeeded the state belongs to no cursor
	p := &page{from: c.Pos, walks: r.walkMax}
	var err error
	if !known {
		p.First = true
		err = r.file.Close() // first sight is of the file that the path leads to now
		if err == nil && !opt.Whole {
			p.from, err = r.firstSight(p)
		}
	}
	var span lines.Span
	if err == nil {
		span, err = r.forward(ctx, p, opt.Final)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		r.seen = nil
		return checkpoint.Batch{Cursor: from}, fmt.Errorf("read transcript of session %q: %w", r.session, err)
	}
	p.Losses.Add(span.Losses)
	p.More = span.More
	p.Cursor = encodeCursor(cursor{Pos: span.Pos, Leaf: r.leaf, Linked: r.linked, Turn: r.turn})
	r.last = p.Cursor
	return p.Batch, nil
}

func decodeCursor(from checkpoint.Cursor) (c cursor, known bool) {
	if from == "" || json.Unmarshal([]byte(from), &c) != nil || c.Pos.Off < 0 {
		return cursor{}, false // what is no cursor of ours is "never read"
	}
	return c, true
}

func encodeCursor(c cursor) checkpoint.Cursor {
	data, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("cursor has no JSON form: %v", err)) // numbers and booleans always have one
	}
	return checkpoint.Cursor(data)
}

// begin forgets what was read and starts at a cursor.
func (r *reader) begin(c cursor, known bool) {
	r.state = state{mapper: mapper{session: r.session, turn: c.Turn}, leaf: c.Leaf, linked: c.Linked, tips: map[uint64]bool{}}
	r.seen, r.ids = lines.NewSeen(seenIDs), 0
	r.whole = !known || c.Pos.Off == 0
	r.warm = r.whole
	r.walkMax = walkBytes
}

// forward reads on from p.from.
func (r *reader) forward(ctx context.Context, p *page, final bool) (lines.Span, error) {
	span, err := r.file.Read(p.from, lines.Options{Final: final}, func(line lines.Line) bool {
		if !line.Rest && line.Off < p.from.Off {
			r.replaced(p)
		}
		if !r.warm {
			r.remember(p.from.Off)
		}
		r.line(p, line)
		return len(p.Entries) < pageEntries && ctx.Err() == nil
	})
	if err == nil && span.Changed {
		r.replaced(p) // nothing is in it
	}
	return span, err
}

// replaced begins anew: the file's past is another one now. Records that are known do not come again.
func (r *reader) replaced(p *page) {
	if p.changed {
		return
	}
	p.changed = true
	p.Entries = append(p.Entries, checkpoint.Entry{Op: checkpoint.Reset})
	r.state = state{mapper: mapper{session: r.session}, tips: map[uint64]bool{}, again: true}
	r.whole, r.warm = true, true
}

// line takes one line: a record, a broken one, or several on one line.
func (r *reader) line(p *page, line lines.Line) {
	if line.Rest {
		kept := r.state
		r.tips = maps.Clone(r.tips)
		p.dry = true
		defer func() { r.state, p.dry = kept, false }()
	}
	if r.record(p, line.Data, line.Off, false) {
		return
	}
	records, lost := lines.Rescue(line.Data, "type")
	for _, data := range records {
		// The slices share one array: their capacities tell where each begins, which names records without an id.
		if r.record(p, data, line.Off+int64(cap(line.Data)-cap(data)), true) {
			p.Losses.Rescued++
		}
	}
	if lost || len(records) == 0 {
		lines.CountBad(&p.Losses, line, "no JSON object with a type")
	}
}

// record takes one record and says whether the data is one. A glued one has no place in the tree: the agent skips its line
// and knows nothing of it.
func (r *reader) record(p *page, data []byte, off int64, glued bool) bool {
	rec, ok := parse(data, off)
	if !ok || rec.matters() && !json.Valid(data) {
		return false
	}
	msg := parseMessage(rec.message)
	key, known := r.known(p, rec, msg)
	if known {
		return true
	}
	var list []checkpoint.Entry
	if !glued {
		list = r.hang(p, rec)
	}
	doubles := r.doubles
	list = append(list, r.entries(rec, msg, key)...)
	p.Losses.Repeats += r.doubles - doubles
	if len(list) > 0 {
		p.Losses.Replaced += lines.Broken(data)
	}
	p.Entries = append(p.Entries, list...)
	return true
}

// known says whether a record was there before: under the same id, or as a copy of an earlier one under another id, which
// OpenClaw appends when it rewrites a part of its transcript, and which a migration leaves. What is not known is
// remembered, and gets its key.
func (r *reader) known(p *page, rec record, msg message) (key string, known bool) {
	key = msg.key(rec)
	if rec.typ == typeHeader {
		return key, false
	}
	follows := rec.follows(r.leaf)
	if rec.id != "" && r.seen.Has("i"+rec.id) {
		p.Losses.Repeats++
		if follows { // the beginning of a replaced file
			r.leaf = hash(rec.id)
			r.entries(rec, msg, key)
		}
		return key, true
	}
	stamped := msg.stamp > 0
	twin := stamped && r.seen.Has("k"+key)
	if twin && (!follows || rec.id == "" || r.copying || r.again) {
		p.Losses.Repeats++
		r.copying = true
		r.see(p, rec, "")
		if rec.id != "" && !rec.side {
			r.leaf = hash(rec.id)
		}
		return key, true
	}
	r.copying = false
	if twin {
		key += "." + rec.id // the same words at the same moment, and yet another message
	}
	if !stamped {
		r.see(p, rec, "")
		return key, false
	}
	r.see(p, rec, key)
	return key, false
}

// see remembers a record.
func (r *reader) see(p *page, rec record, key string) {
	if p.dry {
		return
	}
	if rec.id != "" {
		r.seen.Add("i" + rec.id)
		r.ids++
	}
	if key != "" {
		r.seen.Add("k" + key)
		r.ids++
	}
}

// remember fills seen from what lies before a cursor of an earlier run.
func (r *reader) remember(off int64) {
	r.warm = true
	// An unreadable past costs nothing but the knowledge of repeats.
	_ = r.file.Backward(off, warmBytes, func(line lines.Line) bool {
		rec, ok := parse(line.Data, line.Off)
		if !ok || rec.typ == typeHeader || !json.Valid(line.Data) {
			return true
		}
		if rec.id != "" {
			r.seen.Add("i" + rec.id)
		}
		if rec.typ != typeMessage {
			return true
		}
		msg := parseMessage(rec.message)
		key := msg.key(rec)
		if msg.stamp > 0 {
			r.seen.Add("k" + key)
		}
		if msg.role == "user" && r.turn.prompt.ID == "" && r.turn.Asked != 0 {
			m := mapper{}
			for _, e := range m.entries(rec, msg, key) {
				if m.turn.Asked == r.turn.Asked && e.Kind == checkpoint.EntryUser {
					r.turn.prompt = e
				}
			}
		}
		return true
	})
}
