package query

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/internal/vfs"
)

// Planted names what looks like belay's own and was put there by somebody else: in a session's folder, links, other users' files
// and other sessions' checkpoints; in its work tree, anything that bears belay's names, because a repository brings it along.
// Nothing of that is ever used; a person should know that it is there.
func (f Folder) Planted(s *checkpoint.State) []string {
	var list []string
	dir := filepath.Join(f.Dir.Session(s.Key), "checkpoints")
	entries, err := f.Dir.FS.ReadDir(dir)
	if errors.Is(err, vfs.ErrUnsafe) {
		list = append(list, err.Error())
	}
	found := false // older ones than the newest of its own are not looked into: nobody reads them
	for _, e := range slices.Backward(entries) {
		if _, _, ok := filestore.ParseName(e.Name()); !ok {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err == nil {
			err = vfs.Safe(path, info, false)
		}
		if errors.Is(err, vfs.ErrUnsafe) {
			list = append(list, err.Error())
			continue
		}
		if found {
			continue
		}
		data, err := vfs.ReadFile(f.Dir.FS, path, filestore.MaxSize)
		if err == nil {
			_, err = checkpoint.DecodeIn(s.Key.Dir(), data)
		}
		if errors.Is(err, checkpoint.ErrForeign) {
			list = append(list, fmt.Sprintf("%s: %v", path, err))
		}
		found = err == nil
	}
	return append(list, InWorkTree(s.Workspace)...)
}

// InWorkTree names what bears belay's names at the top of a work tree.
func InWorkTree(folder string) (list []string) {
	if folder == "" {
		return nil
	}
	say := func(path string) {
		list = append(list, path+": belay keeps nothing in a work tree")
	}
	if path := filepath.Join(folder, ".belay"); exists(path) {
		say(path)
	}
	dir := filepath.Join(folder, "checkpoints")
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return list
	}
	entries, _ := os.ReadDir(dir) // what cannot be read cannot mislead anybody
	for _, e := range entries {
		if _, _, ok := filestore.ParseName(e.Name()); ok {
			say(filepath.Join(dir, e.Name()))
			break // one stands for all
		}
	}
	return list
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
