package state_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"belay/checkpoint"
)

// memory is a made-up store: what a package of a new store holds, here in maps. Its checkpoints live as long as the
// test.
type memory struct {
	mu       sync.Mutex
	sessions map[string]map[uint64]kept // by Key.Dir, by number
}

type kept struct {
	meta checkpoint.Meta
	data []byte
}

func (m *memory) Put(ctx context.Context, key checkpoint.Key, meta checkpoint.Meta, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if meta.Number == 0 || meta.Level != checkpoint.Full && meta.Level != checkpoint.Sparse ||
		len(data) > checkpoint.MaxSize {
		return fmt.Errorf("put checkpoint %d of %s: %w", meta.Number, key, fs.ErrInvalid)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions == nil {
		m.sessions = map[string]map[uint64]kept{}
	}

	session := m.sessions[key.Dir()]
	if session == nil {
		session = map[uint64]kept{}
		m.sessions[key.Dir()] = session
	}
	if _, taken := session[meta.Number]; taken {
		return fmt.Errorf("put checkpoint %d of %s: %w", meta.Number, key, checkpoint.ErrExists)
	}

	meta.At, meta.Bytes = time.Now(), int64(len(data))
	session[meta.Number] = kept{meta, bytes.Clone(data)}
	return nil
}

func (m *memory) List(ctx context.Context, key checkpoint.Key) (list []checkpoint.Meta, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.sessions[key.Dir()] {
		list = append(list, k.meta)
	}
	slices.SortFunc(list, func(a, b checkpoint.Meta) int { return cmp.Compare(b.Number, a.Number) })
	return list, ctx.Err()
}

func (m *memory) Get(ctx context.Context, key checkpoint.Key, number uint64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.sessions[key.Dir()][number]
	if !ok {
		return nil, cmp.Or(ctx.Err(), fmt.Errorf("get checkpoint %d of %s: %w", number, key, checkpoint.ErrNotFound))
	}
	return bytes.Clone(k.data), ctx.Err()
}

func (m *memory) Delete(ctx context.Context, key checkpoint.Key, number uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions[key.Dir()], number)
	return nil
}

func (m *memory) Sessions(ctx context.Context) (list []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for session, all := range m.sessions {
		if len(all) > 0 {
			list = append(list, session)
		}
	}

	return list, ctx.Err()
}

func (m *memory) Probe(ctx context.Context, _ int) error { return ctx.Err() }

func (m *memory) Close() error { return nil }
