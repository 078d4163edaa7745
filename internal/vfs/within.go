package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrUnsafe: a path below belay's own folder is a link, is neither a plain file nor a folder, or belongs to another
// user. It is neither read nor written.
var ErrUnsafe = errors.New("refused as unsafe")

// Safe says whether what lies at a path below a folder of belay's own may be used: a folder or a plain file, as wanted,
// and this user's own. A hard link of the user's own is a plain file: nobody else can make one in a folder that is
// closed to others, and people's backups do.
func Safe(path string, info fs.FileInfo, dir bool) error {
	mode := info.Mode()
	switch {
	case mode&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: %w", path, ErrUnsafe)
	case dir && !mode.IsDir():
		return fmt.Errorf("%s is no folder: %w", path, ErrUnsafe)
	case !dir && !mode.IsRegular():
		return fmt.Errorf("%s is no plain file: %w", path, ErrUnsafe)
	}

	// A file system in memory knows no owners.
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to %d: %w", path, st.Uid, os.Geteuid(), ErrUnsafe)
	}

	return nil
}

// PlainFlags keep an open from following a link at the name, and from waiting for the other end of a pipe.
const PlainFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// Within is fsys, but below root nothing is reached through a link, opened that is no plain file, or used that is
// another user's: all that is ErrUnsafe (see Safe). The root itself may be a link, because a person put it there; paths
// outside of it are fsys's alone. What is in the way can be looked at (Lstat), renamed and removed: that touches the
// name alone.
func Within(fsys FS, root string) FS {
	if w, ok := fsys.(within); ok && w.root == filepath.Clean(root) {
		return w
	}
	return within{fsys, filepath.Clean(root)}
}

type within struct {
	fsys FS
	root string
}

// above checks the folders between the root and a path. One that is not there is for the call itself to tell.
func (w within) above(path string) error {
	rest, below := w.below(path)
	if !below {
		return nil
	}

	names := strings.Split(rest, "/")
	for i := 1; i < len(names); i++ {
		if err := w.folder(filepath.Join(w.root, filepath.Join(names[:i]...))); err != nil {
			return err
		}
	}

	return nil
}

func (w within) folder(path string) error {
	info, err := w.fsys.Lstat(path)
	if err != nil {
		return nil
	}
	return Safe(path, info, true)
}

// whole checks a folder and those above it.
func (w within) whole(dir string) error { return w.above(filepath.Join(dir, "x")) }

func (w within) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if _, below := w.below(name); !below {
		return w.fsys.OpenFile(name, flag, perm)
	}
	if err := w.above(name); err != nil {
		return nil, err
	}

	if info, err := w.fsys.Lstat(name); err == nil {
		if err := Safe(name, info, info.IsDir()); err != nil {
			return nil, err
		}
	}

	f, err := w.fsys.OpenFile(name, flag|PlainFlags, perm)
	if errors.Is(err, syscall.ELOOP) { // it was put there since
		err = fmt.Errorf("%w: %w", ErrUnsafe, err)
	}

	return f, err
}

// below gives the path from the root on, where it lies below that.
func (w within) below(path string) (string, bool) {
	return strings.CutPrefix(filepath.Clean(path), strings.TrimSuffix(w.root, "/")+"/")
}

func (w within) Rename(oldName, newName string) error {
	if err := errors.Join(w.above(oldName), w.above(newName)); err != nil {
		return err
	}
	return w.fsys.Rename(oldName, newName)
}

func (w within) Remove(name string) error {
	if err := w.above(name); err != nil {
		return err
	}
	return w.fsys.Remove(name)
}

func (w within) MkdirAll(path string, perm fs.FileMode) error {
	if err := w.whole(path); err != nil {
		return err
	}
	return w.fsys.MkdirAll(path, perm)
}

func (w within) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := w.whole(name); err != nil {
		return nil, err
	}
	return w.fsys.ReadDir(name)
}

func (w within) Lstat(name string) (fs.FileInfo, error) {
	if err := w.above(name); err != nil {
		return nil, err
	}
	return w.fsys.Lstat(name)
}

func (w within) SyncDir(name string) error {
	if err := w.whole(name); err != nil {
		return err
	}
	return w.fsys.SyncDir(name)
}
