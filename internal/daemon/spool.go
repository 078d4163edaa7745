package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"belay/internal/daemon/socket"
	"belay/internal/state/spool"
	"belay/internal/wire"
)

// drainSpool takes in the events that found no daemon, in their order: at the start, and when the watch or the heartbeat
// says that there may be some (an intake that found the daemon hung leaves its event there).
func (d *Daemon) drainSpool(ctx context.Context) {
	for {
		n, err := d.drainOnce(ctx)
		if n > 0 {
			d.log.Info("took events from the spool", zap.Int("events", n))
		}
		if err != nil && ctx.Err() == nil {
			d.log.Warn("spool", zap.Error(err))
			if !sleep(ctx, d.times.spoolRetry) {
				return
			}
			continue
		}
		switch n, err := spool.Dropped(d.opt.FS, d.dir.Spool()); {
		case err != nil:
			d.log.Warn("spool", zap.Error(err)) // the count stays for the next time
		case n > 0:
			d.counts.dropped.Add(int64(n))
			d.log.Warn("events were dropped while no daemon answered", zap.Int("events", n))
		}
		select {
		case <-d.spooled:
		case <-ctx.Done():
			return
		}
	}
}

// drainOnce empties the spool. Checkpoints wait until then: only the latest state of each session is worth one.
func (d *Daemon) drainOnce(ctx context.Context) (int, error) {
	d.drain.Lock()
	defer d.drain.Unlock()
	d.counts.draining.Store(true)
	n, err := spool.Drain(ctx, d.opt.FS, d.dir.Spool(), func(header, payload []byte) error {
		return d.takeSpooled(ctx, header, payload)
	})
	d.counts.draining.Store(false)
	for _, s := range d.active() {
		s.do(ctx, func() {}) // it looks at what it owes: also where nothing was in the spool, a checkpoint may have been refused meanwhile
	}
	return n, err
}

// takeSpooled takes one event; it is removed from the spool once the journal holds it.
func (d *Daemon) takeSpooled(ctx context.Context, header, payload []byte) error {
	d.mu.Lock()
	stopping := d.mu.stopping
	d.mu.Unlock()
	if stopping {
		return fmt.Errorf("the daemon stops: %w", spool.ErrStop)
	}
	var req wire.Request
	if err := json.Unmarshal(header, &req); err != nil {
		return err
	}
	if req.Spooled == 0 {
		req.Spooled = time.Now().UnixMilli()
	}
	a := d.Handle(ctx, &socket.Client{}, req, payload)
	if !a.Reply.OK {
		return fmt.Errorf("%s: %s", a.Reply.Code, a.Reply.Message)
	}
	if a.Seq == 0 {
		return nil
	}
	kept, err := d.Kept(ctx, a.Seq)
	if err == nil && kept != wire.KeptDisk {
		err = fmt.Errorf("the journal's disk fails: %w", spool.ErrStop) // the file is safer than our memory
	}
	return err
}
