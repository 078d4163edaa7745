package session

import (
	"fmt"
	"testing"
)

// What a session remembers is bounded: the oldest ids go first.
func TestRecentIDsForgetTheOldest(t *testing.T) {
	var r recentIDs
	for n := range maxRecent + 10 {
		r.add(fmt.Sprint("e", n), uint64(n))
	}

	for n, want := range map[int]bool{0: false, 9: false, 10: true, maxRecent + 9: true, maxRecent + 10: false} {
		if got := r.has(fmt.Sprint("e", n)); got != want {
			t.Errorf("e%d is known: %t, want %t", n, got, want)
		}
	}

	if r.has("") || len(r.hashes) != maxRecent || r.seq != maxRecent+9 {
		t.Errorf(
			"knows no id: %t; %d ids up to %d, want %d up to %d", r.has(""), len(r.hashes), r.seq, maxRecent,
			maxRecent+9,
		)
	}
}
