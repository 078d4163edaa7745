package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/agent"
	"belay/internal/mirror"
	"belay/internal/proc"
)

// session is one active session: a goroutine that owns the state. Everything reaches it through its inbox, in order, so
// that nothing in it needs a lock.
type session struct {
	d     *Daemon
	key   checkpoint.Key
	agent agent.Agent // nil for an agent that belay does not know: events alone

	inbox chan func()
	done  chan struct{} // closed when the goroutine has ended

	// Owned by the goroutine.
	state    *checkpoint.State
	saved    uint64 // state.Seq in state.json
	fresh    bool   // nothing of it was ever saved
	due      *build // a checkpoint that was decided and is not in the store yet
	reading  bool   // a reader goroutine runs
	again    bool   // the transcript may have changed meanwhile
	opened   string // path of transcript
	source   checkpoint.Transcript
	mirror   *mirror.Mirror
	behind   mirrorLag
	flushed  time.Time // when the mirror was last put on stable storage
	failures int       // failed checkpoints in a row
	retryAt  time.Time // no owed checkpoint before
	lastSeen time.Time // last event or growth, for idleness
	briefing bool      // a brief is on its way to a client
	waiters  []waiter
	noted    map[string]bool // calls whose processes were noted
}

type mirrorLag struct {
	Bytes int64
	Since time.Time
	Err   string
	Gens  int
}

// waiter is a client that waits for the checkpoint that was due when it asked.
type waiter struct {
	after uint64 // News that the checkpoint must hold
	reply chan<- result
}

// result is what the gates said to one event, and its number in the journal.
type result struct {
	seq      uint64
	decision checkpoint.Decision
	number   uint64 // of the checkpoint, for those who waited
	double   bool   // it was there before
	err      error
}

// run is the session's loop. It ends when the daemon stops, or when retire says so.
func (s *session) run(ctx context.Context) {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case f := <-s.inbox:
			f()
		case <-timer.C:
			s.tick(ctx)
		case <-ctx.Done():
			return
		}
		s.advance(ctx)
		wake := s.nextWake()
		if wake.IsZero() {
			if s.idle() && s.d.retire(ctx, s) {
				return
			}
			wake = time.Now().Add(idleAfter)
		}
		timer.Reset(max(time.Until(wake), time.Millisecond))
	}
}

// do runs f in the session's goroutine and waits until it was taken up; it says false when the daemon stops first.
func (s *session) do(ctx context.Context, f func()) bool {
	select {
	case s.inbox <- f:
		return true
	case <-s.done:
		return false
	case <-ctx.Done():
		return false
	}
}

// event journals, folds and decides: the one way by which anything happens to a session. It runs in the goroutine.
func (s *session) event(ctx context.Context, e checkpoint.Event) result {
	now := time.Now().UTC()
	if e.At.IsZero() {
		e.At = now
	}
	e.Key = s.key
	seq, err := s.d.append(e)
	if err != nil {
		return result{err: err}
	}
	e.Seq = seq
	before := s.state.Proc
	effect := s.state.Apply(e)
	s.lastSeen = now
	res := result{seq: seq, double: effect.Double, decision: checkpoint.Decision{Code: checkpoint.CodeNoTrigger, Text: "no trigger"}}
	if !effect.Double {
		s.follow(ctx, before)
		res.decision = s.decide(ctx, effect, now)
	}
	return res
}

// decide asks the gates about an event's effect, and remembers what is owed.
func (s *session) decide(ctx context.Context, f checkpoint.Effect, now time.Time) checkpoint.Decision {
	full := f.Force
	switch {
	case full != "":
		if full == checkpoint.CauseCompaction && s.agent != nil && s.agent.Limits().FalseCompaction {
			full = checkpoint.CauseHeartbeat // no true sign of a compaction: it goes under the time gate
		}
	case f.ChainEnd:
		full = checkpoint.CauseChain
	case f.Beat:
		full = checkpoint.CauseHeartbeat
	}
	if full == "" && !f.Round {
		return checkpoint.Decision{Code: checkpoint.CodeNoTrigger, Text: "no trigger"}
	}
	d := s.d.opt.Gates.Decide(s.state, full, f.Round, s.condition(), now)
	s.settle(ctx, d, now)
	return d
}

func (s *session) condition() checkpoint.Condition {
	return checkpoint.Condition{Degraded: s.d.degraded(), Busy: s.due != nil}
}

// settle acts on a decision: a build is due, or something is owed, or a degraded spell begins.
func (s *session) settle(ctx context.Context, d checkpoint.Decision, now time.Time) {
	s.d.count(d)
	if d.Code != checkpoint.CodeNoTrigger {
		s.d.log.Debug("gate", zap.Stringer("session", s.key), zap.String("code", string(d.Code)), zap.String("text", d.Text))
	}
	s.state.Owe(d)
	if d.Take {
		s.due = &build{decision: d, since: now, last: s.lateText()}
		return
	}
	if d.Code == checkpoint.CodeDegraded && s.state.Gap == nil && d.Owed {
		s.note(ctx, checkpoint.Event{Kind: checkpoint.EventDegraded, Reason: s.d.store.State().Reason})
	}
}

// note is an event of the daemon's own that has no trigger.
func (s *session) note(ctx context.Context, e checkpoint.Event) {
	if r := s.event(ctx, e); r.err != nil {
		s.d.log.Warn("note", zap.Stringer("session", s.key), zap.String("kind", string(e.Kind)), zap.Error(r.err))
	}
}

// nextWake is when the session has something to do without an event; zero: not before one.
func (s *session) nextWake() time.Time {
	var wake time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}
	now := time.Now()
	if s.due != nil && s.due.last != 0 && !s.due.busy {
		sooner(s.due.since.Add(lateText))
	}
	if s.due == nil && !s.d.degraded() {
		d := s.d.opt.Gates.DecideOwed(s.state, s.condition(), now)
		if d.Take {
			sooner(later(now, s.retryAt))
		} else {
			sooner(later(d.Opens, s.retryAt))
		}
	}
	for _, c := range s.state.Calls {
		if c.State == checkpoint.CallOpen && c.Started && !s.noted[c.ID] && s.state.Live {
			sooner(c.At.Add(procsAfter))
		}
	}
	if s.state.Chain && s.quietFile() {
		sooner(s.lastSeen.Add(quietChain))
	}
	return wake
}

// quietFile says that an agent without hooks at the end of a turn may have handed back: nothing is open.
func (s *session) quietFile() bool {
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
func (s *session) tick(ctx context.Context) {
	now := time.Now()
	if s.due == nil && !now.Before(s.retryAt) {
		d := s.d.opt.Gates.DecideOwed(s.state, s.condition(), now)
		if d.Take || d.Code == checkpoint.CodeNothingNew {
			s.settle(ctx, d, now)
		}
	}
	s.noteProcs(ctx, now)
	if s.state.Chain && s.quietFile() && now.Sub(s.lastSeen) >= quietChain {
		s.state.Chain = false
		s.decide(ctx, checkpoint.Effect{ChainEnd: true}, now)
	}
}

// noteProcs keeps the agent's descendants of calls that take long, for the brief after a crash.
func (s *session) noteProcs(ctx context.Context, now time.Time) {
	if s.state.Proc == nil {
		return
	}
	var procs []checkpoint.Proc
	for _, c := range s.state.Calls {
		if c.State != checkpoint.CallOpen || !c.Started || s.noted[c.ID] || now.Sub(c.At) < procsAfter {
			continue
		}
		if procs == nil {
			procs = proc.Descendants(s.state.Proc.PID, maxProcs)
		}
		s.noted[c.ID] = true
		if len(procs) > 0 {
			s.note(ctx, checkpoint.Event{Kind: checkpoint.EventProcs, Call: c.ID, Procs: procs})
		}
	}
	if len(s.noted) > 4*maxProcs {
		clear(s.noted)
	}
}

const maxProcs = 32

// idle says that the session may leave memory: all is in the journal and its state will be on disk.
func (s *session) idle() bool {
	return s.due == nil && !s.reading && len(s.waiters) == 0 && !s.briefing && s.state.OwedFull == "" && !s.state.OwedSparse &&
		s.state.Gap == nil && time.Since(s.lastSeen) >= idleAfter && !s.living()
}

// living says whether the agent's process is known to live.
func (s *session) living() bool {
	if s.state.Proc == nil || !s.state.Live {
		return false
	}
	alive, known := proc.Alive(*s.state.Proc)
	return alive && known
}

// save puts the state on disk once the journal holds what is in it.
func (s *session) save(ctx context.Context) error {
	if s.state.Seq == s.saved && !s.fresh {
		return nil
	}
	if err := s.d.journal.Wait(ctx, s.state.Seq); err != nil {
		return err // the disk fails: what is in memory only must not be in a state file
	}
	if err := s.d.dir.SaveState(s.state); err != nil {
		return err
	}
	s.saved, s.fresh = s.state.Seq, false
	return nil
}

// append writes an event into the journal's queue.
func (d *Daemon) append(e checkpoint.Event) (uint64, error) {
	payload, err := json.Marshal(e)
	if err != nil {
		return 0, err
	}
	return d.journal.Append(payload)
}

// kept says where a record is, in the wire's words.
func (d *Daemon) kept(ctx context.Context, seq uint64) (string, error) {
	err := d.journal.Wait(ctx, seq)
	switch {
	case err == nil:
		return "disk", nil
	case errors.Is(err, journal.ErrMemory):
		return "memory", nil
	}
	return "", err
}
