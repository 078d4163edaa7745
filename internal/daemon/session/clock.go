package session

import (
	"context"
	"time"

	"belay/checkpoint"
	"belay/internal/host/proc"
)

// nextWake is when the session has something to do without an event; zero: not before one.
func (s *Session) nextWake() time.Time {
	var wake time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}

	now := time.Now()
	if s.due != nil && s.due.last != 0 && !s.due.busy {
		sooner(s.due.since.Add(s.Times.LateText))
	}

	if s.due == nil && !s.Degraded() {
		switch d := s.owed(now); {
		case d.Take || d.Code == checkpoint.CodeNothingNew:
			sooner(later(now, s.retryAt))
		default:
			sooner(later(d.Opens, s.retryAt))
		}
	}

	if s.state.Live && s.state.Proc != nil {
		for _, c := range s.state.Calls {
			if c.State == checkpoint.CallOpen && c.Started && !s.noted[c.ID] {
				sooner(c.At.Add(s.Times.ProcsAfter))
			}
		}
	}

	if s.file.unflushed && !s.file.copying {
		sooner(s.file.flushed.Add(s.Times.FlushEvery))
	}
	if s.state.Chain && s.quietFile() {
		sooner(s.lastSeen.Add(s.Times.QuietChain))
	}

	return wake
}

// quietFile says that an agent without hooks at the end of a turn may have handed back: nothing is open.
func (s *Session) quietFile() bool {
	for _, c := range s.state.Calls {
		if c.State == checkpoint.CallOpen && !c.Background {
			return false
		}
	}
	return true
}

func later(a, b time.Time) time.Time {
	if !a.IsZero() && b.After(a) {
		return b
	}
	return a
}

// tick does what the clock alone makes due.
func (s *Session) tick(ctx context.Context) {
	now := time.Now()
	if s.due == nil && !now.Before(s.retryAt) {
		if d := s.owed(now); d.Take || d.Code == checkpoint.CodeNothingNew {
			s.carryOut(ctx, d, now)
		}
	}

	s.noteProcs(ctx, now)
	if s.file.unflushed && now.Sub(s.file.flushed) >= s.Times.FlushEvery {
		s.copyToMirror(ctx)
	}
	if s.state.Chain && s.quietFile() && now.Sub(s.lastSeen) >= s.Times.QuietChain {
		s.state.Chain = false
		s.decide(ctx, checkpoint.Effect{ChainEnd: true}, now)
	}
}

const maxProcs = 32

// noteProcs keeps the agent's descendants of calls that take long, for the brief after a crash.
func (s *Session) noteProcs(ctx context.Context, now time.Time) {
	if s.state.Proc == nil || !s.state.Live {
		return
	}

	var procs []checkpoint.Proc
	noted := map[string]bool{} // a new one, so that ended calls drop out
	for _, c := range s.state.Calls {
		if c.State != checkpoint.CallOpen || !c.Started {
			continue
		}
		if s.noted[c.ID] {
			noted[c.ID] = true
			continue
		}
		if now.Sub(c.At) < s.Times.ProcsAfter {
			continue
		}
		if procs == nil {
			procs = append([]checkpoint.Proc{}, proc.Descendants(s.state.Proc.PID, maxProcs)...)
		}

		noted[c.ID] = true
	}

	for id := range noted {
		if !s.noted[id] && len(procs) > 0 {
			s.note(ctx, checkpoint.Event{Kind: checkpoint.EventProcs, Call: id, Procs: procs})
		}
	}

	s.noted = noted
}

// idle says that the session may leave memory: nothing is under way or owed, and nobody lives that could go on.
func (s *Session) idle() bool {
	busy := s.due != nil || s.trimming || s.save.busy || s.file.reading || s.file.copying || s.previous.busy()
	return !busy && len(s.waiters) == 0 && !s.pending() && time.Since(s.lastSeen) >= s.Times.IdleAfter && !s.living()
}

// pending says that a checkpoint is owed.
func (s *Session) pending() bool {
	return s.state.OwedFull != "" || s.state.OwedSparse || s.state.Gap != nil
}

// living says whether the agent's process is known to live.
func (s *Session) living() bool {
	if s.state.Proc == nil || !s.state.Live {
		return false
	}
	alive, known := proc.Alive(*s.state.Proc)
	return alive && known
}

// Wanted says that the next daemon must wake the session: its agent lives, or something is owed.
func (s *Session) Wanted(ctx context.Context) bool {
	wanted, _ := ask(ctx, s, func(context.Context) bool { return s.living() || s.pending() })
	return wanted
}

// leave takes an idle session one step out of memory: its mirror is put in order, its state saved, its files closed. It
// says true when the session is out; a step that takes time comes back through the inbox.
func (s *Session) leave(ctx context.Context) bool {
	switch {
	case s.compactMirror(ctx):
		return false
	case s.state.Seq != s.save.seq || s.save.never:
		if !time.Now().Before(s.save.notBefore) {
			s.saveState(ctx, nil)
		}
		return false
	}

	s.closeFile()
	s.dropPrevious(ctx)
	return s.Others.Leave(s)
}
