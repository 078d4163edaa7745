package checkpoint

// entries folds what a transcript reader found. The file is the second witness: it may be ahead of the hooks, behind them,
// or the only one.
func (s *State) entries(e Event) Effect {
	var f Effect
	quiet := e.First // turns found at first sight, or again after a reset, do not count for the gate
	found := false
	for _, n := range e.Entries {
		switch n.Op {
		case Retract:
			s.retract(n.ID)
			continue
		case Reset:
			quiet = true
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
		s.Cursor = e.Cursor
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
	if id == "" {
		return
	}
	for i := range s.Messages {
		if s.Messages[i].ID == id {
			s.drop(s.Messages[i].Num)
			s.News++
			return
		}
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
	at := n.At
	if at.IsZero() {
		at = e.At
	}
	switch n.Kind {
	case EntryUser:
		return s.userEntry(e, n, quiet, f)
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
		if !s.Compacts && !quiet {
			f.Force = CauseCompaction
		}
		s.Compacts = false
	case EntryClear:
		s.newPart()
	case EntryInterrupt, EntryTurnEnd:
		t := s.turnToEnd(byFile, n.Turn, e.At)
		if t == nil {
			break
		}
		t.EndFile = true
		o := OutcomeDone
		if n.Kind == EntryInterrupt {
			o = OutcomeInterrupted
		}
		s.endTurn(t, o, f, quiet)
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

func (s *State) userEntry(e Event, n Entry, quiet bool, f *Effect) bool {
	for _, m := range s.Messages {
		if m.ID != "" && m.ID == n.ID {
			return false
		}
	}
	at := n.At
	if at.IsZero() {
		at = e.At
	}
	t, fresh := s.openTurn(byFile, n.Turn, n.Text, at, n.Aside, f, quiet)
	if t.Aside || n.Aside {
		t.Aside = true
		return false
	}
	if m := s.userMessage(t.N); m != nil && m.Hash == textHash(n.Text) {
		m.InFile, m.ID = true, n.ID
		return false
	}
	if n.Text != "" {
		s.addUser(Message{ID: n.ID, At: at, Text: n.Text, Turn: t.N, InFile: true})
	}
	return fresh
}

func (s *State) callEntry(e Event, n Entry, quiet bool) {
	if n.Call == "" || s.hasEnded(n.Call) {
		return
	}
	c := s.call(n.Call)
	if c == nil {
		at := n.At
		if at.IsZero() {
			at = e.At
		}
		c = s.newCall(Call{ID: n.Call, At: at})
		if last := len(s.Turns) - 1; !quiet && (last < 0 || !s.Turns[last].Ended) {
			s.Chain = true
		}
	}
	c.Asked = true
	c.describe(n.Name, n.Input)
	s.touch(c, n.Input)
}

func (s *State) resultEntry(e Event, n Entry) {
	if n.Call == "" || s.hasEnded(n.Call) {
		return
	}
	c := s.call(n.Call)
	if c == nil {
		c = s.newCall(Call{ID: n.Call, Name: n.Name, At: e.At, Asked: true})
	}
	c.describe(n.Name, n.Input)
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
