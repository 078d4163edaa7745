package checkpoint

import (
	"context"
	"time"
)

// Op says what an Entry does to what was read before it.
type Op string

const (
	// Upsert adds the entry, or replaces the one with the same ID. It is the zero value's meaning too.
	Upsert Op = ""
	// Retract takes back the entry with this ID: it is no longer on the conversation's current branch.
	Retract Op = "retract"
	// Reset says that the transcript's past changed: what follows is read from a new beginning. Entries that the
	// session already holds (same ID) are the same entries; nothing rich is replaced by something poorer.
	Reset Op = "reset"
)

// EntryKind is the kind of an Entry.
type EntryKind string

const (
	EntryUser       EntryKind = "user"       // the person's words
	EntryAssistant  EntryKind = "assistant"  // the model's words; thinking is left out
	EntryCall       EntryKind = "call"       // the model asked for a tool call
	EntryResult     EntryKind = "result"     // a tool call's result
	EntryCompaction EntryKind = "compaction" // the context was compacted here; Text is the summary
	EntryClear      EntryKind = "clear"      // a new part begins: nothing older is ever given
	EntryInterrupt  EntryKind = "interrupt"  // the person interrupted the turn
	EntryTurnEnd    EntryKind = "turn-end"   // the agent handed back; only from readers whose files say so
	EntryOwn        EntryKind = "own"        // a block of belay's own came back; ID is its marker
	EntryMeta       EntryKind = "meta"       // only Workspace, Model or Mode

	// The sub-agent Child (Name) is at work, or has ended: from readers that see it. Either may come again. Transcript
	// is the file that the sub-agent's own session is read from.
	EntryChildStart EntryKind = "child-start"
	EntryChildEnd   EntryKind = "child-end"
)

// Entry is one normalised piece of a transcript. Text, Input and Output are valid UTF-8 with secrets removed, cut by
// the reader (Cut...), and safe to keep.
type Entry struct {
	Op   Op        `json:"op,omitempty"`
	ID   string    `json:"id,omitempty"` // unique in the transcript
	Kind EntryKind `json:"kind,omitempty"`
	At   time.Time `json:"at,omitzero"` // the agent's stamp: for display only, may be absent or wrong

	// Group joins the entries that are one message in several records (Claude: message.id). The texts of a group are
	// joined by a newline in file order.
	Group string `json:"group,omitempty"`
	Text  string `json:"text,omitempty"`
	// Aside marks words that are no round of the conversation: heartbeat and cron turns, notices, copies.
	Aside bool `json:"aside,omitempty"`

	Turn string `json:"turn,omitempty"` // prompt or turn id, when the record names it

	// Calls and results.
	Call       string `json:"call,omitempty"`
	Name       string `json:"name,omitempty"`       // tool name
	Input      string `json:"input,omitempty"`      // arguments as JSON, cut
	Alike      uint64 `json:"alike,omitempty"`      // of a call, as in Event
	Output     string `json:"output,omitempty"`     // result's text, cut
	Failed     bool   `json:"failed,omitempty"`     // the result is an error
	MadeUp     bool   `json:"madeup,omitempty"`     // the agent invented the result after a crash: outcome unknown
	Background bool   `json:"background,omitempty"` // the result says that the call goes on in the background
	Act

	// Where the record says more about itself than the file does.
	Session    string `json:"session,omitempty"`    // the record's own session id, when it differs from the file's
	Child      string `json:"child,omitempty"`      // sub-agent id inside a main file
	Transcript string `json:"transcript,omitempty"` // of that sub-agent, when it has a file of its own
	Workspace  string `json:"workspace,omitempty"`
	Model      string `json:"model,omitempty"`
	Mode       string `json:"mode,omitempty"`
}

// Bytes of one entry that readers keep. Cuts keep the head and the tail and leave a visible mark between.
const (
	CutText = 16 << 10 // words of a person or the model, compaction summaries
	CutTool = 4 << 10  // tool input and output: first and last 2 KB
)

// Losses counts what a reader could not read. All numbers but Torn grow.
type Losses struct {
	BadLines  int   `json:"bad_lines,omitempty"` // lines that are no record
	Torn      int64 `json:"torn,omitempty"`      // bytes after the last newline that wait for their end, now
	Holes     int   `json:"holes,omitempty"`     // runs of NUL bytes
	HoleBytes int64 `json:"hole_bytes,omitempty"`
	Repeats   int   `json:"repeats,omitempty"`   // records that were there before
	Rescued   int   `json:"rescued,omitempty"`   // records found behind a stub on one line
	Oversized int   `json:"oversized,omitempty"` // records over the reader's ceiling
	Replaced  int   `json:"replaced,omitempty"`  // broken UTF-8 or half surrogates, now U+FFFD
	// Bad tells where the newest bad lines are, at most MaxBad of them.
	Bad []BadLine `json:"bad,omitempty"`
}

// MaxBad bounds Losses.Bad.
const MaxBad = 20

// BadLine is one line that is no record.
type BadLine struct {
	Line   int64  `json:"line"`   // physical line, from 1; 0 where the reader began in the middle of the file
	Offset int64  `json:"offset"` // of its first byte
	Bytes  int64  `json:"bytes"`
	Why    string `json:"why"`
}

// Add sums what a later read lost.
func (l *Losses) Add(more Losses) {
	l.BadLines += more.BadLines
	l.Torn = more.Torn
	l.Holes += more.Holes
	l.HoleBytes += more.HoleBytes
	l.Repeats += more.Repeats
	l.Rescued += more.Rescued
	l.Oversized += more.Oversized
	l.Replaced += more.Replaced
	l.Bad = append(l.Bad, more.Bad...)
	if n := len(l.Bad) - MaxBad; n > 0 {
		l.Bad = append([]BadLine(nil), l.Bad[n:]...)
	}
}

// Cursor is an opaque position in a transcript that only its reader understands; "" is "never read".
type Cursor string

// Batch is what one Read returns.
type Batch struct {
	Entries []Entry
	Cursor  Cursor // where the next Read goes on; it never lies inside a record
	Losses  Losses // of this read alone (Torn: now)
	More    bool   // there is more to read at once
	// First is set when the cursor was "" (first sight): Entries hold the head (first prompt, workspace) and the newest
	// part; Skipped bytes between them were not read.
	First   bool
	Skipped int64
}

// ReadOptions steer one Read.
type ReadOptions struct {
	// Final says that no writer lives: a whole last record without its newline counts as a record.
	Final bool
	// Whole reads from the very beginning when the cursor is "", instead of first sight's window.
	Whole bool
}

// Transcript reads one session's transcript. It never writes, locks, renames or re-stamps anything.
//
// Read returns the entries after the cursor, at most a few thousand at a time. A transcript that is not there (yet, or
// any more) is fs.ErrNotExist with the cursor unchanged; one bad record costs that record only and is counted, never an
// error. A Transcript is used by one goroutine.
type Transcript interface {
	Read(ctx context.Context, from Cursor, opt ReadOptions) (Batch, error)
	Close() error
}
