package lines

import (
	"context"
	"encoding/json"
	"fmt"

	"belay/checkpoint"
)

const (
	readRaw     = 64 << 20 // one Read looks at most at so many bytes of the file,
	readDecoded = 4 << 20  // decodes at most so many,
	readEntries = 4000     // and gives about so many entries
	seenIDs     = 64 << 10 // record ids that a reader remembers
	learnBytes  = 1 << 20  // read before the cursor of an earlier run, to know the ids there
)

// Source is what a Reader reads from: a File, or something that behaves like one, such as the rows of a database.
// Offsets grow with the records. Backward may be called while Read runs.
type Source interface {
	Read(ctx context.Context, from Pos, opt Options, fn func(Line) bool) (Span, error)
	Backward(ctx context.Context, end, limit int64, fn func(Line) bool) error
	At(ctx context.Context, off int64) (Pos, error)
	Size(ctx context.Context) (int64, error)
	Close() error
}

// Format says what the records of an agent's transcripts mean. Only Record is required. S is the reader's state: a
// struct that embeds a Pos and holds whatever one record has to know of those before it. Its JSON is the cursor, so
// that it must be small and bounded. Fields without a JSON form live as long as one reader goes on without a break;
// they are zero after that.
type Format[S any] struct {
	// Keys name members of which every record has one. In a broken line, an object with one of them may be a record.
	Keys []string
	// Skip says that a line cannot give an entry. It looks at bytes: most of a transcript need not be decoded.
	Skip func(line []byte) bool
	// Record adds to the page what a record comes to. An error says that the data is not a record.
	Record func(ctx context.Context, p *Page[S], rec Record) error
	// Learn adds the ids by which Page.Once knows a record that an earlier run gave.
	Learn func(seen *Seen, l Line)
	// Marks says whether a line can be a prompt or a compaction or, unless an answer was met already, an answer. They
	// bound the window of first sight. Nil: any line can.
	Marks func(line []byte, answered bool) bool
	// Gap clears what the state says of the newest records: those that follow were not read.
	Gap func(s *S)
	// Begin is called before a read goes on from a cursor. It may move the state, and gives entries that come first.
	Begin func(ctx context.Context, s *S) ([]checkpoint.Entry, error)
	// Finish is called at the end of each read, before the cursor is made.
	Finish func(s *S, b *checkpoint.Batch)
}

// State is a pointer to the state of a Format.
type State[S any] interface {
	*S
	Position() *Pos
}

// Reader is a checkpoint.Transcript over lines.
type Reader[S any, P State[S]] struct {
	format Format[S]
	src    Source

	// What is remembered of the records before next, where the last Read ended.
	next     checkpoint.Cursor
	state    S
	seen     *Seen // ids in what the file holds now
	told     *Seen // ids given before the file's past changed; nil when it did not
	complete bool  // this reader has read all that is before next
	learned  bool  // seen holds the ids of the records just before next
}

// NewReader prepares to read the file at path, which need not be there.
func NewReader[S any, P State[S]](path string, format Format[S]) *Reader[S, P] {
	return NewSourceReader[S, P](file{Open(path)}, format)
}

// NewSourceReader prepares to read another source than a file.
func NewSourceReader[S any, P State[S]](src Source, format Format[S]) *Reader[S, P] {
	return &Reader[S, P]{format: format, src: src}
}

// file is a File as a Source.
type file struct{ *File }

func (f file) Read(ctx context.Context, from Pos, opt Options, fn func(Line) bool) (Span, error) {
	return f.File.Read(from, opt, func(l Line) bool { return fn(l) && ctx.Err() == nil })
}

func (f file) Backward(ctx context.Context, end, limit int64, fn func(Line) bool) error {
	return f.File.Backward(end, limit, func(l Line) bool { return fn(l) && ctx.Err() == nil })
}

func (f file) At(_ context.Context, off int64) (Pos, error) { return f.File.At(off) }

func (f file) Size(context.Context) (int64, error) { return f.File.Size() }

// ParseCursor decodes a cursor. Ok is false for one that cannot be read.
func ParseCursor[S any, P State[S]](c checkpoint.Cursor) (s S, ok bool) {
	if json.Unmarshal([]byte(c), &s) != nil || P(&s).Position().Off < 0 {
		return *new(S), false
	}
	return s, true
}

// Cursor encodes a state.
func Cursor[S any](s S) checkpoint.Cursor {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("cursor has no JSON form: %v", err)) // a Format's fault
	}
	return checkpoint.Cursor(b)
}

// Close lets the file go.
func (r *Reader[S, P]) Close() error { return r.src.Close() }

// Read implements checkpoint.Transcript.
func (r *Reader[S, P]) Read(
	ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions,
) (checkpoint.Batch, error) {
	batch, err := r.read(ctx, from, opt)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		r.next = "" // nobody got what was read: it must not count as given when it is read again
		return checkpoint.Batch{Cursor: from}, err
	}

	if r.format.Finish != nil {
		r.format.Finish(&r.state, &batch)
	}

	batch.Cursor = Cursor(r.state)
	r.next = batch.Cursor
	return batch, nil
}

func (r *Reader[S, P]) read(
	ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions,
) (checkpoint.Batch, error) {
	if from != "" && from == r.next {
		return r.goOn(ctx, r.state, opt)
	}

	r.seen, r.told, r.learned = NewSeen(seenIDs), nil, r.format.Learn == nil
	if from != "" {
		// The cursor of another run, or an older one because what came after it could not be kept.
		if s, ok := ParseCursor[S, P](from); ok {
			r.complete = *P(&s).Position() == Pos{}
			return r.goOn(ctx, s, opt)
		}
	}

	// First sight is of the file that the path leads to now, not of one that was renamed away.
	if err := r.src.Close(); err != nil {
		return checkpoint.Batch{}, err
	}

	r.complete, r.learned = true, true
	var batch checkpoint.Batch
	var err error
	if opt.Whole {
		batch, err = r.forward(ctx, *new(S), opt)
	} else {
		batch, err = r.firstSight(ctx, opt)
	}

	batch.First = true
	if from != "" { // an unreadable cursor counts as none
		batch.Entries = append([]checkpoint.Entry{{Op: checkpoint.Reset}}, batch.Entries...)
	}

	return batch, err
}

// goOn reads on from a cursor's state.
func (r *Reader[S, P]) goOn(ctx context.Context, s S, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	var first []checkpoint.Entry
	if r.format.Begin != nil {
		var err error
		if first, err = r.format.Begin(ctx, &s); err != nil {
			return checkpoint.Batch{}, err
		}
	}

	batch, err := r.forward(ctx, s, opt)
	if len(first) > 0 {
		batch.Entries = append(first, batch.Entries...)
	}

	return batch, err
}

// page begins a read at a state.
func (r *Reader[S, P]) page(s S) *Page[S] {
	return &Page[S]{State: s, format: &r.format, src: r.src, seen: r.seen, told: r.told, complete: r.complete}
}

// forward reads on from a state.
func (r *Reader[S, P]) forward(ctx context.Context, s S, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	p := r.page(s)
	from := *P(&s).Position()
	span, err := r.src.Read(ctx, from, Options{
		Final: opt.Final,
		Max:   readRaw,
		Changed: func() {
			r.learned = true
			p.restart()
		},
	}, func(l Line) bool {
		if !r.learned && !l.Rest {
			r.learned = true
			r.learn(ctx, l.Off)
		}
		p.Line(ctx, l)
		return p.decoded < readDecoded && len(p.Entries) < readEntries && ctx.Err() == nil
	})

	if err != nil {
		return checkpoint.Batch{}, err
	}

	r.state, r.seen, r.told, r.complete = p.State, p.seen, p.told, p.complete
	*P(&r.state).Position() = span.Pos
	p.Losses.Torn = span.Losses.Torn
	span.Losses.Add(p.Losses)
	return checkpoint.Batch{Entries: p.Entries, Losses: span.Losses, More: span.More}, nil
}

// learn remembers the records before a place where reading goes on. A past that cannot be read costs nothing but the
// knowledge of repeats.
func (r *Reader[S, P]) learn(ctx context.Context, off int64) {
	_ = r.src.Backward(ctx, off, learnBytes, func(l Line) bool {
		if r.format.Skip == nil || !r.format.Skip(l.Data) {
			r.format.Learn(r.seen, l)
		}
		return true
	})
}
