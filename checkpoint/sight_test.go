package checkpoint

import "testing"

// A turn whose prompt a hook told of is a round of this life, also when its end is first seen by a transcript's first
// sight.
func TestFirstSightEndsAHooksTurn(t *testing.T) {
	s := NewState(NewKey("any", "", "11111111-1111-4111-8111-111111111111", ""))
	s.Apply(Event{Seq: 1, Kind: EventPrompt, Text: "please write the report now"})
	f := s.Apply(Event{Seq: 2, Kind: EventEntries, First: true, Entries: []Entry{
		{
			ID:   "old",
			Kind: EntryUser,
			Text: "what was asked long ago",
		},
		{ID: "olda", Kind: EntryAssistant, Text: "answered"},
		{ID: "oe", Kind: EntryTurnEnd},
		{
			ID:   "new",
			Kind: EntryUser,
			Text: "please write the report now",
		},
		{ID: "newa", Kind: EntryAssistant, Text: "here it is"},
		{ID: "ne", Kind: EntryTurnEnd},
	}})

	if s.Rounds != 1 || !f.Round {
		t.Errorf("got %d rounds, round %v; want the hook's turn alone to count", s.Rounds, f.Round)
	}
}
