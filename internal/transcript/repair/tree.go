package repair

// The tree of records: each names its parent, and what a loader gives the model is the path from the newest record to
// the root. A parent that is not there, or a circle, cuts that path. What a record follows then is the one before it in
// the file, of the same thread.

// mend gives every node a parent that leads to a root, and says which had to be moved.
func (s *survey) mend(remade map[uint64]bool) {
	last := map[uint64]int32{} // of each lane
	for i := range s.nodes {
		n := &s.nodes[i]
		before, ok := last[n.lane]
		last[n.lane] = int32(i)
		at, known := s.index[n.parent]
		switch {
		case n.parent == 0 || remade[n.parent]:
			n.to = none
		case known && at != int32(i):
			n.to = at
		case known && ok:
			n.to, n.moved = before, Uncycle
		case known: // its own parent, and the first of its thread
			n.to, n.moved = none, Uncycle
		case ok:
			n.to, n.moved = before, Relink
		default:
			n.to = none // the beginning of a thread names what is in another file
		}
	}

	const passes = 8
	for range passes {
		if !s.uncycle() {
			return
		}
	}

	// Broken on purpose: from here on no record follows a later one, so that there is no circle at all.
	for i := range s.nodes {
		if int(s.nodes[i].to) > i {
			s.follow(int32(i))
		}
	}
}

// uncycle breaks every circle at its first record. A record that is moved follows an earlier one from then on.
func (s *survey) uncycle() (found bool) {
	const (
		fresh = iota
		walking
		good
	)

	state := make([]byte, len(s.nodes))
	var path []int32
	for i := range s.nodes {
		path = path[:0]
		at := int32(i)
		for at != none && state[at] == fresh {
			state[at] = walking
			path = append(path, at)
			at = s.nodes[at].to
		}

		if at != none && state[at] == walking {
			first := at
			for j := len(path) - 1; path[j] != at; j-- {
				first = min(first, path[j])
			}
			s.follow(first)
			found = true
		}

		for _, j := range path {
			state[j] = good
		}
	}

	return found
}

// follow lets a record follow the one before it in its thread; the first becomes a root.
func (s *survey) follow(i int32) {
	n := &s.nodes[i]
	n.to, n.moved = none, Uncycle
	for j := i - 1; j >= 0; j-- {
		if s.nodes[j].lane == n.lane {
			n.to = j
			return
		}
	}
}
