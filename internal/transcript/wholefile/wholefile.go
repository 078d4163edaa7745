// Package wholefile reads transcripts that their agent rewrites as a whole with each message. It is the leaf that the
// readers of such files share.
//
// It promises:
//   - The file is opened read-only, never locked, and must be a regular one.
//   - A rewrite is not new content: the messages' ids tell what is new. The cursor holds the newest ids that were
//     reported, and is under 1,000 bytes.
//   - A conversation that is cut back takes its words back (Retract): the newest 8 that were reported. Words that a
//     summary replaced are not taken back.
//   - Memory is bounded whatever the file holds: it is read as a stream. A message over MaxItem is counted and skipped;
//     a file over Ceiling is not read, and counts as one oversized record.
//   - A half-written file reports nothing (Losses.Torn) until it is whole, unless no writer lives (Final).
//
// It does not remember a place in the file: each Read goes through all of it.
package wholefile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"belay/checkpoint"
	"belay/internal/transcript/lines"
)

const (
	// Ceiling is the largest file that is read.
	Ceiling = 256 << 20
	// MaxItem is the largest message that is read.
	MaxItem = 16 << 20

	ringSize     = 6       // marks in a cursor
	saidSize     = 8       // ids in a cursor
	saidBytes    = 64      // of one of them: a longer one is not kept in mind
	firstPrompts = 20      // of first sight
	firstBytes   = 4 << 20 // of first sight
	pageItems    = 2000    // of one Read
	pageBytes    = 8 << 20 // of one Read
	restless     = 2 * time.Second
	liveFor      = 10 * time.Second // after a change, a turn's end is no history
)

// Item is one message of a document.
type Item struct {
	ID   string // unique in the document, the same in every rewrite
	Hash uint64 // of what it says: another one under the same id means that it got richer
	Size int    // bytes in the file, about
	// Prompt is set for words of a person.
	Prompt bool
	// Past is set for a summary that stands for what was said before. It is told when it is new, wherever it stands.
	Past bool
	// Entries gives what the message comes to. It is called only when that is wanted.
	Entries func() []checkpoint.Entry
}

// About is what a document says of itself.
type About struct {
	// Hidden is set for a session of which nothing may be kept.
	Hidden bool
	// Epoch changes when the conversation was cleared under the same name; empty when unknown.
	Epoch string
	// Head is told at first, and again when it changes.
	Head []checkpoint.Entry
	// Stamps are times of items, where the document has them elsewhere.
	Stamps map[string]time.Time
	// Losses are those of the whole document; what a Read before counted is not counted again.
	Losses checkpoint.Losses
}

// Walk gives the items of a document in order. ErrBroken says that the document is not whole: what was given counts
// when no writer lives. An error of give ends the walk.
type Walk func(ctx context.Context, in io.Reader, give func(Item) error) (About, error)

// mark stands for an item that was told.
type mark struct {
	ID   uint64 `json:"i"`
	Hash uint32 `json:"h"`
}

// cursor is what a checkpoint.Cursor says.
type cursor struct {
	Ring  []mark   `json:"r,omitempty"` // the newest items that were told, oldest first
	Said  []string `json:"s,omitempty"` // ids of the newest of them that are words of the conversation
	Epoch uint32   `json:"e,omitempty"`
	Past  uint32   `json:"p,omitempty"` // the newest summary
	Head  uint32   `json:"a,omitempty"`
	Lost  int      `json:"l,omitempty"` // oversized and bad items that were counted
	Over  bool     `json:"x,omitempty"` // the file is over the ceiling, and that was counted
}

func readCursor(c checkpoint.Cursor) (cur cursor, ok bool) {
	if json.Unmarshal([]byte(c), &cur) != nil || len(cur.Ring) > ringSize || len(cur.Said) > saidSize {
		return cursor{}, false
	}
	return cur, true
}

func (c cursor) encode() checkpoint.Cursor {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("cursor has no JSON form: %v", err)) // numbers and flags always have one
	}
	return checkpoint.Cursor(b)
}

// After is a cursor just behind an item, as if nothing but that had been told.
func After(id string, hash uint64) checkpoint.Cursor {
	return cursor{Ring: []mark{{checkpoint.Hash(id), uint32(hash)}}}.encode()
}

// look is how a file looked. One that looks the same, and did not change just now, needs no second reading.
type look struct {
	size    int64
	inode   uint64
	changed time.Time
}

func lookAt(info os.FileInfo) look {
	l := look{size: info.Size(), changed: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		l.inode = uint64(sys.Ino)
	}
	return l
}

// Reader is a checkpoint.Transcript over one such file.
type Reader struct {
	path    string
	walk    Walk
	ceiling int64

	next checkpoint.Cursor // where the last Read ended
	look look
}

var _ checkpoint.Transcript = (*Reader)(nil)

// Open prepares to read path, which need not be there.
func Open(path string, walk Walk) *Reader { return &Reader{path: path, walk: walk, ceiling: Ceiling} }

// Close has nothing to let go.
func (r *Reader) Close() error { return nil }

// Read implements checkpoint.Transcript.
func (r *Reader) Read(
	ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions,
) (checkpoint.Batch, error) {
	none := checkpoint.Batch{Cursor: from}
	if err := ctx.Err(); err != nil {
		return none, err
	}

	file, info, err := lines.OpenRegular(r.path)
	if err != nil {
		return none, err
	}

	defer file.Close() // read only
	now := lookAt(info)
	cur, _ := readCursor(from)
	switch {
	case from != "" && from == r.next && now == r.look && time.Since(now.changed) > restless && !opt.Final:
		return none, nil
	case now.size > r.ceiling:
		return tooLarge(cur, from != ""), nil
	}

	b, err := ReadFrom(ctx, file, r.walk, from, opt)
	switch {
	case errors.Is(err, ErrBroken):
		return checkpoint.Batch{Cursor: from, Losses: checkpoint.Losses{Torn: max(now.size, 1)}}, nil
	case err != nil:
		return none, fmt.Errorf("read %s: %w", r.path, err)
	}

	if after, err := file.Stat(); err != nil || lookAt(after) != now {
		// It was rewritten in place under our eyes; the change calls for another Read.
		return checkpoint.Batch{Cursor: from, Losses: checkpoint.Losses{Torn: max(now.size, 1)}}, nil
	}
	if b.First && !opt.Whole && !opt.Final && time.Since(now.changed) < liveFor {
		b = withoutLastEnd(b)
	}

	r.next, r.look = b.Cursor, now
	if b.More {
		r.next = ""
	}

	return b, nil
}

// withoutLastEnd leaves the end of the last turn to the next Read. What first sight tells is history and no round; but
// when the file was written just now, that turn ended now, and is one.
func withoutLastEnd(b checkpoint.Batch) checkpoint.Batch {
	last := len(b.Entries) - 1
	cur, ok := readCursor(b.Cursor)
	if last < 0 || b.Entries[last].Kind != checkpoint.EntryTurnEnd || !ok || len(cur.Ring) == 0 {
		return b
	}

	cur.Ring[len(cur.Ring)-1].Hash ^= 1 // as if the message had not been whole: it comes again
	b.Entries, b.Cursor, b.More = b.Entries[:last], cur.encode(), true
	return b
}

// tooLarge counts, once, a file that is not read.
func tooLarge(cur cursor, told bool) checkpoint.Batch {
	b := checkpoint.Batch{First: !told}
	if !cur.Over {
		b.Losses.Oversized = 1
	}
	cur.Over = true
	b.Cursor = cur.encode()
	return b
}

// TooLarge is what a Read gives for a document that is too large to be read: it is counted, once.
func TooLarge(from checkpoint.Cursor) checkpoint.Batch {
	cur, _ := readCursor(from)
	return tooLarge(cur, from != "")
}

// ReadFrom reads a document that is not a file of its own, and gives what is new in it. ErrBroken says that it is not
// whole.
func ReadFrom(ctx context.Context, in io.ReadSeeker, walk Walk, from checkpoint.Cursor,
	opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	cur, ok := readCursor(from)
	told := from != ""
	if told && (!ok || cur.Over) { // it is not known any more what was told of it
		return restart(ctx, in, walk, cur, opt)
	}

	t := page{cur: cur, was: cur.Said, known: len(cur.Ring) > 0, window: !told && !opt.Whole}
	about, err := walk(ctx, in, t.item)
	t.whole = err == nil
	switch {
	case err != nil && (!errors.Is(err, ErrBroken) || !opt.Final || t.known && !t.found):
		return checkpoint.Batch{}, err
	case about.Hidden:
		return checkpoint.Batch{Cursor: cursor{}.encode()}, nil
	case t.known && t.items == 0 && (about.Epoch == "" || short(about.Epoch) != cur.Epoch):
		return checkpoint.Batch{Cursor: cur.encode()}, nil // emptied: what comes next tells what that means
	case t.known && t.items == 0: // the same conversation, cut back to nothing
		b := checkpoint.Batch{Entries: t.retracted()}
		cur.Said = nil
		b.Cursor = cur.encode()
		return b, nil

	case t.known && !t.found:
		return restart(ctx, in, walk, cur, opt)
	}

	b := t.batch(about, !told, false)
	if err != nil {
		b.Losses.Torn = 1 // the rest of a file that nobody finishes; how much is missing cannot be told
	}

	return b, nil
}

// restart reports the whole document: nothing reported before is still in it.
func restart(
	ctx context.Context, in io.ReadSeeker, walk Walk, cur cursor, opt checkpoint.ReadOptions,
) (checkpoint.Batch, error) {
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return checkpoint.Batch{}, err
	}

	t := page{window: true, cur: cursor{Lost: cur.Lost, Past: cur.Past}, was: cur.Said}
	about, err := walk(ctx, in, t.item)
	t.whole = err == nil
	if err != nil && (!errors.Is(err, ErrBroken) || !opt.Final) {
		return checkpoint.Batch{}, err
	}
	if about.Hidden {
		return checkpoint.Batch{Cursor: cursor{}.encode()}, nil
	}

	cleared := cur.Epoch != 0 && about.Epoch != "" && short(about.Epoch) != cur.Epoch
	if cleared || about.Epoch == "" { // a new part begins anyhow; or nobody says that it is the same conversation
		t.was = nil
	}

	b := t.batch(about, false, !cleared)
	if cleared {
		part := checkpoint.Entry{ID: "clear:" + Ident(about.Epoch), Kind: checkpoint.EntryClear}
		b.Entries = append([]checkpoint.Entry{part}, b.Entries...)
	}

	return b, nil
}

func short(s string) uint32 { return max(uint32(checkpoint.Hash(s)), 1) }
