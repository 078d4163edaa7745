package daemon

import (
	"context"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/lookup"
	"belay/recovery"
)

// beforeStart notices, before a start is folded in, that the session's earlier process is dead: the watch over it may not
// have said so yet, or was never set.
func (d *Daemon) beforeStart(ctx context.Context, e checkpoint.Event) {
	key := d.resolve(ctx, e)
	s := d.session(key)
	done := make(chan struct{})
	if s.do(ctx, func() {
		defer close(done)
		st := s.state
		if st.Live && st.Proc != nil && (e.Proc == nil || *e.Proc != *st.Proc) && lookup.Candidate(st).Dead {
			s.event(ctx, checkpoint.Event{Kind: checkpoint.EventExit, Proc: st.Proc, Reason: "its process is gone"})
		}
	}) {
		select {
		case <-done:
		case <-s.done:
		case <-ctx.Done():
		}
	}
}

// offer adds to a hook's answer the brief that belongs there: at a start by the start's reason, and later, with the next
// event that can carry it, the brief that a start owed.
func (d *Daemon) offer(ans *answer, a agent.Agent, in agent.Incoming, e checkpoint.Event, event string) {
	if in.Ask == agent.AskNothing {
		return
	}
	finish := ans.finish
	ans.finish = func(ctx context.Context, ans *answer) {
		if finish != nil {
			finish(ctx, ans)
		}
		ctx, cancel := context.WithTimeout(ctx, briefBudget)
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
			return
		}
		ans.body = a.Reply(event, r.Text)
		ans.written = func(ok bool) { d.told(b, r.Marker, ok) }
	}
}

// briefing is a brief on its way to a client.
type briefing struct {
	to     checkpoint.Key    // the session that starts
	start  string            // its reason
	about  *checkpoint.State // a copy: of the session itself, or of its proven predecessor
	line   string            // instead of a brief: one line, or the list
	claims checkpoint.Key    // the predecessor whose death is being told
	death  int
}

// claim decides what a start is told about, and makes sure that nobody else tells it at the same time.
func (d *Daemon) claim(ctx context.Context, ask agent.Ask, e checkpoint.Event) (*briefing, bool) {
	b := &briefing{to: d.resolve(ctx, e), start: e.Source}
	s := d.session(b.to)
	type found struct {
		state *checkpoint.State
		ok    bool
	}
	got := make(chan found, 1)
	if !s.do(ctx, func() {
		if s.briefing || ask == agent.AskCarry && !s.state.OwedTo {
			got <- found{}
			return
		}
		s.briefing = true
		got <- found{s.state.Clone(), true}
	}) {
		return nil, false
	}
	var f found
	select {
	case f = <-got:
	case <-s.done:
		return nil, false
	case <-ctx.Done():
		return nil, false
	}
	if !f.ok {
		return nil, false
	}
	if ask == agent.AskCarry {
		b.start = f.state.Source
	}
	b.about = f.state
	switch {
	case isNew(f.state, b.start):
		d.choose(ctx, b, f.state)
	case b.start != recovery.StartCompact && f.state.Given != nil && f.state.Given.News == f.state.News:
		b.about = nil // all of it was told already
	}
	return b, true
}

// isNew says that a session has nothing of its own to be told (its first prompt, which may carry an owed brief, aside): it
// may have a predecessor.
func isNew(s *checkpoint.State, start string) bool {
	switch start {
	case recovery.StartClear, recovery.StartCompact, recovery.StartResume, recovery.StartFork:
		return false
	}
	return len(s.Messages) <= 1 && s.Rounds == 0 && s.LastNumber == 0 && s.Deaths == 0 && s.Skipped == 0
}

// choose looks for the proven predecessor of a new session.
func (d *Daemon) choose(ctx context.Context, b *briefing, self *checkpoint.State) {
	states := d.inMemory(ctx)
	now := time.Now()
	saved, err := d.dir.Recent(ctx, b.to.Agent, now.Add(-d.opt.AdoptWindow))
	if err != nil {
		d.log.Warn("look for a predecessor", zap.Error(err))
	}
	for _, s := range saved {
		if states[s.Key] == nil {
			states[s.Key] = s
		}
	}
	var list []recovery.Candidate
	for _, s := range states {
		lookup.NoticeDeath(s, now)
		list = append(list, lookup.Candidate(s))
	}
	c := recovery.Choose(list, b.to, self.Workspace, d.opt.Adopt, d.opt.AdoptWindow, now)
	b.about = nil
	switch {
	case c.Adopt != nil:
		s := states[c.Adopt.Key]
		if d.claimDeath(s.Key, s.Deaths) {
			b.about, b.claims, b.death = s, s.Key, s.Deaths
		}
	case c.Idle != nil:
		b.line = recovery.IdleLine(*c.Idle, "belay")
		b.claims, b.death = c.Idle.Key, states[c.Idle.Key].Deaths
	case len(c.List) > 0:
		b.line = recovery.ListText(c.List, "belay", now)
	}
}

// inMemory copies the states of the active sessions.
func (d *Daemon) inMemory(ctx context.Context) map[checkpoint.Key]*checkpoint.State {
	states := map[checkpoint.Key]*checkpoint.State{}
	for _, s := range d.active() {
		got := make(chan *checkpoint.State, 1)
		if !s.do(ctx, func() { got <- s.state.Clone() }) {
			continue
		}
		select {
		case st := <-got:
			states[st.Key] = st
		case <-s.done:
		case <-ctx.Done():
			return states
		}
	}
	return states
}

// claimDeath lets one session alone tell of a predecessor's death.
func (d *Daemon) claimDeath(k checkpoint.Key, death int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.claimed[k] >= death && death > 0 {
		return false
	}
	d.mu.claimed[k] = death
	return true
}

// compose writes the text.
func (d *Daemon) compose(ctx context.Context, b *briefing, a agent.Agent) (recovery.Result, error) {
	marker := lookup.Marker()
	if b.line != "" {
		return recovery.Result{Text: checkpoint.Frame(marker, b.line), Marker: marker}, nil
	}
	if b.about == nil {
		return recovery.Result{}, nil
	}
	start := b.start
	limit := a.Limits().BriefBytes
	if limit == 0 || d.opt.BriefBytes < limit {
		limit = d.opt.BriefBytes
	}
	f := lookup.Folder{Dir: d.dir, Agents: d.opt.Agents}
	q := lookup.Question{Options: recovery.Options{Start: start, MaxBytes: limit, Marker: marker}}
	return f.Answer(ctx, b.about, b.about.Key != b.to, q)
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
func (d *Daemon) owe(ctx context.Context, key checkpoint.Key) {
	s := d.session(key)
	s.do(ctx, func() { s.note(ctx, checkpoint.Event{Kind: checkpoint.EventOwed}) })
}

// release ends a briefing; owed says that its text did not reach anybody.
func (d *Daemon) release(b *briefing, owed bool) {
	d.mu.Lock()
	if owed && b.claims != (checkpoint.Key{}) {
		delete(d.mu.claimed, b.claims)
	}
	d.mu.Unlock()
	s := d.session(b.to)
	s.do(d.life, func() {
		s.briefing = false
		if owed {
			s.note(d.life, checkpoint.Event{Kind: checkpoint.EventOwed})
		}
	})
}

// resolve finds the key of an event's session. An id that is no UUID belongs to a workspace, and events from its
// sub-folders to the same session.
func (d *Daemon) resolve(_ context.Context, e checkpoint.Event) checkpoint.Key {
	key := e.Key
	if key.Workspace == "" {
		return key
	}
	for folder := key.Workspace; ; folder = filepath.Dir(folder) {
		k := key
		k.Workspace = folder
		d.mu.Lock()
		active := d.mu.sessions[k] != nil
		d.mu.Unlock()
		if active {
			return k
		}
		if _, err := d.opt.FS.Lstat(d.dir.Session(k)); err == nil {
			return k
		}
		if folder == filepath.Dir(folder) {
			return key
		}
	}
}

// realPath compares folders as the kernel does; a path that cannot be resolved stands for itself.
func realPath(path string) string {
	if path == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}
