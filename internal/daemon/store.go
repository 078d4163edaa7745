package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/checkpoint/journal"
	"belay/internal/vfs"
)

// lateStore is a store whose place may not be usable yet: it is opened by the first call that can.
type lateStore struct {
	open   func() (checkpoint.Store, error)
	opened atomic.Pointer[checkpoint.Store]
}

func (l *lateStore) store() (checkpoint.Store, error) {
	if s := l.opened.Load(); s != nil {
		return *s, nil
	}
	s, err := l.open()
	if err != nil {
		return nil, err
	}
	if !l.opened.CompareAndSwap(nil, &s) {
		_ = s.Close() // two calls were first; nothing was written through this one
	}
	return *l.opened.Load(), nil
}

func (l *lateStore) Put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	s, err := l.store()
	if err != nil {
		return err
	}
	return s.Put(ctx, key, m, data)
}

func (l *lateStore) List(ctx context.Context, key checkpoint.Key) ([]checkpoint.Meta, error) {
	s, err := l.store()
	if err != nil {
		return nil, err
	}
	return s.List(ctx, key)
}

func (l *lateStore) Get(ctx context.Context, key checkpoint.Key, number uint64) ([]byte, error) {
	s, err := l.store()
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, key, number)
}

func (l *lateStore) Delete(ctx context.Context, key checkpoint.Key, number uint64) error {
	s, err := l.store()
	if err != nil {
		return err
	}
	return s.Delete(ctx, key, number)
}

func (l *lateStore) Sessions(ctx context.Context) ([]string, error) {
	s, err := l.store()
	if err != nil {
		return nil, err
	}
	return s.Sessions(ctx)
}

func (l *lateStore) Probe(ctx context.Context) error {
	s, err := l.store()
	if err != nil {
		return err
	}
	return s.Probe(ctx)
}

func (l *lateStore) Close() error {
	if s := l.opened.Load(); s != nil {
		return (*s).Close()
	}
	return nil
}

func openFileStore(fsys vfs.FS, stateDir string) (checkpoint.Store, error) {
	return filestore.Open(fsys, stateDir)
}

func (l *life) openBreaker(open func() (checkpoint.Store, error)) (*breaker.Breaker, error) {
	opt := l.opt.Breaker
	opt.FS, opt.StateFile, opt.Log = l.opt.FS, l.dir.Breaker(), l.log
	b, err := breaker.New(&lateStore{open: open}, opt)
	if err != nil {
		return nil, fmt.Errorf("open the breaker: %w", err)
	}
	return b, nil
}

// openJournal always gives a journal. Where its folder cannot even be listed, what it holds is not known: numbers then go on
// far above any that can be in it, and the events stay in memory until the folder can be written.
func (l *life) openJournal() (*journal.Journal, error) {
	opt := journal.Options{SegmentBytes: l.opt.SegmentBytes, Memory: l.opt.MemoryBytes}
	j, err := journal.Open(l.opt.FS, l.dir.Journal(), opt)
	if err == nil {
		return j, nil
	}
	if l.site.problem == nil {
		l.site.problem = err
	}
	l.log.Error("journal: events are kept in memory", zap.Error(err))
	opt.After = uint64(time.Now().UnixMicro())
	if j, err = journal.Open(unlisted{l.opt.FS}, l.dir.Journal(), opt); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return j, nil
}

// unlisted is a file system whose folders look empty.
type unlisted struct{ vfs.FS }

func (unlisted) ReadDir(name string) ([]fs.DirEntry, error) {
	return nil, fmt.Errorf("list %s: %w", name, fs.ErrNotExist)
}

// replay gives the states that were active when the last daemon ended, with the journal's events folded in: a session that
// still lives, or to which something is owed, may have no event in what is left of the journal.
func (l *life) replay(ctx context.Context) ([]*checkpoint.State, error) {
	states := map[checkpoint.Key]*checkpoint.State{}
	last := l.journal.Health().Last
	for _, key := range l.dir.LoadActive() {
		states[key] = l.load(ctx, key, last)
	}
	rep, err := l.journal.Replay(ctx, 0, func(seq uint64, payload []byte) error {
		var e checkpoint.Event
		if json.Unmarshal(payload, &e) != nil {
			return nil // of a later version
		}
		s := states[e.Key]
		if s == nil {
			s = l.load(ctx, e.Key, last)
			states[e.Key] = s
		}
		if seq > s.Seq {
			e.Seq = seq
			l.sessions.services.Safely("replay", func() { s.Apply(e) })
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("replay the journal: %w", err)
	}
	l.counts.lost.Add(int64(rep.Lost))
	l.log.Info("replayed", zap.Any("report", rep), zap.Int("sessions", len(states)))
	list := make([]*checkpoint.State, 0, len(states))
	for _, s := range states {
		list = append(list, s)
	}
	return list, nil
}

// load reads a session from disk: its saved state, else its newest checkpoint, else nothing.
func (l *life) load(ctx context.Context, key checkpoint.Key, last uint64) *checkpoint.State {
	s, err := l.dir.LoadState(key)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			l.log.Warn("load state", zap.Stringer("session", key), zap.Error(err))
			if err := l.dir.SetAside(key); err != nil {
				l.log.Warn("set a bad state aside", zap.Stringer("session", key), zap.Error(err))
			}
		}
		if s = l.fromCheckpoints(ctx, key); s == nil {
			return checkpoint.NewState(key)
		}
	}
	if c := l.newest(ctx, key, s.LastNumber); c != nil && c.State.Seq > last {
		s = c.Restore() // it was taken while the journal's disk failed, and is all that holds what came then: it is waited for
	}
	if s.Seq > last {
		// The journal lost what the state holds, and its numbers start again below. The file must say so before they do:
		// a replay would pass over them.
		s.Seq = last
		if err := l.dir.SaveState(s); err != nil {
			l.log.Warn("save state with a lower number", zap.Stringer("session", key), zap.Error(err))
		}
	}
	return s
}

// fromCheckpoints restores a session from its newest whole checkpoint.
func (l *life) fromCheckpoints(ctx context.Context, key checkpoint.Key) *checkpoint.State {
	if c := l.newest(ctx, key, 0); c != nil {
		return c.Restore()
	}
	return nil
}

// newest gives a session's newest whole checkpoint; nil when there is none above a number.
func (l *life) newest(ctx context.Context, key checkpoint.Key, above uint64) *checkpoint.Checkpoint {
	list, err := l.store.List(ctx, key)
	if err != nil || len(list) == 0 || list[0].Number <= above {
		return nil
	}
	c, damaged, err := checkpoint.Newest(key.Dir(), list, func(n uint64) ([]byte, error) { return l.store.Get(ctx, key, n) })
	if err != nil {
		l.log.Warn("no usable checkpoint", zap.Stringer("session", key), zap.Int("damaged", damaged), zap.Error(err))
		return nil
	}
	if c.Number <= above {
		return nil
	}
	return c
}
