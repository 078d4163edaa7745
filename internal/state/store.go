package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/internal/vfs"
)

// stores are the stores that can keep a folder's checkpoints. A new one is its own package and a line here: nothing
// else in belay imports a store. root is the state folder; opening touches nothing (see checkpoint.Store).
var stores = map[string]func(fsys vfs.FS, root string) checkpoint.Store{
	usualStore: func(fsys vfs.FS, root string) checkpoint.Store { return filestore.Open(fsys, root) },
}

const usualStore = "file"

// OpenStore opens the store of the folder's checkpoints. errors.ErrUnsupported: belay has none of that name.
func (d Dir) OpenStore() (checkpoint.Store, error) {
	name := cmp.Or(d.Store, usualStore)
	open, ok := stores[name]
	if !ok {
		return nil, fmt.Errorf("open checkpoint store %q: %w", name, errors.ErrUnsupported)
	}
	return open(d.FS, d.Root), nil
}

// withStore calls fn with the folder's store.
func (d Dir) withStore(fn func(checkpoint.Store) error) error {
	store, err := d.OpenStore()
	if err != nil {
		return err
	}
	return errors.Join(fn(store), store.Close())
}

// byFolder is a store that can be asked for a session's newest whole checkpoint by the session's folder
// (checkpoint.Key.Dir). Only such a store can stand in for a state file that is lost before anybody names the session.
type byFolder interface {
	Newest(ctx context.Context, session string) (*checkpoint.Checkpoint, error)
}

// standIn gives what the newest whole checkpoint in a session's folder restores; nil when there is none.
func standIn(ctx context.Context, store checkpoint.Store, session string) *checkpoint.State {
	s, ok := store.(byFolder)
	if !ok {
		return nil
	}

	c, err := s.Newest(ctx, session)
	if err != nil {
		return nil // the journal alone says what the session was
	}

	return c.Restore()
}
