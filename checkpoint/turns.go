package checkpoint

import "time"

// witness tells the two sources of a turn apart: events of hooks, and the transcript. Each alone is enough; together
// they count once.
type witness int

const (
	byHook witness = iota
	byFile
)

// told is a prompt as one witness told of it.
type told struct {
	by    witness
	id    string // prompt or turn id, where the witness names it
	text  string
	at    time.Time
	stamp bool // at is the witness's own stamp of it, not the time at which belay read of it
	quiet bool // history: it does not count for the gate
}

// Turn is one user prompt and how it ended. An ended turn that is no aside is a round.
type Turn struct {
	N       int       `json:"n"`
	ID      string    `json:"id,omitempty"`   // prompt or turn id, when a witness named it
	Hash    uint64    `json:"hash,omitempty"` // of the prompt; 0 when the prompt was not seen
	At      time.Time `json:"at"`
	Hook    bool      `json:"hook,omitempty"` // its prompt was seen by this witness
	File    bool      `json:"file,omitempty"`
	Ended   bool      `json:"ended,omitempty"`
	EndHook bool      `json:"end_hook,omitempty"` // a Stop told of its end
	Aside   bool      `json:"aside,omitempty"`
	Joined  bool      `json:"joined,omitempty"` // an aside turn runs inside it
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

// turn gives the turn with number n, if it is still kept.
func (s *State) turn(n int) *Turn {
	if i := s.turnIndex(n); i >= 0 {
		return &s.Turns[i]
	}
	return nil
}

// turnIndex is a turn's place in the conversation; -1 for one that is no longer kept.
func (s *State) turnIndex(n int) int {
	for i := len(s.Turns) - 1; i >= 0; i-- {
		if s.Turns[i].N == n {
			return i
		}
	}
	return -1
}

func (s *State) lastTurn() *Turn {
	if n := len(s.Turns); n > 0 {
		return &s.Turns[n-1]
	}
	return nil
}

// working is the user's turn that is open, if there is one.
func (s *State) working() *Turn {
	if t := s.lastTurn(); t != nil && !t.Ended && !t.Aside {
		return t
	}
	return nil
}

// nearly is how far the two witnesses' times of one prompt may lie apart. The agent's stamp decides between turns with
// equal prompts only, and may be wrong.
const nearly = time.Minute

// findTurn gives the turn that a prompt belongs to when it was told of before: by its id; else by its text among the
// turns that this witness has not told of, one that is near in time before the oldest.
func (s *State) findTurn(p told, hash uint64) *Turn {
	var first *Turn
	for i := range s.Turns {
		t := &s.Turns[i]
		switch {
		case p.id != "" && t.ID == p.id:
			return t
		case t.seen(p.by), p.id != "" && t.ID != "":
			continue
		case t.Hash == 0 && p.by == byFile: // known by its end alone: it takes the first prompt of the file
		case t.Hash != hash, p.by == byHook && t.EndHook: // a hook tells of a prompt before it tells of its end
			continue
		}

		if first == nil || near(t.At, p.at, nearly) && !near(first.At, p.at, nearly) {
			first = t
		}
	}

	switch {
	case first == nil:
		return s.sameMoment(p)
	case p.by == byHook && first != s.lastTurn() && !near(first.At, p.at, nearly):
		return nil // hooks are not that late: the same words again, of a time when hooks were silent
	}

	return first
}

// sameMoment is the open turn whose prompt reached the hook within seconds of the file's stamp, whatever its words
// became in the file (pasted text, commands written out).
func (s *State) sameMoment(p told) *Turn {
	t := s.working()
	if t == nil || p.by != byFile || !p.stamp || !t.Hook || t.File || p.id != "" && t.ID != "" ||
		!near(t.At, p.at, DoubleWindow) {
		return nil
	}
	return t
}

func near(a, b time.Time, within time.Duration) bool {
	d := a.Round(0).Sub(b.Round(0))
	return d < within && d > -within
}

// openTurn folds a prompt in and returns its turn; fresh says that its words are not kept yet. The turn before ends by
// it.
func (s *State) openTurn(p told, f *Effect) (t *Turn, fresh bool) {
	hash := textHash(p.text)
	if t := s.findTurn(p, hash); t != nil {
		known := t.seen(p.by)
		t.see(p.by, p.id)
		if t.Hash == 0 {
			t.Hash = hash
		}
		return t, !known && s.userMessage(t.N) == nil
	}

	return s.newTurn(p, hash, false, f), true
}

// newTurn puts a turn where the conversation has it. What the file tells for the first time is older than a prompt that
// waits for its answer and that the file does not hold yet; such a turn is over at once.
func (s *State) newTurn(p told, hash uint64, aside bool, f *Effect) *Turn {
	s.TurnSeq++
	turn := Turn{N: s.TurnSeq, Hash: hash, At: p.at, Aside: aside}
	turn.see(p.by, p.id)
	at := len(s.Turns)
	if p.by == byFile {
		at = s.behind(p.quiet)
	}
	if at == len(s.Turns) && at > 0 {
		s.endTurn(&s.Turns[at-1], OutcomeDone, f, p.quiet)
	}

	s.Turns = append(s.Turns, Turn{})
	copy(s.Turns[at+1:], s.Turns[at:])
	s.Turns[at] = turn
	if at < len(s.Turns)-1 {
		chain := s.Chain // of the turn that is open now
		s.Chain = false
		s.endTurn(&s.Turns[at], OutcomeDone, f, p.quiet)
		s.Chain = chain
	}

	s.News++
	s.Turns = keepNewest(s.Turns, maxTurns)
	if t := s.turn(turn.N); t != nil {
		return t
	}

	return &turn // older than all that are kept
}

// behind is the place of a turn that the file tells of: before those that only hooks told of, at first sight; else only
// before the one that is open.
func (s *State) behind(quiet bool) int {
	at := len(s.Turns)
	for at > 0 {
		t := s.Turns[at-1]
		if t.File || !t.Hook || !quiet && (t.Ended || t.Aside) {
			break
		}
		at--
	}

	return at
}

// asidePrompt folds in a prompt that is no words of a person (heartbeat, cron job, notice). While a user's turn is open
// it runs inside that turn, which goes on; else it opens a turn that is no round.
func (s *State) asidePrompt(p told, f *Effect) {
	hash := textHash(p.text)
	t := s.findTurn(p, hash)
	switch {
	case t != nil && t.Hash == hash:
		t.see(p.by, p.id)
		s.setAside(t)
	case s.working() != nil:
		s.working().Joined = true
	default:
		s.newTurn(p, hash, true, f)
	}
}

// setAside marks a turn that turned out to be none of the person's. If it was counted it stays counted.
func (s *State) setAside(t *Turn) {
	if t.Aside {
		return
	}
	t.Aside = true
	if m := s.userMessage(t.N); m != nil {
		s.forget(m.Num)
	}
}

// endTurn counts a turn's end once. Turns found at first sight do not count for the gate.
func (s *State) endTurn(t *Turn, o Outcome, f *Effect, quiet bool) {
	if t.Ended {
		return
	}

	t.Ended, t.Outcome = true, o
	quiet = quiet && !t.Hook // a turn that a hook told of is lived through, whoever tells of its end
	if s.Chain {
		s.Chain, f.ChainEnd = false, !quiet
	}
	if t.Aside || quiet {
		return
	}

	s.Rounds++
	s.SinceSparse++
	s.News++
	f.Round = true
}

// fileTurnEnd is the turn that an end in the file belongs to: the newest one that the file told of, since it may be
// behind the hooks. It is nil when the end tells nothing.
func (s *State) fileTurnEnd(id string, quiet bool) *Turn {
	last := s.lastTurn()
	for i := len(s.Turns) - 1; i >= 0; i-- {
		if t := &s.Turns[i]; t.File || id != "" && t.ID == id {
			return t
		}
	}

	if quiet {
		return nil
	}

	return last
}

func (s *State) prompt(e Event) Effect {
	var f Effect
	p := told{by: byHook, id: e.Turn, text: e.Text, at: e.At}
	if e.Aside {
		s.asidePrompt(p, &f)
		return f
	}

	t, fresh := s.openTurn(p, &f)
	if fresh && !t.Aside && e.Text != "" {
		s.addUser(Message{At: e.At, Text: e.Text, Turn: t.N})
	}

	return f
}

// stopTurn is the turn that a Stop ends: by its id, else the last one. An end whose prompt nobody saw makes a turn of
// its own: a round all the same.
func (s *State) stopTurn(e Event) *Turn {
	for i := range s.Turns {
		if e.Turn != "" && s.Turns[i].ID == e.Turn {
			return &s.Turns[i]
		}
	}

	last := s.lastTurn()

	// A second Stop of one turn (a hook made the agent go on) ends nothing; of a client whose every call counts (no
	// Sum) it is the next round.
	if last != nil && (!last.EndHook || last.Hook && e.Sum != 0) {
		return last
	}

	s.TurnSeq++
	s.News++
	s.Turns = keepNewest(append(s.Turns, Turn{N: s.TurnSeq, ID: e.Turn, At: e.At}), maxTurns)
	return s.lastTurn()
}

func (s *State) stop(e Event) Effect {
	var f Effect
	if e.Aside {
		s.stopAside(e, &f)
		return f
	}

	t := s.stopTurn(e)
	t.EndHook, t.Joined = true, false
	s.endTurn(t, e.Outcome, &f, false)
	s.endChain(&f) // the agent handed back, whichever Stop of the turn this is
	if e.Outcome == OutcomeDone && !t.Aside && e.Text != "" {
		s.addReply(Message{At: e.At, Text: e.Text, Turn: t.N}, false)
	}

	return f
}

// stopAside ends a turn that is no round. One that runs inside a user's turn leaves that open.
func (s *State) stopAside(e Event, f *Effect) {
	t := s.lastTurn()
	switch {
	case t == nil || t.Ended:
		s.endChain(f)
	case t.Joined:
		t.Joined = false
	default: // an aside turn, or one that only its answer shows to be none of the person's
		s.setAside(t)
		t.EndHook = true
		s.endTurn(t, e.Outcome, f, false)
		s.endChain(f)
	}
}

func (s *State) endChain(f *Effect) {
	if s.Chain {
		s.Chain, f.ChainEnd = false, true
	}
}
