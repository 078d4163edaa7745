package daemon

import (
	"slices"

	"belay/checkpoint"
)

// heard is the ids of a session's newest events, many more than its state holds: after a spell in which the daemon stood still each
// event of that spell comes twice, from its connection and from the spool, and as many others may come between.
type heard struct {
	ids  []uint64
	next int    // the oldest, once there are maxHeard
	seq  uint64 // of the newest
}

const maxHeard = 4096

func (h *heard) has(id string) bool { return id != "" && slices.Contains(h.ids, checkpoint.Hash(id)) }

func (h *heard) add(id string, seq uint64) {
	h.seq = seq
	switch {
	case id == "":
	case len(h.ids) < maxHeard:
		h.ids = append(h.ids, checkpoint.Hash(id))
	default:
		h.ids[h.next] = checkpoint.Hash(id)
		h.next = (h.next + 1) % maxHeard
	}
}
