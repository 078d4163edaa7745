package vfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/internal/vfs"
)

// everything does each operation on a path, and gives the errors by the operation's name.
func everything(fsys vfs.FS, path, spare string) map[string]error {
	errs := map[string]error{}
	for name, flag := range map[string]int{"read": os.O_RDONLY, "write": os.O_WRONLY, "cut": os.O_WRONLY | os.O_TRUNC, "append": os.O_WRONLY | os.O_APPEND | os.O_CREATE} {
		f, err := fsys.OpenFile(path, flag, vfs.FileMode)
		if err == nil {
			err = f.Close()
		}
		errs[name] = err
	}

	_, errs["list"] = fsys.ReadDir(path)
	errs["sync"] = fsys.SyncDir(path)
	errs["make"] = fsys.MkdirAll(filepath.Join(path, "new"), vfs.DirMode)
	errs["replace in it"] = vfs.Replace(fsys, filepath.Join(path, "file"), nil)
	errs["rename from it"] = fsys.Rename(filepath.Join(path, "file"), spare)
	errs["remove in it"] = fsys.Remove(filepath.Join(path, "file"))
	_, errs["look in it"] = fsys.Lstat(filepath.Join(path, "file"))
	return errs
}

// TestWithinRefusesWhatLeadsOut: a link to a folder or file, a pipe and what another user owns are refused by every
// operation; what is behind stays as it was.
func TestWithinRefusesWhatLeadsOut(t *testing.T) {
	for name, plant := range map[string]func(t *testing.T, at, outside string) error{
		"a link to a folder": func(t *testing.T, at, outside string) error { return os.Symlink(outside, at) },
		"a link to a file":   func(t *testing.T, at, outside string) error { return os.Symlink(filepath.Join(outside, "file"), at) },
		"a link to nothing":  func(t *testing.T, at, outside string) error { return os.Symlink(filepath.Join(outside, "none"), at) },
		"a link to itself":   func(t *testing.T, at, outside string) error { return os.Symlink(at, at) },
		"a link to a device": func(t *testing.T, at, outside string) error { return os.Symlink("/dev/zero", at) },
		"a pipe":             func(t *testing.T, at, outside string) error { return syscall.Mkfifo(at, 0o600) },
		"another's folder": func(t *testing.T, at, outside string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a folder away")
			}
			return errors.Join(os.Mkdir(at, 0o777), os.WriteFile(filepath.Join(at, "file"), nil, 0o600), os.Chown(at, 12345, -1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, outside := t.TempDir(), t.TempDir()
			at := filepath.Join(root, "at")
			victim := filepath.Join(outside, "file")
			if err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o640), plant(t, at, outside)); err != nil {
				t.Fatal(err)
			}

			fsys := vfs.Within(vfs.OS{}, root)
			for op, err := range everything(fsys, at, filepath.Join(root, "spare")) {
				if name == "another's folder" && op != "replace in it" && op != "look in it" && op != "list" {
					continue // it cannot be opened as a file in any case
				}
				if !errors.Is(err, vfs.ErrUnsafe) {
					t.Errorf("%s: got %v, want ErrUnsafe", op, err)
				}
			}

			if data, err := os.ReadFile(victim); err != nil || string(data) != "mine" {
				t.Errorf("the victim holds %q, %v", data, err)
			}
			if info, err := os.Stat(victim); err != nil || info.Mode() != 0o640 {
				t.Errorf("the victim's mode is %v, %v", info.Mode(), err)
			}
			if list, err := os.ReadDir(outside); err != nil || len(list) != 1 {
				t.Errorf("outside lies %v, %v, want the victim alone", list, err)
			}

			// What is in the way can be seen and taken away, by its name.
			if _, err := fsys.Lstat(at); err != nil {
				t.Errorf("look at it: %v", err)
			}
			if err := fsys.Rename(at, at+".bad"); err != nil {
				t.Errorf("set it aside: %v", err)
			}
		})
	}
}

// TestWithinLetsTheRestPass: the root may be a link, and what lies outside is no business of it.
func TestWithinLetsTheRestPass(t *testing.T) {
	target, outside := t.TempDir(), t.TempDir()
	root := filepath.Join(outside, "root")
	settings, linked := filepath.Join(outside, "settings"), filepath.Join(outside, "linked")
	if err := errors.Join(
		os.Symlink(target, root), os.WriteFile(settings, []byte("s"), 0o600), os.Symlink(settings, linked),
	); err != nil {
		t.Fatal(err)
	}

	fsys := vfs.Within(vfs.OS{}, root)
	name := filepath.Join(root, "a", "b")
	if err := errors.Join(
		vfs.MakeDir(fsys, filepath.Dir(name)), vfs.Replace(fsys, name, []byte("x")),
		vfs.SweepTemps(fsys, root, time.Time{}),
	); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{name: "x", linked: "s"} {
		if got, err := vfs.ReadFile(fsys, path, 10); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", strings.TrimPrefix(path, outside), got, err, want)
		}
	}

	if _, err := fsys.Lstat(filepath.Join(root, "a", "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: got %v, want ErrNotExist", err)
	}
	if err := fsys.Remove(name); err != nil {
		t.Error(err)
	}
}
