package pi

import (
	"context"
	"encoding/json"
	"slices"

	"belay/checkpoint"
	"belay/internal/transcript/lines"
)

// follows says whether a record hangs on the leaf or names no other place.
func (r record) follows(leaf uint64) bool {
	up, prev := r.above()
	return leaf == root || prev || up == leaf
}

// Bounds of what is done to find where a branch begins.
const (
	walkBytes    = 64 << 20 // read backward in one Read
	walkBytesMin = 1 << 20
	maxTips      = 16
)

// hang puts a record into the tree, moves the leaf, and adds the entries that this takes back or brings back. Rest says
// that the record has no newline yet, and comes again.
func (c records) hang(ctx context.Context, rec record, rest bool) {
	if rec.id == "" || rec.side && rec.typ != typeLeaf || rec.typ == typeHeader {
		return
	}

	s := &c.State
	up, _ := rec.above()
	linked := s.Linked
	s.Linked = s.Linked || up != root
	h := hash(rec.id)
	if rec.follows(s.Leaf) || up == root && !linked && rec.typ != typeLeaf || c.strange(rec, up) {
		if rec.typ != typeLeaf || rec.follows(s.Leaf) {
			s.Leaf = h
		}
		return
	}

	if live := s.tips[up]; live { // another process appends to a branch of its own: both go on
		delete(s.tips, up)
		s.leave(true)
		s.Leaf = h
		return
	}

	if rest {
		return
	}

	w, how := c.walk(ctx, rec, up)
	if how == rewound || how == returned && rec.typ == typeLeaf {
		for _, id := range w.gone {
			c.Add(checkpoint.Entry{Op: checkpoint.Retract, ID: id})
		}
		s.leave(false)
		s.Turn = turn{}
	}

	if how == returned {
		// The branch goes on that was left before. The one at hand stays as well, unless the agent says otherwise: two
		// processes may be writing, and then both are the conversation.
		for _, entries := range slices.Backward(w.back) {
			c.Add(entries...)
		}

		delete(s.tips, up)
		if rec.typ != typeLeaf {
			s.leave(true)
		}
	}

	if how != appended || rec.typ != typeLeaf {
		s.Leaf = h
	}
}

// leave keeps the leaf of a branch in mind.
func (s *state) leave(live bool) {
	if s.tips == nil || len(s.tips) >= maxTips {
		s.tips = map[uint64]bool{}
	}
	s.tips[s.Leaf] = live
}

// strange says that a parent is surely none of this file's records. Then it means the current leaf.
func (c records) strange(rec record, up uint64) bool {
	if up == root || !c.Complete() {
		return false
	}

	raw := rec.parent
	if rec.typ == typeLeaf && len(rec.target) > 0 {
		raw = rec.target
	}

	return !c.Known("i" + text(raw))
}

// walk looks backward for the place where the branch of a record left the current one.
func (c records) walk(ctx context.Context, rec record, up uint64) (*walk, place) {
	s := &c.State
	w := newWalk(s.Leaf, up)
	left := max(int64(walkBytes)>>(2*min(s.vain, 8)), walkBytesMin) - s.walked
	if left <= 0 {
		return w, appended
	}

	before := s.walked
	err := c.Before(ctx, left, func(line lines.Line) bool {
		s.walked = before + rec.offset - line.Off
		at, ok := parse(line.Data, line.Off)
		if !ok {
			return true
		}

		return w.step(at, func() []checkpoint.Entry {
			if !json.Valid(line.Data) {
				return nil
			}
			m := mapper{session: c.session}
			msg := parseMessage(at.message)
			return m.entries(at, msg, msg.key(at))
		})
	})

	how := w.end(up == root)
	if err != nil || how == appended {
		// The parent is in none of the records: a file by another program may name such parents all the time.
		s.vain++
		return w, appended
	}

	s.vain = 0
	return w, how
}
