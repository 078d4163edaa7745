package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/daemon/session"
	"belay/internal/state"
	"belay/internal/vfs"
)

// openJournal always gives a journal. Where its folder cannot even be listed, what it holds is not known: numbers then
// go on far above any that can be in it, and the events stay in memory until the folder can be written.
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

func (l *life) openBreaker(store checkpoint.Store) (*breaker.Breaker, error) {
	opt := l.opt.Breaker
	opt.FS, opt.StateFile, opt.Log = l.opt.FS, l.dir.Breaker(), l.log
	b, err := breaker.New(store, opt)
	if err != nil {
		return nil, fmt.Errorf("open the breaker: %w", err)
	}
	return b, nil
}

// replay gives the sessions that were active when the last daemon ended, and those that the journal names.
func (l *life) replay(ctx context.Context) ([]state.Loaded, state.Report, error) {
	list, rep, err := l.dir.Replay(ctx, l.store, l.journal)
	if err != nil {
		return nil, rep, fmt.Errorf("replay the journal: %w", err)
	}
	l.counts.lost.Add(int64(rep.Journal.Lost))
	l.counts.Panics.Add(int64(rep.Panics))
	return list, rep, nil
}

// tellReplay logs what a replay found.
func tellReplay(log *zap.Logger, rep state.Report, sessions int) {
	log.Info("replayed", zap.Any("report", rep.Journal), zap.Int("sessions", sessions))
	if p := rep.Panic; rep.Panics > 0 {
		log.Error("panic", zap.String("in", "replay"), zap.Int("records", rep.Panics), zap.Uint64("newest", p.Seq),
			zap.String("panic", session.PanicText(p.Value)), zap.ByteString("stack", p.Stack))
	}
}

// load reads a session from disk. It changes nothing there: two callers may load one session at the same time.
func (l *life) load(ctx context.Context, key checkpoint.Key) state.Loaded {
	return l.dir.Load(ctx, l.store, key, l.journal.Health().Last)
}
