package daemon

import (
	"context"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/state/mirror"
)

// budget bounds what all sessions together keep: checkpoints, mirrors and saved states. The folder is measured at the start
// and at each heartbeat; between these it is counted as it changes, on the high side, so that the bound holds at every moment.
type budget struct {
	kept     atomic.Int64  // bytes, those included that are about to be written
	flying   atomic.Int64  // of kept: checkpoints that are about to be written
	put      atomic.Int64  // bytes of all checkpoints ever put
	puts     atomic.Int64  // checkpoints since it was measured
	tight    atomic.Bool   // nothing is left to take from sessions at rest: the active ones cut themselves
	measured chan struct{} // closed when it was measured for the first time
	turn     chan struct{} // a place for the one that measures
}

// Room is made when more than highShare of the bound is kept, down to lowShare, so that it is seldom made. What is counted
// only after it was written (mirrors), and half-made states, have the rest. While it is tight, countEvery checkpoints go by
// before the folder is measured again.
const (
	highShare  = 31.0 / 32
	lowShare   = 30.0 / 32
	countEvery = 200
)

func newBudget() *budget {
	return &budget{measured: make(chan struct{}), turn: make(chan struct{}, 1)}
}

// makeRoom takes size bytes of the total for a checkpoint that is about to be put, and makes room for them first. The caller
// says with landed how it went. It never refuses: a checkpoint is worth more than the bound, and a disk that hangs for one
// session must not hold up all others.
func (d *Daemon) makeRoom(ctx context.Context, size int64) {
	ctx, cancel := context.WithTimeout(ctx, d.times.roomBudget)
	defer cancel()
	b := d.budget
	b.flying.Add(size)
	b.put.Add(size)
	b.kept.Add(size)
	select {
	case <-b.measured:
	case <-ctx.Done():
		return
	}
	if !d.over(highShare) || b.tight.Load() && b.puts.Load() < countEvery {
		return // where it is tight, the session's own pruning has made what room there is
	}
	if err := d.keepTotal(ctx); err != nil && d.life.Err() == nil {
		d.log.Warn("keep the total budget", zap.Error(err))
	}
}

// landed says that a checkpoint for which room was made is in the store, or will not be.
func (d *Daemon) landed(size int64, err error) {
	d.budget.flying.Add(-size)
	d.budget.puts.Add(1)
	if err != nil {
		d.budget.kept.Add(-size)
	}
}

// grown counts what a mirror or a state has grown by, after the fact.
func (d *Daemon) grown(bytes int64) {
	d.budget.kept.Add(bytes)
	if bytes <= 0 || !d.over(highShare) || d.budget.tight.Load() {
		return
	}
	select {
	case d.overfull <- struct{}{}:
	default: // it is told already
	}
}

// over says that more than a share of the bound is kept.
func (d *Daemon) over(share float64) bool {
	most := d.set.Load().TotalBytes
	return most > 0 && float64(d.budget.kept.Load()) > float64(most)*share
}

// followBudget measures the folder once, and makes room when mirrors have grown.
func (d *Daemon) followBudget(ctx context.Context) {
	for {
		if err := d.keepTotal(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("keep the total budget", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-d.overfull:
		}
	}
}

// keepTotal measures what all sessions keep and, when that is over the bound, makes room: the session whose files are oldest
// is cut to its last good FULL and its state, then the next. Where sessions at rest have no more to give, the active ones
// cut themselves, but for the mirror that they write.
func (d *Daemon) keepTotal(ctx context.Context) error {
	b := d.budget
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() {
		select {
		case <-b.measured:
		default:
			close(b.measured) // also when it could not be read: then there is nothing to count
		}
	}()
	b.puts.Store(0)
	flying, put := b.flying.Load(), b.put.Load()
	usage, err := d.dir.Usage(ctx)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, u := range usage {
		total += u.Bytes
	}
	// What was under way may have been measured or not: it counts once more, until the next time.
	total += flying + b.put.Load() - put
	b.kept.Store(total)
	if !d.over(highShare) {
		b.tight.Store(false)
		return nil
	}
	slices.SortFunc(usage, func(a, b state.Usage) int { return a.Newest.Compare(b.Newest) })
	active := map[string]*session{}
	for _, s := range d.active() {
		active[d.dir.Session(s.key)] = s
	}
	for _, atRest := range []bool{true, false} {
		for _, u := range usage {
			if !d.over(lowShare) || ctx.Err() != nil {
				break
			}
			s := active[u.Folder]
			switch {
			case !u.Spare:
			case atRest && s == nil:
				err = d.cut(ctx, u)
			case !atRest && s != nil:
				err = s.cut(ctx)
			}
			if err != nil {
				return err
			}
		}
	}
	b.tight.Store(d.over(highShare))
	d.log.Info("checkpoints and mirrors went for the total budget", zap.Int64("bytes", total-b.kept.Load()), zap.Int64("kept", b.kept.Load()))
	return nil
}

// cut leaves of a session at rest what is never taken.
func (d *Daemon) cut(ctx context.Context, u state.Usage) error {
	key, ok := d.dir.KeyOf(u)
	if !ok || !d.hold(key) {
		return nil
	}
	defer d.letGo(key)
	if err := d.pruneTo(ctx, key, checkpoint.Policy{Bytes: 1}); err != nil {
		return err
	}
	left := d.dir.Size(u)
	if err := mirror.Forget(d.opt.FS, d.dir.Session(key)); err != nil {
		return err
	}
	d.budget.kept.Add(d.dir.Size(u) - left) // pruneTo counted the rest
	return nil
}

// cut has an active session cut itself, and waits for it. One that writes a checkpoint does so before it writes.
func (s *session) cut(ctx context.Context) error {
	done := make(chan struct{})
	if !s.do(ctx, func() { s.trim(done) }) {
		return ctx.Err()
	}
	select {
	case <-done:
	case <-s.done:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// trim leaves the last good FULL in the store, unless a checkpoint is being written; that one waits meanwhile. It closes done
// when that is so.
func (s *session) trim(done chan<- struct{}) {
	if s.trimming || s.due != nil && s.due.busy {
		close(done)
		return
	}
	s.trimming = true
	s.work.Go(func() {
		defer close(done)
		err := s.d.pruneTo(s.d.life, s.key, checkpoint.Policy{Bytes: 1})
		s.do(s.d.life, func() {
			s.trimming = false
			if err != nil {
				s.d.log.Warn("prune", zap.Stringer("session", s.key), zap.Error(err))
			}
		})
	})
}

// hold keeps a session out of memory while its files are cut; false when it is in memory.
func (d *Daemon) hold(key checkpoint.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.sessions[key] != nil || d.mu.cut[key] != nil {
		return false
	}
	d.mu.cut[key] = make(chan struct{})
	return true
}

func (d *Daemon) letGo(key checkpoint.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.mu.cut[key])
	delete(d.mu.cut, key)
}
