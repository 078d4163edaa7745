package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"belay/checkpoint"
)

// Newest reads a session's newest whole checkpoint by the session's folder (checkpoint.Key.Dir) alone; whose it is
// stands in it. checkpoint.ErrNotFound when there is none.
func (s *Store) Newest(ctx context.Context, session string) (*checkpoint.Checkpoint, error) {
	elems := elementsIn(session)
	list, err := s.list(ctx, elems)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints in %s: %w", session, err)
	}

	get := func(number uint64) ([]byte, error) { return s.read(ctx, elems, number) }
	c, _, err := checkpoint.Newest(session, list, get)
	if err != nil {
		return nil, fmt.Errorf("read the newest checkpoint in %s: %w", session, err)
	}

	return c, nil
}

// Names are what the store makes below its root, as patterns of path.Match. A folder's name ends in a slash.
func (*Store) Names() []string {
	folder := sessionsName + "/*/*/" + Folder + "/"
	return []string{sessionsName + "/" + probeName, folder, folder + "[0-9]*-full.md", folder + "[0-9]*-sparse.md"}
}

// Walk calls fn for everything that bears a checkpoint's name in a session's folder (checkpoint.Key.Dir), whoever put
// it there and whatever it is, lowest number first, until fn says false. path is below the root. A folder that is not
// there is empty.
func (s *Store) Walk(session string, fn func(path string, m checkpoint.Meta, info fs.FileInfo) bool) error {
	elems := elementsIn(session)
	entries, err := s.fsys.ReadDir(s.path(elems))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list checkpoints in %s: %w", session, err)
	}

	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int {
		n, _, _ := ParseName(a.Name())
		m, _, _ := ParseName(b.Name())
		return cmp.Compare(n, m)
	})

	for _, e := range entries {
		n, level, ok := ParseName(e.Name())
		if !ok {
			continue
		}

		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since the folder was read
		}
		if err != nil {
			return fmt.Errorf("list checkpoints in %s: %w", session, err)
		}

		m := checkpoint.Meta{Number: n, Level: level, At: info.ModTime(), Bytes: info.Size()}
		if !fn(filepath.Join(filepath.Join(elems...), e.Name()), m, info) {
			return nil
		}
	}

	return nil
}
