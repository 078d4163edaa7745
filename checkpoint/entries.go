package checkpoint

import "time"

// entries folds what a transcript reader found. The file is the second witness: it may be ahead of the hooks, behind
// them, or the only one.
func (s *State) entries(e Event) Effect {
	var f Effect
	quiet := e.First || s.Reread // turns found at first sight, or again after a reset, do not count for the gate
	found := false
	for _, n := range e.Entries {
		switch n.Op {
		case Retract:
			s.retract(n.ID)
			continue
		case Reset:
			quiet, s.Reread = true, true
			continue
		}

		if n.Kind == EntryChildStart || n.Kind == EntryChildEnd {
			s.childEntry(n, entryTime(e, n))
			continue
		}
		if n.Child != "" {
			continue // a sub-agent's: its own session's business
		}
		if s.entry(e, n, quiet, &f) {
			found = true
		}
	}

	if e.Cursor != "" { // entries that another session's file held leave the cursor alone
		s.Cursor, s.Reread = e.Cursor, false
	}
	if e.Losses != nil {
		s.Losses.Add(*e.Losses)
	}

	s.Skipped += e.Skipped
	if len(e.Entries) > 0 {
		s.LastFile = e.At
	}
	if e.First && found && f.Force == "" {
		f.Force = CauseFirstSight
	}

	return f
}

// retract takes back what is no longer on the conversation's branch.
func (s *State) retract(id string) {
	if m := s.message(id); m != nil {
		s.forget(m.Num)
	}
}

// entry folds one entry; it says whether the entry told of a turn that no hook had told of.
func (s *State) entry(e Event, n Entry, quiet bool, f *Effect) bool {
	if s.Workspace == "" {
		s.Workspace = n.Workspace
	}
	if n.Model != "" {
		s.Model = n.Model
	}
	if n.Mode != "" {
		s.Mode = n.Mode
	}

	at := entryTime(e, n)
	switch n.Kind {
	case EntryUser:
		return s.userEntry(n, at, quiet, f)
	case EntryAssistant:
		if !n.Aside && n.Text != "" {
			s.addReply(Message{ID: n.ID, Group: n.Group, At: at, Text: n.Text, Turn: s.fileTurn()}, true)
		}

	case EntryCall:
		s.callEntry(e, n, quiet)
	case EntryResult:
		s.resultEntry(e, n)
	case EntryCompaction:
		if n.Text != "" {
			s.insert(Message{ID: n.ID, Role: RoleSummary, At: at, Text: n.Text, Turn: s.fileTurn(), InFile: true})
		}
		s.compaction(n.ID, quiet, f)

	case EntryClear:
		s.newPart()
	case EntryInterrupt, EntryTurnEnd:
		s.endEntry(n, quiet, f)
	case EntryOwn:
		if s.Given != nil && s.Given.Marker == n.ID {
			s.Given.Confirmed = true
		}
	}

	return false
}

// fileTurn is the turn that the file is telling of.
func (s *State) fileTurn() int {
	for i := len(s.Turns) - 1; i >= 0; i-- {
		if s.Turns[i].File {
			return s.Turns[i].N
		}
	}
	return s.TurnSeq
}

// userEntry folds in a prompt of the file. It may be there already: told by a hook, read before (a reset), or sent
// again because its answer showed what it was.
func (s *State) userEntry(n Entry, at time.Time, quiet bool, f *Effect) bool {
	if m := s.message(n.ID); m != nil {
		if t := s.turn(m.Turn); n.Aside && t != nil {
			s.setAside(t)
		} else if n.Aside {
			s.forget(m.Num)
		} else {
			s.rewrite(m, n.Text)
		}
		return false
	}

	p := told{by: byFile, id: n.Turn, text: n.Text, at: at, stamp: !sane(n.At).IsZero(), quiet: quiet}
	if n.Aside {
		s.asidePrompt(p, f)
		return false
	}

	t, fresh := s.openTurn(p, f)
	if t.Aside {
		return false
	}

	if m := s.userMessage(t.N); m != nil && !m.InFile {
		m.InFile, m.ID = true, n.ID // the file's words are the richer ones
		s.rewrite(m, n.Text)
		return false
	}

	if n.Text != "" {
		s.addUser(Message{ID: n.ID, At: at, Text: n.Text, Turn: t.N, InFile: true})
	}

	return fresh
}

// endEntry folds in the end of a turn as the file tells it.
func (s *State) endEntry(n Entry, quiet bool, f *Effect) {
	t := s.fileTurnEnd(n.Turn, quiet)
	if t == nil {
		return
	}
	if n.Aside && !t.Aside { // of an aside turn that ran inside it
		t.Joined = false
		return
	}

	o := OutcomeDone
	switch {
	case n.Kind == EntryInterrupt:
		o = OutcomeInterrupted
	case n.Failed:
		o = OutcomeFailed
	}

	t.Joined = false
	s.endTurn(t, o, f, quiet)
}

// compaction folds in a boundary: a compaction that no hook announced forces a checkpoint, once, however many records
// tell of it.
func (s *State) compaction(id string, quiet bool, f *Effect) {
	if id != "" && Hash(id) == s.Boundary {
		return
	}

	s.Boundary = Hash(id)
	if !s.Compacts && !quiet {
		f.Force = CauseCompaction
	}

	s.Compacts = false
}

// entryTime is the agent's stamp where it can be one, else the time at which belay heard of it.
func entryTime(e Event, n Entry) time.Time {
	if at := sane(n.At); !at.IsZero() {
		return at
	}
	return e.At
}

func (s *State) callEntry(e Event, n Entry, quiet bool) {
	c := s.callOf(n.Call, n.Alike, byFile, e.At)
	if c != nil {
		c.Asked = true
	}
	if n.Call == "" || s.hasEnded(n.Call) {
		return
	}

	if c == nil {
		c = s.newCall(Call{ID: n.Call, At: entryTime(e, n), Alike: n.Alike})
		if t := s.turn(s.fileTurn()); !quiet && (t == nil || !t.Ended) { // else the file is behind the hooks
			s.Chain = true
		}
	}

	c.Asked = true
	c.describe(n.Name, n.Input, n.Act)
	s.touch(c, n.File)
}

func (s *State) resultEntry(e Event, n Entry) {
	c := s.call(n.Call)
	if c != nil && !n.MadeUp && !n.Background {
		c.Filed = true
	}
	if n.Call == "" || s.hasEnded(n.Call) {
		return
	}
	if c == nil {
		c = s.newCall(Call{ID: n.Call, Name: n.Name, At: e.At, Asked: true, Filed: !n.MadeUp && !n.Background})
	}

	c.describe(n.Name, n.Input, n.Act)
	switch {
	case n.MadeUp:
		if c.State == CallOpen {
			c.State, c.Death = CallDoubt, s.Deaths
			s.News++
		}

	case n.Background:
		c.Background = true
	default:
		s.finish(c, n.Failed, e.At)
	}
}
