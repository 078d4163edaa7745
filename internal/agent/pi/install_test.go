package pi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/agent/kit/plugin"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// newBox is one user's machine; with a version pi's program is on it.
func newBox(t *testing.T, version string) *Program {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	a := Pi(agent.Host{})
	a.kin.Home, a.path, a.fsys = filepath.Join(dir, ".pi", "agent"), filepath.Join(dir, "bin"), vfs.OS{}
	if version != "" {
		pkg := filepath.Join(dir, "lib", "pi-coding-agent")
		put(t, filepath.Join(pkg, "package.json"), `{"name":"@anyone/pi-coding-agent","version":"`+version+`"}`)
		put(t, filepath.Join(pkg, "dist", "cli.js"), "#!/usr/bin/env node\n")
		if err := errors.Join(os.Chmod(filepath.Join(pkg, "dist", "cli.js"), 0o755), os.MkdirAll(a.path, 0o755),
			os.Symlink(filepath.Join(pkg, "dist", "cli.js"), filepath.Join(a.path, "pi"))); err != nil {
			t.Fatal(err)
		}
	}

	return a
}

// hookAt makes a program to stand for belay-hook.
func hookAt(t *testing.T) agent.Paths {
	t.Helper()
	p := agent.Paths{Hook: filepath.Join(t.TempDir(), `a "quoted" folder`, "belay-hook")}
	put(t, p.Hook, "#!/bin/sh\n")
	if err := os.Chmod(p.Hook, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func act(t *testing.T, list []agent.Change, err error, want string) {
	t.Helper()
	if err != nil || len(list) != 1 || list[0].Action != want {
		t.Errorf("got %+v, %v, want one change: %s", list, err, want)
	}
}

func TestInstallAndUninstall(t *testing.T) {
	for _, there := range []string{"", "..", ".", "extensions"} { // which of pi's folders were there before
		a, p := newBox(t, ""), hookAt(t)
		if there != "" {
			if err := os.MkdirAll(filepath.Join(a.kin.Home, there), 0o755); err != nil {
				t.Fatal(err)
			}
		}

		root := filepath.Dir(filepath.Dir(a.kin.Home))
		before := tree(t, root)
		list, err := a.Install(t.Context(), p, true)
		act(t, list, err, "create")
		if got := tree(t, root); got != before {
			t.Errorf("a dry run changed something: %s, want %s", got, before)
		}

		list, err = a.Install(t.Context(), p, false)
		act(t, list, err, "create")
		if got := a.Check(t.Context(), p); len(got) != 0 {
			t.Errorf("after install: %q", got)
		}

		list, err = a.Install(t.Context(), p, false)
		act(t, list, err, "keep")
		p.Socket = "/run/other.sock"
		if got := a.Check(t.Context(), p); len(got) != 1 || !strings.Contains(got[0], "install it again") {
			t.Errorf("with another socket: got %q, want one finding", got)
		}

		list, err = a.Install(t.Context(), p, false)
		act(t, list, err, "change")
		data, err := os.ReadFile(a.plugin().Files[0].Path)
		if err != nil || !strings.Contains(string(data), `const SOCKET = "/run/other.sock";`) ||
			!strings.Contains(string(data), `a \"quoted\" folder/belay-hook";`) {
			t.Errorf("%v: the extension does not name socket and hook", err)
		}

		list, err = a.Uninstall(p, true)
		act(t, list, err, "remove")
		list, err = a.Uninstall(p, false)
		act(t, list, err, "remove")
		if got := tree(t, root); got != before {
			t.Errorf("with %q there before, uninstall left %s, want %s", there, got, before)
		}

		list, err = a.Uninstall(p, false)
		act(t, list, err, "keep")
		if got := a.Check(t.Context(), p); len(got) != 1 || !strings.Contains(got[0], "not installed") {
			t.Errorf("after uninstall: got %q, want one finding", got)
		}
	}
}

// tree lists a folder's files and folders.
func tree(t *testing.T, root string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(path, root))
		return err
	})

	if err != nil {
		t.Fatal(err)
	}

	return strings.Join(names, " ")
}

func TestInstallKeepsWhatIsNotOurs(t *testing.T) {
	a, p := newBox(t, ""), hookAt(t)
	put(t, a.plugin().Files[0].Path, "export default function () {}\n")
	if _, err := a.Install(t.Context(), p, false); !errors.Is(err, plugin.ErrForeign) {
		t.Errorf("install over a user's own file: got %v, want plugin.ErrForeign", err)
	}

	list, err := a.Uninstall(p, false)
	act(t, list, err, "keep")
	if data, err := os.ReadFile(
		a.plugin().Files[0].Path,
	); err != nil ||
		string(data) != "export default function () {}\n" {
		t.Errorf("the user's file is now %q, %v", data, err)
	}

	a = newBox(t, "")
	list, err = a.Install(t.Context(), p, false)
	act(t, list, err, "create")
	put(t, filepath.Join(a.kin.Home, "settings.json"), "{}")
	list, err = a.Uninstall(p, false)
	act(t, list, err, "remove")
	if _, err := os.Stat(filepath.Join(a.kin.Home, "settings.json")); err != nil {
		t.Errorf("pi's own file went with the folder: %v", err)
	}
}

func TestInstallRefuses(t *testing.T) {
	a := newBox(t, "")
	for _, hook := range []string{"", "belay-hook", "/bin/\xff/belay-hook"} {
		if _, err := a.Install(t.Context(), agent.Paths{Hook: hook}, false); !errors.Is(err, agent.ErrBadHook) {
			t.Errorf("hook %q: got %v, want agent.ErrBadHook", hook, err)
		}
	}

	a.kin.Home = ""
	if _, err := a.Install(t.Context(), hookAt(t), false); !errors.Is(err, agent.ErrNoHome) {
		t.Errorf("without a home: got %v, want agent.ErrNoHome", err)
	}
	if _, err := a.Uninstall(agent.Paths{}, false); !errors.Is(err, agent.ErrNoHome) {
		t.Errorf("without a home: got %v, want agent.ErrNoHome", err)
	}
}

// TestInstallFaultAtEveryOperation: whatever fails, the error is told, and no half of an extension is there.
func TestInstallFaultAtEveryOperation(t *testing.T) {
	for _, what := range []string{"install", "again", "uninstall"} {
		for k := 0; ; k++ {
			a, p := newBox(t, ""), hookAt(t)
			if what != "install" {
				if _, err := a.Install(t.Context(), agent.Paths{Hook: "/old/belay-hook"}, false); err != nil {
					t.Fatal(err)
				}
			}

			old, _ := os.ReadFile(a.plugin().Files[0].Path)
			fault := vfstest.NewFault(vfs.OS{}, k, syscall.ENOSPC)
			a.fsys = fault
			var err error
			if what == "uninstall" {
				_, err = a.Uninstall(p, false)
			} else {
				_, err = a.Install(t.Context(), p, false)
			}

			a.fsys = vfs.OS{}
			now, _ := os.ReadFile(a.plugin().Files[0].Path)
			next, rerr := plugin.OneFile(extension, p)
			if rerr != nil {
				t.Fatal(rerr)
			}
			if s := string(now); s != string(old) && !a.plugin().Files[0].Holds(now, next) && s != "" {
				t.Errorf("%s, op %d (%s): neither old nor new: %q", what, k, fault.Op(), s)
			}
			if err == nil && fault.Fired() && what != "uninstall" && !a.plugin().Files[0].Holds(now, next) {
				t.Errorf("%s, op %d (%s): no error, and the extension is not there", what, k, fault.Op())
			}
			if !fault.Fired() {
				break // k is past the last operation
			}
		}
	}
}

func TestPresent(t *testing.T) {
	a := newBox(t, "1.6.0")
	if v, ok := a.Present(); v != "1.6.0" || !ok {
		t.Errorf("got %q, %v, want 1.6.0", v, ok)
	}

	a = newBox(t, "")
	if v, ok := a.Present(); v != "" || ok {
		t.Errorf("nothing there: got %q, %v", v, ok)
	}

	put(t, filepath.Join(a.path, "pi"), "#!/bin/sh\n") // another program of that name
	if err := os.Chmod(filepath.Join(a.path, "pi"), 0o755); err != nil {
		t.Fatal(err)
	}
	if v, ok := a.Present(); v != "" || ok {
		t.Errorf("another pi: got %q, %v", v, ok)
	}
	if err := os.MkdirAll(a.kin.Home, 0o755); err != nil {
		t.Fatal(err)
	}
	if v, ok := a.Present(); v != "" || !ok {
		t.Errorf("with pi's folder: got %q, %v, want it present", v, ok)
	}
}

func TestCheckTellsOfPrograms(t *testing.T) {
	a, p := newBox(t, "9.9.9"), hookAt(t)
	if _, err := a.Install(t.Context(), p, false); err != nil {
		t.Fatal(err)
	}

	p.Hook = "/nowhere/belay-hook"
	if got := strings.Join(
		a.Check(t.Context(), p), "\n",
	); !strings.Contains(got, "no program that can be started") ||
		!strings.Contains(got, "starts another belay-hook") {
		t.Errorf("got %q, want both findings", got)
	}
}

func TestHome(t *testing.T) {
	for _, tt := range []struct{ dir, want string }{
		{"", "/h/.pi/agent"}, {"/x/../y/", "/y"}, {"~/p", "/h/p"}, {"~", "/h"}, {"relative", ""},
	} {
		if got := piHome(agenttest.Host("/h", "PI_CODING_AGENT_DIR="+tt.dir)); got != tt.want {
			t.Errorf("PI_CODING_AGENT_DIR=%q: got %q, want %q", tt.dir, got, tt.want)
		}
	}
}
