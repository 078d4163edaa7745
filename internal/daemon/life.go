package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/heartbeat"
	"belay/internal/proc"
)

// follow keeps up with what an event said of process and transcript. It runs in the session's goroutine.
func (s *session) follow(before *checkpoint.Proc) {
	if p := s.state.Proc; p != nil && s.state.Live && (before == nil || *before != *p) {
		s.d.waitFor(*p)
	}
	if s.state.Transcript != "" && s.state.Transcript != s.file.opened {
		s.read()
	}
	for _, part := range s.file.watched {
		s.d.watch.Active(part, true)
	}
	if s.older != nil {
		s.d.watch.Active(s.older.path, true)
	}
	s.d.counts.lastLive.Store(time.Now().UnixNano())
	if s.fresh && !s.saving && s.state.LastHook.Equal(s.state.Began) {
		s.save(nil) // findable on disk at once; the journal stands for it until then
	}
}

// waitFor notices the end of an agent's process, without polling, and tells every session that it was running.
func (d *Daemon) waitFor(p checkpoint.Proc) {
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
		// What the agent said before its end may still lie in the spool: its good-bye, most of all. A spool that cannot be
		// read holds no death back.
		_, _ = d.drainOnce(d.life)
		for _, s := range d.active() {
			s.do(d.life, func() {
				if s.state.Live && s.state.Proc != nil && *s.state.Proc == p {
					s.note(checkpoint.Event{Kind: checkpoint.EventExit, Proc: &p, Reason: "its process is gone"})
				}
			})
		}
	})
}

// followChanges hands the watch's marks to those whom they concern.
func (d *Daemon) followChanges(ctx context.Context) {
	for path := range d.watch.Changes() {
		switch path {
		case d.place.Path, d.opt.StateDir:
			d.checkPlace()
			continue
		case d.dir.Spool():
			poke(d.spooled)
			continue
		case d.dir.Journal():
			d.journal.Look()
			continue
		}
		d.mu.Lock()
		var list []*session
		for key := range d.mu.paths[path] {
			if s := d.mu.sessions[key]; s != nil {
				list = append(list, s)
			}
		}
		d.mu.Unlock()
		for _, s := range list {
			s.do(ctx, func() { s.lastSeen = time.Now(); s.read(); s.readOlder() })
		}
	}
}

// checkPlace notices that somebody removed the state folder or the socket, or that a state folder which could not be had
// can be had now: then all begins anew.
func (d *Daemon) checkPlace() {
	lost := d.place.Lost()
	switch now, err := os.Stat(d.opt.StateDir); {
	case d.homeless:
		lost = lost || err == nil && d.dir.Make() == nil
	case d.root != nil:
		lost = lost || errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, d.root)
	}
	if lost {
		poke(d.gone)
	}
}

// poke wakes a channel's reader without waiting for it.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
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
				d.checkPlace()
				continue
			}
		}
		for _, s := range d.active() {
			s.do(ctx, func() {
				s.retryAt, s.failures = time.Time{}, 0
				if now := time.Now(); s.pending() {
					s.settle(s.gate(checkpoint.CauseCatchUp, false, now), now)
				}
			})
		}
	}
}

// followJournal saves the states that a sealed segment holds and lets the segment go: at the start those of earlier runs,
// then each as it is full. When the disk is back after a fault every state is saved, since records may have been dropped.
func (d *Daemon) followJournal(ctx context.Context) {
	dropped, failing := uint64(0), false
	for {
		if err := d.releaseSegments(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("let a full journal segment go", zap.Error(err)) // it is kept until the next one is full
		}
		select {
		case <-ctx.Done():
			return
		case <-d.journal.Changed():
		}
		h := d.journal.Health()
		if failing != (h.Err != nil) {
			failing = h.Err != nil
			d.log.Warn("the journal's disk", zap.Bool("fails", failing), zap.Error(h.Err))
		}
		if failing {
			d.checkPlace()
		} else if h.Dropped > dropped {
			dropped = h.Dropped
			d.log.Warn("events had no room in memory while the journal's disk failed: only the states hold them", zap.Uint64("events", dropped))
			if err := d.saveThrough(ctx, h.Last); err != nil && ctx.Err() == nil {
				d.log.Warn("save states", zap.Error(err))
			}
		}
	}
}

func (d *Daemon) releaseSegments(ctx context.Context) error {
	list := d.journal.Sealed()
	if len(list) == 0 || d.journal.Health().Err != nil {
		return nil // later
	}
	last := list[len(list)-1].Last
	if err := errors.Join(d.saveThrough(ctx, last), d.saveActive(ctx)); err != nil {
		return err
	}
	return d.journal.Release(last)
}

// saveThrough saves every active session that has events up to a number which its file does not hold.
func (d *Daemon) saveThrough(ctx context.Context, last uint64) error {
	for _, s := range d.active() {
		saved := make(chan error, 1)
		if !s.do(ctx, func() {
			if s.saved > last {
				saved <- nil
				return
			}
			s.save(func(err error) { saved <- err })
		}) {
			continue // retired: it saved itself
		}
		select {
		case err := <-saved:
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

// saveActive keeps the names of the sessions that the next daemon must wake: agents that live, and what is owed.
func (d *Daemon) saveActive(ctx context.Context) error {
	var keys []checkpoint.Key
	for _, s := range d.active() {
		if wanted, _ := ask(ctx, s, func(s *session) bool { return s.living() || s.pending() }); wanted {
			keys = append(keys, s.key)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err() // not all could be asked: the list that is there says more
	}
	select {
	case d.naming <- struct{}{}: // a stop and a full segment may both want to
		defer func() { <-d.naming }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return d.dir.SaveActive(keys)
}

func (d *Daemon) newBeats() (*heartbeat.Heart, error) {
	return heartbeat.New(d.opt.Heartbeat, d.beat, heartbeat.Options{Last: d.dir.LastBeat(), Log: d.log})
}

// beat is one heartbeat: every session with something new is asked, and the beat counts once all of it is durable.
func (d *Daemon) beat(ctx context.Context) error {
	d.checkPlace()
	d.journal.Look()
	poke(d.spooled)
	var newest uint64
	for _, s := range d.active() {
		r, _ := ask(ctx, s, func(s *session) result {
			if s.state.News == 0 || s.state.LastFull != nil && s.state.LastFull.News >= s.state.News {
				return result{}
			}
			return s.event(checkpoint.Event{Kind: checkpoint.EventBeat})
		})
		newest = max(newest, r.seq)
	}
	if err := d.keepTotal(ctx); err != nil && ctx.Err() == nil {
		d.log.Warn("keep the total budget", zap.Error(err))
	}
	if newest > 0 {
		if err := d.journal.Wait(ctx, newest); err != nil {
			return err
		}
	}
	return d.dir.SaveBeat(time.Now())
}

// shutdown ends the connections, so that all that was promised on them is done, and then takes the forced FULL of every
// session with something new, newest activity first, within its budget; the rest is owed at the next start. Then everything
// ends.
func (d *Daemon) shutdown(hang context.CancelFunc) error {
	d.mu.Lock()
	d.mu.stopping = true
	d.mu.Unlock()
	d.counts.draining.Store(false) // a drain ends by itself now
	err := d.place.Close()
	hang()
	ctx, cancel := context.WithTimeout(d.life, d.times.stopBudget)
	defer cancel()
	select {
	case <-d.served:
	case <-ctx.Done():
	}
	d.lastCheckpoints(ctx)
	if err := errors.Join(d.saveThrough(ctx, d.journal.Health().Last), d.saveActive(ctx)); err != nil {
		d.log.Info("not all states are saved; the journal holds the rest", zap.Error(err))
	}
	d.stop()
	return err
}

// lastCheckpoints forces a FULL of every session with something new until the time is used: the newest first, and no
// more begun at a time than can be written at a time.
func (d *Daemon) lastCheckpoints(ctx context.Context) {
	type work struct {
		s    *session
		seen time.Time
	}
	var list []work
	for _, s := range d.active() {
		if seen, ok := ask(ctx, s, func(s *session) time.Time { return s.state.LastEvent }); ok {
			list = append(list, work{s, seen})
		}
	}
	slices.SortFunc(list, func(a, b work) int { return b.seen.Compare(a.seen) })

	var left atomic.Int64
	left.Store(int64(len(list)))
	places := make(chan struct{}, maxBuilds)
	var begun sync.WaitGroup
	for _, w := range list {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}

		reply := make(chan result, 1)
		w.s.do(ctx, func() { w.s.force(checkpoint.CauseStopping, reply) })
		begun.Go(func() {
			defer func() { <-places }()
			select {
			case <-reply:
			case <-w.s.done:
			case <-ctx.Done():
				return
			}
			left.Add(-1)
		})
	}
	begun.Wait()

	if n := left.Load(); n > 0 {
		d.log.Warn("stopping: the time for last checkpoints is used; the rest is owed", zap.Int64("sessions", n))
	}
}

// forgetDisk makes every session write anew what a removed state folder held of it.
func (d *Daemon) forgetDisk() {
	for _, s := range d.active() {
		s.do(d.life, func() {
			s.fresh = true
			s.state.LastFull, s.state.LastSparse = nil, nil
		})
	}
}

// force takes a FULL now, or says why not; reply gets the answer when it is in the store.
func (s *session) force(cause checkpoint.Cause, reply chan<- result) {
	now := time.Now()
	if s.due != nil { // one is on its way: the next one follows it if there is still something new
		s.state.OwedFull, s.due.last = cause, 0
		s.waiters = append(s.waiters, waiter{after: s.state.News, reply: reply})
		return
	}
	d := s.settle(s.gate(cause, false, now), now)
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
