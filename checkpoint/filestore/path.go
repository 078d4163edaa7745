package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"belay/checkpoint"
	"belay/internal/vfs"
)

// fileName is the name of one checkpoint: the number has at least six digits, so that names sort by age for people.
func fileName(number uint64, level checkpoint.Level) string {
	return fmt.Sprintf("%06d-%s.md", number, strings.ToLower(string(level)))
}

// parseName reads what fileName wrote, and nothing else: every number has one name.
func parseName(name string) (number uint64, level checkpoint.Level, ok bool) {
	digits, rest, _ := strings.Cut(name, "-")
	switch rest {
	case "full.md":
		level = checkpoint.Full
	case "sparse.md":
		level = checkpoint.Sparse
	default:
		return 0, "", false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || number == 0 || fileName(number, level) != name {
		return 0, "", false
	}
	return number, level, true
}

// elements are the folders between the root and a session's checkpoints.
func elements(key checkpoint.Key) []string {
	return append(append([]string{sessionsName}, strings.Split(key.Dir(), "/")...), checkpointsName)
}

func (s *Store) path(elems []string) string {
	return filepath.Join(s.root, filepath.Join(elems...))
}

// checkDirs refuses a path that leaves the root or belongs to somebody else. A folder that is not there is
// fs.ErrNotExist.
func (s *Store) checkDirs(elems []string) error {
	for i := range elems {
		path := s.path(elems[:i+1])
		info, err := s.fsys.Lstat(path)
		if err != nil {
			return err
		}
		if err := safe(path, info, true); err != nil {
			return err
		}
	}
	return nil
}

// makeDirs makes the folders of a path and puts the name of each on stable storage. A folder that is there may be one
// whose sync failed or whose maker has not synced it yet, so only a sync of our own counts.
func (s *Store) makeDirs(elems []string) error {
	for i := range elems {
		path := s.path(elems[:i+1])
		info, err := s.fsys.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			s.forget(path)
			if err := s.fsys.MkdirAll(path, vfs.DirMode); err != nil {
				return err
			}
			info, err = s.fsys.Lstat(path)
		}
		if err != nil {
			return err
		}
		if err := safe(path, info, true); err != nil {
			return err
		}
		if s.isKnown(path) {
			continue
		}
		if err := s.fsys.SyncDir(filepath.Dir(path)); err != nil {
			return fmt.Errorf("sync folder of %s: %w", path, err)
		}
		s.remember(path)
	}
	return nil
}

func (s *Store) isKnown(path string) bool {
	s.known.Lock()
	defer s.known.Unlock()
	_, ok := s.known.dirs[path]
	return ok
}

func (s *Store) remember(path string) {
	s.known.Lock()
	defer s.known.Unlock()
	if len(s.known.dirs) >= maxKnown {
		clear(s.known.dirs)
	}
	s.known.dirs[path] = struct{}{}
}

func (s *Store) forget(path string) {
	s.known.Lock()
	defer s.known.Unlock()
	delete(s.known.dirs, path)
}

// safe says whether what lies at a path below the root may be used.
func safe(path string, info fs.FileInfo, dir bool) error {
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

// makeRoot makes the root folder and all above it, each name durable. The root itself may be a link: a person put it
// there.
func makeRoot(fsys vfs.FS, root string) error {
	var missing []string
	for dir := root; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		_, err := fsys.Lstat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, dir)
	}
	if err := fsys.MkdirAll(root, vfs.DirMode); err != nil {
		return err
	}
	for _, dir := range missing {
		if err := fsys.SyncDir(filepath.Dir(dir)); err != nil {
			return fmt.Errorf("sync folder of %s: %w", dir, err)
		}
	}
	// One that is there may have been made a moment before a crash; a parent that is not ours to read is not of our
	// making, and its names have been synced by whoever made it.
	if err := fsys.SyncDir(filepath.Dir(root)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("sync folder of %s: %w", root, err)
	}
	return nil
}
