package wholefile

import (
	"fmt"
	"slices"

	"belay/checkpoint"
)

// page gathers what one Read gives.
type page struct {
	cur    cursor
	was    []string // words that were told
	known  bool     // items of cur were told
	window bool     // first sight: the first prompt and the newest part alone
	found  bool
	whole  bool // the document went to its end

	kept []string // of was, what is still there
	last bool     // the newest item that was told is still there

	ring    []mark
	richer  []Item // told before, and saying more now
	list    []Item
	bytes   int
	first   *Item // the first prompt, when it is no longer in the list
	skipped int64
	more    bool
	past    *Item
	items   int
}

// item takes one item of the document.
func (t *page) item(it Item) error {
	t.items++
	if it.Past {
		t.past = &it
	}

	m := mark{checkpoint.Hash(it.ID), uint32(it.Hash)}
	said := slices.Contains(t.was, it.ID)
	if said {
		t.kept = append(t.kept, it.ID)
	}

	if i := slices.IndexFunc(t.cur.Ring, func(o mark) bool { return o.ID == m.ID }); t.known && (said || i >= 0) {
		t.found = true
		t.last = t.last || i == len(t.cur.Ring)-1
		t.list, t.bytes, t.more = t.list[:0], 0, false // what stands before it was told, or is in the past
		t.push(m)
		if i >= 0 && t.cur.Ring[i].Hash != m.Hash {
			t.richer = append(t.richer, it)
		}

		return nil
	}

	switch {
	case t.known && !t.found, t.more:
		return nil
	case !t.window && len(t.list) > 0 && (len(t.list) >= pageItems || t.bytes+it.Size > pageBytes):
		t.more = true
		return nil
	}

	if !it.Past {
		t.push(m)
	}

	t.list = append(t.list, it)
	t.bytes += it.Size
	if t.window {
		t.shrink()
	}

	return nil
}

func (t *page) push(m mark) {
	t.ring = append(t.ring, m)
	if len(t.ring) > ringSize {
		t.ring = t.ring[1:]
	}
}

// takenBack are the words that were told and are gone. They are when the end of what was told is gone with them: what
// is missing before it, or since a new summary came, was summed up.
func (t *page) retracted() (list []checkpoint.Entry) {
	summed := t.past != nil && short(t.past.ID) != t.cur.Past
	if !t.whole || t.last || summed {
		return nil
	}

	for _, id := range t.was {
		if !slices.Contains(t.kept, id) {
			list = append(list, checkpoint.Entry{Op: checkpoint.Retract, ID: id})
		}
	}

	return list
}

// told keeps in mind what of the conversation's words is now told.
func (t *page) told(list []checkpoint.Entry, item string) {
	for _, e := range list {
		words := e.Kind == checkpoint.EntryUser || e.Kind == checkpoint.EntryAssistant
		if words && e.ID == item && len(item) <= saidBytes && !slices.Contains(t.kept, item) {
			t.kept = append(t.kept, item)
		}
	}
}

// shrink keeps the window within its bytes.
func (t *page) shrink() {
	for t.bytes > firstBytes && len(t.list) > 1 {
		t.drop(1)
	}
}

// drop leaves out the first n items of the list, but for the first prompt of all.
func (t *page) drop(n int) {
	for i := range t.list[:n] {
		it := t.list[i]
		t.bytes -= it.Size
		if it.Prompt && t.first == nil {
			t.first = &it
			continue
		}
		t.skipped += int64(it.Size)
	}
	t.list = t.list[n:]
}

// newest cuts the window to the newest prompts, and to what came after the newest summary.
func (t *page) newest() {
	prompts := 0
	for i := len(t.list) - 1; i > 0; i-- {
		if t.list[i].Prompt {
			prompts++
		}
		if t.list[i].Past || prompts == firstPrompts {
			t.drop(i)
			return
		}
	}
}

// batch gives what was gathered.
func (t *page) batch(about About, first, reset bool) checkpoint.Batch {
	if t.window {
		t.newest()
	}

	b := checkpoint.Batch{First: first, Skipped: t.skipped, More: t.more}
	next := cursor{Ring: t.ring, Epoch: t.cur.Epoch, Past: t.cur.Past, Head: t.cur.Head, Lost: t.cur.Lost}
	if about.Epoch != "" {
		next.Epoch = short(about.Epoch)
	}
	if reset {
		b.Entries = append(b.Entries, checkpoint.Entry{Op: checkpoint.Reset})
	}

	b.Entries = append(b.Entries, t.retracted()...)
	if len(about.Head) > 0 {
		next.Head = short(fmt.Sprint(about.Head))
		if first || reset || next.Head != t.cur.Head {
			b.Entries = append(b.Entries, about.Head...)
		}
	}

	list := t.list
	if t.past != nil {
		next.Past = short(t.past.ID)
		if t.known && next.Past != t.cur.Past &&
			!slices.ContainsFunc(list, func(it Item) bool { return it.ID == t.past.ID }) {
			list = append([]Item{*t.past}, list...)
		}
	}

	if t.first != nil {
		list = append([]Item{*t.first}, list...)
	}

	for _, it := range append(t.richer, list...) {
		entries := it.Entries()
		t.told(entries, it.ID)
		for _, e := range entries {
			if e.At.IsZero() {
				e.At = about.Stamps[it.ID]
			}
			b.Entries = append(b.Entries, e)
		}
	}

	next.Said = slices.Clone(t.kept[max(0, len(t.kept)-saidSize):])
	b.Losses = about.Losses
	lost := b.Losses.BadLines + b.Losses.Oversized
	if lost <= t.cur.Lost { // counted by a Read before
		b.Losses.BadLines, b.Losses.Oversized, b.Losses.Bad = 0, 0, nil
	} else if t.cur.Lost > 0 {
		b.Losses.BadLines, b.Losses.Oversized, b.Losses.Bad = lost-t.cur.Lost, 0, nil
	}

	next.Lost = lost
	b.Cursor = next.encode()
	return b
}
