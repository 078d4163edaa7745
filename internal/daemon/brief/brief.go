// Package brief decides who is told what: which client gets a brief, of which session, and when it counts as told.
//
// The telling of a session is one small machine:
//
//	nobody asked --start--------------> being told
//	told ---------start---------------> being told   (after news, or for another reason to start)
//	owed ---------start, carrier------> being told
//	being told ---reached-------------> told         the session's journal gets a "given"
//	being told ---lost----------------> owed         the session's journal gets an "owed"
//	being told ---nothing-------------> nobody asked
//	any other ----missed start--------> owed
//
// What must survive the daemon (told, owed) is read from the session's state; only "being told" is kept here, because
// it ends with the client's connection. The death of a predecessor is told in the same way by one session alone: from
// the moment it is chosen until the "given" is in its journal too, or until it is free again for the next one.
//
// It promises that two clients are never told at the same time of one session or of one death, that nothing counts as
// told before its bytes have reached a client, and that what reached nobody is owed. It knows sessions and no sockets.
package brief

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/daemon/session"
	"belay/internal/state"
	"belay/internal/state/query"
	"belay/recovery"
)

// Sessions are the daemon's.
type Sessions interface {
	Session(ctx context.Context, key checkpoint.Key) (*session.Session, error)
	Active() []*session.Session
	Apply(ctx context.Context, key checkpoint.Key, e checkpoint.Event) session.Result
}

// Settings say how much is told, and of whom.
type Settings struct {
	Adopt  recovery.Adopt
	Window time.Duration // how long a death is told of
	Bytes  int           // of a brief, at most; an agent may allow less
}

// Options of a Teller.
type Options struct {
	Sessions Sessions
	Dir      state.Dir
	Folder   query.Folder
	Settings func() Settings
	Budget   time.Duration // for one brief, of the client's second
	Log      *zap.Logger
}

// Teller tells starting sessions what they need to know.
type Teller struct {
	opt Options

	mu struct {
		sync.Mutex
		telling map[checkpoint.Key]*Brief // sessions that are being told
		deaths  map[checkpoint.Key]bool   // predecessors whose death is being told
	}
}

// New makes a teller.
func New(opt Options) *Teller {
	t := &Teller{opt: opt}
	t.mu.telling, t.mu.deaths = map[checkpoint.Key]*Brief{}, map[checkpoint.Key]bool{}
	return t
}

// Brief is a text on its way to a client.
type Brief struct {
	Text  string // empty when there is nothing to tell, or it could not be written
	Start string // the reason of the session's start
	Err   error  // why it could not be written

	teller *Teller
	to     checkpoint.Key    // the session that starts
	self   *checkpoint.State // a copy of its state
	about  *checkpoint.State // a copy: of the session itself, or of its proven predecessor; nil: of neither
	line   string            // instead of a brief: one line, or the list
	death  *checkpoint.Key   // the predecessor whose death is being told
	marker string
	late   bool // its client stopped waiting before the session could be asked
}

// Tell writes what the client of an event is to be told. nil: nobody is to be told now. Else the caller says with Done
// how it went. to is the event's session; e is its first event.
func (t *Teller) Tell(
	ctx context.Context, want agent.Ask, to checkpoint.Key, e checkpoint.Event, a agent.Agent,
) *Brief {
	ctx, cancel := context.WithTimeout(ctx, t.opt.Budget)
	defer cancel()

	b := &Brief{Start: e.Source, teller: t, to: to}
	if !t.begin(ctx, b, want) {
		return nil
	}

	if want == agent.AskCarry {
		b.Start = b.self.Source
		b.self.Messages = slices.DeleteFunc(b.self.Messages, func(m checkpoint.Message) bool {
			// The prompt that carries it says itself.
			return m.Role == checkpoint.RoleUser && m.Turn == b.self.TurnSeq && m.Text == e.Text
		})
	}

	switch {
	case isNew(b.self, b.Start):
		t.choose(ctx, b)
	case b.Start != recovery.StartCompact && b.self.Given != nil && b.self.Given.News == b.self.News:
		// all of it was told already
	default:
		b.about = b.self
	}

	if err := t.compose(ctx, b, a); err != nil {
		t.opt.Log.Warn("brief", zap.Stringer("session", to), zap.Error(err))
		b.Err = err
	}

	return b
}

// begin moves a session to "being told", where its phase allows that. It happens in the session's goroutine, so that no
// event comes between.
func (t *Teller) begin(ctx context.Context, b *Brief, want agent.Ask) bool {
	s, err := t.opt.Sessions.Session(ctx, b.to)
	if err != nil {
		return false
	}

	sign := start
	if want == agent.AskCarry {
		sign = carrier
	}

	_, _ = session.Ask(ctx, s, func(st *checkpoint.State) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		if b.late || moves[phaseOf(st, t.mu.telling[b.to] != nil)][sign] != telling {
			return false
		}

		t.mu.telling[b.to] = b
		st.OwedTo = false // this brief takes it on; what is lost is owed again
		b.self = st.Clone()
		return true
	})

	t.mu.Lock()
	defer t.mu.Unlock()
	b.late = b.self == nil
	return !b.late
}

// isNew says that a session has nothing of its own to be told (its first prompt, which may carry an owed brief, aside):
// it may have a predecessor, unless it was told of one.
func isNew(s *checkpoint.State, start string) bool {
	switch start {
	case recovery.StartClear, recovery.StartCompact, recovery.StartResume, recovery.StartFork:
		return false
	}
	return len(s.Messages) <= 1 && s.Rounds == 0 && s.Deaths == 0 && s.Skipped == 0 && s.Given == nil
}

// compose writes the text.
func (t *Teller) compose(ctx context.Context, b *Brief, a agent.Agent) error {
	b.marker = query.Marker()
	switch {
	case b.line != "":
		b.Text = checkpoint.Frame(b.marker, b.line)
		return nil
	case b.about == nil:
		return nil
	}

	limit := t.opt.Settings().Bytes
	if most := a.Limits().BriefBytes; most > 0 {
		limit = min(limit, most)
	}

	q := query.Question{Options: recovery.Options{Start: b.Start, MaxBytes: limit, Marker: b.marker}}
	r, err := t.opt.Folder.Answer(ctx, b.about, b.about.Key != b.to, q)
	if err != nil {
		return err
	}

	b.Text, b.marker = r.Text, r.Marker
	return nil
}

// Done says whether the client got the answer that the brief was written for.
func (b *Brief) Done(ctx context.Context, ok bool) {
	switch {
	case b.Err != nil:
		b.teller.end(ctx, b, lost)
	case b.Text == "":
		b.teller.end(ctx, b, nothing)
	case !ok:
		b.teller.end(ctx, b, lost)
	default:
		b.teller.end(ctx, b, reached)
	}
}

// end moves a session out of "being told". What the journal must hold is there before anybody else can be told.
func (t *Teller) end(ctx context.Context, b *Brief, how sign) {
	switch moves[telling][how] {
	case told:
		given := checkpoint.Event{Kind: checkpoint.EventGiven, Marker: b.marker}
		t.journal(ctx, b.to, given)
		if b.death != nil {
			t.journal(ctx, *b.death, given)
		}
	case owed:
		t.journal(ctx, b.to, checkpoint.Event{Kind: checkpoint.EventOwed})
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.telling, b.to)
	if b.death != nil {
		delete(t.mu.deaths, *b.death)
	}
}

func (t *Teller) journal(ctx context.Context, key checkpoint.Key, e checkpoint.Event) {
	if r := t.opt.Sessions.Apply(ctx, key, e); r.Err != nil && ctx.Err() == nil {
		t.opt.Log.Warn("note", zap.Stringer("session", key), zap.String("kind", string(e.Kind)), zap.Error(r.Err))
	}
}

// Missed owes the brief of a start whose client has gone without an answer.
func (t *Teller) Missed(ctx context.Context, key checkpoint.Key) {
	s, err := t.opt.Sessions.Session(ctx, key)
	if err != nil {
		return
	}

	owes, _ := session.Ask(ctx, s, func(st *checkpoint.State) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return moves[phaseOf(st, t.mu.telling[key] != nil)][missed] == owed
	})

	if owes {
		t.journal(ctx, key, checkpoint.Event{Kind: checkpoint.EventOwed})
	}
}
