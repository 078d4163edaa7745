package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"belay/internal/vfs"
)

// Generation is one copy of a transcript: the mirror itself (Number 0) or an older copy that was set aside when the
// source's past changed.
type Generation struct {
	Path   string
	Number int
	Bytes  int64 // of the file
	Lines  int64
	Raw    int64 // bytes of its lines
	Begin  int64 // where in the source it begins; more than 0 while a big source is being filled in
	To     int64 // where in the source it ends
}

// Exact says whether the copy holds every byte, encrypted.
func (g Generation) Exact() bool { return filepath.Ext(g.Path) == filepath.Ext(ExactName) }

// Generations lists the copies in a session's folder, exact ones before those without secrets: of each kind the mirror
// first, then the older ones, newest first. It reads the end of each and changes nothing.
func Generations(fsys vfs.FS, dir string) ([]Generation, error) {
	var all []Generation
	for _, name := range []string{ExactName, FileName} {
		cur, err := inspect(fsys, filepath.Join(dir, name), 0)
		if err == nil {
			all = append(all, cur)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}

		gens, err := generations(fsys, dir, filepath.Ext(name))
		if err != nil {
			return nil, err
		}

		all = append(all, gens...)
	}

	return all, nil
}

func generations(fsys vfs.FS, dir, ext string) ([]Generation, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list mirrors in %s: %w", dir, err)
	}

	var out []Generation
	for _, e := range entries {
		n := 0
		_, err := fmt.Sscanf(e.Name(), generationFmt+ext, &n)
		if err != nil || fmt.Sprintf(generationFmt, n)+ext != e.Name() || n < 1 {
			continue
		}

		g, err := inspect(fsys, filepath.Join(dir, e.Name()), n)
		if err != nil {
			return nil, err
		}

		out = append(out, g)
	}

	slices.SortFunc(out, func(a, b Generation) int { return b.Number - a.Number })
	return out, nil
}

func inspect(fsys vfs.FS, path string, number int) (Generation, error) {
	g := Generation{Path: path, Number: number}
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return g, fmt.Errorf("open mirror %s: %w", path, err)
	}

	defer f.Close() // read only: nothing can be lost
	st, err := f.Stat()
	if err != nil {
		return g, fmt.Errorf("stat mirror %s: %w", path, err)
	}

	end, last, err := committed(f, st.Size())
	if err != nil {
		return g, fmt.Errorf("read mirror %s: %w", path, err)
	}

	g.Bytes, g.Lines, g.Raw, g.Begin, g.To = end, last.TotalLines, last.TotalRaw, last.Begin, last.To
	return g, nil
}

// setAside makes the mirror a generation and begins a new one. What was filled in so far is joined first.
func (m *Mirror) setAside(ctx context.Context) error {
	if err := m.joinAll(ctx); err != nil {
		return err
	}
	if err := m.putAside(m.cur); err != nil {
		m.cur.broken = true
		return err
	}

	cur, err := openLog(m.fsys, m.opt.Key.file(m.dir))
	if err != nil {
		return err
	}

	m.cur = cur
	return m.prune()
}

// putAside makes a log the newest of the older copies.
func (m *Mirror) putAside(l *log) error {
	gens, err := generations(m.fsys, m.dir, m.opt.Key.ext())
	if err != nil {
		return err
	}

	number := 1
	if len(gens) > 0 {
		number = gens[0].Number + 1
	}

	return l.replace(filepath.Join(m.dir, fmt.Sprintf(generationFmt, number)+m.opt.Key.ext()))
}

// keepForeign puts aside what another key has encrypted: it can neither be merged nor be gone on with.
func (m *Mirror) keepForeign() error {
	aside := false
	for _, l := range []*log{m.older, m.cur} {
		if l == nil || l.size == 0 {
			continue
		}

		b := batch{l.last, l.size - trailerSize - l.last.Frames}
		if _, err := m.opt.Key.open(l.f, b); !errors.Is(err, ErrWrongKey) {
			continue // damage is another matter
		}
		if err := m.putAside(l); err != nil {
			return err
		}

		aside = true
		if l == m.older {
			m.older, m.join = nil, 0
			continue
		}

		cur, err := openLog(m.fsys, l.path)
		if err != nil {
			return err
		}

		m.cur = cur
	}

	if !aside {
		return nil
	}

	return m.prune()
}

// joinAll puts an unfinished older part before the mirror, with the gap that is between them. The source is another one
// now: this is the last moment for it.
func (m *Mirror) joinAll(ctx context.Context) error {
	if m.older == nil {
		return nil
	}

	if m.older.size == 0 {
		err := m.older.close()
		m.older = nil
		return err
	}

	_, err := m.joinBatches(ctx, math.MaxInt64)
	return err
}

// prune removes older copies: the newest and the richest stay.
func (m *Mirror) prune() error {
	gens, err := generations(m.fsys, m.dir, m.opt.Key.ext())
	if err != nil {
		return err
	}

	m.generations = len(gens)
	richest := 0
	for i, g := range gens {
		if g.Raw > gens[richest].Raw {
			richest = i
		}
	}

	kept := int64(0)
	for i, g := range gens {
		kept += g.Bytes
		if i == richest || i == 0 || i < m.opt.KeepGenerations && kept <= m.opt.GenerationBytes {
			continue
		}

		kept -= g.Bytes
		if err := m.fsys.Remove(g.Path); err != nil {
			return fmt.Errorf("remove mirror %s: %w", g.Path, err)
		}

		m.generations--
	}

	return nil
}

// Forget removes every copy in a session's folder. No Mirror of it may be open.
func Forget(fsys vfs.FS, dir string) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("forget the mirror in %s: %w", dir, err)
	}

	gone := false
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "transcript.") || !e.Type().IsRegular() {
			continue
		}
		if err := fsys.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("forget the mirror: %w", err)
		}
		gone = true
	}

	if !gone {
		return nil
	}

	return fsys.SyncDir(dir)
}
