package brief

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/host/proc"
	"belay/internal/state/query"
	"belay/recovery"
)

// choose looks for the proven predecessor of a new session.
func (t *Teller) choose(ctx context.Context, b *Brief) {
	set, now, workspace := t.opt.Settings(), time.Now(), b.self.Workspace
	looking, cancel := context.WithTimeout(ctx, t.opt.Budget/2) // the rest is for the brief
	defer cancel()

	list, active := t.candidates(looking, b.to, workspace)
	saved, err := t.opt.Dir.Recent(looking, b.to.Agent, workspace, now.Add(-set.Window), active)
	if err != nil {
		t.opt.Log.Warn("look for a predecessor", zap.Error(err))
		if set.Adopt == recovery.AdoptAuto {
			set.Adopt = recovery.AdoptList // nothing is proven beside sessions that could not be looked at
		}
	}

	for _, s := range saved {
		if !session.Blank(s) {
			query.NoticeDeath(s, now)
			list = append(list, query.Candidate(s))
		}
	}

	c := recovery.Choose(list, b.to, workspace, set.Adopt, set.Window, now)
	switch {
	case c.Adopt != nil && t.claim(b, c.Adopt.Key):
		b.about = t.dead(ctx, c.Adopt.Key)
	case c.Idle != nil && t.claim(b, c.Idle.Key):
		if t.dead(ctx, c.Idle.Key) != nil {
			b.line = recovery.IdleLine(*c.Idle, "belay")
		}

	case len(c.List) > 0:
		b.line = recovery.ListText(c.List, "belay", now)
	}
}

// claim has one session alone tell of a predecessor's death.
func (t *Teller) claim(b *Brief, death checkpoint.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.deaths[death] {
		return false
	}

	t.mu.deaths[death] = true
	b.death = &death
	return true
}

// dead gives a copy of a predecessor's state, with its death journalled: what is told of it counts for that death. nil
// when another session was told of it since it was chosen.
func (t *Teller) dead(ctx context.Context, key checkpoint.Key) *checkpoint.State {
	s, err := t.opt.Sessions.Session(ctx, key)
	if err != nil {
		return nil
	}

	state, _ := askDead(ctx, s, func(st *checkpoint.State) *checkpoint.State {
		if query.Candidate(st).Given {
			return nil
		}
		return st.Clone()
	})

	return state
}

// candidates looks at the active sessions of a workspace, and gives the folders of all that are active. Of those whose
// process lives that is all there is to know; only the others are asked, and one that does not answer in time counts as
// living.
func (t *Teller) candidates(
	ctx context.Context, self checkpoint.Key, workspace string,
) (list []recovery.Candidate, active map[string]bool) {
	active, gone := map[string]bool{}, map[checkpoint.Proc]bool{{}: true}
	var unsure []*session.Session
	for _, s := range t.opt.Sessions.Active() {
		active[s.Folder] = true
		shown := s.Snapshot()
		if s.Key == self || shown.Workspace != workspace || shown.Blank {
			continue
		}

		dead, looked := gone[shown.Runs]
		if !looked { // many sessions may be of one process
			alive, known := proc.Alive(shown.Runs)
			dead = known && !alive
			gone[shown.Runs] = dead
		}

		switch {
		case !dead:
			list = append(list, recovery.Candidate{Key: s.Key, Workspace: workspace, Alive: true})
		case s.Key.Agent == self.Agent:
			// Another agent's dead are nothing to this one; its living may be the one that goes on.
			unsure = append(unsure, s)
		}
	}

	return append(list, t.askUnsure(ctx, unsure, workspace)...), active
}

// askUnsure asks sessions whose process seems to be gone, several at a time: one that its disk delays delays no other.
func (t *Teller) askUnsure(ctx context.Context, unsure []*session.Session, workspace string) []recovery.Candidate {
	const atOnce = 16
	ctx, cancel := context.WithTimeout(ctx, t.opt.Budget/4)
	defer cancel()

	list := make([]recovery.Candidate, len(unsure))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(atOnce, len(unsure)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(unsure)); i = next.Add(1) - 1 {
				c, ok := askDead(ctx, unsure[i], query.Candidate)
				if !ok {
					c = recovery.Candidate{Key: unsure[i].Key, Workspace: workspace, Alive: true}
				}
				list[i] = c
			}
		})
	}

	all.Wait()

	i := 0
	return slices.DeleteFunc(list, func(c recovery.Candidate) bool {
		blank := unsure[i].Snapshot().Blank
		i++
		return !c.Alive && blank
	})
}

// askDead asks a session once it has looked whether its process lives.
func askDead[T any](ctx context.Context, s *session.Session, f func(*checkpoint.State) T) (T, bool) {
	s.NoticeDeath(ctx)
	return session.Ask(ctx, s, f)
}
