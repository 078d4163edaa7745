package session

import (
	"slices"

	"belay/checkpoint"
)

// recentIDs remembers more event ids than the state does. After a suspend each event arrives twice, over its connection
// and from the spool, with many others in between.
type recentIDs struct {
	hashes []uint64
	next   int    // the oldest, once there are maxRecent
	seq    uint64 // of the newest event
}

const maxRecent = 4096

func (r *recentIDs) has(id string) bool {
	return id != "" && slices.Contains(r.hashes, checkpoint.Hash(id))
}

func (r *recentIDs) add(id string, seq uint64) {
	r.seq = seq
	switch {
	case id == "":
	case len(r.hashes) < maxRecent:
		r.hashes = append(r.hashes, checkpoint.Hash(id))
	default:
		r.hashes[r.next] = checkpoint.Hash(id)
		r.next = (r.next + 1) % maxRecent
	}
}
