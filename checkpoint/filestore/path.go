package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"belay/checkpoint"
	"belay/internal/vfs"
)

// fileName is the name of one checkpoint: the number has at least six digits, so that names sort by age for people.
func fileName(number uint64, level checkpoint.Level) string {
	return fmt.Sprintf("%06d-%s.md", number, strings.ToLower(string(level)))
}

// ParseName reads the name of a checkpoint's file: its number and level. Every number has one name, and no other is
// one.
func ParseName(name string) (number uint64, level checkpoint.Level, ok bool) {
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
func elements(key checkpoint.Key) []string { return elementsIn(key.Dir()) }

// elementsIn is elements for the session whose folder (checkpoint.Key.Dir) is given.
func elementsIn(session string) []string {
	return append(append([]string{sessionsName}, strings.Split(session, "/")...), Folder)
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
		if err := vfs.Safe(path, info, true); err != nil {
			return err
		}
	}
	return nil
}

// makeDirs makes the folders of a path and puts the name of each on stable storage. A folder that is there may be one
// whose sync failed or whose maker has not synced it yet, so only a sync of our own counts.
func (s *Store) makeDirs(elems []string) error {
	if err := s.makeRoot(); err != nil {
		return err
	}

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
		if err := vfs.Safe(path, info, true); err != nil {
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

// makeRoot makes the root, once. It may be a link: a person put it there.
func (s *Store) makeRoot() error {
	if s.isKnown(s.root) {
		return nil
	}
	if err := vfs.MakeDir(s.fsys, s.root); err != nil {
		return fmt.Errorf("make the store's folder: %w", err)
	}

	s.remember(s.root)
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
