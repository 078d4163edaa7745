package mirror

import (
	"context"
	"errors"
	"fmt"
)

// A big source that is seen for the first time is mirrored from its newest part on. The part before is written to a
// second file in bounded steps, then the batches of the first file are copied behind it, then it takes the first one's
// place.

// openOlder takes up what an earlier run filled in.
func (m *Mirror) openOlder() error {
	path := m.olderFile()
	older, err := openLog(m.fsys, path)
	if err != nil {
		return err
	}
	if older.f == nil {
		return nil
	}

	m.torn += older.cut
	fits := m.cur.size > 0 && m.cur.last.Begin > 0
	if fits && older.last.To > m.cur.last.Begin {
		if m.join, fits, err = m.joined(older.last); err != nil {
			return err
		}
	}

	if fits {
		m.older = older
		return nil
	}
	if err := older.close(); err != nil {
		return fmt.Errorf("close mirror %s: %w", path, err)
	}

	return m.dropOlder()
}

func (m *Mirror) dropOlder() error {
	m.older, m.join = nil, 0
	if err := m.fsys.Remove(m.olderFile()); err != nil {
		return fmt.Errorf("remove left-over of mirror %s: %w", m.dir, err)
	}
	return nil
}

// joined finds how much of the mirror an older part that reaches into it holds.
func (m *Mirror) joined(last trailer) (int64, bool, error) {
	list, err := batches(m.cur.f, m.cur.size, 0)
	if err != nil {
		return 0, false, err
	}

	for _, b := range list {
		if b.To == last.To && b.Sum == last.Sum {
			return b.end(), true, nil
		}
	}

	return 0, false, nil
}

// fill does one step: copy older lines, or join both files when there are no more.
func (m *Mirror) fill(ctx context.Context, budget int64) (copied int64, done bool, err error) {
	if m.older == nil {
		if m.older, err = openLog(m.fsys, m.olderFile()); err != nil {
			return 0, false, err
		}
	}

	begin := m.cur.last.Begin
	if m.older.last.To < begin {
		src := *m.src // its own memory of unfinished lines
		src.scanned = 0
		copied, _, err = m.copyLines(ctx, m.older, &src, m.older.last.To, begin, budget)
		stuck := copied == 0 && budget > 0 // no line ends there any more: join what is there
		if err != nil || m.older.last.To < begin && !stuck {
			return copied, false, err
		}
	}

	done, err = m.joinBatches(ctx, budget-copied)
	return copied, done, err
}

// joinBatches copies batches of the mirror behind the older part and, when it has them all, puts it in the mirror's
// place.
func (m *Mirror) joinBatches(ctx context.Context, budget int64) (bool, error) {
	list, err := batches(m.cur.f, m.cur.size, m.join)
	if err != nil {
		return false, err
	}

	for _, b := range list {
		if budget <= 0 {
			return false, nil
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err := m.older.copyBatch(m.cur.f, b); err != nil {
			return false, err
		}

		m.join = b.end()
		budget -= b.Frames + trailerSize
	}

	if m.join < m.cur.size {
		return false, nil
	}

	whole := m.older
	m.older, m.join = nil, 0
	return true, m.takePlace(whole)
}

// takePlace puts a finished log in the place of the current file and opens it there.
func (m *Mirror) takePlace(l *log) error {
	path := m.cur.path
	if err := m.cur.close(); err != nil {
		return fmt.Errorf("close mirror %s: %w", path, err)
	}

	m.cur.broken = true // until it is open again
	if err := l.replace(path); err != nil {
		return errors.Join(err, l.close())
	}

	cur, err := openLog(m.fsys, path)
	if err != nil {
		return err
	}

	m.cur = cur
	return nil
}
