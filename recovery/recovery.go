// Package recovery turns what belay knows of a session into what its next session needs: cursor, then delta, then
// brief. It is a pure read: it marks nothing, and the same input gives the same text (but for the frame's random word).
//
// CatchUp brings a state up to date with its transcript; Plan decides what is given, and how it reads.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"belay/checkpoint"
)

// ErrTooSmall is returned for a cap under MinBytes: nothing useful fits.
var ErrTooSmall = errors.New("the cap is too small")

// MinBytes is the smallest cap.
const MinBytes = 200

// Defaults of the caps: of a brief and of a delta in bytes, and of a delta in messages.
const (
	BriefBytes    = 9000
	DeltaBytes    = 2048
	DeltaMessages = 5
)

// Format of the text.
type Format string

const (
	Brief Format = "brief" // sections by importance
	Delta Format = "delta" // the section of the original scripts: what was said since the checkpoint
)

// Start reasons that are answered differently. Any other word, and none at all, is a start-up.
const (
	StartUp      = "startup"
	StartResume  = "resume"
	StartFork    = "fork"
	StartClear   = "clear"
	StartCompact = "compact"
	// StartManual is a person's own `belay recover`: everything is shown, told or not.
	StartManual = "manual"
)

// Options are the caps and choices of one recovery.
type Options struct {
	Start       string
	Format      Format
	MaxBytes    int // of all that is printed, frame included; 0: the format's default
	MaxMessages int // 0: the default of the delta, no limit for the brief
	Roles       []checkpoint.Role
	// SinceNum is the border of the delta: messages with a higher number are new. nil: the last checkpoint's.
	SinceNum  *uint64
	SinceTime time.Time // the border's time, for display
	Marker    string    // the frame's random word
	Repairs   bool      // the agent tells the model of the interruption by itself: facts only, no second order
	Program   string    // how a person calls belay, for "More"; empty: belay
}

// Input is what a recovery looks at.
type Input struct {
	State      *checkpoint.State // up to date (CatchUp)
	Checkpoint *checkpoint.Checkpoint
	Damaged    int // newer checkpoints that are damaged
	// Adopted is set when the state is a predecessor's: the new session has another id.
	Adopted   bool
	WorkTree  *checkpoint.WorkTree // now; nil when not looked at
	Gone      bool                 // the transcript is not there
	Processes map[string]Process   // by call id
}

// Process is what is known of a call's process now.
type Process string

const (
	ProcessRunning Process = "running"
	ProcessGone    Process = "gone"
	ProcessUnknown Process = "unknown"
)

// CatchUp folds in what the transcript holds after the state's cursor. A missing transcript is told by gone, not by an
// error; after an error the state holds what was read until then.
func CatchUp(
	ctx context.Context,
	s *checkpoint.State,
	t checkpoint.Transcript,
	opt checkpoint.ReadOptions,
	now time.Time,
) (gone bool, err error) {
	for {
		b, err := t.Read(ctx, s.Cursor, opt)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("read the transcript of %s: %w", s.Key, err)
		}

		stuck := b.Cursor == s.Cursor && len(b.Entries) == 0
		s.Apply(Event(s.Key, b, now))
		if !b.More || stuck {
			return false, nil
		}
	}
}

// Event makes the event of what a reader found.
func Event(key checkpoint.Key, b checkpoint.Batch, now time.Time) checkpoint.Event {
	return checkpoint.Event{
		At:      now,
		Key:     key,
		Kind:    checkpoint.EventEntries,
		Entries: b.Entries,
		Cursor:  b.Cursor,
		Losses:  &b.Losses,
		First:   b.First,
		Skipped: b.Skipped,
	}
}

// Result is what a recovery says; its JSON form is that of `belay recover --json`.
type Result struct {
	Agent       string            `json:"agent"`
	Session     string            `json:"session"`
	FromSession string            `json:"from_session,omitempty"`
	Start       string            `json:"start"`
	HowItEnded  string            `json:"how_it_ended"`
	Checkpoint  *CheckpointInfo   `json:"checkpoint,omitempty"`
	Task        string            `json:"task,omitempty"`
	User        []Said            `json:"user"`
	Decisions   []checkpoint.Note `json:"decisions"`
	InDoubt     []Doubt           `json:"in_doubt"`
	Messages    []Said            `json:"messages"`
	Omitted     Omitted           `json:"omitted"`
	Lost        Lost              `json:"lost"`
	WorkTree    *WorkTreeNow      `json:"work_tree,omitempty"`
	Text        string            `json:"text"` // the brief itself; empty when nothing is given
	Bytes       int               `json:"bytes"`

	Marker string `json:"-"`
}

// CheckpointInfo names the checkpoint that was read.
type CheckpointInfo struct {
	Number  uint64    `json:"seq"`
	Level   string    `json:"kind"`
	At      time.Time `json:"time"`
	Damaged int       `json:"damaged,omitempty"` // newer ones that could not be used
}

// Said is one message of the answer.
type Said struct {
	ID        string    `json:"id,omitempty"`
	At        time.Time `json:"time,omitzero"`
	Role      string    `json:"role"`
	Text      string    `json:"text"`
	Shortened bool      `json:"shortened,omitempty"`

	num uint64
}

// Doubt is a call without a known result.
type Doubt struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Digest  string    `json:"digest,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Mutates bool      `json:"mutates"`
	Process Process   `json:"process"`

	unseen     bool // asked for, not seen to start
	background bool
}

// Omitted counts what of Messages the caps left out of the text; one that is shortened is there.
type Omitted struct {
	Messages int `json:"messages"`
	Bytes    int `json:"bytes"`
}

// Lost counts what could not be read.
type Lost struct {
	BadLines  int   `json:"bad_lines"`
	TornBytes int64 `json:"torn_bytes"`
	Holes     int   `json:"holes"`
	HoleBytes int64 `json:"hole_bytes,omitempty"`
	Events    int   `json:"events,omitempty"`
	Gone      bool  `json:"transcript_missing,omitempty"`
	Skipped   int64 `json:"skipped_bytes,omitempty"`
}

// WorkTreeNow compares the workspace with the checkpoint.
type WorkTreeNow struct {
	Now     *checkpoint.WorkTree `json:"now"`
	Differs bool                 `json:"differs"`
	Detail  string               `json:"detail,omitempty"`
}

// Plan decides what a starting session is given and writes it. Result.Text is empty when the rules give nothing.
func Plan(in Input, opt Options, now time.Time) (Result, error) {
	opt = opt.withDefaults()
	if opt.MaxBytes < MinBytes {
		return Result{}, fmt.Errorf("%w: %d bytes, at least %d are needed", ErrTooSmall, opt.MaxBytes, MinBytes)
	}

	s := in.State
	m := markOf(in, opt)
	g := chosen(in, opt, m, now)
	r := Result{
		Agent:      s.Key.Agent,
		Session:    s.Key.Session,
		Start:      opt.Start,
		HowItEnded: howItEnded(s, g.ending),
		Task:       s.Task,
		Marker:     opt.Marker,
		User:       orEmpty(g.users),
		Decisions:  orEmpty(s.Decisions),
		InDoubt:    doubts(in),
		Messages:   orEmpty(g.messages),
	}

	if in.Adopted {
		r.FromSession = s.Key.Session
	}

	if c := in.Checkpoint; c != nil {
		r.Checkpoint = &CheckpointInfo{Number: c.Number, Level: string(c.Level), At: c.At, Damaged: in.Damaged}
	} else if in.Damaged > 0 {
		r.Checkpoint = &CheckpointInfo{Damaged: in.Damaged}
	}

	r.Lost = Lost{
		BadLines:  s.Losses.BadLines + s.Losses.Oversized,
		TornBytes: s.Losses.Torn,
		Holes:     s.Losses.Holes,
		HoleBytes: s.Losses.HoleBytes,
		Events:    s.Dropped,
		Gone:      in.Gone,
		Skipped:   s.Skipped,
	}

	r.WorkTree = compareTree(in)
	if g.nothing {
		return r, nil
	}

	w := writer{
		in:      in,
		opt:     opt,
		now:     now,
		mark:    m,
		r:       &r,
		g:       g,
		cleaned: map[uint64]string{},
		shown:   map[uint64]bool{},
		cut:     map[uint64]bool{},
	}

	if opt.Format == Delta {
		r.Text = w.delta()
	} else {
		r.Text = w.brief()
	}

	w.account()
	r.Bytes = len(r.Text)
	return r, nil
}

// account tells what the caps did to the messages.
func (w *writer) account() {
	w.r.Omitted = w.omitted()
	for _, list := range [][]Said{w.r.Messages, w.r.User} {
		for i := range list {
			list[i].Shortened = list[i].Shortened || w.cut[list[i].num]
		}
	}
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{} // JSON: a list, never null
	}
	return list
}

func (o Options) withDefaults() Options {
	if o.Format == "" {
		o.Format = Brief
	}

	if o.MaxBytes == 0 {
		o.MaxBytes = BriefBytes
		if o.Format == Delta {
			o.MaxBytes = DeltaBytes
		}
	}

	if o.MaxMessages == 0 && o.Format == Delta {
		o.MaxMessages = DeltaMessages
	}

	if len(o.Roles) == 0 {
		o.Roles = []checkpoint.Role{checkpoint.RoleAssistant}
		if o.Format == Brief {
			o.Roles = []checkpoint.Role{checkpoint.RoleUser, checkpoint.RoleAssistant}
		}
	}

	if o.Program == "" {
		o.Program = "belay"
	}
	if o.Marker == "" {
		o.Marker = "unmarked"
	}

	return o
}

// howItEnded is one phrase for people and scripts.
func howItEnded(s *checkpoint.State, e *checkpoint.Ending) string {
	switch {
	case e == nil && s.InTurn():
		return "open"
	case e == nil:
		return "unknown"
	case e.Clean:
		return "clean"
	case e.InTurn:
		return "died in a turn"
	}
	return "died idle"
}
