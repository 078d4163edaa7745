package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/agent"
	"belay/internal/host/proc"
	"belay/internal/state/query"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// errStopping: the session or the daemon ended before it could answer.
var errStopping = errors.New("the session is stopping")

// errPanic: a fault of belay's own; the log has it.
var errPanic = errors.New("belay failed on this; its log says more")

// session is one active session: a goroutine that owns the state. Everything reaches it through its inbox, in order, so
// that nothing in it needs a lock.
type session struct {
	d     *Daemon
	key   checkpoint.Key
	agent agent.Agent // nil for an agent that belay does not know: events alone

	folder string // where its files are

	inbox chan func()
	done  chan struct{}  // closed when the goroutine has ended
	work  sync.WaitGroup // its readers and writers: each hands its outcome back through the inbox
	face  atomic.Pointer[face]

	// Owned by the goroutine.
	state    *checkpoint.State
	saved    uint64 // state.Seq in state.json
	fresh    bool   // nothing of it was ever saved
	saving   bool
	saves    []func(error) // wait for the save after this one
	saveAt   time.Time     // no idle save before: the last one failed
	due      *build        // a checkpoint that was decided and is not in the store yet
	trimming bool          // its older checkpoints are going for the total budget
	file     transcript
	older    *older    // the transcript before it, while both may grow
	failures int       // failed checkpoints in a row
	retryAt  time.Time // no owed checkpoint before
	lastSeen time.Time // last event or growth, for idleness
	briefing bool      // a brief is on its way to a client
	waiters  []waiter
	noted    map[string]bool // calls whose processes were noted
	heard    heard
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

// run is the session's loop. It ends when the daemon stops, or when the session retires.
func (s *session) run(ctx context.Context) {
	defer close(s.done)
	defer s.closeFile()
	defer s.dropOlder()
	defer s.work.Wait() // readers and writers end with ctx
	if err := vfs.SweepTemps(s.d.opt.FS, s.d.dir.Session(s.key), time.Time{}); err != nil {
		s.d.log.Debug("sweep left-over files", zap.Stringer("session", s.key), zap.Error(err))
	}
	if !s.fresh { // of a new session there is none: its first hook waits for this
		s.d.safely(s.key.String(), s.adopt)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		f := s.tick
		select {
		case f = <-s.inbox:
		case <-timer.C:
			s.d.counts.ticks.Add(1)
		case <-ctx.Done():
			return
		}
		s.d.safely(s.key.String(), f)
		s.d.safely(s.key.String(), s.advance)
		s.show()
		wake := s.nextWake()
		if wake.IsZero() {
			if s.idle() && s.leave() {
				return
			}
			wake = time.Now().Add(s.d.times.idleAfter)
		}
		timer.Reset(max(time.Until(wake), time.Millisecond))
	}
}

// do runs f in the session's goroutine; it does not wait for it. It says false when f will not run.
func (s *session) do(ctx context.Context, f func()) bool {
	select {
	case <-s.done:
		return false
	default:
	}
	select {
	case s.inbox <- f:
		return true
	case <-s.done:
		return false
	case <-ctx.Done():
		return false
	}
}

// ask runs f in the session's goroutine and gives its answer; false when the session ended or ctx did.
func ask[T any](ctx context.Context, s *session, f func(*session) T) (answer T, ok bool) {
	got := make(chan T, 1)
	if !s.do(ctx, func() {
		defer close(got) // also after a panic
		got <- f(s)
	}) {
		return answer, false
	}
	select {
	case answer, ok = <-got:
	case <-s.done:
		select {
		case answer, ok = <-got:
		default:
		}
	case <-ctx.Done():
	}
	return answer, ok
}

// event journals, folds and decides: the one way by which anything happens to a session. It runs in the goroutine.
func (s *session) event(e checkpoint.Event) result {
	if s.heard.has(e.ID) {
		return result{seq: s.heard.seq, double: true, decision: checkpoint.Decision{Code: checkpoint.CodeNoTrigger, Text: "no trigger"}}
	}
	if e.Kind == checkpoint.EventStart {
		s.noticeDeath(e.Proc)
	}
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
	s.heard.add(e.ID, seq)
	before := s.state.Proc
	effect := s.state.Apply(e)
	s.show()
	s.lastSeen = now
	res := result{seq: seq, double: effect.Double, decision: checkpoint.Decision{Code: checkpoint.CodeNoTrigger, Text: "no trigger"}}
	if !effect.Double {
		s.follow(before)
		res.decision = s.decide(effect, now)
	}
	return res
}

// noticeDeath folds the end of the agent's process in where the watch over it has not said so yet, or was never set. now is
// the process that a start names; it may be the same one.
func (s *session) noticeDeath(now *checkpoint.Proc) {
	st := s.state
	if st.Live && st.Proc != nil && (now == nil || *now != *st.Proc) && query.Candidate(st).Dead {
		s.note(checkpoint.Event{Kind: checkpoint.EventExit, Proc: st.Proc, Reason: "its process is gone"})
	}
}

// decide asks the gates about an event's effect, and remembers what is owed.
func (s *session) decide(f checkpoint.Effect, now time.Time) checkpoint.Decision {
	full := f.Force
	switch {
	case full != "":
	case f.ChainEnd:
		full = checkpoint.CauseChain
	case f.Beat:
		full = checkpoint.CauseHeartbeat
	}
	if full == "" && !f.Round {
		return checkpoint.Decision{Code: checkpoint.CodeNoTrigger, Text: "no trigger"}
	}
	return s.settle(s.gate(full, f.Round, now), now)
}

func (s *session) gate(full checkpoint.Cause, round bool, now time.Time) checkpoint.Decision {
	return s.d.set.Load().Gates.Decide(s.state, full, round, s.condition(), now)
}

func (s *session) owed(now time.Time) checkpoint.Decision {
	return s.d.set.Load().Gates.DecideOwed(s.state, s.condition(), now)
}

// condition: while the spool is drained nothing is taken, so that thousands of old events make one checkpoint.
func (s *session) condition() checkpoint.Condition {
	return checkpoint.Condition{Degraded: s.d.degraded(), Busy: s.due != nil || s.d.counts.draining.Load()}
}

// settle acts on a decision: a build is due, or something is owed, or a degraded spell begins.
func (s *session) settle(d checkpoint.Decision, now time.Time) checkpoint.Decision {
	s.d.count(d)
	s.d.log.Debug("gate", zap.Stringer("session", s.key), zap.String("code", string(d.Code)), zap.String("text", d.Text))
	s.state.Owe(d)
	switch {
	case d.Take:
		s.due = &build{decision: d, since: now, last: s.lateText()}
		if d.Cause == checkpoint.CauseStopping {
			s.due.last = 0 // there is no time to wait for the file; the event's text is there
		}
	case d.Code == checkpoint.CodeDegraded && d.Owed:
		s.noteGap()
	}
	if !d.Take && s.due == nil && (!d.Owed || d.Code == checkpoint.CodeDegraded) {
		s.answer(result{decision: d}) // nothing is coming for those who wait
	}
	return d
}

// noteGap keeps that checkpoints are missing from now on: the first one after it says so.
func (s *session) noteGap() {
	if s.state.Gap == nil {
		s.note(checkpoint.Event{Kind: checkpoint.EventDegraded, Reason: s.d.store.State().Reason})
	}
}

// note is an event of the daemon's own.
func (s *session) note(e checkpoint.Event) {
	if r := s.event(e); r.err != nil && s.d.life.Err() == nil {
		s.d.log.Warn("note", zap.Stringer("session", s.key), zap.String("kind", string(e.Kind)), zap.Error(r.err))
	}
}

// answer tells all who wait.
func (s *session) answer(r result) {
	for _, w := range s.waiters {
		w.reply <- r
	}
	s.waiters = nil
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
		sooner(s.due.since.Add(s.d.times.lateText))
	}
	if s.due == nil && !s.d.degraded() {
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
				sooner(c.At.Add(s.d.times.procsAfter))
			}
		}
	}
	if s.file.unflushed && !s.file.copying {
		sooner(s.file.flushed.Add(s.d.times.flushEvery))
	}
	if s.state.Chain && s.quietFile() {
		sooner(s.lastSeen.Add(s.d.times.quietChain))
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
func (s *session) tick() {
	now := time.Now()
	if s.due == nil && !now.Before(s.retryAt) {
		if d := s.owed(now); d.Take || d.Code == checkpoint.CodeNothingNew {
			s.settle(d, now)
		}
	}
	s.noteProcs(now)
	if s.file.unflushed && now.Sub(s.file.flushed) >= s.d.times.flushEvery {
		s.copy()
	}
	if s.state.Chain && s.quietFile() && now.Sub(s.lastSeen) >= s.d.times.quietChain {
		s.state.Chain = false
		s.decide(checkpoint.Effect{ChainEnd: true}, now)
	}
}

const maxProcs = 32

// noteProcs keeps the agent's descendants of calls that take long, for the brief after a crash.
func (s *session) noteProcs(now time.Time) {
	if s.state.Proc == nil || !s.state.Live {
		return
	}
	var procs []checkpoint.Proc
	noted := map[string]bool{} // anew: ended calls drop out
	for _, c := range s.state.Calls {
		if c.State != checkpoint.CallOpen || !c.Started {
			continue
		}
		if s.noted[c.ID] {
			noted[c.ID] = true
			continue
		}
		if now.Sub(c.At) < s.d.times.procsAfter {
			continue
		}
		if procs == nil {
			procs = append([]checkpoint.Proc{}, proc.Descendants(s.state.Proc.PID, maxProcs)...)
		}
		noted[c.ID] = true
	}
	for id := range noted {
		if !s.noted[id] && len(procs) > 0 {
			s.note(checkpoint.Event{Kind: checkpoint.EventProcs, Call: id, Procs: procs})
		}
	}
	s.noted = noted
}

// idle says that the session may leave memory: nothing is under way or owed, and nobody lives that could go on.
func (s *session) idle() bool {
	return s.due == nil && !s.trimming && !s.file.reading && !s.older.busy() && !s.file.copying && !s.saving && len(s.waiters) == 0 && !s.briefing &&
		!s.pending() && time.Since(s.lastSeen) >= s.d.times.idleAfter && !s.living()
}

// pending says that a checkpoint is owed.
func (s *session) pending() bool {
	return s.state.OwedFull != "" || s.state.OwedSparse || s.state.Gap != nil
}

// living says whether the agent's process is known to live.
func (s *session) living() bool {
	if s.state.Proc == nil || !s.state.Live {
		return false
	}
	alive, known := proc.Alive(*s.state.Proc)
	return alive && known
}

// leave takes an idle session one step out of memory: its mirror is put in order, its state saved, its files closed. It says
// true when the session is out; a step that takes time comes back through the inbox.
func (s *session) leave() bool {
	switch {
	case s.compact():
		return false
	case s.state.Seq != s.saved || s.fresh:
		if !time.Now().Before(s.saveAt) {
			s.save(nil)
		}
		return false
	}
	s.closeFile()
	s.dropOlder()
	return s.d.retire(s)
}

// save puts the state on disk, once the journal holds what is in it, in a goroutine of its own: a slow disk holds up no
// event. done, if not nil, hears of a state that is at least as new as this moment's.
func (s *session) save(done func(error)) {
	if done == nil {
		done = func(error) {}
	}
	switch {
	case s.saving:
		s.saves = append(s.saves, done)
		return
	case s.state.Seq == s.saved && !s.fresh:
		done(nil)
		return
	}
	s.saving = true
	snapshot := s.state.Clone()
	s.work.Go(func() {
		err := s.d.saveState(snapshot)
		if !s.do(s.d.life, func() { s.wasSaved(snapshot.Seq, err, done) }) {
			done(err) // stopping: nobody else will say so
		}
	})
}

func (s *session) wasSaved(seq uint64, err error, done func(error)) {
	s.saving = false
	if err == nil {
		s.saved, s.fresh = seq, false
	} else {
		s.saveAt = time.Now().Add(s.d.times.retryLongest)
		s.d.log.Debug("save state", zap.Stringer("session", s.key), zap.Error(err)) // the journal holds it, and says how its disk is
	}
	done(err)
	if list := s.saves; len(list) > 0 {
		s.saves = nil
		s.save(func(err error) {
			for _, done := range list {
				done(err)
			}
		})
	}
}

func (d *Daemon) saveState(s *checkpoint.State) error {
	// A record that was dropped from memory will never be on disk: then the state is all that holds it.
	if err := d.journal.Wait(d.life, s.Seq); err != nil && !errors.Is(err, journal.ErrDropped) {
		return err
	}
	had := d.dir.StateBytes(s.Key)
	err := d.dir.SaveState(s)
	d.grown(d.dir.StateBytes(s.Key) - had)
	return err
}

// append writes an event into the journal's queue.
func (d *Daemon) append(e checkpoint.Event) (uint64, error) {
	payload, err := json.Marshal(e)
	if err != nil {
		return 0, err
	}
	return d.journal.Append(d.life, payload)
}

// Kept says where a record is, in the wire's words.
func (d *Daemon) Kept(ctx context.Context, seq uint64) (string, error) {
	err := d.journal.Wait(ctx, seq)
	switch {
	case err == nil:
		return wire.KeptDisk, nil
	case errors.Is(err, journal.ErrMemory):
		return wire.KeptMemory, nil
	}
	return "", err
}
