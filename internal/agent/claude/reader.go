package claude

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"path/filepath"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

const (
	seenIDs     = 64 << 10 // record ids that a reader remembers
	warmBytes   = 1 << 20  // read before a cursor of an earlier run, to know those ids again
	readRaw     = 64 << 20 // one Read looks at most at so many bytes of the file
	readDecoded = 4 << 20  // and decodes at most so many
	readEntries = 4000     // and gives about so many entries
)

// cursor is what a checkpoint.Cursor of this reader says: the place, and what was told last, so that a later reader goes
// on exactly where this one stopped. Workspace, model and mode are kept as hashes: they only need to be compared.
type cursor struct {
	lines.Pos
	Place uint32 `json:"w,omitempty"`
	Model uint32 `json:"m,omitempty"`
	Mode  uint32 `json:"p,omitempty"`
	Ended bool   `json:"e,omitempty"` // the turn that the last prompt opened has ended
}

// readCursor decodes a cursor. One that cannot be understood is a place that is nowhere: reading starts anew.
func readCursor(c checkpoint.Cursor) cursor {
	var cur cursor
	if err := json.Unmarshal([]byte(c), &cur); err != nil || cur.Off < 0 {
		return cursor{Pos: lines.Pos{Off: -1}}
	}
	return cur
}

func (c cursor) encode() checkpoint.Cursor {
	b, _ := json.Marshal(c) // numbers and a flag always encode
	return checkpoint.Cursor(b)
}

// shortSum is 0 for nothing, and never 0 for something.
func shortSum(s string) uint32 {
	if s == "" {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(s)) // cannot fail
	return max(h.Sum32(), 1)
}

// reader reads one transcript file. File order is the truth: parents, which can be missing or go in circles, are never
// followed, and stamps are only passed on.
type reader struct {
	src     agent.Source
	session string // of the file, by its source or name; records may say another
	file    *lines.File

	next  checkpoint.Cursor // where the last Read ended; what follows was not seen yet
	seen  *lines.Seen       // record ids up to there, in what the file holds now
	known *lines.Seen       // record ids given before the file's past changed; nil when it did not
}

func openTranscript(src agent.Source) checkpoint.Transcript {
	session := src.Session
	if session == "" && src.Child == "" {
		session = sessionOfName(src.Path)
	}
	return &reader{src: src, session: session, file: lines.Open(src.Path)}
}

// sessionOfName is the session id in the name of a live main transcript; empty for every other file.
func sessionOfName(path string) string {
	id, ok := strings.CutSuffix(filepath.Base(path), ".jsonl")
	if !ok || !checkpoint.IsUUID(id) {
		return ""
	}
	return id
}

func (r *reader) Close() error { return r.file.Close() }

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
		r.seen, r.known = lines.NewSeen(seenIDs), nil
		// A file that was renamed away in the meantime is not what first sight is of.
		if err := r.file.Close(); err != nil {
			return checkpoint.Batch{}, err
		}
		if !opt.Whole {
			return r.firstSight(ctx, opt)
		}
		batch, err := r.forward(ctx, cursor{}, opt)
		batch.First = true
		return batch, err
	}
	cur := readCursor(from)
	if from != r.next {
		// Another run's cursor, or an older one of ours because what we gave could not be kept: what is after it is new.
		r.seen, r.known = lines.NewSeen(seenIDs), nil
		if err := r.warm(cur.Pos); err != nil {
			return checkpoint.Batch{}, err
		}
	}
	return r.forward(ctx, cur, opt)
}

// warm learns the ids of the records just before a cursor, when there is something after it and the file still is what
// the cursor is of.
func (r *reader) warm(pos lines.Pos) error {
	size, err := r.file.Size()
	if err != nil || pos.Off <= 0 || size <= pos.Off {
		return err
	}
	if ok, err := r.file.Holds(pos); err != nil || !ok {
		return err
	}
	return r.file.Backward(pos.Off, warmBytes, func(line lines.Line) bool {
		if matters(line.Data) {
			r.seen.Add(recordID(line.Data))
		}
		return true
	})
}

// forward reads on from cur.
func (r *reader) forward(ctx context.Context, cur cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	c := collector{session: r.session, child: r.src.Child, cur: cur, seen: r.seen, known: r.known}
	span, err := r.file.Read(cur.Pos, lines.Options{
		Final: opt.Final,
		Max:   readRaw,
		Changed: func() {
			c.known, c.seen = c.seen, lines.NewSeen(seenIDs)
			c.cur = cursor{}
			c.entries = append(c.entries, checkpoint.Entry{Op: checkpoint.Reset})
		},
	}, func(line lines.Line) bool {
		c.line(line)
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
	span.Losses.Add(withTorn(c.losses, span.Losses.Torn))
	return checkpoint.Batch{Entries: c.entries, Cursor: c.cur.encode(), Losses: span.Losses, More: span.More}, nil
}

func withTorn(l checkpoint.Losses, torn int64) checkpoint.Losses {
	l.Torn = torn
	return l
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

func (r *reader) firstSight(ctx context.Context, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	size, err := r.file.Size()
	if err != nil {
		return checkpoint.Batch{}, err
	}
	var head headPart
	var start int64
	if size > firstWhole {
		if head, err = r.head(); err == nil {
			start, err = r.newest(size)
		}
	}
	if err != nil {
		return checkpoint.Batch{}, err
	}
	if start <= head.end {
		batch, err := r.forward(ctx, cursor{}, opt)
		batch.First = true
		return batch, err
	}
	cur := head.cur
	if cur.Pos, err = r.file.At(start); err != nil {
		return checkpoint.Batch{}, err
	}
	for _, id := range head.ids {
		r.seen.Add(id)
	}
	batch, err := r.forward(ctx, cur, opt)
	if err != nil {
		return batch, err
	}
	batch.Entries = append(head.entries, batch.Entries...)
	batch.First, batch.Skipped = true, start-head.end
	head.losses.Add(batch.Losses)
	batch.Losses = head.losses
	return batch, nil
}

// headPart is what first sight keeps of a file's beginning.
type headPart struct {
	entries []checkpoint.Entry
	ids     []string
	losses  checkpoint.Losses
	cur     cursor
	end     int64
}

// head reads to the first prompt.
func (r *reader) head() (headPart, error) {
	c := collector{session: r.session, child: r.src.Child, seen: lines.NewSeen(seenIDs)}
	var h headPart
	span, err := r.file.Read(lines.Pos{}, lines.Options{Max: firstHead}, func(line lines.Line) bool {
		if c.line(line); !c.has(isPrompt) {
			return true
		}
		h.ids = append(h.ids, recordID(line.Data))
		return false
	})
	if err != nil {
		return h, err
	}
	h.cur, h.end = c.cur, span.Pos.Off
	h.losses = span.Losses
	h.losses.Add(c.losses)
	meta := checkpoint.Entry{Kind: checkpoint.EntryMeta}
	for _, e := range c.entries {
		if e.Workspace != "" && meta.Workspace == "" && e.Session == "" {
			meta.Workspace = e.Workspace
		}
		if isPrompt(e) {
			if e.Workspace == "" {
				e.Workspace = meta.Workspace
			}
			h.entries = []checkpoint.Entry{e}
			return h, nil
		}
	}
	if meta.Workspace != "" {
		h.entries = []checkpoint.Entry{meta}
	}
	return h, nil
}

// newest finds where first sight's newest part begins: enough prompts or a compaction end it, but not before an answer of the
// model's was met, since that is what a recovery needs most.
func (r *reader) newest(size int64) (start int64, err error) {
	start = size
	prompts, bytes, enough, answered := 0, 0, false, false
	err = r.file.Backward(size, firstRaw, func(line lines.Line) bool {
		start = line.Off
		if !matters(line.Data) {
			return true
		}
		bytes += min(len(line.Data), firstRecord)
		c := collector{session: r.session, child: r.src.Child, seen: lines.NewSeen(1)}
		if mayTurn(line.Data) || !answered && mayAnswer(line.Data) {
			c.line(line)
		}
		if c.has(isPrompt) {
			prompts++
		}
		answered = answered || c.has(isAnswer)
		enough = enough || prompts >= firstPrompts || c.has(isCompaction)
		return bytes < firstBytes && !(enough && answered)
	})
	return start, err
}
