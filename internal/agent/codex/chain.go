package codex

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

// A person who goes back in a conversation and says something else leaves the rollout as it is: the thread goes on in a new
// one, whose first record says which rollout it goes on from and how many bytes of that one still count. Rollouts are known
// by the id at the end of their names. A fork begins in the same way, and is another thread: what was said before it is its
// parent's, and is not told again.

// maxParts bounds how often a person goes back in one conversation; older parts are done without.
const maxParts = 64

// part is a rollout that a later one goes on from.
type part struct {
	id   uint32 // hash of the rollout's id
	end  int64  // what is behind it was taken back
	file *rollout
}

// rolloutID is the id of a rollout among those of its thread; the first one has the thread's.
func rolloutID(path string) string {
	m := rolloutName().FindStringSubmatch(filepath.Base(path))
	switch {
	case m == nil:
		return ""
	case m[2] != "":
		return m[2]
	}
	return m[1]
}

// homeOf is the home that a rollout lies in; empty for one that lies elsewhere.
func homeOf(path string) string {
	for _, name := range []string{"sessions", "archived_sessions"} {
		dir := filepath.Dir(path)
		if name == "sessions" { // <home>/sessions/2026/11/30/<name>
			dir = filepath.Dir(filepath.Dir(filepath.Dir(dir)))
		}
		if filepath.Base(dir) == name {
			return filepath.Dir(dir)
		}
	}
	return ""
}

// link finds the rollouts that this one goes on from, oldest first. One that is not there any more ends the search.
func (r *reader) link() error {
	if r.linked {
		return nil
	}
	own, ok := r.file.whose()
	if !ok {
		return nil // not written yet
	}
	r.linked, r.id = true, shortSum(rolloutID(r.file.at))
	home := homeOf(r.file.at)
	if own.base == "" || home == "" {
		return nil
	}
	files, err := rollouts(home, own.thread)
	if err != nil {
		return err
	}
	for at := own; at.base != "" && len(r.parts) < maxParts; {
		i := slices.IndexFunc(files, func(f namedFile) bool { return rolloutID(f.path) == at.base })
		if i < 0 {
			return nil
		}
		p := part{shortSum(at.base), at.baseEnd, &rollout{path: strings.TrimSuffix(files[i].path, packed)}}
		if at, err = ownerOf(files[i].path); err != nil || at.thread != own.thread {
			return nil
		}
		r.parts = slices.Insert(r.parts, 0, p)
	}
	return nil
}

// unlink forgets the rollouts that this one goes on from.
func (r *reader) unlink() error {
	var errs []error
	for _, p := range r.parts {
		errs = append(errs, p.file.close())
	}
	r.parts, r.linked, r.id = nil, false, 0
	return errors.Join(errs...)
}

// from gives the file that a cursor is in, and where it ends for this conversation; 0 for the newest, which has no end.
func (r *reader) from(ctx context.Context, own *lines.File, cur cursor) (f *lines.File, end int64, err error) {
	for _, p := range r.parts {
		if p.id == cur.In {
			f, err = p.file.open(ctx)
			return f, p.end, err
		}
	}
	return own, 0, nil
}

// leave gives the next rollout, when all that counts of one was read, and lets that one go: an archive that was unpacked is
// large.
func (r *reader) leave(id uint32) (next uint32, err error) {
	for _, p := range r.parts {
		if p.id == id {
			err = p.file.close()
		}
	}
	return r.after(id), err
}

// after is the rollout that goes on from the one with this id.
func (r *reader) after(id uint32) uint32 {
	for i, p := range r.parts {
		if p.id == id && i+1 < len(r.parts) {
			return r.parts[i+1].id
		}
	}
	return r.id
}

// first is the oldest rollout of the conversation.
func (r *reader) first() uint32 {
	if len(r.parts) > 0 {
		return r.parts[0].id
	}
	return r.id
}

// goneBack sees whether a cursor is in what the person took back: behind the end of a part, or in a rollout that the newest
// does not go on from. What was said there is retracted, and the conversation goes on where the newest part begins.
func (r *reader) goneBack(ctx context.Context, cur cursor) (cursor, []checkpoint.Entry, error) {
	at := slices.IndexFunc(r.parts, func(p part) bool { return p.id == cur.In })
	if cur.In == 0 || cur.In == r.id || len(r.parts) == 0 || at >= 0 && cur.Off <= r.parts[at].end {
		return cur, nil, nil
	}
	own, _ := r.file.whose()
	files, err := rollouts(homeOf(r.file.at), own.thread)
	if err != nil {
		return cur, nil, err
	}
	c := r.collector(cur)
	for _, f := range files {
		id, end := shortSum(rolloutID(f.path)), int64(0)
		if id == r.id {
			continue
		}
		if i := slices.IndexFunc(r.parts, func(p part) bool { return p.id == id }); i >= 0 {
			end = r.parts[i].end
		}
		if err := takenBack(ctx, &c, strings.TrimSuffix(f.path, packed), end); err != nil {
			return cur, nil, err
		}
	}
	next := cursor{In: r.id, Place: cur.Place, Model: cur.Model, Kinds: cur.Kinds}
	if at >= 0 {
		next.In = r.after(cur.In)
	}
	return next, c.entries, nil
}

// takenBack retracts what was said in a rollout behind an offset.
func takenBack(ctx context.Context, c *collector, path string, from int64) error {
	file := rollout{path: path}
	f, err := file.open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var size int64
	if err == nil {
		size, err = f.Size()
	}
	if err == nil && size > from {
		err = f.Backward(size, rolledBytes, func(l lines.Line) bool {
			if l.Off < from || ctx.Err() != nil {
				return false
			}
			c.retract(l)
			return true
		})
	}
	return errors.Join(err, ctx.Err(), file.close())
}

// whose says whose the rollout is, as its first record tells. Ok is false while there is none.
func (r *rollout) whose() (own owner, ok bool) {
	if r.owner == nil {
		own, err := ownerOf(r.at)
		if err != nil || own == (owner{}) {
			return owner{}, false
		}
		r.owner = &own
	}
	return *r.owner, true
}

// foreign is the thread of the file, when it is not the one that is asked for. A file that does not say whose it is
// belongs to whoever names it, and what is no thread id is only a name of the file.
func (r *rollout) foreign(src agent.Source) string {
	own, _ := r.whose()
	want := src.Child
	if want == "" {
		want = src.Session
	}
	if !checkpoint.IsUUID(want) || own.thread == "" || own.thread == want {
		return ""
	}
	return words(own.thread, maxID)
}
