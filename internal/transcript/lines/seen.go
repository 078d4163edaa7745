package lines

import "hash/maphash"

// Seen remembers which record ids went by: 8 bytes each, the newest ones when there are too many. The zero Seen is not
// usable; see NewSeen.
type Seen struct {
	seed      maphash.Seed
	half      int
	cur, prev map[uint64]struct{}
}

// NewSeen remembers at least the newest limit/2 ids and at most limit.
func NewSeen(limit int) *Seen {
	return &Seen{seed: maphash.MakeSeed(), half: max(limit/2, 1), cur: map[uint64]struct{}{}}
}

// Has says whether an id was added and is still remembered.
func (s *Seen) Has(id string) bool { return s.has(maphash.String(s.seed, id)) }

func (s *Seen) has(h uint64) bool {
	if _, ok := s.cur[h]; ok {
		return true
	}
	_, ok := s.prev[h]
	return ok
}

// Add remembers an id and says whether it is new.
func (s *Seen) Add(id string) bool {
	h := maphash.String(s.seed, id)
	if s.has(h) {
		return false
	}
	if len(s.cur) >= s.half {
		s.prev, s.cur = s.cur, map[uint64]struct{}{}
	}
	s.cur[h] = struct{}{}
	return true
}
