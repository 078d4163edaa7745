package opencode

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/kit/plugin"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

var paths = agent.Paths{Hook: "/opt/belay/belay-hook"}

// box is an opencode of the tests: its folder holds what a user has there.
func box(t *testing.T, folders ...string) *Agent {
	t.Helper()
	a := &Agent{config: filepath.Join(t.TempDir(), "opencode"), fsys: vfs.OS{}}
	for _, f := range append([]string{""}, folders...) {
		if err := os.MkdirAll(filepath.Join(a.config, f), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(
		filepath.Join(a.config, "opencode.jsonc"), []byte("{ // mine\n \"plugin\": [], }\n"), 0o644,
	); err != nil {
		t.Fatal(err)
	}

	return a
}

// tree lists a folder: names, modes and bytes.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := e.Info()
		if err != nil {
			return err
		}

		b.WriteString(strings.TrimPrefix(path, dir) + " " + info.Mode().String())
		if !e.IsDir() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b.WriteString(" " + string(data))
		}

		b.WriteString("\n")
		return nil
	})

	if err != nil {
		t.Fatal(err)
	}

	return b.String()
}

func TestInstallAndBack(t *testing.T) {
	for _, c := range []struct {
		folders []string
		want    string
	}{{nil, "plugin"}, {[]string{
		"plugin",
	}, "plugin"}, {[]string{"plugins"}, "plugins"}, {[]string{"plugin", "plugins"}, "plugin"}} {
		a := box(t, c.folders...)
		before := tree(t, a.config)
		if _, err := a.Install(t.Context(), paths, true); err != nil || tree(t, a.config) != before {
			t.Errorf("%v: a dry run changed something, or failed: %v", c.folders, err)
		}

		for i, want := range []string{"create", "keep"} {
			changes, err := a.Install(t.Context(), paths, false)
			if err != nil || len(changes) != 1 || changes[0].Action != want ||
				changes[0].Path != filepath.Join(a.config, c.want, pluginName) {
				t.Errorf("%v: install %d: got %+v, %v, want %s in %s", c.folders, i, changes, err, want, c.want)
			}
		}

		text := tree(t, a.config)
		if !strings.Contains(text, `const HOOK = "/opt/belay/belay-hook";`) ||
			!strings.Contains(text, `const SOCKET = "";`) {
			t.Errorf("%v: the plugin does not name belay-hook's place", c.folders)
		}

		moved := agent.Paths{Hook: "/other/belay-hook", Socket: "/run/b.sock"}
		if changes, err := a.Install(t.Context(), moved, false); err != nil || changes[0].Action != "change" {
			t.Errorf("%v: another place: got %+v, %v, want a change", c.folders, changes, err)
		}

		if found := a.Check(
			t.Context(), paths,
		); len(found) != 2 ||
			!strings.Contains(found[1], "starts another belay-hook") {
			t.Errorf("%v: check: got %q, want that another program is started", c.folders, found)
		}

		for i, want := range []string{"remove", "keep"} {
			if changes, err := a.Uninstall(paths, false); err != nil || changes[0].Action != want {
				t.Errorf("%v: uninstall %d: got %+v, %v, want %s", c.folders, i, changes, err, want)
			}
		}

		if after := tree(t, a.config); after != before {
			t.Errorf("%v: after uninstall: got\n%s\nwant\n%s", c.folders, after, before)
		}
	}
}

func TestInstallLeavesOthersAlone(t *testing.T) {
	a := box(t, "plugin")
	mine := filepath.Join(a.config, "plugin", pluginName)
	if err := os.WriteFile(mine, []byte("export const Mine = 1"), 0o644); err != nil {
		t.Fatal(err)
	}

	before := tree(t, a.config)
	if _, err := a.Install(t.Context(), paths, false); !errors.Is(err, plugin.ErrForeign) {
		t.Errorf("install: got %v, want %v", err, plugin.ErrForeign)
	}
	if changes, err := a.Uninstall(paths, false); err != nil || changes[0].Action != "keep" {
		t.Errorf("uninstall: got %+v, %v, want keep", changes, err)
	}
	if tree(t, a.config) != before {
		t.Error("another's file was changed")
	}
	if _, err := (&Agent{fsys: vfs.OS{}}).Install(t.Context(), paths, false); !errors.Is(err, agent.ErrNoHome) {
		t.Errorf("no home: got %v, want %v", err, agent.ErrNoHome)
	}

	if _, err := box(
		t,
	).Install(
		t.Context(), agent.Paths{Hook: "belay-hook"}, false,
	); !errors.Is(
		err, agent.ErrBadHook,
	) {
		t.Errorf("a relative program: got %v, want %v", err, agent.ErrBadHook)
	}
}

// TestInstallFaultAtEveryOperation: whatever fails, the plugin is there whole or not at all, and the error is told.
func TestInstallFaultAtEveryOperation(t *testing.T) {
	for k := 0; ; k++ {
		a := box(t)
		before := tree(t, a.config)
		fault := vfstest.NewFault(vfs.OS{}, k, syscall.ENOSPC)
		a.fsys = fault
		_, err := a.Install(t.Context(), paths, false)
		if !fault.Fired() {
			if k < 5 {
				t.Errorf("only %d operations were tried", k)
			}
			return
		}

		a.fsys = vfs.OS{}
		whole := err == nil && len(a.Check(t.Context(), paths)) == 1
		if got := tree(t, a.config); errors.Is(err, syscall.ENOSPC) == whole && got != before {
			t.Errorf("operation %d (%s): error %v, the folder is\n%.300s", k, fault.Op(), err, got)
		}
		if _, err := a.Uninstall(paths, false); err != nil {
			t.Errorf("operation %d (%s): uninstall later: %v", k, fault.Op(), err)
		}
	}
}

func TestPresent(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"pkg/bin/opencode.exe": "", "pkg/package.json": `{"name":"opencode-ai","version":"1.18.33"}`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../pkg/bin/opencode.exe", filepath.Join(dir, "bin", "opencode")); err != nil {
		t.Fatal(err)
	}
	if v, ok := (&Agent{path: filepath.Join(dir, "bin"), fsys: vfs.OS{}}).Present(); !ok || v != "1.18.33" {
		t.Errorf("npm: got %q %v, want 1.18.33", v, ok)
	}
	if v, ok := box(t).Present(); !ok || v != "" {
		t.Errorf("its folder alone: got %q %v, want present without a version", v, ok)
	}
	if _, ok := (&Agent{path: "/nowhere", config: filepath.Join(dir, "no"), fsys: vfs.OS{}}).Present(); ok {
		t.Error("empty machine: present")
	}
}
