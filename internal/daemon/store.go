package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

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

func (l *lateStore) Probe(ctx context.Context, size int) error {
	s, err := l.store()
	if err != nil {
		return err
	}
	return s.Probe(ctx, size)
}

func (l *lateStore) Close() error {
	if s := l.opened.Load(); s != nil {
		return (*s).Close()
	}
	return nil
}

func (d *Daemon) openFiles() (checkpoint.Store, error) {
	return filestore.Open(d.opt.FS, d.opt.StateDir)
}

// openJournal always gives a journal. Where its folder cannot even be listed, what it holds is not known: numbers then go on
// far above any that can be in it, and the events stay in memory until the folder can be written.
func (d *Daemon) openJournal() (*journal.Journal, error) {
	opt := journal.Options{SegmentBytes: d.opt.SegmentBytes, Memory: d.opt.MemoryBytes}
	j, err := journal.Open(d.opt.FS, d.dir.Journal(), opt)
	if err == nil {
		return j, nil
	}
	if d.health == nil {
		d.health = err
	}
	d.log.Error("journal: events are kept in memory", zap.Error(err))
	opt.After = uint64(time.Now().UnixMicro())
	if j, err = journal.Open(unlisted{d.opt.FS}, d.dir.Journal(), opt); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return j, nil
}

// unlisted is a file system whose folders look empty.
type unlisted struct{ vfs.FS }

func (unlisted) ReadDir(name string) ([]fs.DirEntry, error) {
	return nil, fmt.Errorf("list %s: %w", name, fs.ErrNotExist)
}
