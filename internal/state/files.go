package state

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/vfs"
)

// File is a state file as its folder shows it. While all of it stays the same so does what is in the file: a state is
// replaced whole, by a new file.
type File struct {
	Path  string
	Time  int64 // when it was last written, in nanoseconds since 1970
	Size  int64
	Inode uint64
	// Lost says that there is no such file, or none that may be used: Saved then gives what stands in for it.
	Lost bool
}

// Files gives the state file of every session's folder, links left out. None is opened.
func (d Dir) Files(ctx context.Context) ([]File, error) {
	var list []File
	err := d.eachState(func(name string) error {
		f := File{Path: name, Lost: true}
		if info, err := d.stateInfo(name); err == nil {
			f.Lost, f.Time, f.Size = false, info.ModTime().UnixNano(), info.Size()
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				f.Inode = uint64(st.Ino)
			}
		}

		list = append(list, f)
		return ctx.Err()
	})

	return list, err
}

// stateInfo looks at a state file; an error unless it is this user's own, in folders that are.
func (d Dir) stateInfo(name string) (fs.FileInfo, error) {
	if err := d.safe(d.Sessions(), filepath.Dir(filepath.Dir(name)), filepath.Dir(name)); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}

	info, err := d.FS.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := vfs.Safe(name, info, false); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}

	return info, nil
}

// Saved reads what was saved of a session by the path of its state file: the state or, where that is lost or broken,
// the newest whole checkpoint; nil when there is neither.
func (d Dir) Saved(ctx context.Context, path string) *checkpoint.State {
	var s *checkpoint.State
	err := d.withStore(func(store checkpoint.Store) error {
		s = d.saved(ctx, store, path, new(Report))
		return nil
	})

	if err != nil {
		return nil // whoever opens the folder hears of it
	}

	return s
}

// mostReads is how often reading starts over because a daemon is at work.
const mostReads = 4

// Steady reads saved states and the journal's later events. A segment that a daemon lets go in between is in neither,
// but newer states are on disk then: all is read once more. read gives what the journal's reader said.
func (d Dir) Steady(read func() (journal.Report, error)) error {
	for n := 1; ; n++ {
		before, err := journal.Oldest(d.FS, d.Journal())
		if err != nil {
			return err
		}

		rep, err := read()
		if err != nil || before == 0 || rep.Oldest == before || n == mostReads {
			return err
		}
	}
}

// Fold brings states that were read from files up to date: it applies the journal's later events, and adds the sessions
// that only the journal knows. A state that an event changes is first given to wake, which puts a whole one in its
// place.
func (d Dir) Fold(
	ctx context.Context, states map[checkpoint.Key]*checkpoint.State, wake func(*checkpoint.State) *checkpoint.State,
) (journal.Report, error) {
	r := replay{dir: d, states: states, wake: wake}
	err := d.withStore(func(store checkpoint.Store) error {
		r.store = store
		return r.run(ctx, d.scan)
	})
	return r.report.Journal, err
}
