package checkpoint

import (
	"fmt"
	"time"
)

// Gates holds the thresholds that a trigger must pass before a checkpoint is taken.
type Gates struct {
	SparseTime   time.Duration // since the last SPARSE
	SparseRounds int           // rounds since the last SPARSE
	FullTime     time.Duration // since the last FULL
	ForcedTime   time.Duration // since the last forced FULL of the session
}

// Code says in one word how a decision came about.
type Code string

const (
	CodeDegraded   Code = "degraded"
	CodeNothingNew Code = "nothing_new"
	CodeTimeGate   Code = "time_gate"
	CodeRoundGate  Code = "round_gate"
	CodeForcedGate Code = "forced_gate"
	CodeInProgress Code = "in_progress"
	CodePassed     Code = "passed"
	CodeNoTrigger  Code = "no_trigger"
)

// Decision is a gate's answer to a trigger.
type Decision struct {
	Take  bool
	Level Level
	Cause Cause
	Code  Code
	Text  string    // the reason, for people
	Owed  bool      // refused for now only: it is taken once when the gate opens
	Opens time.Time // when the first of the refused gates opens, where it is one of time
	Both  bool      // a FULL that stands for the SPARSE too: both stamps move

	// What the other kind owes, where one event triggered both: a SPARSE beside a refused FULL, a FULL beside a SPARSE.
	owedSparse bool
	owedFull   Cause
}

// Condition is what the gates need to know beside the state.
type Condition struct {
	Degraded bool // the store's breaker is open
	Busy     bool // a checkpoint of this session is being written
}

// Elapsed is the time since then: the larger of the monotonic and the wall difference, so that a clock jump or a sleep
// may open a gate early and never holds it shut. A stamp that lies in the future (its clock was wrong) counts as long
// ago.
func Elapsed(since, now time.Time) time.Duration {
	const longAgo = 1<<63 - 1
	if since.IsZero() {
		return longAgo
	}

	wall := now.Round(0).Sub(since.Round(0))
	mono := now.Sub(since) // wall again when one of them has no monotonic reading
	if wall < 0 && mono <= 0 {
		return longAgo
	}

	return max(wall, mono)
}

// Decide answers the triggers of one event: a round (CauseRound), what asks for a FULL (any other cause), or both. The
// order is: breaker, nothing new, time, rounds.
func (g Gates) Decide(s *State, full Cause, round bool, cond Condition, now time.Time) Decision {
	var refused Decision
	if full != "" {
		d := g.full(s, full, cond, now)
		if d.Take {
			d.Both = round && g.sparse(s, cond, now).Take
			return d
		}
		refused = d
	}

	if round {
		d := g.sparse(s, cond, now)
		if refused.Code == "" {
			return d
		}

		if d.Take {
			if refused.Owed {
				d.owedFull = refused.Cause
			}
			return d
		}

		refused.owedSparse = d.Owed
		if refused.Opens.IsZero() || !d.Opens.IsZero() && d.Owed && d.Opens.Before(refused.Opens) {
			refused.Opens = d.Opens
		}
	}

	if refused.Code == "" {
		return Decision{Code: CodeNoTrigger, Text: "no trigger"}
	}

	return refused
}

func (g Gates) full(s *State, cause Cause, cond Condition, now time.Time) Decision {
	d := Decision{Level: Full, Cause: cause}
	switch {
	case cond.Degraded:
		return d.refuse(CodeDegraded, "degraded", time.Time{}, s.News > newsOf(s.LastFull))
	case s.News <= newsOf(s.LastFull):
		return d.refuse(CodeNothingNew, "nothing new", time.Time{}, false)
	case cond.Busy:
		return d.refuse(CodeInProgress, "a checkpoint is being written", time.Time{}, true)
	case cause.Forced():
		if left := g.ForcedTime - Elapsed(s.LastForced, now); left > 0 {
			return d.refuse(CodeForcedGate, "forced gate: "+leftText(left)+" left", now.Add(left), true)
		}
		return d.pass("forced: " + string(cause))
	}

	if left := g.FullTime - Elapsed(takenAt(s.LastFull), now); left > 0 {
		return d.refuse(CodeTimeGate, "time gate: "+leftText(left)+" left", now.Add(left), true)
	}

	switch cause {
	case CauseChain:
		return d.pass("tool chain ended")
	case CauseHeartbeat:
		return d.pass("heartbeat")
	}

	return d.pass("all gates passed")
}

func (g Gates) sparse(s *State, cond Condition, now time.Time) Decision {
	d := Decision{Level: Sparse, Cause: CauseRound}
	rounds := s.SinceSparse >= g.SparseRounds
	left := g.SparseTime - Elapsed(takenAt(s.LastSparse), now)
	switch {
	case cond.Degraded:
		return d.refuse(CodeDegraded, "degraded", time.Time{}, s.News > max(newsOf(s.LastFull), newsOf(s.LastSparse)))
	case s.News <= max(newsOf(s.LastFull), newsOf(s.LastSparse)):
		return d.refuse(CodeNothingNew, "nothing new", time.Time{}, false)
	case cond.Busy:
		return d.refuse(CodeInProgress, "a checkpoint is being written", time.Time{}, rounds)
	case left > 0:
		return d.refuse(CodeTimeGate, "time gate: "+leftText(left)+" left", now.Add(left), rounds)
	case !rounds:
		return d.refuse(
			CodeRoundGate, fmt.Sprintf("round gate: %d of %d", s.SinceSparse, g.SparseRounds), time.Time{},
			false,
		)
	}

	return d.pass("all gates passed")
}

// Owe remembers what was refused for now only (by time, by a broken store, by a checkpoint that is being written), so
// that it is taken once when its gate opens, and forgets what is owed when there is nothing new to take.
func (s *State) Owe(d Decision) {
	if d.owedFull != "" {
		s.oweFull(d.owedFull)
	}

	switch {
	case d.Take:
		return
	case d.Code == CodeNothingNew && d.Level == Full:
		s.OwedFull, s.OwedSparse = "", false // a SPARSE would hold nothing new either
		return
	case d.Code == CodeNothingNew:
		s.OwedSparse = false
		return
	}

	switch {
	case !d.Owed:
	case d.Level == Full:
		s.oweFull(d.Cause)
	case d.Code == CodeDegraded: // the first thing of a store that is well again is a FULL
		s.oweFull(CauseCatchUp)
	default:
		s.OwedSparse = true
	}

	if d.owedSparse && d.Code != CodeDegraded {
		s.OwedSparse = true
	}
}

// oweFull keeps the strongest cause: a forced one outlives the others. A FULL that was on its way already and does not
// hold what is news now does not pay for it.
func (s *State) oweFull(c Cause) {
	if s.OwedFull == "" || c.Forced() && !s.OwedFull.Forced() {
		s.OwedFull = c
	}
	s.OwedNews = s.News
}

// DecideOwed answers for what is owed: a FULL first, which stands for an owed SPARSE too. Opens is when to ask again;
// zero when nothing is owed or only an event can change the answer.
func (g Gates) DecideOwed(s *State, cond Condition, now time.Time) Decision {
	if s.OwedFull == "" && !s.OwedSparse {
		return Decision{Code: CodeNoTrigger, Text: "nothing owed"}
	}
	return g.Decide(s, s.OwedFull, s.OwedSparse, cond, now)
}

// taken moves the stamps after a checkpoint reached the store, or failed to.
func (s *State) taken(t Taken) {
	t.At = sane(t.At)
	if t.Cause.Forced() {
		s.LastForced = t.At
	}
	if t.Failed != "" {
		return
	}
	if t.Number > s.LastNumber {
		s.LastNumber = t.Number
	}

	if t.Level == Full {
		s.LastFull = &t
		if t.News >= s.OwedNews {
			s.OwedFull, s.OwedNews = "", 0
		}
	}

	if t.Level == Sparse || t.Both {
		s.LastSparse = &t
		s.OwedSparse = false
		s.SinceSparse = s.Rounds - t.Rounds
	}

	if t.Gap {
		s.Gap = nil
	}

	s.MarkSeq, s.MarkAt = t.MsgSeq, t.At
}

func (d Decision) refuse(code Code, text string, opens time.Time, owed bool) Decision {
	d.Code, d.Text, d.Opens, d.Owed = code, text, opens, owed
	return d
}

func (d Decision) pass(text string) Decision {
	d.Take, d.Code, d.Text = true, CodePassed, text
	return d
}

func newsOf(t *Taken) uint64 {
	if t == nil {
		return 0
	}
	return t.News
}

func takenAt(t *Taken) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.At
}

// leftText is a duration for people: 2m10s, 45s, 1s at least.
func leftText(d time.Duration) string {
	return max(d.Round(time.Second), time.Second).String()
}
