// Package session is one active session: a goroutine that owns the session's state and does everything that happens to
// it, one thing after the other.
//
// An event is journalled, folded and decided upon (event); what the gates take is built and written outside the
// goroutine and comes back through the inbox as an event of its own. So do what a reader found in the transcript, what
// was copied into the mirror, and how a save went: nothing that touches a disk or another program holds up an event.
//
// It promises:
//   - Events are journalled in the order in which they reach the inbox, and folded in that order.
//   - At most one goroutine reads the transcript, one copies it, one saves the state and one writes a checkpoint.
//   - A session that is idle is saved and leaves memory by itself; what is owed to it keeps it there.
//   - A panic in one event costs that event alone.
//
// It knows no socket and no other session: Services has what it needs of both. Methods that are exported may be called
// from any goroutine; those that are not run in the session's own, and their context is the one that Run was given.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/state/query"
	"belay/internal/vfs"
)

// Errors of a session that cannot answer.
var (
	// ErrStopping: the session or the daemon ended before it could answer.
	ErrStopping = errors.New("the session is stopping")
	errPanic    = errors.New("belay failed on this; its log says more") // a fault of belay's own
)

// Session is one active session. Everything reaches it through its inbox, in order, so that nothing in it needs a lock.
type Session struct {
	Key    checkpoint.Key
	Folder string // where its files are

	*Services
	agent    agent.Agent // nil for an agent that belay does not know: events alone
	inbox    chan func(ctx context.Context)
	done     chan struct{}  // closed when the goroutine has ended
	work     sync.WaitGroup // its readers and writers: each hands its outcome back through the inbox
	snapshot atomic.Pointer[Snapshot]

	// Owned by the goroutine.
	state    *checkpoint.State
	due      *build // a checkpoint that was decided and is not in the store yet
	waiters  []waiter
	trimming bool      // its older checkpoints are going for the total budget
	failures int       // failed checkpoints in a row
	retryAt  time.Time // no owed checkpoint before
	save     saving
	file     transcript
	previous *previous       // the transcript before it, while both may grow
	lastSeen time.Time       // last event or growth, for idleness
	noted    map[string]bool // calls whose processes were noted
	recent   recentIDs
}

// waiter is a client that waits for the checkpoint that was due when it asked.
type waiter struct {
	after uint64 // News that the checkpoint must hold
	reply chan<- Result
}

// Result is what the gates said to one event, and its number in the journal.
type Result struct {
	Seq      uint64
	Decision checkpoint.Decision
	Number   uint64 // of the checkpoint, for those who waited
	Double   bool   // it was there before
	Err      error
}

var noTrigger = checkpoint.Decision{Code: checkpoint.CodeNoTrigger, Text: "no trigger"}

// New makes a session from its state; a nil agent means one that belay does not know. replayed says that the journal
// added events which the state's file does not hold. Nothing runs before Run.
func New(v *Services, state *checkpoint.State, a agent.Agent, replayed bool) *Session {
	s := &Session{Key: state.Key, Folder: v.Dir.Session(state.Key), Services: v, agent: a, state: state,
		inbox: make(chan func(context.Context), 64), done: make(chan struct{}),
		lastSeen: time.Now(), noted: map[string]bool{}}
	s.save.seq, s.save.never = state.Seq, state.Began.IsZero()
	if replayed {
		s.save.seq = 0
		s.lastSeen = state.LastEvent
		s.resume()
	}

	s.show()
	return s
}

// resume owes what a restart found unsaved.
func (s *Session) resume() {
	st := s.state
	if st.News > 0 && (st.LastFull == nil || st.LastFull.News < st.News) && st.OwedFull == "" {
		st.OwedFull = checkpoint.CauseHeartbeat
	}
}

// Run is the session's loop. It ends with ctx, or when the session has left memory.
func (s *Session) Run(ctx context.Context) {
	defer close(s.done)
	defer s.closeFile()
	defer s.dropPrevious(ctx)
	defer s.work.Wait() // readers and writers end with ctx

	if err := vfs.SweepTemps(s.Dir.FS, s.Folder, time.Time{}); err != nil {
		s.Log.Debug("sweep left-over files", zap.Stringer("session", s.Key), zap.Error(err))
	}
	if !s.save.never { // a new session has none, and its first hook waits for this
		s.Safely(s.Key.String(), func() { s.adopt(ctx) })
	}
	if s.state.Proc != nil && s.state.Live {
		s.Watch.Await(*s.state.Proc)
	}

	s.Safely(s.Key.String(), func() { s.read(ctx) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		f := s.tick
		select {
		case f = <-s.inbox:
		case <-timer.C:
			s.Counts.Ticks.Add(1)
		case <-ctx.Done():
			return
		}

		s.Safely(s.Key.String(), func() { f(ctx) })
		s.Safely(s.Key.String(), func() { s.advance(ctx) })
		s.show()

		wake := s.nextWake()
		if wake.IsZero() {
			if s.idle() && s.leave(ctx) {
				return
			}
			wake = time.Now().Add(s.Times.IdleAfter)
		}

		timer.Reset(max(time.Until(wake), time.Millisecond))
	}
}

// Done is closed when the session has ended: what then lies in its inbox is lost, and another one takes its place.
func (s *Session) Done() <-chan struct{} { return s.done }

// HasMail says that something waits in the inbox.
func (s *Session) HasMail() bool { return len(s.inbox) > 0 }

// do runs f in the session's goroutine; it does not wait for it. It says false when f will not run.
func (s *Session) do(ctx context.Context, f func(ctx context.Context)) bool {
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
func ask[T any](ctx context.Context, s *Session, f func(ctx context.Context) T) (answer T, ok bool) {
	got := make(chan T, 1)
	if !s.do(ctx, func(ctx context.Context) {
		defer close(got) // also after a panic
		got <- f(ctx)
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

// Ask runs f on the live state, in the session's goroutine, and gives its answer; false when the session ended or ctx
// did. f must not keep the state.
func Ask[T any](ctx context.Context, s *Session, f func(*checkpoint.State) T) (answer T, ok bool) {
	return ask(ctx, s, func(context.Context) T { return f(s.state) })
}

// Apply hands an event to the session and waits for what the gates say; false when the session ended or ctx did.
func (s *Session) Apply(ctx context.Context, e checkpoint.Event) (Result, bool) {
	return ask(ctx, s, func(ctx context.Context) Result {
		r := Result{Err: errPanic}
		s.Safely("event", func() { r = s.event(ctx, e) })
		return r
	})
}

// Note journals an event of the daemon's own, and waits for nothing.
func (s *Session) Note(ctx context.Context, e checkpoint.Event) {
	s.do(ctx, func(ctx context.Context) { s.note(ctx, e) })
}

// event journals, folds and decides: the one way by which anything happens to a session.
func (s *Session) event(ctx context.Context, e checkpoint.Event) Result {
	if s.recent.has(e.ID) {
		return Result{Seq: s.recent.seq, Double: true, Decision: noTrigger}
	}
	if e.Kind == checkpoint.EventStart {
		s.noticeDeath(ctx, e.Proc)
	}

	now := time.Now().UTC()
	if e.At.IsZero() {
		e.At = now
	}

	e.Key = s.Key
	payload, err := json.Marshal(e)
	if err != nil {
		return Result{Err: err}
	}
	if e.Seq, err = s.Journal.Append(ctx, payload); err != nil {
		return Result{Err: err}
	}

	s.recent.add(e.ID, e.Seq)

	before := s.state.Proc
	effect := s.state.Apply(e)
	s.show()
	s.lastSeen = now
	if effect.Double {
		return Result{Seq: e.Seq, Double: true, Decision: noTrigger}
	}

	s.follow(ctx, before)
	return Result{Seq: e.Seq, Decision: s.decide(ctx, effect, now)}
}

// note is an event of the daemon's own.
func (s *Session) note(ctx context.Context, e checkpoint.Event) {
	if r := s.event(ctx, e); r.Err != nil && ctx.Err() == nil {
		s.Log.Warn("note", zap.Stringer("session", s.Key), zap.String("kind", string(e.Kind)), zap.Error(r.Err))
	}
}

// follow keeps up with what an event said of process and transcript.
func (s *Session) follow(ctx context.Context, before *checkpoint.Proc) {
	if p := s.state.Proc; p != nil && s.state.Live && (before == nil || *before != *p) {
		s.Watch.Await(*p)
	}
	if s.state.Transcript != "" && s.state.Transcript != s.file.opened {
		s.read(ctx)
	}

	for _, part := range s.file.watched {
		s.Watch.Active(part)
	}

	if s.previous != nil {
		s.Watch.Active(s.previous.path)
	}

	s.Counts.LastEvent.Store(time.Now().UnixNano())
	if s.save.never && !s.save.busy && s.state.LastHook.Equal(s.state.Began) {
		s.saveState(ctx, nil) // findable on disk at once; the journal stands for it until then
	}
}

// NoticeDeath has the session look whether its agent's process still lives, before anything that is asked later.
func (s *Session) NoticeDeath(ctx context.Context) {
	s.do(ctx, func(ctx context.Context) { s.noticeDeath(ctx, nil) })
}

// noticeDeath folds the end of the agent's process in where the watch over it has not said so yet, or was never set.
// now is the process that a start names; it may be the same one.
func (s *Session) noticeDeath(ctx context.Context, now *checkpoint.Proc) {
	st := s.state
	if st.Live && st.Proc != nil && (now == nil || *now != *st.Proc) && query.Candidate(st).Dead {
		s.exited(ctx, *st.Proc)
	}
}

// Exited says that a process has ended. Whether it was this session's is for the session to know.
func (s *Session) Exited(ctx context.Context, p checkpoint.Proc) {
	s.do(ctx, func(ctx context.Context) {
		if s.state.Live && s.state.Proc != nil && *s.state.Proc == p {
			s.exited(ctx, p)
		}
	})
}

func (s *Session) exited(ctx context.Context, p checkpoint.Proc) {
	s.note(ctx, checkpoint.Event{Kind: checkpoint.EventExit, Proc: &p, Reason: "its process is gone"})
}

// Snapshot is what a session shows to all others, so that a start need not ask a thousand of them.
type Snapshot struct {
	Workspace string
	Blank     bool            // there is nothing to tell of it, and no process of it lives
	Runs      checkpoint.Proc // the process that lives as far as the session knows; zero when it has none
}

// Snapshot is how the session was after the last thing that happened to it.
func (s *Session) Snapshot() Snapshot { return *s.snapshot.Load() }

// Blank says that there is nothing to tell of a session: another one that has only just started, for example.
func Blank(st *checkpoint.State) bool {
	return len(st.Messages) == 0 && len(st.Calls) == 0 && st.Rounds == 0
}

// show brings the snapshot up to date, before anybody hears of what changed.
func (s *Session) show() {
	now := Snapshot{Workspace: s.state.Workspace, Blank: Blank(s.state)}
	if s.state.Proc != nil && s.state.Live {
		now.Blank, now.Runs = false, *s.state.Proc
	}
	if old := s.snapshot.Load(); old == nil || *old != now {
		s.snapshot.Store(&now)
	}
}
