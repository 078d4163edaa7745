package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"belay/checkpoint/filestore"
)

// InWorkTree names what bears belay's names at the top of a work tree. A repository may bring it along; belay keeps
// nothing there and uses none of it.
func InWorkTree(folder string) (list []string) {
	if folder == "" {
		return nil
	}

	say := func(path string) { list = append(list, path+": belay keeps nothing in a work tree") }
	own := filepath.Join(folder, ".belay")
	if _, err := os.Lstat(own); !errors.Is(err, fs.ErrNotExist) {
		say(own)
	}

	dir := filepath.Join(folder, filestore.Folder)
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return list
	}

	entries, _ := os.ReadDir(dir) // what cannot be read cannot mislead anybody
	i := slices.IndexFunc(entries, func(e fs.DirEntry) bool {
		_, _, ok := filestore.ParseName(e.Name())
		return ok
	})

	if i >= 0 {
		say(filepath.Join(dir, entries[i].Name())) // one stands for all
	}

	return list
}
