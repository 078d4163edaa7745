package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/state/mirror"
	"belay/internal/vfs"
)

// session checks everything of one session.
func (c *check) session(ctx context.Context, dir string, say func(Finding)) {
	rel := "sessions/" + dir
	c.tree(rel, say)
	state := c.state(dir, say)
	files := c.checkpoints(ctx, dir, state, say)
	chains(rel, files, say)
	if state != nil && state.LastFull != nil && state.LastFull.Failed == "" &&
		!slices.ContainsFunc(files, file.wholeFull) {
		say(Finding{Rule: Chain, Path: rel,
			Said: fmt.Sprintf("FULL %d was taken, and no whole FULL is there", state.LastFull.Number),
			Do:   "belay checkpoint takes a new one; check the disk"})
	}

	c.budget(rel, files, say)
	for _, e := range c.listQuiet(rel, say) {
		if name := e.Name(); strings.HasPrefix(name, "transcript") && matches(c.names, rel+"/"+name, false) &&
			e.Type().IsRegular() {
			c.mirror(rel+"/"+name, say)
		}
	}
}

// state checks the saved state and keeps its number.
func (c *check) state(dir string, say func(Finding)) *checkpoint.State {
	s, err := c.d.StateIn(filepath.Join(c.d.Sessions(), dir))
	rel := "sessions/" + dir + "/state.json"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // its events are in the journal still
	case err != nil:
		say(Finding{Rule: State, Path: rel,
			Said: err.Error(),
			Do:   "its checkpoints and the journal stand in for it; the daemon sets it aside when it needs it"})
		return nil

	case s.Key.Dir() != dir:
		say(Finding{Rule: State, Path: rel,
			Said: fmt.Sprintf("the state of another session, %s", s.Key),
			Do:   "somebody moved the folder: move it back, or remove the file"})
		return nil
	}

	c.seqs[dir] = s.Seq
	return s
}

// file is one checkpoint of a session.
type file struct {
	meta  checkpoint.Meta
	rel   string
	whole bool
	state stamps
}

// stamps are what is kept of a checkpoint's state: many states would be much to hold.
type stamps struct {
	part     int
	full     uint64 // number of the FULL before
	news     uint64
	from, to uint64 // numbers of the messages that it adds: from < n <= to
	rounds   int
}

func (f file) wholeFull() bool { return f.meta.Level == checkpoint.Full && f.whole }

// checkpoints reads every checkpoint of a session, oldest first.
func (c *check) checkpoints(ctx context.Context, dir string, s *checkpoint.State, say func(Finding)) (files []file) {
	one := func(m checkpoint.Meta, path string, read func() ([]byte, error)) {
		f := file{meta: m, rel: path}
		data, err := read()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, checkpoint.ErrNotFound) {
			return // deleted since it was listed
		}
		if err == nil {
			err = f.decode(data, dir)
		}

		if err != nil {
			say(Finding{Rule: Checkpoint, Path: f.rel,
				Said: err.Error(),
				Do:   "the one before is used; remove the file"})
		}

		files = append(files, f)
	}

	if checker, ok := c.store.(Checker); ok {
		// A folder that cannot be listed is found by the walk over all names.
		_ = checker.Walk(dir, func(path string, m checkpoint.Meta, info fs.FileInfo) bool {
			if info.Mode().IsRegular() {
				read := func() ([]byte, error) {
					return vfs.ReadFile(c.d.FS, filepath.Join(c.d.Root, path), checkpoint.MaxSize)
				}
				one(m, filepath.ToSlash(path), read)
			}
			return ctx.Err() == nil
		})
		return files
	}

	if s == nil {
		return nil // nobody knows whose checkpoints to ask for
	}

	list, err := c.store.List(ctx, s.Key)
	if err != nil {
		say(unreadable("sessions/"+dir, err))
	}

	for _, m := range slices.Backward(list) {
		read := func() ([]byte, error) { return c.store.Get(ctx, s.Key, m.Number) }
		one(m, fmt.Sprintf("sessions/%s, checkpoint %d", dir, m.Number), read)
	}

	return files
}

func (f *file) decode(data []byte, dir string) error {
	c, err := checkpoint.DecodeIn(dir, data)
	switch {
	case err != nil:
		return err
	case c.Number != f.meta.Number || c.Level != f.meta.Level:
		return fmt.Errorf("it says of itself that it is %s %d", c.Level, c.Number)
	}

	s := c.State
	f.state = stamps{part: s.Part, news: s.News, from: s.MarkSeq, to: s.MsgSeq, rounds: s.Rounds}
	if s.LastFull != nil {
		f.state.full = s.LastFull.Number
	}

	f.whole = true
	return nil
}

// chains checks what checkpoints say of each other.
func chains(rel string, files []file, say func(Finding)) {
	numbers := map[uint64]bool{}
	var before *file
	for i := range files {
		f := &files[i]
		if numbers[f.meta.Number] {
			say(Finding{Rule: Checkpoint, Path: f.rel,
				Said: fmt.Sprintf("number %d is there twice", f.meta.Number),
				Do:   "the FULL counts; remove the other"})
		}

		numbers[f.meta.Number] = true
		if !f.whole {
			continue
		}

		if full := f.state.full; f.meta.Level == checkpoint.Sparse && full > 0 && !numbers[full] {
			say(Finding{Rule: Chain, Path: f.rel,
				Said: fmt.Sprintf("it has outlived its FULL, %d", full),
				Do:   "it is complete in itself and is used; retention removes it"})
		}

		if before != nil && f.state.part == before.state.part {
			goesOn(rel, before, f, say)
		}

		before = f
	}
}

// goesOn checks that a checkpoint begins where the one before ended, and knows all that it knew.
func goesOn(rel string, a, b *file, say func(Finding)) {
	bad := func(format string, args ...any) {
		say(Finding{Rule: Once, Path: b.rel,
			Said: fmt.Sprintf(format, args...),
			Do:   "the newest counts; belay show prints both"})
	}
	switch {
	case b.state.news < a.state.news || b.state.to < a.state.to || b.state.rounds < a.state.rounds:
		bad("it knows less than %d: news %d, messages %d, rounds %d after %d, %d, %d", a.meta.Number,
			b.state.news, b.state.to, b.state.rounds, a.state.news, a.state.to, a.state.rounds)
	case b.state.from < a.state.to:
		bad("messages %d to %d are in %d already", b.state.from+1, a.state.to, a.meta.Number)
	}
}

// budget checks that no more is kept than retention allows. The newest checkpoint came after the pruning.
func (c *check) budget(rel string, files []file, say func(Finding)) {
	var list []checkpoint.Meta
	all := int64(0)
	for _, f := range files {
		list = append(list, f.meta)
		all += f.meta.Bytes
	}

	c.kept[rel] = all
	if len(list) == 0 {
		return
	}

	newest := list[len(list)-1]
	p := checkpoint.Policy{Count: c.o.Retention.Count, Bytes: c.o.Retention.Bytes}
	if over := checkpoint.Prune(list[:len(list)-1], p.Room(newest.Bytes), time.Time{}); len(over) > 0 {
		say(Finding{Rule: Budget, Path: rel, Note: true,
			Said: fmt.Sprintf("%d checkpoints are more than retention keeps", len(over)),
			Do:   "they go with the session's next checkpoint"})
	}
}

// sum checks the budget of all sessions together.
func (c *check) sum(_ context.Context, say func(Finding)) {
	all := int64(0)
	for _, n := range c.kept {
		all += n
	}

	if over := all - c.o.Total; c.o.Total > 0 && over > 0 {
		say(Finding{Rule: Budget, Path: "sessions", Note: true,
			Said: fmt.Sprintf("all checkpoints take %d bytes, %d more than retention.total_bytes", all, over),
			Do:   "the oldest go with the next heartbeat"})
	}
}

func (c *check) mirror(rel string, say func(Finding)) {
	err := mirror.Check(c.d.FS, filepath.Join(c.d.Root, rel))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		say(Finding{
			Rule: Mirror,
			Path: rel,
			Said: err.Error(),
			Do: "zstdcat reads what is before and after; the agent's own file, if it is there, is not touched. " +
				"Check the disk",
		})
	}
}
