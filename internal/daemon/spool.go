package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"belay/internal/spool"
	"belay/internal/wire"
)

// spoolEvery is how often the spool is looked at beside the start: an intake that found the daemon hung leaves its event there.
const spoolEvery = 30 * time.Second

// drainSpool takes in the events that found no daemon, in their order.
func (d *Daemon) drainSpool(ctx context.Context) {
	for {
		n, err := spool.Drain(ctx, d.opt.FS, d.dir.Spool(), func(header, payload []byte) error {
			return d.spooled(ctx, header, payload)
		})
		if n > 0 {
			d.log.Info("took events from the spool", zap.Int("events", n))
		}
		if err != nil && ctx.Err() == nil {
			d.log.Warn("spool", zap.Error(err))
		}
		if n, err := spool.Dropped(d.opt.FS, d.dir.Spool()); err == nil && n > 0 {
			d.counts.dropped.Add(int64(n))
			d.log.Warn("events were dropped while no daemon answered", zap.Int("events", n))
		}
		if !sleep(ctx, spoolEvery) {
			return
		}
	}
}

// spooled takes one event; it is removed from the spool once the journal holds it.
func (d *Daemon) spooled(ctx context.Context, header, payload []byte) error {
	var req wire.Request
	if err := json.Unmarshal(header, &req); err != nil {
		return err
	}
	if req.Spooled == 0 {
		req.Spooled = time.Now().UnixMilli()
	}
	a := d.handle(ctx, &client{}, req, payload)
	if !a.reply.OK {
		return &spoolError{a.reply.Code, a.reply.Message}
	}
	if a.seq == 0 {
		return nil
	}
	kept, err := d.kept(ctx, a.seq)
	if err == nil && kept != wire.KeptDisk {
		err = fmt.Errorf("the journal's disk fails: %w", spool.ErrStop) // the file is safer than our memory
	}
	return err
}

type spoolError struct{ code, message string }

func (e *spoolError) Error() string { return e.code + ": " + e.message }
