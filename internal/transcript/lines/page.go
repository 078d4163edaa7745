package lines

import (
	"context"
	"errors"
	"slices"

	"belay/checkpoint"
)

var errNoObject = errors.New("not an object")

// Record is one record of a transcript.
type Record struct {
	Line  // that the record stands on; Data is the record alone
	Start int64
	// Glued is set when the record was found on a broken line, beside others or behind a stub. The agent itself cannot
	// read such a line.
	Glued bool
}

// Page is one read in the making: what the records so far came to.
type Page[S any] struct {
	State   S
	Entries []checkpoint.Entry
	Losses  checkpoint.Losses

	format   *Format[S]
	src      Source // nil where a line is looked at by itself
	seen     *Seen  // likewise
	told     *Seen
	complete bool

	rest    bool  // the record at hand comes again when its newline is there
	off     int64 // of the line at hand
	decoded int
}

// Add adds entries.
func (p *Page[S]) Add(e ...checkpoint.Entry) { p.Entries = append(p.Entries, e...) }

// Once says whether the record at hand, which is known by an id, is to be given: it is not when it stands in the file
// already, which counts as a repeat, or was given before the file's past changed.
func (p *Page[S]) Once(id string) bool {
	switch {
	case p.seen == nil:
		return true
	case p.told != nil && p.told.Has(id):
		p.Remember(id)
		return false
	case p.rest:
		return !p.seen.Has(id)
	case !p.seen.Add(id):
		p.Losses.Repeats++
		return false
	}
	return true
}

// Known says whether a record was given under an id.
func (p *Page[S]) Known(id string) bool {
	return p.seen != nil && (p.seen.Has(id) || p.told != nil && p.told.Has(id))
}

// Remember makes an id known. A record without its newline comes again, so that it is not remembered.
func (p *Page[S]) Remember(id string) {
	if p.seen != nil && !p.rest {
		p.seen.Add(id)
	}
}

// Complete says that every record before the one at hand is known: none was skipped, forgotten, or read by an earlier
// run.
func (p *Page[S]) Complete() bool { return p.complete && (p.seen == nil || !p.seen.forgot()) }

// Rewritten says that the file's past changed: records that were given may come again.
func (p *Page[S]) Rewritten() bool { return p.told != nil }

// Before gives the lines before the one at hand to fn, newest first, as Source.Backward does. There are none while a
// line is looked at by itself.
func (p *Page[S]) Before(ctx context.Context, limit int64, fn func(Line) bool) error {
	if p.src == nil {
		return nil
	}
	return p.src.Backward(ctx, p.off, limit, fn)
}

// Page makes one by which lines are looked at by themselves: it knows no others, and nothing counts as a repeat.
func (f *Format[S]) Page(s S) *Page[S] { return &Page[S]{State: s, format: f, complete: true} }

// Entries gives what a line comes to by itself.
func (f *Format[S]) Entries(ctx context.Context, s S, l Line) []checkpoint.Entry {
	p := f.Page(s)
	p.Line(ctx, l)
	return p.Entries
}

// restart begins again at the start of a file whose past changed.
func (p *Page[S]) restart() {
	if p.told == nil {
		p.told = p.seen
	} else {
		p.told.join(p.seen)
	}

	p.seen, p.complete = NewSeen(seenIDs), true
	p.State = *new(S)
	p.Add(checkpoint.Entry{Op: checkpoint.Reset})
}

// Line takes one line: a record, or a broken line, on which there may be records.
func (p *Page[S]) Line(ctx context.Context, l Line) {
	if p.format.Skip != nil && p.format.Skip(l.Data) {
		return
	}

	p.decoded += len(l.Data)
	p.off = l.Off
	if p.record(ctx, Record{Line: l, Start: l.Off}) == nil {
		return
	}

	found, lost := Rescue(l.Data, p.format.Keys...)
	rescued := 0
	for _, data := range found {
		// The slices share one array: their capacities tell where each begins.
		one := Record{Line: l, Start: l.Off + int64(cap(l.Data)-cap(data)), Glued: true}
		if one.Data = data; p.record(ctx, one) == nil {
			rescued++
		}
	}

	p.Losses.Rescued += rescued
	switch {
	case rescued == 0 && (lost || len(found) == 0): // else it is whole, and of a kind that the format does not know
		CountBad(&p.Losses, l, "no record")
	case lost:
		CountBad(&p.Losses, l, "a stub beside a record")
	}
}

// record takes one record. One without its newline leaves no trace in the state, as it comes again.
func (p *Page[S]) record(ctx context.Context, rec Record) error {
	if rec.Data[0] != '{' {
		return errNoObject
	}

	before, n := p.State, len(p.Entries)
	p.rest = rec.Rest
	err := p.format.Record(ctx, p, rec)
	if err != nil || rec.Rest {
		p.State = before
	}
	if len(p.Entries) > n {
		p.Losses.Replaced += Broken(rec.Data)
	}

	return err
}

func (p *Page[S]) has(what func(checkpoint.Entry) bool) bool {
	return slices.ContainsFunc(p.Entries, what)
}
