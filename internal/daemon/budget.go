package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/state"
	"belay/internal/state/mirror"
)

// budget bounds what sessions keep: each its checkpoints, and all together their checkpoints, mirrors and saved states.
// The folder is measured at the start and at each heartbeat; between these it is counted as it changes, on the high
// side, so that the bound holds at every moment.
type budget struct {
	dir      state.Dir
	store    *breaker.Breaker
	sessions *sessions
	settings *atomic.Pointer[Options]
	patience time.Duration // for making room before a checkpoint
	log      *zap.Logger

	kept     atomic.Int64  // bytes, those included that are about to be written
	flying   atomic.Int64  // of kept: checkpoints that are about to be written
	put      atomic.Int64  // bytes of all checkpoints ever put
	puts     atomic.Int64  // checkpoints since it was measured
	tight    atomic.Bool   // nothing is left to take from sessions at rest: the active ones cut themselves
	measured chan struct{} // closed when it was measured for the first time
	turn     chan struct{} // a place for the one that measures
	overfull chan struct{} // told when mirrors have grown past what is allowed
}

// Room is made when more than highShare of the bound is kept, down to lowShare, so that it is seldom made. What is
// counted only after it was written (mirrors), and half-made states, have the rest. While it is tight, countEvery
// checkpoints go by before the folder is measured again.
const (
	highShare  = 31.0 / 32
	lowShare   = 30.0 / 32
	countEvery = 200
)

func newBudget(
	dir state.Dir,
	store *breaker.Breaker,
	ss *sessions,
	settings *atomic.Pointer[Options],
	patience time.Duration,
	log *zap.Logger,
) *budget {
	return &budget{dir: dir, store: store, sessions: ss, settings: settings, patience: patience, log: log,
		measured: make(chan struct{}), turn: make(chan struct{}, 1), overfull: make(chan struct{}, 1)}
}

// Make applies the retention to a session that is about to put a checkpoint, takes the checkpoint's bytes of the total,
// and makes room for them first. Landed says how it went. It never refuses: a checkpoint is worth more than the bound,
// and a disk that hangs for one session must not hold up all others.
func (b *budget) Make(ctx context.Context, key checkpoint.Key, bytes int64) {
	policy := b.settings.Load().Retention
	if b.tight.Load() {
		policy.Bytes = 1 // all sessions together hold too much: the last good FULL stays
	}
	if err := b.prune(ctx, key, policy.Room(bytes)); err != nil {
		b.log.Warn("prune", zap.Stringer("session", key), zap.Error(err)) // no failure of the checkpoint
	}

	b.flying.Add(bytes)
	b.put.Add(bytes)
	b.kept.Add(bytes)
	limited, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	select {
	case <-b.measured:
	case <-limited.Done():
		return
	}

	if !b.over(highShare) || b.tight.Load() && b.puts.Load() < countEvery {
		return // where it is tight, the session's own pruning has made what room there is
	}
	if err := b.keep(limited); err != nil && ctx.Err() == nil {
		b.log.Warn("keep the total budget", zap.Error(err))
	}
}

// Landed says that a checkpoint for which room was made is in the store, or will not be.
func (b *budget) Landed(bytes int64, err error) {
	b.flying.Add(-bytes)
	b.puts.Add(1)
	if err != nil {
		b.kept.Add(-bytes)
	}
}

// Grown counts what a mirror or a state has grown by, after the fact.
func (b *budget) Grown(bytes int64) {
	b.kept.Add(bytes)
	if bytes > 0 && b.over(highShare) && !b.tight.Load() {
		poke(b.overfull)
	}
}

// Full says that nothing but checkpoints may grow.
func (b *budget) Full() bool { return b.over(highShare) }

// over says that more than a share of the bound is kept.
func (b *budget) over(share float64) bool {
	most := b.settings.Load().TotalBytes
	return most > 0 && float64(b.kept.Load()) > float64(most)*share
}

// Trim leaves a session its last good FULL.
func (b *budget) Trim(ctx context.Context, key checkpoint.Key) error {
	return b.prune(ctx, key, checkpoint.Policy{Bytes: 1})
}

func (b *budget) prune(ctx context.Context, key checkpoint.Key, p checkpoint.Policy) error {
	list, err := b.store.List(ctx, key)
	if err != nil {
		return err
	}

	for _, n := range checkpoint.Prune(list, p, time.Now()) {
		if err := b.store.Delete(ctx, key, n); err != nil {
			return fmt.Errorf("checkpoint %d: %w", n, err)
		}
		// Prune gives numbers of the list
		i := slices.IndexFunc(list, func(m checkpoint.Meta) bool { return m.Number == n })
		b.kept.Add(-list[i].Bytes)
	}

	return nil
}

// follow measures the folder once, and makes room when mirrors have grown.
func (b *budget) follow(ctx context.Context) {
	for {
		if err := b.keep(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("keep the total budget", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-b.overfull:
		}
	}
}

// keep measures what all sessions keep and, when that is over the bound, makes room.
func (b *budget) keep(ctx context.Context) error {
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

	usage, err := b.measure(ctx)
	if err != nil {
		return err
	}
	if !b.over(highShare) {
		b.tight.Store(false)
		return nil
	}

	before := b.kept.Load()
	if err := b.makeRoom(ctx, usage); err != nil {
		return err
	}

	b.tight.Store(b.over(highShare))
	b.log.Info("removed old checkpoints and mirrors to stay within retention.total_bytes",
		zap.Int64("bytes", before-b.kept.Load()), zap.Int64("kept", b.kept.Load()))
	return nil
}

func (b *budget) measure(ctx context.Context) ([]state.Usage, error) {
	b.puts.Store(0)
	flying, put := b.flying.Load(), b.put.Load()
	usage, err := b.dir.Usage(ctx)
	if err != nil {
		return nil, err
	}

	total := int64(0)
	for _, u := range usage {
		total += u.Bytes
	}

	// What was under way may have been measured or not: it counts once more, until the next time.
	b.kept.Store(total + flying + b.put.Load() - put)
	return usage, nil
}

// makeRoom cuts the session whose files are oldest to its last good FULL and its state, then the next. Where sessions
// at rest have no more to give, the active ones cut themselves, but for the mirror that they write.
func (b *budget) makeRoom(ctx context.Context, usage []state.Usage) error {
	slices.SortFunc(usage, func(a, b state.Usage) int { return a.Newest.Compare(b.Newest) })
	active := map[string]*session.Session{}
	for _, s := range b.sessions.Active() {
		active[s.Folder] = s
	}

	for _, atRest := range []bool{true, false} {
		for _, u := range usage {
			if !b.over(lowShare) || ctx.Err() != nil {
				break
			}

			var err error
			s := active[u.Folder]
			switch {
			case !u.Spare:
			case atRest && s == nil:
				err = b.cut(ctx, u)
			case !atRest && s != nil:
				err = s.Trim(ctx)
			}

			if err != nil {
				return err
			}
		}
	}

	return nil
}

// cut leaves of a session at rest what is never taken.
func (b *budget) cut(ctx context.Context, u state.Usage) error {
	key, ok := b.dir.KeyOf(u)
	if !ok || !b.sessions.hold(key) {
		return nil
	}

	defer b.sessions.letGo(key)

	if err := b.Trim(ctx, key); err != nil {
		return err
	}

	left := b.dir.Size(u)
	if err := mirror.Forget(b.dir.FS, b.dir.Session(key)); err != nil {
		return err
	}

	b.kept.Add(b.dir.Size(u) - left) // prune counted the rest
	return nil
}
