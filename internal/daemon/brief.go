package daemon

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/daemon/socket"
	"belay/internal/host/proc"
	"belay/internal/state/query"
	"belay/recovery"
)

// offer adds to a hook's answer the brief that belongs there: at a start by the start's reason, and later, with the next
// event that can carry it, the brief that a start owed.
func (d *Daemon) offer(ans *socket.Answer, a agent.Agent, in agent.Incoming, e checkpoint.Event, event string) {
	if in.Ask == agent.AskNothing {
		return
	}
	ans.Finish = func(ctx context.Context, ans *socket.Answer) {
		ctx, cancel := context.WithTimeout(ctx, d.times.briefBudget)
		defer cancel()
		b, ok := d.claim(ctx, in.Ask, e)
		if !ok {
			return
		}
		r, err := d.compose(ctx, b, a)
		if err != nil {
			d.log.Warn("brief", zap.Stringer("session", b.to), zap.Error(err))
		}
		if err != nil || r.Text == "" {
			d.release(b, err != nil)
			if line := d.trouble(b.start); line != "" && err == nil {
				ans.Body = a.Reply(event, checkpoint.Frame(query.Marker(), line))
			}
			return
		}
		ans.Body = a.Reply(event, r.Text)
		ans.Written = func(_ context.Context, ok bool) { d.told(b, r.Marker, ok) }
	}
}

// briefing is a brief on its way to a client.
type briefing struct {
	to     checkpoint.Key    // the session that starts
	start  string            // its reason
	about  *checkpoint.State // a copy: of the session itself, or of its proven predecessor
	line   string            // instead of a brief: one line, or the list
	claims checkpoint.Key    // the predecessor whose death is being told
}

// claim decides what a start is told about, and makes sure that nobody else tells it at the same time.
func (d *Daemon) claim(ctx context.Context, want agent.Ask, e checkpoint.Event) (*briefing, bool) {
	b := &briefing{to: d.resolve(e.Key), start: e.Source}
	self, _ := ask(ctx, d.session(b.to), func(s *session) *checkpoint.State {
		if s.briefing || want == agent.AskCarry && !s.state.OwedTo {
			return nil
		}
		s.briefing = true
		s.state.OwedTo = false // this briefing takes it on; release owes it again when it reached nobody
		return s.state.Clone()
	})
	if self == nil {
		return nil, false
	}
	if want == agent.AskCarry {
		b.start = self.Source
		self.Messages = slices.DeleteFunc(self.Messages, func(m checkpoint.Message) bool { // the prompt that carries it says itself
			return m.Role == checkpoint.RoleUser && m.Turn == self.TurnSeq && m.Text == e.Text
		})
	}
	b.about = self
	switch {
	case isNew(self, b.start):
		d.choose(ctx, b, self)
	case b.start != recovery.StartCompact && self.Given != nil && self.Given.News == self.News:
		b.about = nil // all of it was told already
	}
	return b, true
}

// isNew says that a session has nothing of its own to be told (its first prompt, which may carry an owed brief, aside): it
// may have a predecessor, unless it was told of one.
func isNew(s *checkpoint.State, start string) bool {
	switch start {
	case recovery.StartClear, recovery.StartCompact, recovery.StartResume, recovery.StartFork:
		return false
	}
	return len(s.Messages) <= 1 && s.Rounds == 0 && s.Deaths == 0 && s.Skipped == 0 && s.Given == nil
}

// choose looks for the proven predecessor of a new session.
func (d *Daemon) choose(ctx context.Context, b *briefing, self *checkpoint.State) {
	b.about = nil
	set := d.set.Load()
	now := time.Now()
	adopt := set.Adopt
	looking, cancel := context.WithTimeout(ctx, d.times.briefBudget/2) // the rest is for the brief
	defer cancel()
	list, active := d.candidates(looking, b.to, self.Workspace)
	saved, err := d.dir.Recent(looking, b.to.Agent, self.Workspace, now.Add(-set.AdoptWindow), active)
	if err != nil {
		d.log.Warn("look for a predecessor", zap.Error(err))
		if adopt == recovery.AdoptAuto {
			adopt = recovery.AdoptList // nothing is proven beside sessions that could not be looked at
		}
	}
	for _, s := range saved {
		if !empty(s) {
			query.NoticeDeath(s, now)
			list = append(list, query.Candidate(s))
		}
	}
	c := recovery.Choose(list, b.to, self.Workspace, adopt, set.AdoptWindow, now)
	switch {
	case c.Adopt != nil && d.claimDeath(b, c.Adopt.Key):
		b.about = d.dead(ctx, c.Adopt.Key)
	case c.Idle != nil && d.claimDeath(b, c.Idle.Key):
		if d.dead(ctx, c.Idle.Key) != nil {
			b.line = recovery.IdleLine(*c.Idle, "belay")
		}
	case len(c.List) > 0:
		b.line = recovery.ListText(c.List, "belay", now)
	}
}

// empty says that there is nothing to tell of a session: another one that has only just started, for example.
func empty(s *checkpoint.State) bool {
	return len(s.Messages) == 0 && len(s.Calls) == 0 && s.Rounds == 0
}

// dead gives a copy of a predecessor's state, with its death journalled: what is told of it counts for that death. nil when
// another session was told of it since it was chosen.
func (d *Daemon) dead(ctx context.Context, key checkpoint.Key) *checkpoint.State {
	state, _ := ask(ctx, d.session(key), func(s *session) *checkpoint.State {
		s.noticeDeath(nil)
		if query.Candidate(s.state).Given {
			return nil
		}
		return s.state.Clone()
	})
	return state
}

// face is what a session shows to all others, so that a start need not ask a thousand of them.
type face struct {
	workspace string
	blank     bool            // nothing is to be told of it, and no process of it lives
	runs      checkpoint.Proc // the process that lives as far as the session knows; zero when it has none
}

// show brings a session's face up to date. It runs in the goroutine, before anybody hears of what changed.
func (s *session) show() {
	now := face{workspace: s.state.Workspace, blank: empty(s.state)}
	if s.state.Proc != nil && s.state.Live {
		now.blank, now.runs = false, *s.state.Proc
	}
	if old := s.face.Load(); old == nil || *old != now {
		s.face.Store(&now)
	}
}

// candidates looks at the active sessions of a workspace, and gives the folders of all that are active. Of those whose process
// lives that is all there is to know; only the others are asked, and who does not answer in time counts as living.
func (d *Daemon) candidates(ctx context.Context, self checkpoint.Key, workspace string) ([]recovery.Candidate, map[string]bool) {
	active, gone := map[string]bool{}, map[checkpoint.Proc]bool{{}: true}
	var list []recovery.Candidate
	var unsure []*session
	for _, s := range d.active() {
		active[s.folder] = true
		f := s.face.Load()
		if s.key == self || f.workspace != workspace || f.blank {
			continue
		}
		dead, looked := gone[f.runs]
		if !looked { // many sessions may be of one process
			alive, known := proc.Alive(f.runs)
			dead = known && !alive
			gone[f.runs] = dead
		}
		if dead {
			if s.key.Agent == self.Agent { // another agent's dead are nothing to this one; its living may be the one that goes on
				unsure = append(unsure, s)
			}
			continue
		}
		list = append(list, recovery.Candidate{Key: s.key, Workspace: workspace, Alive: true})
	}
	ctx, cancel := context.WithTimeout(ctx, d.times.briefBudget/4)
	defer cancel()
	answers := askAll(ctx, unsure, func(s *session) recovery.Candidate {
		s.noticeDeath(nil)
		return query.Candidate(s.state)
	})
	for i, c := range answers {
		if c == nil {
			c = &recovery.Candidate{Key: unsure[i].key, Workspace: workspace, Alive: true}
		}
		if c.Alive || !unsure[i].face.Load().blank {
			list = append(list, *c)
		}
	}
	return list, active
}

// atOnce is how many sessions are asked at the same time: one that is held up by its disk holds up no other.
const atOnce = 16

// askAll asks sessions, several at a time, and gives each one's answer; nil for one that gave none before ctx ended.
func askAll[T any](ctx context.Context, list []*session, f func(*session) T) []*T {
	answers := make([]*T, len(list))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(atOnce, len(list)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(list)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if answer, ok := ask(ctx, list[i], f); ok {
					answers[i] = &answer
				}
			}
		})
	}
	wg.Wait()
	return answers
}

// claimDeath lets one session alone tell of a predecessor's death: from then on that is journalled, as given.
func (d *Daemon) claimDeath(b *briefing, k checkpoint.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.claimed[k] {
		return false
	}
	d.mu.claimed[k] = true
	b.claims = k
	return true
}

// compose writes the text.
func (d *Daemon) compose(ctx context.Context, b *briefing, a agent.Agent) (recovery.Result, error) {
	marker := query.Marker()
	if b.line != "" {
		return recovery.Result{Text: checkpoint.Frame(marker, b.line), Marker: marker}, nil
	}
	if b.about == nil {
		return recovery.Result{}, nil
	}
	limit := d.set.Load().BriefBytes
	if most := a.Limits().BriefBytes; most > 0 {
		limit = min(limit, most)
	}
	q := query.Question{Options: recovery.Options{Start: b.start, MaxBytes: limit, Marker: marker}}
	return d.folder().Answer(ctx, b.about, b.about.Key != b.to, q)
}

// told journals that a brief was given, or owes it when the client gave up first.
func (d *Daemon) told(b *briefing, marker string, ok bool) {
	if !ok {
		d.release(b, true)
		return
	}
	given := checkpoint.Event{Kind: checkpoint.EventGiven, Marker: marker}
	d.apply(d.life, b.to, given)
	if b.claims != (checkpoint.Key{}) {
		d.apply(d.life, b.claims, given)
	}
	d.release(b, false)
}

// owe leaves a session's brief to the next event that can carry it.
func (d *Daemon) owe(key checkpoint.Key) {
	s := d.session(key)
	s.do(d.life, func() { s.note(checkpoint.Event{Kind: checkpoint.EventOwed}) })
}

// release ends a briefing; owed says that its text did not reach anybody.
func (d *Daemon) release(b *briefing, owed bool) {
	if b.claims != (checkpoint.Key{}) {
		d.mu.Lock()
		delete(d.mu.claimed, b.claims)
		d.mu.Unlock()
	}
	s := d.session(b.to)
	s.do(d.life, func() {
		s.briefing = false
		if owed {
			s.note(checkpoint.Event{Kind: checkpoint.EventOwed})
		}
	})
}
