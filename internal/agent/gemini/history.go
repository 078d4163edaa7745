package gemini

import (
	"slices"

	"belay/internal/transcript/lines"
)

// Bounds of what a reader remembers of a conversation.
const (
	maxMessages = 200_000
	seenCalls   = 64 << 10
)

// history is the conversation as the file has it at a place: which messages are in it, in order, and what of each was
// told.
type history struct {
	order []string
	told  map[string]uint64 // message to the hash of its words
	asker map[string]string // message that holds another one's calls to that other one
	calls *lines.Seen       // calls that were told, with their state
	said  *lines.Seen       // hashes of all words that were told
	// whole is set when nothing before the place is missing in it. A rewrite of the conversation means something only
	// then.
	whole bool
}

func newHistory(whole bool) *history {
	return &history{told: map[string]uint64{}, asker: map[string]string{}, calls: lines.NewSeen(seenCalls),
		said: lines.NewSeen(seenCalls), whole: whole}
}

// add puts a message at the end, unless it is there.
func (h *history) add(id string) {
	if _, ok := h.told[id]; ok {
		return
	}
	if len(h.order) >= maxMessages { // no such conversation is real: what comes again will be told again
		h.order, h.told, h.asker, h.whole = nil, map[string]uint64{}, map[string]string{}, false
	}

	h.order = append(h.order, id)
	h.told[id] = 0
}

// rewind takes back a message and all after it, all when it is not known, and gives them, the newest first.
func (h *history) rewind(id string) []string {
	at := max(slices.Index(h.order, id), 0)
	gone := slices.Clone(h.order[at:])
	slices.Reverse(gone)
	h.order = h.order[:at:at]
	for _, g := range gone {
		delete(h.told, g)
	}

	return gone
}
