package pi

import (
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

// hang puts a record into the tree, moves the leaf, and gives the entries that this takes back or brings back.
func (r *reader) hang(p *page, rec record) []checkpoint.Entry {
	if rec.id == "" || rec.side && rec.typ != typeLeaf || rec.typ == typeHeader {
		return nil
	}
	up, _ := rec.above()
	linked := r.linked
	r.linked = r.linked || up != root
	h := hash(rec.id)
	if rec.follows(r.leaf) || up == root && !linked && rec.typ != typeLeaf || r.strange(rec, up) {
		if rec.typ != typeLeaf || rec.follows(r.leaf) {
			r.leaf = h
		}
		return nil
	}
	if live := r.tips[up]; live { // another process appends to a branch of its own: both go on
		delete(r.tips, up)
		r.leave(true)
		r.leaf = h
		return nil
	}
	w, how := r.walk(p, rec, up)
	var list []checkpoint.Entry
	if how == rewound || how == returned && rec.typ == typeLeaf {
		for _, id := range w.gone {
			list = append(list, checkpoint.Entry{Op: checkpoint.Retract, ID: id})
		}
		r.leave(false)
		r.turn = turn{}
	}
	if how == returned {
		// The branch goes on that was left before. The one at hand stays as well, unless the agent says otherwise: two
		// processes may be writing, and then both are the conversation.
		for _, entries := range slices.Backward(w.back) {
			list = append(list, entries...)
		}
		delete(r.tips, up)
		if rec.typ != typeLeaf {
			r.leave(true)
		}
	}
	if how != appended || rec.typ != typeLeaf {
		r.leaf = h
	}
	return list
}

// leave keeps the leaf of a branch in mind.
func (r *reader) leave(live bool) {
	if len(r.tips) >= maxTips {
		clear(r.tips)
	}
	r.tips[r.leaf] = live
}

// strange says that a parent is surely none of this file's records. Then it means the current leaf.
func (r *reader) strange(rec record, up uint64) bool {
	if !r.whole || r.ids >= seenIDs/2 || up == root {
		return false
	}
	raw := rec.parent
	if rec.typ == typeLeaf && len(rec.target) > 0 {
		raw = rec.target
	}
	return !r.seen.Has("i" + text(raw))
}

// walk looks backward for the place where the branch of a record left the current one.
func (r *reader) walk(p *page, rec record, up uint64) (*walk, place) {
	w := newWalk(r.leaf, up)
	if p.walks <= 0 || p.dry { // a record that has no newline yet comes again
		return w, appended
	}
	before := p.walks
	err := r.file.Backward(rec.offset, p.walks, func(line lines.Line) bool {
		p.walks = before - (rec.offset - line.Off)
		at, ok := parse(line.Data, line.Off)
		if !ok {
			return true
		}
		return w.step(at, func() []checkpoint.Entry {
			if !json.Valid(line.Data) {
				return nil
			}
			m := mapper{session: r.session}
			msg := parseMessage(at.message)
			return m.entries(at, msg, msg.key(at))
		})
	})
	how := w.end(up == root)
	if err != nil || how == appended {
		// The parent is in none of the records: a file by another program may name such parents all the time.
		r.walkMax = max(r.walkMax/4, walkBytesMin)
		return w, appended
	}
	r.walkMax = walkBytes
	return w, how
}
