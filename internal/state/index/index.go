// Package index keeps index.db in the state folder: a cache with which all sessions are listed without reading all
// their state files, and in which their words are searched.
//
// What it promises:
//   - The answer is the one that the state files, the checkpoints and the journal give. A row counts only while its
//     file's time, size and inode are those it was made from, and while its own checksum is right; the rest is read
//     again.
//   - A broken index never makes a query fail. An index that is broken, or that another version made, is removed and
//     rebuilt. Where there can be none (a link or another user's file in its place, a read-only folder, another process
//     that works on it too long) the files are read instead, and a search makes an index in memory.
//   - It holds what the states hold, which is redacted. It is 0600 and open for the time of one question, and its log
//     is bounded.
//
// What it does not promise: a hit may be missing while SQLite does not notice that the words' part of the file is
// damaged; a state file that somebody changed in place and gave its old time back is not noticed. The daemon does not
// need it.
package index

import (
	"context"
	"path/filepath"
	"time"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/state"
)

// settled is how old a file must be before what was read of it is kept: a file system's clock is coarse, and a file
// that is written again within one of its ticks looks the same.
const settled = time.Second

// Index is the index of one state folder.
type Index struct {
	dir  state.Dir
	step func(done, all int) // called with how many of all sessions were read; may be nil
}

// Of gives the index of a state folder. Nothing is opened before it is asked.
func Of(dir state.Dir) Index { return Index{dir: dir} }

// WithStep gives an index that tells how many of all sessions it has looked at.
func (x Index) WithStep(step func(done, all int)) Index {
	x.step = step
	return x
}

// States gives every session as it stands now, as state.States does, but most of them without what was said (thin):
// what query.StatusOf and state.Pick need is there.
func (x Index) States(ctx context.Context) (map[checkpoint.Key]*checkpoint.State, error) {
	var v *view
	err := x.dir.Steady(func() (rep journal.Report, err error) {
		if v, err = x.view(ctx); err != nil {
			return rep, err
		}
		if x.with(ctx, v, func(db *database) error { return x.gather(ctx, db, v, false) }) != nil {
			err = x.gather(ctx, nil, v, false)
		}
		if err != nil {
			return rep, err
		}

		return x.fold(ctx, v)
	})

	if err != nil {
		return nil, err
	}

	return v.states, nil
}

// view is the folder as one question sees it.
type view struct {
	files  []state.File
	began  time.Time
	states map[checkpoint.Key]*checkpoint.State
	paths  map[checkpoint.Key]string // of the state's file
	thin   map[checkpoint.Key]bool   // it is not whole
	kept   map[checkpoint.Key]bool   // the index holds its words as they are
}

// view lists the state files; nothing of them is read yet.
func (x Index) view(ctx context.Context) (*view, error) {
	v := &view{began: time.Now()}
	var err error
	v.files, err = x.dir.Files(ctx)
	return v, err
}

// name is a state file's in the index: its session's folder, as Key.Dir names it.
func name(path string) string {
	folder := filepath.Dir(path)
	return filepath.Base(filepath.Dir(folder)) + "/" + filepath.Base(folder)
}

func (v *view) put(path string, s *checkpoint.State, kept bool) {
	v.states[s.Key], v.paths[s.Key], v.thin[s.Key], v.kept[s.Key] = s, path, true, kept
}

// gather takes from the index what did not change, reads the rest, and brings the index up to date: its rows, and with
// words also what is searched. Without an index (nil) it reads all.
func (x Index) gather(ctx context.Context, db *database, v *view, words bool) error {
	v.states, v.paths = map[checkpoint.Key]*checkpoint.State{}, map[checkpoint.Key]string{}
	v.thin, v.kept = map[checkpoint.Key]bool{}, map[checkpoint.Key]bool{}
	rows, err := db.rows(ctx)
	if err != nil {
		return err
	}

	w := db.writer()
	defer w.stop()
	for i, f := range v.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if x.step != nil {
			x.step(i+1, len(v.files))
		}

		r, known := rows[name(f.Path)]
		if known && r.of(f) && (r.words || !words) {
			delete(rows, name(f.Path))
			v.put(f.Path, r.state, r.words)
			continue
		}

		s := x.dir.Saved(ctx, f.Path)
		if s == nil {
			continue
		}

		kept := false
		if !f.Lost && f.Time < v.began.Add(-settled).UnixNano() {
			delete(rows, name(f.Path))
			kept = w.put(ctx, name(f.Path), f, s, words)
		}

		v.put(f.Path, thin(s), kept && words)
	}

	for _, r := range rows {
		w.drop(ctx, r.id)
	}

	if err := w.commit(); words || broken(err) {
		return err
	}

	return nil // a list needs nothing of what could not be written
}

// fold applies the journal's later events. Only the sessions that it names are read whole.
func (x Index) fold(ctx context.Context, v *view) (journal.Report, error) {
	return x.dir.Fold(ctx, v.states, func(s *checkpoint.State) *checkpoint.State {
		v.kept[s.Key] = false
		if !v.thin[s.Key] {
			return s
		}
		if whole := x.dir.Saved(ctx, v.paths[s.Key]); whole != nil && whole.Key == s.Key {
			v.thin[s.Key] = false
			return whole
		}

		return s // it was removed since: what is known of it goes on
	})
}

// thin is a state without what takes room and tells no list anything.
func thin(s *checkpoint.State) *checkpoint.State {
	t := *s
	t.Messages, t.Decisions, t.Notes, t.Files, t.EndedIDs, t.Doubles = nil, nil, nil, nil, nil, nil
	t.Calls = s.InDoubt()
	if n := len(t.Turns); n > 0 {
		t.Turns = t.Turns[n-1:] // tells whether the agent is at work
	}
	return &t
}
