package daemon

import (
	"context"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
)

// settleIn starts what has time until clients are answered.
func (l *life) settleIn(ctx context.Context) {
	l.wait.Go(func() { l.drain.follow(ctx) })
	l.wait.Go(func() { releaseMemory(ctx, l.sessions) })
	l.wait.Go(func() {
		if err := l.dir.SweepAll(ctx, l.began); err != nil && ctx.Err() == nil {
			l.log.Warn("sweep left-over files", zap.Error(err))
		}
	})
}

// releaseAfter is how long a daemon has had no session before it gives memory back.
const releaseAfter = time.Second

// releaseMemory gives the heap's memory back whenever the last session has left. A start leaves nothing there that is
// worth a collection.
func releaseMemory(ctx context.Context, ss *sessions) {
	for {
		select {
		case <-ss.emptied:
		case <-ctx.Done():
			return
		}

		if !sleep(ctx, releaseAfter) {
			return
		}
		if len(ss.Active()) == 0 {
			debug.FreeOSMemory()
		}
	}
}

// sleep waits for t; false when ctx ended first.
func sleep(ctx context.Context, t time.Duration) bool {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
