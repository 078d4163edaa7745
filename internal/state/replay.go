package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"syscall"

	"belay/checkpoint"
	"belay/checkpoint/journal"
)

// Loaded is a session as the disk has it.
type Loaded struct {
	*checkpoint.State
	// Err says why its state file, or a checkpoint in the file's place, could not be used; nil where nothing was wrong.
	Err error

	damaged bool // the state file cannot be used
	lowered bool // State.Seq is below the number in the file
}

// Load reads a session: its state file, else its newest whole checkpoint, else an empty state. last is the journal's
// highest number. It changes nothing on disk; the session's owner calls Mend before it appends the session's next
// event.
func (d Dir) Load(ctx context.Context, store Checkpoints, key checkpoint.Key, last uint64) Loaded {
	l, _ := d.load(ctx, store, key)
	d.reconcile(ctx, store, &l, last)
	return l
}

// load reads what was saved of a session; false when that is nothing at all.
func (d Dir) load(ctx context.Context, store Checkpoints, key checkpoint.Key) (l Loaded, found bool) {
	s, err := d.LoadState(key)
	if err == nil {
		return Loaded{State: s}, true
	}

	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		l.damaged, l.Err = true, err
	}

	c, err := newest(ctx, store, key, 0)
	l.Err = errors.Join(l.Err, err)
	if c != nil {
		l.State = c.Restore()
		return l, true
	}

	l.State = checkpoint.NewState(key)
	return l, l.Err != nil
}

// reconcile applies the two rules about the journal's end to a state that holds all the journal has of it. A checkpoint
// that was taken while the journal's disk failed is all that holds what came then: it replaces an older state. And a
// state above the journal's last number holds what the journal has lost; the numbers start again below it, so its own
// is lowered, or the next replay would skip the events that get them.
func (d Dir) reconcile(ctx context.Context, store Checkpoints, l *Loaded, last uint64) (replaced bool) {
	c, err := newest(ctx, store, l.Key, l.LastNumber)
	l.Err = errors.Join(l.Err, err)
	if c != nil && c.State.Seq > last {
		l.State, replaced = c.Restore(), true
	}
	if l.Seq > last {
		l.Seq, l.lowered = last, true
	}

	return replaced
}

// Checkpoints is the part of a checkpoint.Store from which sessions are brought up to date.
type Checkpoints interface {
	List(ctx context.Context, key checkpoint.Key) ([]checkpoint.Meta, error)
	Get(ctx context.Context, key checkpoint.Key, number uint64) ([]byte, error)
}

// newest gives a session's newest whole checkpoint; nil when none has a number above the given one.
func newest(
	ctx context.Context, store Checkpoints, key checkpoint.Key, above uint64,
) (*checkpoint.Checkpoint, error) {
	list, err := store.List(ctx, key)
	if err != nil || len(list) == 0 || list[0].Number <= above {
		return nil, nil // a store that fails now has nothing to give; its breaker tells
	}

	get := func(n uint64) ([]byte, error) { return store.Get(ctx, key, n) }
	c, damaged, err := checkpoint.Newest(key.Dir(), list, get)
	if err != nil {
		return nil, fmt.Errorf("read the newest checkpoint of %s (%d damaged): %w", key, damaged, err)
	}
	if c.Number <= above {
		return nil, nil
	}

	return c, nil
}

// Mend writes what Load found to be wrong on disk: it renames a state file that cannot be used, so that a person can
// look at it, and saves a lowered number. Only the session's owner calls it, once, before the session's next event.
func (d Dir) Mend(l Loaded) error {
	var err error
	if l.damaged {
		err = d.SetAside(l.Key)
	}
	if l.lowered {
		err = errors.Join(err, d.SaveState(l.State))
	}

	return err
}

// Panic is a record whose event the fold could not apply.
type Panic struct {
	Seq   uint64
	Value any // may quote what somebody said
	Stack []byte
}

// Replay gives the sessions that were active when the last daemon ended, and those that the journal names, as they
// stand now: a session that still lives, or to which something is owed, may have no event left in the journal. It is
// for the daemon, which owns the journal, and comes before the first Append.
func (d Dir) Replay(ctx context.Context, store Checkpoints, j *journal.Journal) ([]Loaded, Report, error) {
	r := replay{dir: d, store: store, last: j.Health().Last, states: map[checkpoint.Key]*checkpoint.State{}}
	err := r.run(ctx, func(fn recordFunc) (journal.Report, error) { return j.Replay(ctx, 0, fn) })
	if err != nil {
		return nil, r.report, err
	}

	list := make([]Loaded, 0, len(r.found))
	for _, l := range r.found {
		list = append(list, *l)
	}

	return list, r.report, nil
}

// recordFunc takes one record of a journal.
type recordFunc func(seq uint64, payload []byte) error

// replay is one pass over a journal that brings sessions up to date. It is the only one: the daemon's start and every
// command read the journal through it.
type replay struct {
	dir   Dir
	store Checkpoints
	last  uint64 // the journal's highest number, where the caller knows it

	// states are those that were read already; afterwards all, as they stand now.
	states map[checkpoint.Key]*checkpoint.State
	// wake gives the whole of a state before it changes; nil where the states are whole.
	wake func(*checkpoint.State) *checkpoint.State
	// want says which sessions matter; nil: all.
	want func(checkpoint.Key) bool
	// needle is in every record that matters: decoding the others is saved.
	needle []byte

	found  map[checkpoint.Key]*Loaded // the active sessions and those that the journal names
	report Report
}

func (r *replay) run(ctx context.Context, read func(recordFunc) (journal.Report, error)) (err error) {
	r.found = map[checkpoint.Key]*Loaded{}
	for _, key := range r.dir.LoadActive() {
		if r.want == nil || r.want(key) {
			r.find(ctx, key, false)
		}
	}

	r.report.Journal, err = read(func(seq uint64, payload []byte) error {
		r.record(ctx, seq, payload)
		return ctx.Err()
	})

	if err != nil {
		return err
	}

	last := max(r.last, r.report.Journal.High)
	for key, l := range r.found {
		if before := l.State; r.dir.reconcile(ctx, r.store, l, last) && r.wake != nil {
			r.wake(before)
		}
		r.states[key] = l.State
	}

	return nil
}

// find gives a session that is active or that the journal names; nil for one of which nothing is left, unless it is
// new.
func (r *replay) find(ctx context.Context, key checkpoint.Key, isNew bool) *Loaded {
	if l := r.found[key]; l != nil {
		return l
	}

	l, ok := Loaded{State: r.states[key]}, true
	if l.State == nil {
		l, ok = r.dir.load(ctx, r.store, key)
	}
	if !ok && !isNew {
		return nil
	}

	r.found[key] = &l
	return &l
}

// record applies one record to its session, if it is newer than the session's state.
func (r *replay) record(ctx context.Context, seq uint64, payload []byte) {
	if r.needle != nil && !bytes.Contains(payload, r.needle) {
		return
	}

	var e checkpoint.Event
	if json.Unmarshal(payload, &e) != nil || r.want != nil && !r.want(e.Key) {
		return // a record of a later version, or another session's
	}

	l := r.find(ctx, e.Key, true)
	if seq <= l.Seq {
		return
	}
	if r.wake != nil {
		l.State = r.wake(l.State)
	}
	if seq <= l.Seq {
		return // the whole state was saved since
	}

	e.Seq = seq
	r.apply(l.State, e)
}

// apply survives a panic: one bad record must not take all other sessions from the caller.
func (r *replay) apply(s *checkpoint.State, e checkpoint.Event) {
	defer func() {
		if p := recover(); p != nil {
			r.report.Panics++
			r.report.Panic = Panic{Seq: e.Seq, Value: p, Stack: debug.Stack()}
		}
	}()
	s.Apply(e)
}
