package checkpoint

import "time"

func (s *State) end(e Event) Effect {
	if s.Ending != nil && !s.Live {
		s.lateEnd(e)
		return Effect{Force: CauseEnd}
	}

	f := Effect{ChainEnd: s.Chain}
	if s.InTurn() {
		s.die(e.At, e.Reason, false, &f)
	} else {
		s.Ending = &Ending{At: e.At, Clean: true, Reason: e.Reason}
		s.Chain, s.Live = false, false
		s.News++
	}

	f.Force = CauseEnd
	return f
}

// lateEnd folds a good-bye in that comes when the end is known already: a second one, or one that the end of the
// process overtook. It counts no second death. Once the events that came late have closed all that seemed to be broken
// off, the death was none.
func (s *State) lateEnd(e Event) {
	if s.Ending.Clean || s.InTurn() || len(s.InDoubt()) > 0 {
		return
	}
	if s.Ending.Gone {
		s.Deaths--
	}

	s.Ending.Clean, s.Ending.InTurn, s.Ending.Reason = true, false, e.Reason
	s.News++
}

// exit folds the end of the agent's process.
func (s *State) exit(e Event) Effect {
	if !s.Live {
		return s.laterWord(e) // it had said good-bye, or its death is known
	}
	if e.Proc != nil && s.Proc != nil && *e.Proc != *s.Proc {
		return Effect{} // the session lives on in another process
	}

	var f Effect
	s.die(e.At, e.Reason, true, &f)
	return f
}

// laterWord takes the reason of a death from who knows it better: the daemon's watch sees that a process is gone, its
// parent a moment later by which signal or for want of memory.
func (s *State) laterWord(e Event) Effect {
	if s.Ending == nil || !s.Ending.Gone || s.Ending.Told || e.Proc != nil || e.Reason == "" ||
		e.At.Sub(s.Ending.At) > time.Minute {
		return Effect{} // the watch names the process; a parent's word does not
	}
	s.Ending.Reason, s.Ending.Told = e.Reason, true
	s.News++
	return Effect{Force: CauseExit}
}

// die marks an end without a good-bye: what was open is in doubt from now on.
func (s *State) die(at time.Time, reason string, gone bool, f *Effect) {
	f.ChainEnd = f.ChainEnd || s.Chain
	f.Force = CauseExit
	s.Ending = &Ending{At: at, Reason: reason, InTurn: s.InTurn(), Gone: gone}
	s.Deaths++
	s.Chain, s.Live = false, false
	for i := range s.Calls {
		if s.Calls[i].State == CallOpen {
			s.Calls[i].State, s.Calls[i].Death, s.Calls[i].Told = CallDoubt, s.Deaths, false
		}
	}

	s.News++
}
