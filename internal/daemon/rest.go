package daemon

import (
	"context"
	"runtime/debug"
	"time"
)

// settle is how long a daemon has had no session before it gives memory back.
const settle = time.Second

// rest gives the heap's memory back whenever the last session has left. A start leaves nothing there that is worth a
// collection.
func (d *Daemon) rest(ctx context.Context) {
	for {
		select {
		case <-d.resting:
		case <-ctx.Done():
			return
		}

		if !sleep(ctx, settle) {
			return
		}
		if len(d.active()) == 0 {
			debug.FreeOSMemory()
		}
	}
}
