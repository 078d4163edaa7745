package daemon

import (
	"fmt"
	"io/fs"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint/journal"
	"belay/internal/vfs"
)

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
