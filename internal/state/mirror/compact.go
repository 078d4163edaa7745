package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"belay/internal/vfs"
)

// Batches under smallRaw are merged. A file is rewritten when it has many of them, and they are a good part of it or
// very many: rewriting a big file for a few small batches would cost more than it saves.
const (
	smallRaw   = frameBytes / 4
	fewSmall   = 16
	manySmall  = 1000
	smallShare = 4 // one in so many bytes
)

// Compact merges the small batches that a slowly growing source leaves, if that is worth a rewrite, and replaces the
// file atomically. Call it when the session is idle.
func (m *Mirror) Compact(ctx context.Context) error {
	if m.cur == nil || m.cur.f == nil || m.cur.broken || m.cur.last.Begin > 0 || m.older != nil {
		return nil
	}

	list, err := batches(m.cur.f, m.cur.size, 0)
	if err != nil {
		return fmt.Errorf("compact mirror %s: %w", m.cur.path, err)
	}
	if !worthIt(list, m.cur.size) {
		return nil
	}

	path := filepath.Join(m.dir, "."+filepath.Base(m.cur.path)+vfs.TempSuffix)
	if err := m.fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("compact mirror %s: %w", m.cur.path, err)
	}

	out := &log{fsys: m.fsys, path: path}
	if err := m.merge(ctx, out, list); err != nil {
		return errors.Join(fmt.Errorf("compact mirror %s: %w", m.cur.path, err), out.close(), m.fsys.Remove(path))
	}

	m.idle = false
	return m.takePlace(out)
}

func worthIt(list []batch, size int64) bool {
	small, bytes := 0, int64(0)
	for _, b := range list {
		if b.Raw < smallRaw {
			small++
			bytes += b.Frames + trailerSize
		}
	}

	return small >= manySmall || small >= fewSmall && bytes*smallShare >= size
}

// merge writes all batches to out; runs of small ones become one.
func (m *Mirror) merge(ctx context.Context, out *log, list []batch) error {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}

	defer dec.Close()
	var raw []byte
	var t trailer
	flush := func() error {
		if len(raw) == 0 {
			return nil
		}

		t.Raw = int64(len(raw))
		packed, err := m.opt.pack(nil, raw)
		if err == nil {
			err = out.append(packed, t)
		}

		raw = raw[:0]
		return err
	}

	for _, b := range list {
		if err := ctx.Err(); err != nil {
			return err
		}

		if len(raw) > 0 && (b.Raw >= smallRaw || b.From != t.To || len(raw)+int(b.Raw) > frameBytes) {
			if err := flush(); err != nil {
				return err
			}
		}

		if b.Raw >= smallRaw {
			if err := out.copyBatch(m.cur.f, b); err != nil {
				return err
			}
			continue
		}

		plain, err := m.opt.Key.open(m.cur.f, b)
		if err != nil {
			return fmt.Errorf("batch at %d: %w", b.at, err)
		}

		frames, err := io.ReadAll(plain) // at most a small batch
		if err != nil {
			return fmt.Errorf("batch at %d: %w", b.at, err)
		}

		from, lines := b.From, b.Lines
		if len(raw) > 0 {
			from, lines = t.From, lines+t.Lines
		}
		if raw, err = dec.DecodeAll(frames, raw); err != nil {
			return fmt.Errorf("batch at %d: %w: %w", b.at, ErrDamaged, err)
		}

		t = b.trailer
		t.From, t.Lines = from, lines
	}

	return flush()
}
