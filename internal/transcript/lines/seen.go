package lines

import "hash/maphash"

// seed is one for all, so that two sets can be joined.
var seed = maphash.MakeSeed()

// Seen remembers which record ids went by: 8 bytes each, the newest ones when there are too many. The zero Seen is not
// usable; see NewSeen.
type Seen struct {
	half      int
	cur, prev map[uint64]struct{}
}

// NewSeen remembers at least the newest limit/2 ids and at most limit.
func NewSeen(limit int) *Seen {
	return &Seen{half: max(limit/2, 1), cur: map[uint64]struct{}{}}
}

// Has says whether an id was added and is still remembered.
func (s *Seen) Has(id string) bool { return s.has(maphash.String(seed, id)) }

func (s *Seen) has(h uint64) bool {
	if _, ok := s.cur[h]; ok {
		return true
	}
	_, ok := s.prev[h]
	return ok
}

// Add remembers an id and says whether it is new.
func (s *Seen) Add(id string) bool {
	h := maphash.String(seed, id)
	if s.has(h) {
		return false
	}
	s.add(h)
	return true
}

func (s *Seen) add(h uint64) {
	if len(s.cur) >= s.half {
		s.prev, s.cur = s.cur, map[uint64]struct{}{}
	}
	s.cur[h] = struct{}{}
}

// forgot says whether ids may have been dropped to make room for newer ones.
func (s *Seen) forgot() bool { return s.prev != nil }

// join adds what another set remembers, its newest ids last.
func (s *Seen) join(other *Seen) {
	for _, ids := range []map[uint64]struct{}{other.prev, other.cur} {
		for h := range ids {
			if !s.has(h) {
				s.add(h)
			}
		}
	}
}
