package daemon

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint/journal"
	"belay/internal/daemon/socket"
)

// follow starts what answers to the watch, the breaker, the journal and the disk budget.
func (l *life) follow(ctx context.Context) {
	for _, path := range []string{l.site.path(), l.opt.StateDir, l.dir.Spool(), l.dir.Journal()} {
		if path != "" {
			l.watchers.watch.Add(path)
			l.watchers.watch.Active(path, !l.opt.Notify)
		}
	}
	for _, f := range []func(context.Context){l.followChanges, l.followBreaker, l.followJournal, l.budget.follow} {
		l.wait.Go(func() { f(ctx) })
	}
}

// followChanges hands the watch's marks to those whom they concern.
func (l *life) followChanges(ctx context.Context) {
	for path := range l.watchers.watch.Changes() {
		switch path {
		case l.site.path(), l.opt.StateDir:
			l.site.check()
		case l.dir.Spool():
			poke(l.drain.wake)
		case l.dir.Journal():
			l.journal.Look()
		default:
			for _, s := range l.watchers.readers(path) {
				s.Changed(ctx)
			}
		}
	}
}

// followBreaker takes the catch-up FULL of every session when the store is well again.
func (l *life) followBreaker(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-l.store.Changes():
			l.feed.Publish(socket.Notice{What: "breaker", Body: c})
		}

		if l.sessions.services.Degraded() {
			l.site.check()
			continue
		}

		for _, s := range l.sessions.Active() {
			s.Healed(ctx)
		}
	}
}

// followJournal saves the states that a sealed segment holds and lets the segment go: at the start those of earlier
// runs, then each as it is full. When the disk is back after a fault every state is saved, since records may have been
// dropped.
func (l *life) followJournal(ctx context.Context) {
	dropped, failing := uint64(0), false
	for {
		if err := releaseSegments(ctx, l.journal, l.sessions); err != nil && ctx.Err() == nil {
			l.log.Warn("let a full journal segment go", zap.Error(err)) // it is kept until the next one is full
		}

		select {
		case <-ctx.Done():
			return
		case <-l.journal.Changed():
		}

		h := l.journal.Health()
		if failing != (h.Err != nil) {
			failing = h.Err != nil
			l.log.Warn("the journal's disk", zap.Bool("fails", failing), zap.Error(h.Err))
		}

		if failing {
			l.site.check()
		} else if h.Dropped > dropped {
			dropped = h.Dropped
			l.log.Warn("events had no room in memory while the journal's disk failed: only the states hold them",
				zap.Uint64("events", dropped))
			if err := l.sessions.saveThrough(ctx, h.Last); err != nil && ctx.Err() == nil {
				l.log.Warn("save states", zap.Error(err))
			}
		}
	}
}

func releaseSegments(ctx context.Context, j *journal.Journal, ss *sessions) error {
	list := j.Sealed()
	if len(list) == 0 || j.Health().Err != nil {
		return nil // later
	}

	last := list[len(list)-1].Last
	if err := errors.Join(ss.saveThrough(ctx, last), ss.saveActive(ctx)); err != nil {
		return err
	}

	return j.Release(last)
}

// beat is one heartbeat: every session with something new is asked, and the beat counts once all of it is durable.
func (l *life) beat(ctx context.Context) error {
	l.site.check()
	l.journal.Look()
	poke(l.drain.wake)

	var newest uint64
	for _, s := range l.sessions.Active() {
		newest = max(newest, s.Beat(ctx).Seq)
	}

	if err := l.budget.keep(ctx); err != nil && ctx.Err() == nil {
		l.log.Warn("keep the total budget", zap.Error(err))
	}

	if newest > 0 {
		if err := l.journal.Wait(ctx, newest); err != nil {
			return err
		}
	}

	return l.dir.SaveBeat(time.Now())
}
