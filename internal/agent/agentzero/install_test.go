package agentzero

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/kit/plugin"
	"belay/internal/vfs"
)

// place is an Agent Zero's folder, with a hook program beside it.
func place(t *testing.T) (*Agent, agent.Paths) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "a0 with \"quotes\"")
	put(t, filepath.Join(root, "agent.py"), "# the program\n")
	put(t, filepath.Join(root, "usr", "settings.json"), "{}\n")
	hook := filepath.Join(root, "belay-hook")
	put(t, hook, "#!/bin/sh\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}

	return &Agent{roots: []string{filepath.Join(root, "absent"), root}, fsys: vfs.OS{}}, agent.Paths{Hook: hook}
}

// tree is all that lies below a folder.
func tree(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := e.Info()
		if err != nil || e.IsDir() {
			list = append(list, path+" "+e.Type().String())
			return err
		}

		data, err := os.ReadFile(path)
		list = append(list, fmt.Sprintf("%s %v %x", path, info.Mode(), sha256.Sum256(data)))
		return err
	})

	if err != nil {
		t.Fatal(err)
	}

	return list
}

func actions(changes []agent.Change) (list []string) {
	for _, c := range changes {
		list = append(list, c.Action)
	}
	return list
}

func TestInstallAndUninstall(t *testing.T) {
	a, p := place(t)
	root := a.roots[1]
	foreign := filepath.Join(root, "usr", "extensions", "python", "monologue_end", "_50_mine.py")
	for name, prepare := range map[string]func(){
		"nothing is there":           func() {},
		"another extension is there": func() { put(t, foreign, "# mine\n") },
	} {
		prepare()
		before := tree(t, root)
		if got, err := a.Install(
			t.Context(), p, true,
		); err != nil ||
			!slices.Equal(actions(got), []string{"create", "create", "create", "create", "create"}) {
			t.Errorf("%s: dry run: %v %v", name, got, err)
		}

		if !slices.Equal(tree(t, root), before) {
			t.Errorf("%s: a dry run changed something", name)
		}

		if found := a.Check(
			t.Context(), p,
		); len(found) != 1 ||
			!strings.Contains(found[0], "not installed at monologue_start, message_loop_prompts_after") {
			t.Errorf("%s: check before: %q", name, found)
		}

		if _, err := a.Install(t.Context(), p, false); err != nil {
			t.Fatal(err)
		}
		if found := a.Check(t.Context(), p); len(found) > 0 {
			t.Errorf("%s: check after: %q", name, found)
		}
		if found := a.Check(t.Context(), agent.Paths{Hook: p.Hook, Socket: "/other.sock"}); len(found) != 5 {
			t.Errorf("%s: check for another socket: %q", name, found)
		}

		if got, err := a.Install(
			t.Context(), p, false,
		); err != nil ||
			!slices.Equal(actions(got), []string{"keep", "keep", "keep", "keep", "keep"}) {
			t.Errorf("%s: a second run: %v %v", name, got, err)
		}

		if got, err := a.Install(
			t.Context(), agent.Paths{Hook: p.Hook, Socket: "/other.sock"}, false,
		); err != nil ||
			actions(got)[0] != "change" {
			t.Errorf("%s: another socket: %v %v", name, got, err)
		}

		if got, err := a.Uninstall(p, true); err != nil || len(got) != 5 {
			t.Errorf("%s: dry run: %v %v", name, got, err)
		}
		if got, err := a.Uninstall(p, false); err != nil || len(got) != 5 {
			t.Errorf("%s: uninstall: %v %v", name, got, err)
		}
		if after := tree(t, root); !slices.Equal(after, before) {
			t.Errorf("%s: uninstall left\n%s\nwant\n%s", name, strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
		if got, err := a.Uninstall(p, false); err != nil || !slices.Equal(actions(got), []string{"keep"}) {
			t.Errorf("%s: nothing to uninstall: %v %v", name, got, err)
		}
	}
}

func TestInstallRefuses(t *testing.T) {
	a, p := place(t)
	root := a.roots[1]
	if _, err := a.Install(t.Context(), agent.Paths{Hook: "belay-hook"}, false); !errors.Is(err, agent.ErrBadHook) {
		t.Errorf("a relative hook: %v", err)
	}

	taken := filepath.Join(root, "usr", "extensions", "python", "monologue_end", "_95_belay.py")
	put(t, taken, "# somebody else's\n")
	before := tree(t, root)
	if _, err := a.Install(t.Context(), p, false); !errors.Is(err, plugin.ErrForeign) {
		t.Errorf("a place that is taken: %v", err)
	}
	if got, err := a.Uninstall(p, false); err != nil || !slices.Equal(actions(got), []string{"keep"}) {
		t.Errorf("another's: %v %v", got, err)
	}
	if !slices.Equal(tree(t, root), before) {
		t.Error("something changed")
	}

	none := &Agent{roots: []string{t.TempDir()}, fsys: vfs.OS{}}
	if _, err := none.Install(t.Context(), p, false); !errors.Is(err, ErrNoProgram) {
		t.Errorf("no program: %v", err)
	}
	if _, ok := none.Present(); ok {
		t.Error("an empty folder is taken for an Agent Zero")
	}
}

// A folder that cannot be written leaves nothing half installed.
func TestInstallIsWhole(t *testing.T) {
	a, p := place(t)
	root := a.roots[1]

	// A file where the last extension's folder should be.
	put(t, filepath.Join(root, "usr", "extensions", "python", "tool_execute_after"), "no folder\n")
	before := tree(t, root)
	if _, err := a.Install(t.Context(), p, false); err == nil {
		t.Error("installed over a file")
	}
	if after := tree(t, root); !slices.Equal(after, before) {
		t.Errorf("left behind\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

func TestLocate(t *testing.T) {
	a, _ := place(t)
	root := a.roots[1]
	chats := filepath.Join(root, "usr", "chats")
	put(t, filepath.Join(chats, "one", "chat.json"), chatFile("user", "g", []map[string]any{topic("", user("u", "x"))}))
	put(t, filepath.Join(chats, "hidden", "chat.json"), chatFile("background", "g"))
	put(t, filepath.Join(chats, "session.json"), `{"id":"session","agents":[]}`)
	put(t, filepath.Join(chats, "empty", "messages", "1.txt"), "x")
	for session, want := range map[string]int{"": 2, "aB3dE6gH": 1, "session": 1, "hidden": 0, "absent": 0} {
		found, err := a.Locate(context.Background(), agent.Query{Session: session})
		if err != nil || len(found) != want {
			t.Errorf("session %q: %v %v, want %d", session, found, err, want)
		}

		for _, f := range found {
			if f.Workspace != payload.RealPath(root) {
				t.Errorf("workspace %q, want %q", f.Workspace, root)
			}
		}
	}

	if found, err := a.Locate(
		context.Background(), agent.Query{Workspace: "/elsewhere"},
	); err != nil ||
		len(found) != 0 {
		t.Errorf("another workspace: %v %v", found, err)
	}
}

func TestRecognise(t *testing.T) {
	data, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	for head, want := range map[string]bool{
		string(data):       true,
		string(data[:200]): true,
		`{"id":"x","type":"user","agents":[{"history":"` + strings.Repeat("x", 1000): true,
		`{"id":"x","messages":[]}`: false,
		`{"agents":{}}`:            false,
		`[{"id":"agents"}]`:        false,
		"":                         false,
	} {
		if got := New(agent.Host{}).Recognise([]byte(head)) == agent.Mine; got != want {
			t.Errorf("%.60q: %v, want %v", head, got, want)
		}
	}
}
