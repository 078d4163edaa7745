package pi

import (
	"slices"

	"belay/checkpoint"
)

// A transcript is a tree: each record names its parent, and the current branch is the path from the leaf, which is the
// newest record, to the root. A record whose parent is no leaf begins another branch. What lies between is found by
// walking backward in the file: the tree is never held in memory.

// place is where a record stands in the tree.
type place int

const (
	appended place = iota // it follows the leaf, or says nothing of its place
	rewound               // its parent is an ancestor of the leaf: the entries between are left
	returned              // its parent is on a branch that was left before
)

const root = 0 // hash of "no parent"

// walk finds the common ancestor of a leaf and of the parent that a new record names. It is fed with the records before
// the new one, newest first. As a parent always stands before its children, each record is met once, and a cycle cannot
// be followed.
type walk struct {
	leaf, parent uint64 // wanted next on each of the two paths
	leafPrev     bool   // the path goes on with the record before, whichever it is: no parent was named
	parentPrev   bool
	gone         []string             // ids of the entries between the leaf and the ancestor, newest first
	back         [][]checkpoint.Entry // entries between the parent and the ancestor, newest record first
	failed       bool
}

func newWalk(leaf, parent uint64) *walk { return &walk{leaf: leaf, parent: parent} }

// step takes one record further back and says whether the walk goes on. Entries is called for records that lie on one
// of the paths.
func (w *walk) step(r record, entries func() []checkpoint.Entry) (goOn bool) {
	if r.typ == typeReset {
		w.failed = true // what is not below a reset hangs on the current leaf
		return false
	}
	if r.id == "" || r.typ == typeHeader {
		return true
	}

	h := hash(r.id)
	if !r.side {
		if w.leafPrev {
			w.leaf, w.leafPrev = h, false
		}
		if w.parentPrev {
			w.parent, w.parentPrev = h, false
		}
		if w.found() {
			return false
		}
	}

	switch h {
	case w.leaf:
		for _, e := range slices.Backward(entries()) {
			if e.Kind != checkpoint.EntryMeta && e.Kind != checkpoint.EntryOwn {
				w.gone = append(w.gone, e.ID)
			}
		}
		w.leaf, w.leafPrev = r.above()
	case w.parent:
		w.back = append(w.back, entries())
		w.parent, w.parentPrev = r.above()
	}

	return !w.found()
}

func (w *walk) found() bool {
	return w.leaf == w.parent && !w.leafPrev && !w.parentPrev && w.leaf != root
}

// end says what the walk found, after the last step. Toroot says that the new record begins at the root.
func (w *walk) end(toRoot bool) place {
	if w.leafPrev {
		w.leaf = root
	}
	if w.parentPrev {
		w.parent = root
	}

	switch {
	case w.failed, !toRoot && w.leaf != w.parent:
		return appended
	case len(w.back) > 0:
		return returned
	}

	return rewound
}

// above names the record on which r hangs; prev says that none was named.
func (r record) above() (parent uint64, prev bool) {
	raw := r.parent
	if r.typ == typeLeaf && len(r.target) > 0 {
		raw = r.target
	}
	if string(raw) == "null" {
		return root, false
	}

	id := text(raw)
	if id == "" || id == r.id {
		return root, true
	}

	return hash(id), false
}
