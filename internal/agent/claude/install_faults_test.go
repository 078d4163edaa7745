package claude

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"belay/internal/agent"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// failFS fails to open files for writing below a folder, as a read-only file system does.
type failFS struct {
	vfs.FS
	below string
	err   error
}

func (f failFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 && strings.HasPrefix(name, f.below) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.FS.OpenFile(name, flag, perm)
}

func TestInstallOnReadOnlyFolders(t *testing.T) {
	for _, state := range []bool{false, true} {
		b := newBox(t, "2.1.328")
		writeAll(t, b.file, usersHooks, 0o600)
		below := b.home
		if state {
			below = b.state
		}

		b.fsys = failFS{vfs.OS{}, below, syscall.EROFS}
		_, err := b.Install(t.Context(), agent.Paths{Hook: hookPath}, false)
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "install hooks in "+b.file) {
			t.Errorf("error %v, want one that names %s and says read-only", err, b.file)
		}
		if got := b.read(); got != usersHooks {
			t.Errorf("the file is now %q", got)
		}

		left, err := os.ReadDir(b.home)
		if err != nil || len(left) != 1 {
			t.Errorf("left behind in the folder: %v (%v), want the settings only", left, err)
		}

		b.fsys = vfs.OS{}
		b.uninstall("keep")
	}
}

// TestInstallFaultAtEveryOperation: whatever fails, the file is the old or the new one, the error is told, and the way
// back is open.
func TestInstallFaultAtEveryOperation(t *testing.T) {
	for _, text := range []string{usersHooks, ""} {
		for _, what := range []string{"install", "uninstall"} {
			for k := 0; ; k++ {
				b := newBox(t, "2.1.328")
				if text != "" {
					writeAll(t, b.file, text, 0o600)
				}

				if what == "uninstall" {
					if _, err := b.Install(t.Context(), agent.Paths{Hook: hookPath}, false); err != nil {
						t.Fatal(err)
					}
				}

				fault := vfstest.NewFault(vfs.OS{}, k, syscall.ENOSPC)
				b.fsys = fault
				var err error
				if what == "install" {
					_, err = b.Install(t.Context(), agent.Paths{Hook: hookPath}, false)
				} else {
					_, err = b.Uninstall(agent.Paths{}, false)
				}

				// Closing a file that was only read cannot lose anything.
				harmless := strings.HasPrefix(fault.Op(), "close") && !strings.HasSuffix(fault.Op(), vfs.TempSuffix)
				if fault.Fired() && !harmless && !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("%s, operation %d (%s): error %v", what, k, fault.Op(), err)
				}
				if got, err := os.ReadFile(b.file); string(got) != text && !strings.Contains(string(got), hookPath) {
					t.Errorf("%s, operation %d (%s): the file is half: %q (%v)", what, k, fault.Op(), got, err)
				}

				b.fsys = vfs.OS{}
				if _, err := b.Uninstall(agent.Paths{}, false); err != nil {
					t.Errorf("%s, operation %d (%s): uninstall later: %v", what, k, fault.Op(), err)
				}
				if got, _ := os.ReadFile(b.file); string(got) != text {
					t.Errorf("%s, operation %d (%s): got %q back", what, k, fault.Op(), got)
				}

				if !fault.Fired() {
					if k < 8 {
						t.Errorf("%s: only %d operations were tried", what, k)
					}
					break
				}
			}
		}
	}
}
