package checkpoint

import "time"

// witness tells the two sources of a turn apart: events of hooks, and the transcript. Each alone is enough; together they
// count once.
type witness int

const (
	byHook witness = iota
	byFile
)

// Turn is one user prompt and how it ended. An ended turn that is no aside is a round.
type Turn struct {
	N       int       `json:"n"`
	ID      string    `json:"id,omitempty"`   // prompt or turn id, when a witness named it
	Hash    uint64    `json:"hash,omitempty"` // of the prompt; 0 when the prompt was not seen
	At      time.Time `json:"at"`
	Hook    bool      `json:"hook,omitempty"` // its prompt was seen by this witness
	File    bool      `json:"file,omitempty"`
	Ended   bool      `json:"ended,omitempty"`
	EndHook bool      `json:"end_hook,omitempty"`
	EndFile bool      `json:"end_file,omitempty"`
	Aside   bool      `json:"aside,omitempty"`
	Outcome Outcome   `json:"outcome,omitempty"`
}

func (t *Turn) seen(w witness) bool {
	if w == byHook {
		return t.Hook
	}
	return t.File
}

func (t *Turn) see(w witness, id string) {
	if w == byHook {
		t.Hook = true
	} else {
		t.File = true
	}
	if t.ID == "" {
		t.ID = id
	}
}

// findTurn gives the turn that a prompt of one witness belongs to when the other witness, or this one, told of it before.
func (s *State) findTurn(w witness, id string, hash uint64) *Turn {
	if id != "" {
		for i := range s.Turns {
			if s.Turns[i].ID == id {
				return &s.Turns[i]
			}
		}
	}
	for i := range s.Turns {
		t := &s.Turns[i]
		if t.seen(w) || id != "" && t.ID != "" {
			continue
		}
		// A turn known by its end alone (a Stop without its prompt) takes the first prompt of the other witness.
		if t.Hash == hash || t.Hash == 0 && w == byFile {
			return t
		}
	}
	return nil
}

// openTurn folds a prompt in and returns its turn; fresh says that nobody told of it before. The turn before ends by it.
func (s *State) openTurn(w witness, id, text string, at time.Time, aside bool, f *Effect, first bool) (t *Turn, fresh bool) {
	hash := textHash(text)
	if t := s.findTurn(w, id, hash); t != nil {
		known := t.seen(w)
		t.see(w, id)
		if t.Hash == 0 {
			t.Hash = hash
		}
		return t, !known && t.Hash != 0 && s.userMessage(t.N) == nil
	}
	if n := len(s.Turns); n > 0 {
		s.endTurn(&s.Turns[n-1], OutcomeDone, f, first)
	}
	s.TurnSeq++
	turn := Turn{N: s.TurnSeq, Hash: hash, At: at, Aside: aside}
	turn.see(w, id)
	s.Turns = keepNewest(append(s.Turns, turn), maxTurns)
	s.News++
	return &s.Turns[len(s.Turns)-1], true
}

// endTurn counts a turn's end once. Turns found at first sight do not count for the gate.
func (s *State) endTurn(t *Turn, o Outcome, f *Effect, first bool) {
	if t.Ended {
		return
	}
	t.Ended, t.Outcome = true, o
	if s.Chain {
		s.Chain, f.ChainEnd = false, !first
	}
	if t.Aside || first {
		return
	}
	s.Rounds++
	s.SinceSparse++
	s.News++
	f.Round = true
}

// turnToEnd finds the turn that an end belongs to. It is nil when the end tells nothing new.
func (s *State) turnToEnd(w witness, id string, at time.Time) *Turn {
	if id != "" {
		for i := range s.Turns {
			if s.Turns[i].ID == id {
				return &s.Turns[i]
			}
		}
	}
	last := len(s.Turns) - 1
	if w == byFile {
		for i := last; i >= 0; i-- { // the file may be behind the hooks
			if s.Turns[i].File {
				return &s.Turns[i]
			}
		}
	}
	if w == byFile && last >= 0 {
		return &s.Turns[last]
	}
	if last >= 0 && !s.Turns[last].EndHook {
		return &s.Turns[last]
	}
	if w == byFile {
		return nil
	}
	// A Stop whose prompt nobody saw: a round all the same.
	s.TurnSeq++
	s.Turns = keepNewest(append(s.Turns, Turn{N: s.TurnSeq, ID: id, At: at, Hook: true}), maxTurns)
	return &s.Turns[len(s.Turns)-1]
}

func (s *State) prompt(e Event) Effect {
	var f Effect
	t, fresh := s.openTurn(byHook, e.Turn, e.Text, e.At, e.Aside, &f, false)
	if fresh && !e.Aside && e.Text != "" {
		s.addUser(Message{At: e.At, Text: e.Text, Turn: t.N})
	}
	return f
}

func (s *State) stop(e Event) Effect {
	var f Effect
	t := s.turnToEnd(byHook, e.Turn, e.At)
	if e.Aside {
		t.Aside = true
	}
	chain := s.Chain
	if !t.EndHook || !t.Ended {
		t.EndHook = true
		s.endTurn(t, e.Outcome, &f, false)
	}
	if chain { // the agent handed back, whichever Stop of the turn this is
		s.Chain, f.ChainEnd = false, true
	}
	if e.Outcome == OutcomeDone && !t.Aside && e.Text != "" {
		s.addReply(Message{At: e.At, Text: e.Text, Turn: t.N}, false)
	}
	return f
}
