package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/vfs"
)

var paths = agent.Paths{Hook: `/opt/be"lay/belay-hook`, Socket: "/run/b.sock"}

const body = `// mine
// two lines

import * as fs from "node:fs";
import { makeLine } from "./line.js";

const MINE = 1;
export const plugin = () => makeLine(fs, MINE);
`

// TestOneFile: the line is in the plugin once, with each import once, and exports nothing of its own.
func TestOneFile(t *testing.T) {
	got, err := OneFile(body, paths)
	if err != nil {
		t.Fatal(err)
	}

	for text, want := range map[string]int{
		`import * as fs from "node:fs";`: 1, `import * as net from "node:net";`: 1, "line.js": 0,
		"\nfunction makeLine(": 1, "\nexport ": 1,
		`const HOOK = "/opt/be\"lay/belay-hook";`: 1, `const SOCKET = "/run/b.sock";`: 1, "\nconst MINE = 1;": 1,
	} {
		if n := strings.Count(got, text); n != want {
			t.Errorf("%q is there %d times, want %d:\n%s", text, n, want, got)
		}
	}

	if !strings.HasPrefix(got, "// mine\n// two lines\n\nimport ") {
		t.Errorf("begins with %.60q, want the plugin's own first lines", got)
	}
	if _, err := OneFile("const a = 1;\n", paths); err == nil {
		t.Error("a plugin that does not import the line: got no error")
	}

	for _, hook := range []string{"", "belay-hook", "/a\xff"} {
		if _, err := OneFile(body, agent.Paths{Hook: hook}); !errors.Is(err, agent.ErrBadHook) {
			t.Errorf("hook %q: got %v, want %v", hook, err, agent.ErrBadHook)
		}
	}
}

// TestFile: put, put again, another text, and away with the folders that were made.
func TestFile(t *testing.T) {
	root := t.TempDir()
	f := File{FS: vfs.OS{}, Path: filepath.Join(root, "a", "b", "c.py"), Marker: "# ours\n"}
	for _, c := range []struct {
		text, want string
		dry        bool
	}{{"# ours\n\none", "create", true}, {"# ours\n\none", "create", false}, {"# ours\n\none", "keep", false}, {"# ours\n\ntwo", "change", true}, {"# ours\n\ntwo", "change", false}} {
		if got, err := f.Put(c.text, c.dry); got != c.want || err != nil {
			t.Errorf("put %q (dry: %v): got %q, %v, want %q", c.text, c.dry, got, err, c.want)
		}
	}

	data, err := f.Read()
	if want := "# ours\n# Folders made for it: 2\n\ntwo"; err != nil || string(data) != want ||
		!f.Holds(data, "# ours\n\ntwo") ||
		f.Holds(data, "# ours\n\none") {
		t.Errorf("got %q, %v, want %q", data, err, want)
	}

	tidied := ""
	for range 2 { // once more: nothing is there
		if err := f.Remove(func(dir string) { tidied += dir }); err != nil {
			t.Error(err)
		}
	}

	if left, err := os.ReadDir(root); err != nil || len(left) > 0 || tidied != filepath.Dir(f.Path) {
		t.Errorf("left: %v, %v, tidied %q, want nothing, and one tidying", left, err, tidied)
	}
	if err := os.WriteFile(filepath.Join(root, "theirs"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	f.Path = filepath.Join(root, "theirs")
	if _, err := f.Put("# ours\n\none", false); !errors.Is(err, ErrForeign) {
		t.Errorf("another's file: got %v, want %v", err, ErrForeign)
	}
	if err := f.Remove(nil); !errors.Is(err, ErrForeign) {
		t.Errorf("remove another's file: got %v, want %v", err, ErrForeign)
	}
	if _, err := (File{FS: vfs.OS{}}).Put("", false); !errors.Is(err, agent.ErrNoHome) {
		t.Errorf("no place: got %v, want %v", err, agent.ErrNoHome)
	}
}
