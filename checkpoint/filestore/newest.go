package filestore

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"belay/checkpoint"
)

// Newest reads the newest whole checkpoint in a session's folder, which lies below the root; whose it is stands in it.
// checkpoint.ErrNotFound when there is none.
func (s *Store) Newest(ctx context.Context, folder string) (*checkpoint.Checkpoint, error) {
	rel, err := filepath.Rel(s.root, folder)
	if err != nil {
		return nil, fmt.Errorf("read the newest checkpoint in %s: %w", folder, err)
	}
	elems := append(strings.Split(rel, string(filepath.Separator)), checkpointsName)
	list, err := s.list(ctx, elems)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints in %s: %w", folder, err)
	}
	c, _, err := checkpoint.Newest(strings.Join(elems[1:len(elems)-1], "/"), list, func(number uint64) ([]byte, error) { return s.read(ctx, elems, number) })
	if err != nil {
		return nil, fmt.Errorf("read the newest checkpoint in %s: %w", folder, err)
	}
	return c, nil
}
