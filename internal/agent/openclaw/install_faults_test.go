package openclaw

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// TestInstallIntoNothing: a home without any OpenClaw is one again after uninstall, and a folder that came meanwhile
// stays.
func TestInstallIntoNothing(t *testing.T) {
	a, path, p := installed(t, "")
	if err := os.Remove(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}

	for _, others := range []bool{false, true} {
		if _, err := a.Install(t.Context(), p, false); err != nil {
			t.Fatal(err)
		}
		if list := a.Check(t.Context(), p); len(list) > 0 {
			t.Errorf("after install: %v", list)
		}
		if others {
			putAll(t, path, map[string]string{"agents/main": "theirs"})
		}
		if _, err := a.Uninstall(p, false); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Dir(path)); errors.Is(err, os.ErrNotExist) == others {
			t.Errorf("the folder after uninstall: got %v, want it kept: %v", err, others)
		}
	}

	if left, err := os.ReadDir(filepath.Join(a.host.State, "install", name)); err != nil || len(left) != 0 {
		t.Errorf("belay's own records: got %v, %v, want none left", left, err)
	}
}

// TestInstallFaultAtEveryOperation: whatever fails, each file of the settings is the old or the new one, the error is
// told, the settings never name a plugin that is not whole, and the way back is open.
func TestInstallFaultAtEveryOperation(t *testing.T) {
	for shape, files := range map[string]map[string]string{
		"settings": {"openclaw.json": settings5}, "none": {}, "an include": {"openclaw.json": "{ plugins: { $include: 'p.json5' } }", "p.json5": "{ allow: ['x'] }"},
	} {
		for _, what := range []string{"install", "uninstall"} {
			for k := 0; ; k++ {
				if !faultAt(t, shape, files, what, k) {
					if k < 15 {
						t.Errorf("%s, %s: only %d operations were tried", shape, what, k)
					}
					break
				}
			}
		}
	}
}

// unsynced is the real disk without the waiting for it: what is tested here is what stands in the files.
type unsynced struct{ vfs.OS }

func (unsynced) SyncDir(string) error { return nil }

func (u unsynced) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := u.OS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }

// faultAt lets the k-th operation fail, and says whether there was one.
func faultAt(t *testing.T, shape string, files map[string]string, what string, k int) bool {
	t.Helper()
	a, path, p := installed(t, "")
	home := filepath.Dir(filepath.Dir(path))
	if putAll(t, path, files); len(files) == 0 {
		if err := os.Remove(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
	}

	before := agents(t, home)
	a.host.FS = unsynced{}
	if what == "uninstall" {
		if _, err := a.Install(t.Context(), p, false); err != nil {
			t.Fatal(err)
		}
	}

	fault := vfstest.NewFault(unsynced{}, k, syscall.ENOSPC)
	a.host.FS = fault
	var err error
	if what == "install" {
		_, err = a.Install(t.Context(), p, false)
	} else {
		_, err = a.Uninstall(p, false)
	}

	a.host.FS = unsynced{}

	// Closing a file that was only read cannot lose anything; and a plugin that cannot be looked at is written again.
	harmless := strings.HasPrefix(fault.Op(), "close") && !strings.HasSuffix(fault.Op(), vfs.TempSuffix) ||
		slices.Contains(
			pluginNames, strings.TrimPrefix(fault.Op(), "open "),
		) || slices.Contains(pluginNames, strings.TrimPrefix(fault.Op(), "read "))

	if fault.Fired() && !harmless && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%s, %s, operation %d (%s): error %v, want the fault", shape, what, k, fault.Op(), err)
	}

	now := agents(t, home)
	for file, text := range now {
		if !strings.Contains(file, folderName) && before[file] != text && text != "folder" &&
			!strings.Contains(text, a.pluginFolder()) {
			t.Errorf("%s, %s, operation %d (%s): %s is half: %q", shape, what, k, fault.Op(), file, text)
		}
		if strings.Contains(text, entryText) {
			for _, n := range pluginNames {
				if now[filepath.Join(a.pluginFolder(), n)] == "" {
					t.Errorf(
						"%s, %s, operation %d (%s): the settings name a plugin without %s", shape, what, k,
						fault.Op(), n,
					)
				}
			}
		}
	}

	if _, err := a.Uninstall(p, false); err != nil {
		t.Errorf("%s, %s, operation %d (%s): uninstall later: %v", shape, what, k, fault.Op(), err)
	}

	if after := agents(t, home); !maps.Equal(after, before) {
		t.Errorf(
			"%s, %s, operation %d (%s): after uninstall: got %v, want %v", shape, what, k, fault.Op(), after,
			before,
		)
	}

	return fault.Fired()
}

// agents are the files of a home, belay's own left out.
func agents(t *testing.T, home string) map[string]string {
	t.Helper()
	files := tree(t, home)
	maps.DeleteFunc(files, func(path, _ string) bool {
		return strings.HasPrefix(path, filepath.Join(home, ".local"))
	})
	return files
}
