package daemon

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/internal/state"
	"belay/internal/state/spool"
)

// drain takes in the events that found no daemon.
type drain struct {
	dir      state.Dir
	log      *zap.Logger
	retry    time.Duration // after events were left because the journal's disk fails
	take     func(ctx context.Context, header, payload []byte) error
	sessions *sessions
	dropped  *atomic.Int64

	wake chan struct{} // told when the spool may hold something
	turn sync.Mutex    // one at a time: the spool's files are in order
	on   atomic.Bool   // checkpoints wait: only the latest state of each session is worth one
}

// follow empties the spool at the start, and when the watch or the heartbeat says that there may be something in it (an
// intake that found the daemon hung leaves its event there).
func (d *drain) follow(ctx context.Context) {
	for {
		n, err := d.once(ctx)
		if n > 0 {
			d.log.Info("took events from the spool", zap.Int("events", n))
		}

		if err != nil && ctx.Err() == nil {
			d.log.Warn("spool", zap.Error(err))
			if !sleep(ctx, d.retry) {
				return
			}
			continue
		}

		switch n, err := spool.Dropped(d.dir.FS, d.dir.Spool()); {
		case err != nil:
			d.log.Warn("spool", zap.Error(err)) // the count stays for the next time
		case n > 0:
			d.dropped.Add(int64(n))
			d.log.Warn("events were dropped while no daemon answered", zap.Int("events", n))
		}

		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
	}
}

// once empties the spool, in the order of its events.
func (d *drain) once(ctx context.Context) (int, error) {
	d.turn.Lock()
	defer d.turn.Unlock()
	d.on.Store(true)
	n, err := spool.Drain(ctx, d.dir.FS, d.dir.Spool(), func(header, payload []byte) error {
		if d.sessions.stopping() {
			return fmt.Errorf("the daemon stops: %w", spool.ErrStop)
		}
		return d.take(ctx, header, payload)
	})

	d.on.Store(false)
	for _, s := range d.sessions.Active() {
		s.Reconsider(ctx) // also where nothing was in the spool, a checkpoint may have been refused meanwhile
	}

	return n, err
}
