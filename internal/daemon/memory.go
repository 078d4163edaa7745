package daemon

import (
	"context"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// settle is how long a daemon has had no session before it gives memory back.
const settle = time.Second

// rest gives memory back when there is nothing to do: after the start, and whenever the last session has left.
func (d *Daemon) rest(ctx context.Context) {
	for left := false; ; left = true {
		if !sleep(ctx, settle) {
			return
		}
		if len(d.active()) == 0 {
			if left { // a start leaves nothing on the heap that is worth a collection
				debug.FreeOSMemory()
			}
			unmapProgram()
		}
		select {
		case <-d.resting:
		case <-ctx.Done():
			return
		}
	}
}

// span reads "from-to" of a memory map.
func span(s string) (from, to uintptr, ok bool) {
	a, b, _ := strings.Cut(s, "-")
	f, err1 := strconv.ParseUint(a, 16, strconv.IntSize)
	t, err2 := strconv.ParseUint(b, 16, strconv.IntSize)
	return uintptr(f), uintptr(t), err1 == nil && err2 == nil && f < t
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
