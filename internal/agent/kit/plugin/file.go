package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"belay/internal/agent"
	"belay/internal/lazyre"
	"belay/internal/vfs"
)

const (
	maxFile    = 1 << 20
	maxFolders = 3 // that are made for one file, and go with it
)

// made is the line that says how many folders were made for a file.
var made = lazyre.New(`(?m)^(?://|#) Folders made for it: ([0-3])$`)

// File is one file that belay writes into another program's folder.
type File struct {
	FS   vfs.FS
	Path string // empty when nothing says where it belongs
	// Marker is the beginning of every such file that belay wrote, its comment sign first. Without one the file is
	// known by its place, and says nothing of folders.
	Marker string
	// DirMode is that of folders made for it; 0 means that of belay's own.
	DirMode fs.FileMode
}

// Read gives the file that is there; nil when there is none, ErrForeign for one that belay did not write.
func (f File) Read() ([]byte, error) {
	if f.Path == "" {
		return nil, agent.ErrNoHome
	}

	info, err := f.FS.Lstat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: no regular file", f.Path, ErrForeign)
	}

	data, err := vfs.ReadFile(f.FS, f.Path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	if !bytes.HasPrefix(data, []byte(f.Marker)) {
		return nil, fmt.Errorf("%s: %w", f.Path, ErrForeign)
	}

	return data, nil
}

// Put writes a text there and says what it did: create, change or keep.
func (f File) Put(text string, dryRun bool) (action string, err error) {
	old, err := f.Read()
	if err != nil {
		return "", err
	}

	folders := foldersMade(old)
	if old == nil {
		if folders, err = f.missing(); err != nil {
			return "", err
		}
	}

	next := f.stamped(text, folders)
	switch {
	case bytes.Equal(old, next):
		return "keep", nil
	case old != nil:
		action = "change"
	default:
		action = "create"
	}

	if dryRun {
		return action, nil
	}

	mode := f.DirMode
	if mode == 0 {
		mode = vfs.DirMode
	}
	if err = vfs.MakeDirMode(f.FS, filepath.Dir(f.Path), mode); err == nil {
		err = vfs.Replace(f.FS, f.Path, next)
	}
	if err != nil && old == nil {
		f.removeFolders(folders) // what was made is nothing without the file
	}

	return action, err
}

// Holds says whether what Read gave is this text.
func (f File) Holds(read []byte, text string) bool {
	return bytes.Equal(read, f.stamped(text, foldersMade(read)))
}

// Remove takes the file away, and the folders that were made for it; tidy, if any, is called between the
// two. One that is not there is no error.
func (f File) Remove(tidy func(dir string)) error {
	if f.Path != "" {
		if err := vfs.RemoveTemp(f.FS, f.Path); err != nil { // of a crash in Put; nobody else sweeps that folder
			return err
		}
	}

	old, err := f.Read()
	if err != nil || old == nil {
		return err
	}
	if err = f.FS.Remove(f.Path); err == nil {
		err = f.FS.SyncDir(filepath.Dir(f.Path))
	}
	if err != nil {
		return err
	}
	if tidy != nil {
		tidy(filepath.Dir(f.Path))
	}

	f.removeFolders(foldersMade(old))
	return nil
}

// stamped is a text that says, below its first paragraph, how many folders were made for it.
func (f File) stamped(text string, folders int) []byte {
	if f.Marker == "" {
		return []byte(text)
	}
	sign, _, _ := bytes.Cut([]byte(f.Marker), []byte(" "))
	head, rest, _ := bytes.Cut([]byte(text), []byte("\n\n"))
	return fmt.Appendf(nil, "%s\n%s Folders made for it: %d\n\n%s", head, sign, folders, rest)
}

func foldersMade(text []byte) int {
	m := made().FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1])) // one digit
	return n
}

// missing counts the folders that have to be made.
func (f File) missing() (n int, err error) {
	for dir := filepath.Dir(f.Path); n < maxFolders; dir = filepath.Dir(dir) {
		if _, err = f.FS.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		n++
	}
	return n, nil
}

// removeFolders takes away the folders that were made, as far as nothing else came into them.
func (f File) removeFolders(n int) {
	dir := filepath.Dir(f.Path)
	for ; n > 0; n-- {
		if left, err := f.FS.ReadDir(dir); err != nil || len(left) > 0 || f.FS.Remove(dir) != nil {
			return // somebody uses it now
		}
		dir = filepath.Dir(dir)
	}
}
