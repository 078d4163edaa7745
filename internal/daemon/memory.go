package daemon

import (
	"context"
	"runtime/debug"
	"strconv"
	"strings"
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

// releaseMemory gives memory back when there is nothing to do: after the start, and whenever the last session has left.
func releaseMemory(ctx context.Context, ss *sessions) {
	for left := false; ; left = true {
		if !sleep(ctx, releaseAfter) {
			return
		}
		if len(ss.Active()) == 0 {
			if left { // a start leaves nothing on the heap that is worth a collection
				debug.FreeOSMemory()
			}
			unmapProgram()
		}
		select {
		case <-ss.emptied:
		case <-ctx.Done():
			return
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

// span reads "from-to" of a memory map.
func span(s string) (from, to uintptr, ok bool) {
	a, b, _ := strings.Cut(s, "-")
	f, err1 := strconv.ParseUint(a, 16, strconv.IntSize)
	t, err2 := strconv.ParseUint(b, 16, strconv.IntSize)
	return uintptr(f), uintptr(t), err1 == nil && err2 == nil && f < t
}
