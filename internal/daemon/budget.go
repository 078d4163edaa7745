package daemon

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/statedir"
)

// countEvery is after how many checkpoints the total is looked at, beside each heartbeat.
const countEvery = 200

// countPut looks at the total after every so many checkpoints.
func (d *Daemon) countPut() {
	if d.counts.puts.Add(1) != countEvery {
		return
	}
	d.wait.Go(func() {
		if err := d.keepTotal(d.life); err != nil && d.life.Err() == nil {
			d.log.Warn("keep the total budget", zap.Error(err))
		}
	})
}

// keepTotal bounds the checkpoints of all sessions together. Sessions whose newest checkpoint is oldest are cut to their
// last good FULL first. An active session is not touched here, since a checkpoint of it may be under way: while the total
// is over the bound each one cuts itself before its next checkpoint.
func (d *Daemon) keepTotal(ctx context.Context) error {
	d.counts.puts.Store(0)
	most := d.set.Load().TotalBytes
	usage, err := d.dir.Usage(ctx)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, u := range usage {
		total += u.Bytes
	}
	defer func() {
		d.counts.kept.Store(total)
		d.counts.tight.Store(most > 0 && total > most)
	}()
	if most <= 0 || total <= most {
		return nil
	}
	slices.SortFunc(usage, func(a, b statedir.Usage) int { return a.Newest.Compare(b.Newest) })
	before := total
	for _, u := range usage {
		if total <= most || ctx.Err() != nil {
			break
		}
		key, ok := d.dir.KeyOf(u)
		if !ok || d.isActive(key) {
			continue
		}
		if err := d.pruneTo(ctx, key, checkpoint.Policy{Bytes: 1}); err != nil {
			return err
		}
		total -= u.Bytes - d.dir.Size(u)
	}
	d.log.Info("checkpoints went for the total budget", zap.Int64("bytes", before-total), zap.Int64("kept", total))
	return nil
}

func (d *Daemon) isActive(key checkpoint.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.sessions[key] != nil
}
