package watch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is where a chain of symbolic links counts as a loop, as in the kernel.
const maxLinks = 40

// dep is one name in one folder that decides what a path means. The folder is a real path (no link in it), so that one
// folder has one name: inotify knows folders by inode and would report a second name's events under the first.
type dep struct {
	dir, name string
}

// resolve follows a path the way the kernel does and lists what its meaning depends on: every symbolic link on the way
// and the last name; or, where something is missing, the name that would have to appear first.
func resolve(path string) []dep {
	var deps []dep
	dir, rest, links := "/", split(path), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." { // only out of a link: the path itself is clean
			dir = filepath.Dir(dir)
			continue
		}

		full := filepath.Join(dir, name)
		info, err := os.Lstat(full)
		switch {
		case err != nil, len(rest) == 0 && info.Mode()&fs.ModeSymlink == 0:
			return append(deps, dep{dir, name})
		case info.Mode()&fs.ModeSymlink != 0:
			deps = append(deps, dep{dir, name})
			target, err := os.Readlink(full)
			if links++; err != nil || links > maxLinks {
				return deps
			}
			if filepath.IsAbs(target) {
				dir = "/"
			}

			rest = append(split(target), rest...)

		case !info.IsDir():
			return append(deps, dep{dir, name}) // a file where a folder should be
		default:
			dir = full
		}
	}

	return deps
}

// split gives the names of a path, ".." kept: behind a link it may not be shortened.
func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}
