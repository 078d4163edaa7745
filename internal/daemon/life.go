package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/heartbeat"
	"belay/internal/proc"
	"belay/internal/vfs"
)

// follow keeps up with what an event said of process and transcript. It runs in the session's goroutine.
func (s *session) follow(ctx context.Context, before *checkpoint.Proc) {
	if p := s.state.Proc; p != nil && s.state.Live && (before == nil || *before != *p) {
		s.d.waitFor(*p, s.key)
	}
	if s.state.Transcript != "" && s.state.Transcript != s.opened {
		s.changed(ctx)
	}
	if s.opened != "" {
		s.d.watch.Active(s.opened, true)
	}
	s.d.counts.lastLive.Store(time.Now().UnixNano())
	if s.fresh && s.state.LastHook.Equal(s.state.Began) {
		s.d.wait.Go(func() { s.do(s.d.life, func() { _ = s.save(s.d.life) }) }) // findable on disk at once; the journal stands for it until then
	}
}

// waitFor notices the end of an agent's process, without polling, and tells every session that it was running.
func (d *Daemon) waitFor(p checkpoint.Proc, _ checkpoint.Key) {
	if p.Start == 0 {
		return // it cannot be told from a later process with the same number
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.procs[p] || d.mu.stopping {
		return
	}
	d.mu.procs[p] = true
	d.wait.Go(func() {
		err := proc.Wait(d.life, p)
		d.mu.Lock()
		delete(d.mu.procs, p)
		d.mu.Unlock()
		if err != nil || d.life.Err() != nil {
			return
		}
		for _, s := range d.active() {
			s.do(d.life, func() {
				if s.state.Live && s.state.Proc != nil && *s.state.Proc == p {
					s.event(d.life, checkpoint.Event{Kind: checkpoint.EventExit, Proc: &p, Reason: "its process is gone"})
				}
			})
		}
	})
}

// followChanges hands the watch's marks to the sessions that read the path.
func (d *Daemon) followChanges(ctx context.Context) {
	for path := range d.watch.Changes() {
		d.mu.Lock()
		var list []*session
		for key := range d.mu.paths[path] {
			if s := d.mu.sessions[key]; s != nil {
				list = append(list, s)
			}
		}
		d.mu.Unlock()
		for _, s := range list {
			s.do(ctx, func() { s.lastSeen = time.Now(); s.changed(ctx) })
		}
	}
}

// followBreaker takes the catch-up FULL of every session when the store is well again.
func (d *Daemon) followBreaker(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-d.store.Changes():
			d.publish("breaker", c)
			if d.degraded() {
				continue
			}
		}
		for _, s := range d.active() {
			s.do(ctx, func() {
				s.retryAt, s.failures = time.Time{}, 0
				if s.state.Gap == nil && s.state.OwedFull == "" && !s.state.OwedSparse {
					return
				}
				s.settle(ctx, d.opt.Gates.Decide(s.state, checkpoint.CauseCatchUp, false, s.condition(), time.Now()), time.Now())
			})
		}
	}
}

// followJournal saves the states that a sealed segment holds, and lets the segment go.
func (d *Daemon) followJournal(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.journal.Changed():
		}
		for _, seg := range d.journal.Sealed() {
			if err := d.saveThrough(ctx, seg.Last); err != nil {
				d.log.Warn("save states of a full journal segment", zap.Error(err))
				break // it is kept until the next seal
			}
			if err := d.journal.Release(seg.Last); err != nil {
				d.log.Warn("release journal segment", zap.Error(err))
				break
			}
		}
	}
}

// saveThrough saves every active session that has events up to a number which its file does not hold.
func (d *Daemon) saveThrough(ctx context.Context, last uint64) error {
	for _, s := range d.active() {
		done := make(chan error, 1)
		if !s.do(ctx, func() {
			if s.saved > last {
				done <- nil
				return
			}
			done <- s.save(ctx)
		}) {
			continue // retired: it saved itself
		}
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// beatFile is what is kept of the heartbeat over a restart.
type beatFile struct {
	Last time.Time `json:"last"`
}

func (d *Daemon) newBeats() (*heartbeat.Heart, error) {
	var last beatFile
	if data, err := vfs.ReadFile(d.opt.FS, d.dir.Beat(), 1<<12); err == nil {
		_ = json.Unmarshal(data, &last) // a broken file means a beat too many at the worst
	}
	return heartbeat.New(d.opt.Heartbeat, d.beat, heartbeat.Options{Last: last.Last, Log: d.log})
}

// beat is one heartbeat: every session with something new is asked, and the beat counts once all of it is durable.
func (d *Daemon) beat(ctx context.Context) error {
	var newest uint64
	for _, s := range d.active() {
		done := make(chan result, 1)
		if !s.do(ctx, func() {
			if s.state.LastFull != nil && s.state.LastFull.News >= s.state.News || s.state.News == 0 {
				done <- result{}
				return
			}
			done <- s.event(ctx, checkpoint.Event{Kind: checkpoint.EventBeat})
		}) {
			continue
		}
		select {
		case r := <-done:
			newest = max(newest, r.seq)
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if newest > 0 {
		if err := d.journal.Wait(ctx, newest); err != nil {
			return err
		}
	}
	data, err := json.Marshal(beatFile{Last: time.Now().UTC()})
	if err != nil {
		return err
	}
	return vfs.Replace(d.opt.FS, d.dir.Beat(), data)
}

// lastCheckpoints forces a FULL of every session with something new until the time is used.
func (d *Daemon) lastCheckpoints(ctx context.Context) {
	type work struct {
		s    *session
		seen time.Time
	}
	var list []work
	for _, s := range d.active() {
		seen := make(chan time.Time, 1)
		if s.do(ctx, func() { seen <- s.state.LastEvent }) {
			select {
			case at := <-seen:
				list = append(list, work{s, at})
			case <-s.done:
			case <-ctx.Done():
				return
			}
		}
	}
	slices.SortFunc(list, func(a, b work) int { return b.seen.Compare(a.seen) })
	for _, w := range list {
		reply := make(chan result, 1)
		if !w.s.do(ctx, func() { w.s.force(ctx, checkpoint.CauseStopping, reply) }) {
			continue
		}
		select {
		case <-reply:
		case <-w.s.done:
		case <-ctx.Done():
			d.log.Warn("stopping: the time for last checkpoints is used; the rest is owed", zap.Int("sessions", len(list)))
			return
		}
	}
	for _, w := range list {
		done := make(chan struct{})
		if w.s.do(ctx, func() { _ = w.s.save(ctx); close(done) }) { // the journal holds it in any case
			select {
			case <-done:
			case <-ctx.Done():
				return
			}
		}
	}
}

// force takes a FULL now, or says why not; reply gets the answer when it is in the store.
func (s *session) force(ctx context.Context, cause checkpoint.Cause, reply chan<- result) {
	now := time.Now()
	if s.due != nil { // one is on its way: the next one follows it if there is still something new
		s.state.OwedFull = cause
		s.waiters = append(s.waiters, waiter{after: s.state.News, reply: reply})
		return
	}
	d := s.d.opt.Gates.Decide(s.state, cause, false, s.condition(), now)
	s.settle(ctx, d, now)
	if d.Take || d.Owed && d.Code != checkpoint.CodeDegraded {
		s.waiters = append(s.waiters, waiter{after: s.state.News, reply: reply})
		return
	}
	reply <- result{decision: d}
}

// idleExit ends a daemon that a hook started and nobody needs any more.
func (d *Daemon) idleExit(ctx context.Context) <-chan struct{} {
	if d.opt.IdleExit <= 0 {
		return nil
	}
	d.counts.lastLive.CompareAndSwap(0, time.Now().UnixNano())
	over := make(chan struct{})
	d.wait.Go(func() {
		t := time.NewTimer(d.opt.IdleExit)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.life.Done():
				return
			case <-t.C:
			}
			d.mu.Lock()
			live := len(d.mu.procs)
			d.mu.Unlock()
			left := d.opt.IdleExit - time.Since(time.Unix(0, d.counts.lastLive.Load()))
			if live == 0 && left <= 0 {
				close(over)
				return
			}
			t.Reset(max(left, time.Minute))
		}
	})
	return over
}
