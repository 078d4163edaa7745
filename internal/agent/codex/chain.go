package codex

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

// A person who goes back in a conversation and says something else leaves the rollout as it is: the thread goes on in a
// new one, whose first record says which rollout it goes on from and how many bytes of that one still count. Rollouts
// are known by the id at the end of their names. A fork begins in the same way, and is another thread: what was said
// before it is its parent's, and is not told again.

// maxParts bounds how often a person goes back in one conversation; older parts are done without.
const maxParts = 64

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

// part is a rollout that a later one goes on from.
type part struct {
	id   uint32 // hash of the rollout's id
	end  int64  // what is behind it was taken back
	file *rollout
}

// chain is the rollouts of one conversation as one lines.Source. A position says which rollout it is in (File); an
// offset counts from the beginning of the oldest.
type chain struct {
	own    *rollout
	parts  []part // rollouts that it goes on from, oldest first
	linked bool   // they were looked for
	id     uint32 // hash of its own id
}

// open makes ready to read: it finds the rollout wherever it is now, and those that it goes on from.
func (c *chain) open(ctx context.Context) error {
	if _, err := c.own.open(ctx); err != nil || c.linked {
		return err
	}

	own, ok := c.own.whose()
	if !ok {
		return nil // not written yet
	}

	c.linked, c.id = true, lines.ShortHash(rolloutID(c.own.at))
	home := homeOf(c.own.at)
	if own.base == "" || home == "" {
		return nil
	}

	files, err := rollouts(home, own.thread)
	if err != nil {
		return err
	}

	// A rollout that is not there any more ends the search.
	for at := own; at.base != "" && len(c.parts) < maxParts; {
		i := slices.IndexFunc(files, func(f namedFile) bool { return rolloutID(f.path) == at.base })
		if i < 0 {
			return nil
		}

		p := part{lines.ShortHash(at.base), at.baseEnd, &rollout{path: strings.TrimSuffix(files[i].path, packed)}}
		if at, err = ownerOf(files[i].path); err != nil || at.thread != own.thread {
			return nil
		}

		c.parts = slices.Insert(c.parts, 0, p)
	}

	return nil
}

// Close implements lines.Source.
func (c *chain) Close() error {
	errs := []error{c.own.close()}
	for _, p := range c.parts {
		errs = append(errs, p.file.close())
	}
	c.parts, c.linked, c.id = nil, false, 0
	return errors.Join(errs...)
}

// rollout gives the i-th rollout, where its offsets begin, and where it ends for this conversation. The last is the
// newest, which has no end.
func (c *chain) rollout(i int) (file *rollout, base, end int64) {
	for _, p := range c.parts[:i] {
		base += p.end
	}
	if i < len(c.parts) {
		return c.parts[i].file, base, c.parts[i].end
	}
	return c.own, base, math.MaxInt64
}

// index finds the rollout with an id; it is the newest when no other one has it.
func (c *chain) index(id uint32) int {
	if i := slices.IndexFunc(c.parts, func(p part) bool { return p.id == id }); i >= 0 {
		return i
	}
	return len(c.parts)
}

// file opens the i-th rollout. The newest is open while the chain is: it must not turn to another file while it is
// read.
func (c *chain) file(ctx context.Context, i int) (*lines.File, error) {
	if i < len(c.parts) {
		return c.parts[i].file.open(ctx)
	}
	return c.own.file, nil
}

// idOf is the id of the i-th rollout.
func (c *chain) idOf(i int) uint32 {
	if i < len(c.parts) {
		return c.parts[i].id
	}
	return c.id
}

// Read implements lines.Source: it reads to the end of the rollout that the position is in.
func (c *chain) Read(
	ctx context.Context, from lines.Pos, opt lines.Options, fn func(lines.Line) bool,
) (lines.Span, error) {
	if err := c.open(ctx); err != nil {
		return lines.Span{Pos: from}, err
	}

	i := c.index(from.File)
	if from == (lines.Pos{}) {
		i = 0
	}

	file, base, end := c.rollout(i)
	f, err := c.file(ctx, i)
	if err != nil {
		return lines.Span{Pos: from}, err
	}

	opt.Max = min(opt.Max, max(end-from.Off, 1))
	changed := opt.Changed
	opt.Changed = func() {
		c.own.owner = nil // it may be another thread's now
		if changed != nil {
			changed()
		}
	}

	span, err := f.Read(from, opt, func(l lines.Line) bool {
		if l.End > end {
			return true // taken back
		}
		l.Off, l.End = l.Off+base, l.End+base
		return fn(l)
	})

	switch {
	case err != nil:
		return lines.Span{Pos: from}, err
	case i < len(c.parts) && (span.Pos.Off >= end || !span.More):
		span.Pos, span.More = lines.Pos{File: c.idOf(i + 1)}, true
		return span, file.close() // an archive that was unpacked is large
	case !span.More:
		file.tellDamage(&span.Losses)
	}

	span.Pos.File = c.idOf(i)
	return span, nil
}

// Backward implements lines.Source.
func (c *chain) Backward(ctx context.Context, end, limit int64, fn func(lines.Line) bool) error {
	goOn := true
	for i := len(c.parts); i >= 0 && goOn && limit > 0; i-- {
		_, base, _ := c.rollout(i)
		if end <= base {
			continue
		}

		f, err := c.file(ctx, i)
		if err == nil {
			err = f.Backward(end-base, limit, func(l lines.Line) bool {
				l.Off, l.End = l.Off+base, l.End+base
				goOn = fn(l) && ctx.Err() == nil
				return goOn
			})
		}

		if err != nil {
			return err
		}

		limit, end = limit-(end-base), base
	}

	return nil
}

// At implements lines.Source.
func (c *chain) At(ctx context.Context, off int64) (lines.Pos, error) {
	for i := len(c.parts); ; i-- {
		_, base, _ := c.rollout(i)
		if off < base {
			continue
		}

		f, err := c.file(ctx, i)
		if err != nil {
			return lines.Pos{}, err
		}

		pos, err := f.At(off - base)
		pos.File = c.idOf(i)
		return pos, err
	}
}

// Size implements lines.Source.
func (c *chain) Size(ctx context.Context) (int64, error) {
	if err := c.open(ctx); err != nil {
		return 0, err
	}
	own, base, _ := c.rollout(len(c.parts))
	size, err := own.file.Size()
	return base + size, err
}

// goneBack sees whether a cursor is in what the person took back: behind the end of a part, or in a rollout that the
// newest does not go on from. What was said there is retracted, and the conversation goes on where the newest part
// begins.
func (c *chain) goneBack(ctx context.Context, s *state) (gone []checkpoint.Entry, err error) {
	if err := c.open(ctx); err != nil {
		return nil, err
	}

	at := c.index(s.File)
	inPart := at < len(c.parts)
	if s.File == 0 || s.File == c.id || len(c.parts) == 0 || inPart && s.Off <= c.parts[at].end {
		return nil, nil
	}

	own, _ := c.own.whose()
	files, err := rollouts(homeOf(c.own.at), own.thread)
	if err != nil {
		return nil, err
	}

	for _, f := range files {
		id, end := lines.ShortHash(rolloutID(f.path)), int64(0)
		if id == c.id {
			continue
		}
		if i := c.index(id); i < len(c.parts) {
			end = c.parts[i].end
		}

		list, err := wordsBehind(ctx, *s, strings.TrimSuffix(f.path, packed), end)
		if err != nil {
			return nil, err
		}

		gone = append(gone, list...)
	}

	next := c.id
	if inPart {
		next = c.idOf(at + 1)
	}

	*s = state{Pos: lines.Pos{File: next}, Place: s.Place, Model: s.Model, Kinds: s.Kinds}
	return gone, nil
}

// wordsBehind takes back what was said in a rollout behind an offset.
func wordsBehind(ctx context.Context, s state, path string, from int64) (gone []checkpoint.Entry, err error) {
	file := rollout{path: path}
	f, err := file.open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
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
			list, _, _ := takenBack(ctx, s, l)
			gone = append(gone, list...)
			return true
		})
	}

	return gone, errors.Join(err, ctx.Err(), file.close())
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
