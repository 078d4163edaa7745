package gemini

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
	"belay/internal/vfs"
)

const (
	readRaw     = 64 << 20 // one Read looks at most at so many bytes of the file
	readDecoded = 4 << 20  // and decodes at most so many
	readEntries = 4000     // and gives about so many entries
	replayBytes = 256 << 20
)

// cursor is what a checkpoint.Cursor of this reader says.
type cursor struct {
	lines.Pos
	Model   uint32 `json:"m,omitempty"` // hash of the model that was told last
	Copying bool   `json:"c,omitempty"` // a compaction is being written down
	// Answer is the model's newest message, and Noted says that a notice of the program's follows it.
	Answer string `json:"a,omitempty"`
	Noted  bool   `json:"n,omitempty"`
	Child  int64  `json:"k,omitempty"` // when the newest sub-agent that was told of began, in milliseconds
	// Doc is set for a whole-file transcript, which has no place that stays.
	Doc *docCursor `json:"d,omitempty"`
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
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("cursor has no JSON form: %v", err)) // numbers, hashes and flags always have one
	}
	return checkpoint.Cursor(b)
}

// reader reads one transcript of lines. The file's order is the truth; stamps are only passed on.
type reader struct {
	src     agent.Source
	foreign string // the session that the file says it is of, when that is not the one it was opened for
	headed  bool   // foreign is known
	file    *lines.File
	told    map[string]told // sub-agents' files that were told of

	next checkpoint.Cursor // where the last Read ended
	h    *history          // what belongs to it
}

// transcript is one file, whichever form it has: that may change while it is read, as the program turns the old form into
// the new one.
type transcript struct {
	src   agent.Source
	lines *reader
	doc   *document
}

func openTranscript(src agent.Source) checkpoint.Transcript {
	return &transcript{src: src, lines: &reader{src: src, file: lines.Open(src.Path)}, doc: &document{src: src}}
}

// Close lets the file go.
func (t *transcript) Close() error { return t.lines.file.Close() }

// Read implements checkpoint.Transcript.
func (t *transcript) Read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	if err := ctx.Err(); err != nil {
		return checkpoint.Batch{Cursor: from}, err
	}
	if isDocument(t.src.Path) {
		return t.doc.read(ctx, from, opt)
	}
	return t.lines.Read(ctx, from, opt)
}

// isDocument says whether a transcript is one JSON document: by its name, as only the new form's ends in "l".
func isDocument(path string) bool { return strings.HasSuffix(path, ".json") }

func (r *reader) Read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	batch, err := r.read(ctx, from, opt)
	if err != nil {
		r.next, r.h = "", nil // what was read was not given to anybody
		return checkpoint.Batch{Cursor: from}, err
	}
	r.children(&batch)
	r.next = batch.Cursor
	return batch, nil
}

func (r *reader) read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	if !r.headed {
		r.foreign, r.headed = foreignSession(r.src)
	}
	if from == "" {
		r.told = nil
		// A file that was renamed away in the meantime is not what first sight is of.
		if err := r.file.Close(); err != nil {
			return checkpoint.Batch{}, err
		}
		r.h = newHistory(true)
		if !opt.Whole {
			return r.firstSight(ctx, opt)
		}
		batch, err := r.forward(ctx, cursor{}, opt)
		return r.first(batch), err
	}
	cur := readCursor(from)
	if cur.Doc != nil {
		cur = cursor{Pos: lines.Pos{Off: -1}} // of the older form of this session: a place that is nowhere
	}
	if from != r.next || r.h == nil {
		r.h = newHistory(cur.Off == 0)
	}
	return r.forward(ctx, cur, opt)
}

// first marks a batch as first sight and tells where the session works.
func (r *reader) first(b checkpoint.Batch) checkpoint.Batch {
	b.First = true
	if e, ok := about(r.src, r.foreign); ok {
		b.Entries = append([]checkpoint.Entry{e}, b.Entries...)
	}
	return b
}

// about is the entry that names a transcript's workspace.
func about(src agent.Source, foreign string) (checkpoint.Entry, bool) {
	work := projectRoot(src.Path)
	return checkpoint.Entry{ID: "header", Kind: checkpoint.EntryMeta, Workspace: work, Session: foreign}, work != ""
}

// foreignSession is the session that a transcript's header names, when it is another one than the transcript was opened
// for. Ok is false when there is no header to be read yet.
func foreignSession(src agent.Source) (session string, ok bool) {
	h, ok := headerOf(src.Path)
	if src.Session == "" || src.Child != "" || h.SessionID == src.Session {
		return "", ok
	}
	return ident(h.SessionID), ok
}

// projectRoot is the folder in which the sessions of a transcript's project run: the program leaves its path two levels
// above the transcript, three above a sub-agent's.
func projectRoot(path string) string {
	dir := filepath.Dir(path)
	for range 2 {
		dir = filepath.Dir(dir)
		data, err := vfs.ReadFile(vfs.OS{}, filepath.Join(dir, ".project_root"), maxPath)
		if root := strings.TrimSpace(string(data)); err == nil && filepath.IsAbs(root) && strings.IndexByte(root, 0) < 0 {
			return payload.RealPath(strings.ToValidUTF8(root, "\uFFFD"))
		}
	}
	return ""
}

// forward reads on from cur.
func (r *reader) forward(ctx context.Context, cur cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	c := &collector{session: r.foreign, cur: cur, h: r.h}
	var failed error
	span, err := r.file.Read(cur.Pos, lines.Options{
		Final: opt.Final,
		Max:   readRaw,
		Changed: func() {
			c.h, c.cur = newHistory(true), cursor{}
			c.emit(checkpoint.Entry{Op: checkpoint.Reset})
		},
	}, func(line lines.Line) bool {
		failed = c.line(line, func() error { return r.replay(ctx, c, line.Off) })
		return failed == nil && c.decoded < readDecoded && len(c.entries) < readEntries && ctx.Err() == nil
	})
	for _, e := range []error{failed, ctx.Err()} {
		if err == nil {
			err = e
		}
	}
	if err != nil {
		return checkpoint.Batch{}, fmt.Errorf("read transcript of session %q: %w", r.src.Session, err)
	}
	r.h = c.h
	c.cur.Pos, c.cur.Doc = span.Pos, nil
	torn := span.Losses.Torn
	span.Losses.Add(c.losses)
	span.Losses.Torn = torn
	return checkpoint.Batch{Entries: c.entries, Cursor: c.cur.encode(), Losses: span.Losses, More: span.More}, nil
}

// replay learns the conversation before a place in the file, of which a record there speaks. It is read again only then:
// when the program resumed a session, compacted it or took a part back since the cursor. A past that is too long or out of
// reach is done without: then only what was read since counts as known.
func (r *reader) replay(ctx context.Context, c *collector, off int64) error {
	c.h.whole = true // asked once
	if off > replayBytes {
		return nil
	}
	file := lines.Open(r.src.Path) // a look of its own: the other file is being read
	defer file.Close()             // read only
	past := &collector{h: newHistory(true)}
	for pos := (lines.Pos{}); pos.Off < off; {
		span, err := file.Read(pos, lines.Options{Max: off - pos.Off}, func(line lines.Line) bool {
			if line.End > off || ctx.Err() != nil {
				return false
			}
			_ = past.line(line, nil) // its history is whole: nothing is missing
			past.entries = past.entries[:0]
			return true
		})
		if err != nil || ctx.Err() != nil || span.Changed || span.Pos.Off <= pos.Off {
			return ctx.Err()
		}
		pos = span.Pos
	}
	c.h = past.h
	return nil
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
	head := collector{session: r.foreign, h: newHistory(true)}
	var end, start int64
	if size > firstWhole {
		if end, err = r.head(&head); err == nil {
			start, err = r.newest(size)
		}
	}
	if err != nil {
		return checkpoint.Batch{}, err
	}
	if start <= end {
		batch, err := r.forward(ctx, cursor{}, opt)
		return r.first(batch), err
	}
	cur := cursor{}
	if cur.Pos, err = r.file.At(start); err != nil {
		return checkpoint.Batch{}, err
	}
	r.h = newHistory(false)
	batch, err := r.forward(ctx, cur, opt)
	if err != nil {
		return batch, err
	}
	for i, e := range head.entries {
		if isPrompt(e) { // the one at which the head ends
			batch.Entries = append(head.entries[i:i+1:i+1], batch.Entries...)
			break
		}
	}
	head.losses.Add(batch.Losses)
	batch.Losses, batch.Skipped = head.losses, start-end
	return r.first(batch), nil
}

// head reads to the first prompt.
func (r *reader) head(c *collector) (end int64, err error) {
	span, err := r.file.Read(lines.Pos{}, lines.Options{Max: firstHead}, func(line lines.Line) bool {
		_ = c.line(line, nil) // its history is whole: nothing is missing
		return !c.has(isPrompt)
	})
	c.losses.Add(span.Losses)
	return span.Pos.Off, err
}

// newest finds where first sight's newest part begins: enough prompts, a compaction or the conversation written anew end it,
// but not before an answer of the model's was met.
func (r *reader) newest(size int64) (start int64, err error) {
	start = size
	prompts, bytes, enough, answered := 0, 0, false, false
	err = r.file.Backward(size, firstRaw, func(line lines.Line) bool {
		start = line.Off
		bytes += min(len(line.Data), firstRecord)
		c := collector{h: newHistory(true)}
		_ = c.line(line, nil) // as above
		if c.has(isPrompt) {
			prompts++
		}
		answered = answered || c.has(isAnswer)
		enough = enough || prompts >= firstPrompts || c.has(isCompaction)
		return bytes < firstBytes && !(enough && answered)
	})
	return start, err
}
