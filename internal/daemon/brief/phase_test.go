package brief

import (
	"testing"

	"belay/checkpoint"
)

// Each phase and each sign: what is not written here changes nothing.
func TestMoves(t *testing.T) {
	phases := []phase{unasked, telling, told, owed}
	signs := []sign{start, carrier, missed, reached, lost, nothing}
	want := map[phase]map[sign]phase{
		unasked: {start: telling, missed: owed},
		told:    {start: telling, missed: owed}, // the start finds nothing new, or is a compaction
		owed:    {start: telling, carrier: telling},
		telling: {reached: told, lost: owed, nothing: unasked}, // a second client is not told beside the first
	}

	for _, from := range phases {
		for _, by := range signs {
			if got := moves[from][by]; got != want[from][by] {
				t.Errorf("%s, %s: then %q, want %q", from, by, got, want[from][by])
			}
		}
	}

	if len(moves) != len(phases) {
		t.Errorf("%d phases have moves, want %d", len(moves), len(phases))
	}
}

// The phase is read from the state, so that it survives the daemon; only a client that waits does not.
func TestPhaseOf(t *testing.T) {
	given := func(news uint64) *checkpoint.Given { return &checkpoint.Given{News: news} }
	for _, c := range []struct {
		name string
		st   checkpoint.State
		busy bool
		want phase
	}{
		{"a new session", checkpoint.State{}, false, unasked},
		{"something happened", checkpoint.State{News: 3}, false, unasked},
		{"all of it was told", checkpoint.State{News: 3, Given: given(3)}, false, told},
		{"something happened since it was told", checkpoint.State{News: 4, Given: given(3)}, false, unasked},
		{"what was to be told reached nobody", checkpoint.State{News: 3, OwedTo: true}, false, owed},
		{"it was told once, and then reached nobody", checkpoint.State{News: 3, Given: given(3), OwedTo: true}, false, owed},
		{"a client waits", checkpoint.State{News: 3, OwedTo: true}, true, telling},
	} {
		if got := phaseOf(&c.st, c.busy); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
