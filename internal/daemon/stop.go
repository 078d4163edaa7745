package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/daemon/session"
)

// stop ends the connections, so that all that was promised on them is done, and then takes the forced FULL of every
// session with something new, within its budget; the rest is owed at the next start. ctx is the life's, which ends
// after it.
func (l *life) stop(ctx context.Context, hangUp context.CancelFunc, served <-chan struct{}) error {
	l.sessions.stop()
	l.drain.on.Store(false) // a drain ends by itself now
	err := l.site.leave()
	hangUp()

	ctx, cancel := context.WithTimeout(ctx, l.times.stop)
	defer cancel()
	select {
	case <-served:
	case <-ctx.Done():
	}

	l.lastCheckpoints(ctx)
	saved := errors.Join(l.sessions.saveThrough(ctx, l.journal.Health().Last), l.sessions.saveActive(ctx))
	if saved != nil {
		l.log.Info("not all states are saved; the journal holds the rest", zap.Error(saved))
	}

	return err
}

// lastCheckpoints forces a FULL of every session with something new until the time is used: the newest first, and no
// more begun at a time than can be written at a time.
func (l *life) lastCheckpoints(ctx context.Context) {
	type work struct {
		*session.Session
		seen time.Time
	}

	var list []work
	for _, s := range l.sessions.Active() {
		if seen, ok := session.Ask(ctx, s, func(st *checkpoint.State) time.Time { return st.LastEvent }); ok {
			list = append(list, work{s, seen})
		}
	}

	slices.SortFunc(list, func(a, b work) int { return b.seen.Compare(a.seen) })

	var left atomic.Int64
	left.Store(int64(len(list)))
	places := make(chan struct{}, session.MaxBuilds)
	var begun sync.WaitGroup
	for _, w := range list {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}

		if ctx.Err() != nil {
			break
		}

		taken, _ := w.Checkpoint(ctx, checkpoint.CauseStopping)
		begun.Go(func() {
			defer func() { <-places }()
			select {
			case <-taken:
			case <-w.Done():
			case <-ctx.Done():
				return
			}

			left.Add(-1)
		})
	}

	begun.Wait()

	if n := left.Load(); n > 0 {
		l.log.Warn("stopping: the time for last checkpoints is used; the rest is owed", zap.Int64("sessions", n))
	}
}

const hangBudget = time.Second

// awaitEnd waits until everything has ended. A store or a disk that hangs is not waited for: the process ends anyway.
func (l *life) awaitEnd(served <-chan struct{}) {
	ended := make(chan struct{})
	go func() { <-served; l.wait.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(hangBudget):
		l.log.Warn("disk operation still blocked; exiting without it")
	}
}

// idleExit ends a daemon that a hook started and nobody needs any more.
func (l *life) idleExit(ctx context.Context) <-chan struct{} {
	if l.opt.IdleExit <= 0 {
		return nil
	}

	l.counts.LastEvent.CompareAndSwap(0, time.Now().UnixNano())
	over := make(chan struct{})
	l.wait.Go(func() {
		wait := l.opt.IdleExit
		for sleep(ctx, wait) {
			left := l.opt.IdleExit - time.Since(time.Unix(0, l.counts.LastEvent.Load()))
			if l.watchers.living() == 0 && left <= 0 {
				close(over)
				return
			}
			wait = max(left, time.Minute)
		}
	})

	return over
}
