package query

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/vfs"
)

// walker is a store whose checkpoints are files in the state folder: somebody else could put a file among them.
type walker interface {
	Walk(session string, fn func(path string, m checkpoint.Meta, info fs.FileInfo) bool) error
}

// Planted names what looks like belay's own and was put there by somebody else: in a session's folder, links, other
// users' files and other sessions' checkpoints; in its work tree, anything that bears belay's names, because a
// repository brings it along. Nothing of that is ever used; a person should know that it is there.
func (f Folder) Planted(s *checkpoint.State) []string {
	return append(f.plantedCheckpoints(s), state.InWorkTree(s.Workspace)...)
}

func (f Folder) plantedCheckpoints(s *checkpoint.State) (list []string) {
	store, err := f.Dir.OpenStore()
	if err != nil {
		return nil // whoever reads the checkpoints hears of it
	}

	defer store.Close() // nothing is written through it
	w, ok := store.(walker)
	if !ok {
		return nil
	}

	type file struct {
		path string
		info fs.FileInfo
	}

	var files []file
	err = w.Walk(s.Key.Dir(), func(rel string, _ checkpoint.Meta, info fs.FileInfo) bool {
		files = append(files, file{filepath.Join(f.Dir.Root, rel), info})
		return true
	})

	if errors.Is(err, vfs.ErrUnsafe) {
		return []string{errors.Unwrap(err).Error()}
	}

	found := false // older ones than the newest of its own are not read: nobody uses them
	for _, file := range slices.Backward(files) {
		if err := vfs.Safe(file.path, file.info, false); errors.Is(err, vfs.ErrUnsafe) {
			list = append(list, err.Error())
			continue
		}
		if found {
			continue
		}

		data, err := vfs.ReadFile(f.Dir.FS, file.path, checkpoint.MaxSize)
		if err == nil {
			_, err = checkpoint.DecodeIn(s.Key.Dir(), data)
		}
		if errors.Is(err, checkpoint.ErrForeign) {
			list = append(list, fmt.Sprintf("%s: %v", file.path, err))
		}

		found = err == nil
	}

	return list
}
