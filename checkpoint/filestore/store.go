// Package filestore keeps checkpoints as files below a state folder, one file each:
//
//	<root>/sessions/<agent>/<id>/checkpoints/000042-full.md
//
// It promises what checkpoint.Store promises: Put replaces atomically and syncs the file, its name and the name of
// every folder above it, up to the root. It never follows a link below the root and does not touch what another user
// owns there. Files whose names are not of the form above are not seen and not touched, but for what a crash left of a
// write of its own.
//
// It does not read or check contents, and it deletes nothing by itself (checkpoint.Prune says what to delete). Two
// processes must not write below one root: the daemon's lock sees to that.
package filestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"belay/checkpoint"
	"belay/internal/vfs"
)

// ErrUnsafe: a path below the root is a link, is not what it should be, or belongs to another user. It is neither read
// nor written.
var ErrUnsafe = vfs.ErrUnsafe

const (
	sessionsName = "sessions"
	probeName    = ".belay-probe"
)

// Folder is the name of the folder, in a session's own, that holds its checkpoints.
const Folder = "checkpoints"

// Store is a checkpoint.Store on files.
type Store struct {
	fsys vfs.FS
	root string

	probe chan struct{} // holds a token while nobody probes: probes share one file
	known struct {
		sync.Mutex
		dirs map[string]struct{} // folders whose own names are on stable storage
	}
}

var _ checkpoint.Store = (*Store)(nil)

// maxKnown bounds Store.known. Forgetting costs a few syncs, nothing else.
const maxKnown = 10_000

// Open gives the store below a state folder. The folder is made by the first Put or Probe, if nobody else makes it.
func Open(fsys vfs.FS, root string) *Store {
	s := &Store{fsys: fsys, root: filepath.Clean(root), probe: make(chan struct{}, 1)}
	s.probe <- struct{}{}
	s.known.dirs = make(map[string]struct{})
	return s
}

// Put writes one checkpoint. Bad input is fs.ErrInvalid.
func (s *Store) Put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	if err := s.put(ctx, key, m, data); err != nil {
		return fmt.Errorf("put checkpoint %d of %s: %w", m.Number, key, err)
	}
	return nil
}

func (s *Store) put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	switch {
	case m.Number == 0:
		return fmt.Errorf("numbers begin at 1: %w", fs.ErrInvalid)
	case m.Level != checkpoint.Full && m.Level != checkpoint.Sparse:
		return fmt.Errorf("level %q: %w", m.Level, fs.ErrInvalid)
	case len(data) > checkpoint.MaxSize:
		return fmt.Errorf("%d bytes, at most %d: %w", len(data), checkpoint.MaxSize, fs.ErrInvalid)
	}

	elems := elements(key)
	if err := s.makeDirs(elems); err != nil {
		return err
	}

	dir := s.path(elems)
	entries, err := s.fsys.ReadDir(dir)
	if err != nil {
		return err
	}

	for _, e := range entries {
		// A left-over of a crash: calls for one session come one at a time, so nobody is writing it now. It goes before
		// it is written again, since it counts for the budget and a link in its place would be followed.
		if strings.HasSuffix(e.Name(), vfs.TempSuffix) {
			if err := s.fsys.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		if n, _, ok := ParseName(e.Name()); ok && n == m.Number {
			return checkpoint.ErrExists
		}
	}

	name := filepath.Join(dir, fileName(m.Number, m.Level))
	if err := vfs.Replace(s.fsys, name, data); err != nil {
		_ = s.fsys.Remove(name) // there only if just the last sync failed; if it stays it is whole
		return err
	}

	return nil
}

// List tells what is stored of a session from the names in its folder. At is when the file was written.
func (s *Store) List(ctx context.Context, key checkpoint.Key) ([]checkpoint.Meta, error) {
	list, err := s.list(ctx, elements(key))
	if err != nil {
		return nil, fmt.Errorf("list checkpoints of %s: %w", key, err)
	}
	return list, nil
}

func (s *Store) list(ctx context.Context, elems []string) ([]checkpoint.Meta, error) {
	entries, err := s.names(ctx, elems)
	if err != nil {
		return nil, err
	}

	var list []checkpoint.Meta
	for _, e := range entries {
		n, level, ok := ParseName(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}

		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since the folder was read
		}
		if err != nil {
			return nil, err
		}

		list = append(list, checkpoint.Meta{Number: n, Level: level, At: info.ModTime(), Bytes: info.Size()})
	}

	// Put never gives a number twice; should a stranger's hand have done so, the FULL stands for it, as in Get.
	slices.SortFunc(list, func(a, b checkpoint.Meta) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Level, b.Level))
	})
	return slices.CompactFunc(list, func(a, b checkpoint.Meta) bool { return a.Number == b.Number }), nil
}

// names reads a session's folder; one that is not there is empty.
func (s *Store) names(ctx context.Context, elems []string) ([]fs.DirEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	err := s.checkDirs(elems)
	var entries []fs.DirEntry
	if err == nil {
		entries, err = s.fsys.ReadDir(s.path(elems))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	return entries, err
}

// Get reads one checkpoint. It does not check what it read.
func (s *Store) Get(ctx context.Context, key checkpoint.Key, number uint64) ([]byte, error) {
	data, err := s.read(ctx, elements(key), number)
	if err != nil {
		return nil, fmt.Errorf("get checkpoint %d of %s: %w", number, key, err)
	}
	return data, nil
}

func (s *Store) read(ctx context.Context, elems []string, number uint64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	if err := s.checkDirs(elems); errors.Is(err, fs.ErrNotExist) {
		return nil, checkpoint.ErrNotFound
	} else if err != nil {
		return nil, err
	}

	for _, level := range []checkpoint.Level{checkpoint.Full, checkpoint.Sparse} {
		name := filepath.Join(s.path(elems), fileName(number, level))
		info, err := s.fsys.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := vfs.Safe(name, info, false); err != nil {
			return nil, err
		}
		if info.Size() > checkpoint.MaxSize {
			return nil, fmt.Errorf("%d bytes, at most %d: %w", info.Size(), checkpoint.MaxSize, checkpoint.ErrDamaged)
		}

		data, err := vfs.ReadFile(s.fsys, name, checkpoint.MaxSize)
		if errors.Is(err, fs.ErrNotExist) {
			break // deleted in between
		}

		return data, err
	}

	return nil, checkpoint.ErrNotFound
}

// Delete removes one checkpoint for good.
func (s *Store) Delete(ctx context.Context, key checkpoint.Key, number uint64) error {
	if err := s.remove(ctx, elements(key), number); err != nil {
		return fmt.Errorf("delete checkpoint %d of %s: %w", number, key, err)
	}
	return nil
}

func (s *Store) remove(ctx context.Context, elems []string, number uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	if err := s.checkDirs(elems); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}

	for _, level := range []checkpoint.Level{checkpoint.Full, checkpoint.Sparse} {
		err := s.fsys.Remove(filepath.Join(s.path(elems), fileName(number, level)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	// Always, though nothing may have been removed: the call before may have removed it and failed here.
	return s.fsys.SyncDir(s.path(elems))
}

// Sessions gives the folders, as Key.Dir does, that hold at least one checkpoint. What is unsafe there is left out.
func (s *Store) Sessions(ctx context.Context) ([]string, error) {
	found, err := s.sessions(ctx)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return found, nil
}

func (s *Store) sessions(ctx context.Context) ([]string, error) {
	agents, err := s.names(ctx, []string{sessionsName})
	if err != nil {
		return nil, err
	}

	var found []string
	for _, agent := range agents {
		ids, err := s.names(ctx, []string{sessionsName, agent.Name()})
		if errors.Is(err, ErrUnsafe) {
			continue
		}
		if err != nil {
			return nil, err
		}

		for _, id := range ids {
			entries, err := s.names(ctx, []string{sessionsName, agent.Name(), id.Name(), Folder})
			if errors.Is(err, ErrUnsafe) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(entries, isCheckpoint) {
				found = append(found, agent.Name()+"/"+id.Name())
			}
		}
	}

	return found, nil
}

func isCheckpoint(e fs.DirEntry) bool {
	_, _, ok := ParseName(e.Name())
	return ok && e.Type().IsRegular()
}

// Probe writes, syncs, renames and removes a file in the folder of all sessions, which may be a mount of its own.
func (s *Store) Probe(ctx context.Context, size int) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("probe %s: %w", s.root, ctx.Err())
	case <-s.probe:
	}

	defer func() { s.probe <- struct{}{} }()

	if err := s.probeSessions(ctx, size); err != nil {
		return fmt.Errorf("probe %s: %w", s.root, err)
	}

	return nil
}

func (s *Store) probeSessions(ctx context.Context, size int) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	// What spoils the folder of all sessions is the store's fault and not one session's.
	dir := []string{sessionsName}
	if err := s.makeDirs(dir); err != nil {
		return err
	}

	name := filepath.Join(s.path(dir), probeName)
	tmp := filepath.Join(s.path(dir), "."+probeName+vfs.TempSuffix)
	if err := s.fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // a link there would be followed
	}

	// Random bytes, because a file system that compresses finds room for any number of equal ones.
	data := make([]byte, max(size, 1))
	rand.Read(data)
	if err := vfs.Replace(s.fsys, name, data); err != nil {
		_ = s.fsys.Remove(name) // there only if just the last sync failed
		return err
	}

	return s.fsys.Remove(name)
}

// Close does nothing: the store holds no file open.
func (s *Store) Close() error { return nil }
