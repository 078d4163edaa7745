package session

import (
	"context"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
)

// decide asks the gates about an event's effect, and remembers what is owed.
func (s *Session) decide(ctx context.Context, f checkpoint.Effect, now time.Time) checkpoint.Decision {
	full := f.Force
	switch {
	case full != "":
	case f.ChainEnd:
		full = checkpoint.CauseChain
	case f.Beat:
		full = checkpoint.CauseHeartbeat
	}

	if full == "" && !f.Round {
		return noTrigger
	}

	return s.carryOut(ctx, s.gate(full, f.Round, now), now)
}

func (s *Session) gate(full checkpoint.Cause, round bool, now time.Time) checkpoint.Decision {
	return s.Settings().Gates.Decide(s.state, full, round, s.condition(), now)
}

func (s *Session) owed(now time.Time) checkpoint.Decision {
	return s.Settings().Gates.DecideOwed(s.state, s.condition(), now)
}

// condition: while the spool is drained nothing is taken, so that thousands of old events make one checkpoint.
func (s *Session) condition() checkpoint.Condition {
	return checkpoint.Condition{Degraded: s.Degraded(), Busy: s.due != nil || s.Draining()}
}

// carryOut acts on a decision: a build is due, or something is owed, or a degraded spell begins.
func (s *Session) carryOut(ctx context.Context, d checkpoint.Decision, now time.Time) checkpoint.Decision {
	s.Counts.decided(d.Code)
	s.Log.Debug("gate", zap.Stringer("session", s.Key), zap.String("code", string(d.Code)), zap.String("text", d.Text))
	s.state.Owe(d)

	switch {
	case d.Take:
		s.due = &build{decision: d, since: now, last: s.lateText()}
		if d.Cause == checkpoint.CauseStopping {
			s.due.last = 0 // there is no time to wait for the file; the event's text is there
		}
	case d.Code == checkpoint.CodeDegraded && d.Owed:
		s.noteGap(ctx)
	}

	if !d.Take && s.due == nil && (!d.Owed || d.Code == checkpoint.CodeDegraded) {
		s.answer(Result{Decision: d}) // nothing is coming for those who wait
	}

	return d
}

// noteGap keeps that checkpoints are missing from now on: the first one after it says so.
func (s *Session) noteGap(ctx context.Context) {
	if s.state.Gap == nil {
		s.note(ctx, checkpoint.Event{Kind: checkpoint.EventDegraded, Reason: s.Store.State().Reason})
	}
}

// answer tells all who wait.
func (s *Session) answer(r Result) {
	for _, w := range s.waiters {
		w.reply <- r
	}
	s.waiters = nil
}

// await has a client wait for the checkpoint that is due; after is the News that it must hold.
func (s *Session) await(after uint64, reply chan<- Result) {
	s.waiters = append(s.waiters, waiter{after: after, reply: reply})
}

// Beat is the heartbeat's question, where there is something that no FULL holds.
func (s *Session) Beat(ctx context.Context) Result {
	r, _ := ask(ctx, s, func(ctx context.Context) Result {
		if s.state.News == 0 || s.state.LastFull != nil && s.state.LastFull.News >= s.state.News {
			return Result{}
		}
		return s.event(ctx, checkpoint.Event{Kind: checkpoint.EventBeat})
	})
	return r
}

// Healed takes the catch-up FULL when the store is well again.
func (s *Session) Healed(ctx context.Context) {
	s.do(ctx, func(ctx context.Context) {
		s.retryAt, s.failures = time.Time{}, 0
		if now := time.Now(); s.pending() {
			s.carryOut(ctx, s.gate(checkpoint.CauseCatchUp, false, now), now)
		}
	})
}

// Reconsider has the session look at what it owes.
func (s *Session) Reconsider(ctx context.Context) { s.do(ctx, func(context.Context) {}) }

// question puts a question to the session whose answer may have to wait for a checkpoint. The channel gets one answer,
// unless the session ends first; false when it has ended.
func (s *Session) question(
	ctx context.Context, f func(ctx context.Context, reply chan<- Result),
) (<-chan Result, bool) {
	reply := make(chan Result, 1)
	ok := s.do(ctx, func(ctx context.Context) { f(ctx, reply) })
	return reply, ok
}

// Checkpoint takes a FULL now, or says why not; the answer comes when it is in the store.
func (s *Session) Checkpoint(ctx context.Context, cause checkpoint.Cause) (<-chan Result, bool) {
	return s.question(ctx, func(ctx context.Context, reply chan<- Result) {
		now := time.Now()
		if s.due != nil { // one is on its way: the next one follows it if there is still something new
			s.state.OwedFull, s.due.last = cause, 0
			s.await(s.state.News, reply)
			return
		}

		d := s.carryOut(ctx, s.gate(cause, false, now), now)
		if d.Take || d.Owed && d.Code != checkpoint.CodeDegraded {
			s.await(s.state.News, reply)
			return
		}

		reply <- Result{Decision: d}
	})
}

// CheckSparse answers for the last round: its checkpoint when its decision took one, else the gates' answer now.
func (s *Session) CheckSparse(ctx context.Context) (<-chan Result, bool) {
	return s.question(ctx, func(ctx context.Context, reply chan<- Result) {
		st := s.state
		switch {
		case s.due != nil:
			s.await(0, reply)
			return
		case st.LastSparse != nil && st.SinceSparse == 0 && st.Rounds > 0:
			passed := checkpoint.Decision{
				Take:  true,
				Level: st.LastSparse.Level,
				Code:  checkpoint.CodePassed,
				Text:  "all gates passed",
			}

			reply <- Result{Number: st.LastSparse.Number, Decision: passed}
			return
		}

		s.check(ctx, "", true, reply)
	})
}

// CheckFull puts the heartbeat's question to the gates; heartbeat says that it also counts as one.
func (s *Session) CheckFull(ctx context.Context, heartbeat bool) (<-chan Result, bool) {
	return s.question(ctx, func(ctx context.Context, reply chan<- Result) {
		if !heartbeat {
			s.check(ctx, checkpoint.CauseHeartbeat, false, reply)
			return
		}

		r := s.event(ctx, checkpoint.Event{Kind: checkpoint.EventBeat, Aside: true})
		if s.due != nil && r.Err == nil {
			s.await(0, reply)
			return
		}

		reply <- r
	})
}

// check puts a question to the gates now and waits for the file when they take it.
func (s *Session) check(ctx context.Context, full checkpoint.Cause, round bool, reply chan<- Result) {
	now := time.Now()
	d := s.carryOut(ctx, s.gate(full, round, now), now)
	if d.Take {
		s.await(0, reply)
		return
	}
	reply <- Result{Decision: d}
}
