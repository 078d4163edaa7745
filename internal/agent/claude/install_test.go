package claude

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
	"belay/internal/vfs"
)

const hookPath = "/opt/belay/belay-hook"

// box is one user's machine: a home, a state folder, and a claude program of some version.
type box struct {
	*Agent
	t    *testing.T
	file string // the settings
}

// newBox makes a machine; with no version there is no claude program on it.
func newBox(t *testing.T, version string) box {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	a := &Agent{
		home:    filepath.Join(dir, ".claude"),
		plain:   filepath.Join(dir, ".claude"),
		state:   filepath.Join(dir, "state"),
		managed: filepath.Join(dir, "managed.json"),
		fsys:    vfs.OS{},
	}

	if version != "" {
		a.path = filepath.Join(dir, "bin")
		writeAll(t, filepath.Join(dir, "versions", version), "#!/bin/sh\n", 0o755)
		link(t, filepath.Join(dir, "versions", version), filepath.Join(a.path, "claude"))
	}

	return box{a, t, filepath.Join(a.home, "settings.json")}
}

func writeAll(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

func (b box) read() string {
	b.t.Helper()
	text, err := os.ReadFile(b.file)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

func (b box) install(hook, want string) {
	b.t.Helper()
	changes, err := b.Install(b.t.Context(), agent.Paths{Hook: hook}, false)
	b.changed("install", changes, err, want)
}

func (b box) uninstall(want string) {
	b.t.Helper()
	changes, err := b.Uninstall(agent.Paths{}, false)
	b.changed("uninstall", changes, err, want)
}

func (b box) changed(what string, changes []agent.Change, err error, want string) {
	b.t.Helper()
	if err != nil || len(changes) != 1 || changes[0].Action != want || changes[0].Path != b.file {
		b.t.Fatalf("%s: %+v, error %v; want one change %q of %s", what, changes, err, want, b.file)
	}
}

// hooksIn reads the file as Claude Code does and lists command and args of each event's handlers.
func (b box) hooksIn() map[string][]string {
	b.t.Helper()
	var s struct{ Hooks map[string][]json.RawMessage }
	if err := json.Unmarshal([]byte(strings.TrimPrefix(b.read(), "\ufeff")), &s); err != nil {
		b.t.Fatalf("settings are no JSON any more: %v\n%s", err, b.read())
	}

	got := map[string][]string{}
	for event, groups := range s.Hooks {
		for _, raw := range groups {
			var g struct {
				Hooks []struct {
					Command string
					Args    []string
				}
			}

			_ = json.Unmarshal(raw, &g) // odd groups are the user's affair
			for _, h := range g.Hooks {
				got[event] = append(got[event], strings.Join(append([]string{h.Command}, h.Args...), " "))
			}
		}
	}

	return got
}

const usersHooks = `{
	"model": "opus",
	"hooks": {
		"Stop": [
			{"hooks": [{"type": "command", "command": "say done"}]}
		],
		"PreToolUse": [{"matcher": "Bash", "hooks": [{"type":"command","command":"/usr/bin/guard","timeout":10}]}]
	},
	"permissions": {"allow": ["Bash(ls:*)"]}
}
`

// TestInstallRestoresTheSameBytes: installed twice, then taken out, whatever the file looked like.
func TestInstallRestoresTheSameBytes(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"empty file", ""},
		{"blank file", " \n\n"},
		{"empty object", "{}"},
		{"empty object on lines", "{\n}\n"},
		{"hooks of the user's", usersHooks},
		{"one line", `{"model":"opus","hooks":{"Stop":[{"hooks":[{"type":"command","command":"x"}]}]}}`},
		{"one line with spaces", `{ "model": "opus", "hooks": { } }`},
		{"four spaces", "{\n    \"a\": {\n        \"b\": []\n    }\n}\n"},
		{"windows", "\ufeff{\r\n\t\"a\": 1,\r\n\t\"hooks\": {\r\n\t\t\"Stop\": []\r\n\t}\r\n}\r\n"},
		{"odd", "\n\n {\"a\" :1\n,\"hooks\"\n:\n{ \"Stop\" : [ ] , \"X\":[ {\"hooks\":[ ]} ]}\n,   \"b\":[1,\n2] }   "},
		{"traps in strings", `{"a":"\"hooks\": {","b":"}]\\","hooks":{"x":[{"matcher":"[{"}]}}`},
		{"key twice", `{"hooks":{"Stop":[]},"hooks":{"PreCompact":[]}}`},
		{"groups of unknown form", `{"hooks":{"Stop":["x",{"hooks":7},{"hooks":[null,{"type":"http","url":"u"}]}]}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBox(t, "2.1.328")
			writeAll(t, b.file, tt.text, 0o640)
			b.install(hookPath, "change")
			once := b.read()
			hooks := b.hooksIn()
			for _, e := range hookEvents() {
				want := hookPath + " claude-code " + e.Name
				if e.Waits {
					want = hookPath + " --wait claude-code " + e.Name
				}
				if n := strings.Count(strings.Join(hooks[e.Name], "\n"), want); n != 1 {
					t.Errorf("%s: %d hooks, want 1 %q in %q", e.Name, n, want, hooks[e.Name])
				}
			}

			if findings := b.Check(
				t.Context(), agent.Paths{Hook: hookPath},
			); len(findings) != 1 ||
				!strings.Contains(findings[0], "no program") {
				t.Errorf("check: %q, want only that the hook is no program", findings)
			}

			b.install(hookPath, "keep")
			if got := b.read(); got != once {
				t.Errorf("the second run changed the file:\n%s", got)
			}

			b.uninstall("restore")
			if got := b.read(); got != tt.text {
				t.Errorf("got %q back, want %q", got, tt.text)
			}
			if info, err := os.Stat(b.file); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("mode %v (%v), want 0640", info.Mode(), err)
			}

			b.uninstall("keep")
		})
	}
}

func TestInstallWithoutAFile(t *testing.T) {
	b := newBox(t, "")
	b.install(hookPath, "create")
	if info, err := os.Stat(b.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("new file: mode %v (%v), want 0600", info.Mode(), err)
	}

	b.uninstall("remove")
	if _, err := os.Stat(b.home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder that install made is still there: %v", err)
	}

	writeAll(t, filepath.Join(b.home, "other"), "x", 0o600)
	b.install(hookPath, "create")
	b.uninstall("remove")
	if _, err := os.Stat(filepath.Join(b.home, "other")); err != nil {
		t.Errorf("the user's folder is gone: %v", err)
	}
}

// TestUninstallAfterTheUserChangedTheFile: only belay's entries go.
func TestUninstallAfterTheUserChangedTheFile(t *testing.T) {
	b := newBox(t, "2.1.328")
	writeAll(t, b.file, usersHooks, 0o600)
	b.install(hookPath, "change")
	writeAll(t, b.file, strings.Replace(b.read(), `"opus"`, `"sonnet"`, 1), 0o600)
	b.uninstall("change")
	if got, want := b.read(), strings.Replace(usersHooks, `"opus"`, `"sonnet"`, 1); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	// A file that install made stays when the user wrote something into it, and goes when nothing is left.
	for text, want := range map[string]string{`{"a": 1,`: "change", "{\n": "remove"} {
		b = newBox(t, "2.1.328")
		b.install(hookPath, "create")
		writeAll(t, b.file, strings.Replace(b.read(), "{", text, 1)+"\n", 0o600)
		b.uninstall(want)
		if _, err := os.Stat(b.file); (err == nil) != (want == "change") {
			t.Errorf("after %s: %v", want, err)
		}
	}
}

// TestInstallUpgrade: a new place of belay-hook and a new form replace the old entry; the way back stays the first one.
func TestInstallUpgrade(t *testing.T) {
	b := newBox(t, "2.1.100")
	writeAll(t, b.file, usersHooks, 0o600)
	b.install("/old place/belay-hook", "change")
	if got, want := b.hooksIn()["Stop"], []string{
		"say done",
		"exec '/old place/belay-hook' claude-code Stop",
	}; !reflect.DeepEqual(
		got, want,
	) {
		t.Errorf("old form: %q, want %q", got, want)
	}

	newer := newBox(t, "2.1.328")
	b.path = newer.path
	b.install(hookPath, "change")
	if got, want := b.hooksIn()["Stop"], []string{
		"say done",
		hookPath + " claude-code Stop",
	}; !reflect.DeepEqual(
		got, want,
	) {
		t.Errorf("new form: %q, want %q", got, want)
	}

	b.uninstall("restore")
	if got := b.read(); got != usersHooks {
		t.Errorf("got\n%s\nwant\n%s", got, usersHooks)
	}
}

// TestInstallEventsOfTheVersion: names that an old version does not know would spoil its whole settings file.
func TestInstallEventsOfTheVersion(t *testing.T) {
	for version, want := range map[string]int{
		"1.0.38": 3, "2.0.43": 9, "2.1.77": 11, "2.1.101": 12, "2.1.328": 12, "": 12,
	} {
		b := newBox(t, version)
		b.install(hookPath, "create")
		if got := len(b.hooksIn()); got != want {
			t.Errorf("version %q: %d events, want %d", version, got, want)
		}
		if exec := strings.Contains(b.read(), `"args"`); exec != (version == "2.1.328") {
			t.Errorf("version %q: exec form %v", version, exec)
		}
	}
}

func TestInstallNamesTheSocketWhenAsked(t *testing.T) {
	b := newBox(t, "")
	p := agent.Paths{Hook: "/it's/belay-hook", Socket: "/s p/b.sock"}
	if _, err := b.Install(t.Context(), p, false); err != nil {
		t.Fatal(err)
	}

	want := `exec '/it'\''s/belay-hook' --socket '/s p/b.sock' claude-code Stop`
	if got := b.hooksIn()["Stop"][0]; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	changes, err := b.Install(t.Context(), p, false)
	b.changed("second install", changes, err, "keep")
	b.uninstall("remove")
}

func TestInstallThroughALink(t *testing.T) {
	for _, tt := range []struct{ name, text string }{{"a file", usersHooks}, {"nowhere yet", ""}} {
		b := newBox(t, "2.1.328")
		target := filepath.Join(filepath.Dir(b.home), "dotfiles", "claude.json")
		install, uninstall := "create", "remove"
		if tt.text != "" {
			writeAll(t, target, tt.text, 0o644)
			install, uninstall = "change", "restore"
		}

		link(t, "../dotfiles/claude.json", b.file)
		b.install(hookPath, install)
		if to, err := os.Readlink(b.file); err != nil || to != "../dotfiles/claude.json" {
			t.Errorf("link to %s: it is now %q (%v)", tt.name, to, err)
		}
		if got, err := os.ReadFile(target); err != nil || !strings.Contains(string(got), hookPath) {
			t.Errorf("link to %s: the target has no hooks (%v)", tt.name, err)
		}

		b.uninstall(uninstall)
		if to, err := os.Readlink(b.file); err != nil || to != "../dotfiles/claude.json" {
			t.Errorf("link to %s: after uninstall it is %q (%v)", tt.name, to, err)
		}
		if got, _ := os.ReadFile(target); string(got) != tt.text {
			t.Errorf("link to %s: target holds %q, want %q", tt.name, got, tt.text)
		}
	}
}

// TestInstallRefuses: a clear error, and nothing is touched.
func TestInstallRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, text, hook, says string
		mode                   fs.FileMode
		want                   error
	}{
		{"broken JSON", `{"a": 1,}`, hookPath, "settings.json", 0o600, jsontext.ErrNoObject},
		{"comments", "{\n// mine\n}", hookPath, "settings.json", 0o600, jsontext.ErrNoObject},
		{"a list", `[]`, hookPath, "settings.json", 0o600, jsontext.ErrNoObject},
		{"two documents", `{}{}`, hookPath, "settings.json", 0o600, jsontext.ErrNoObject},
		{"hooks are a list", `{"hooks":[]}`, hookPath, `"hooks"`, 0o600, settings.ErrForeignForm},
		{"hooks are null", `{"hooks":null}`, hookPath, `"hooks"`, 0o600, settings.ErrForeignForm},
		{"an event is an object", `{"hooks":{"Stop":{}}}`, hookPath, "Stop", 0o600, settings.ErrForeignForm},
		{"read-only file", `{}`, hookPath, "0444", 0o444, settings.ErrReadOnly},
		{"relative hook", `{}`, "belay-hook", "absolute", 0o600, agent.ErrBadHook},
		{"other program", `{}`, "/bin/sh", "named belay-hook", 0o600, agent.ErrBadHook},
		{"no UTF-8", `{}`, "/\xff/belay-hook", "UTF-8", 0o600, agent.ErrBadHook},
	} {
		b := newBox(t, "2.1.328")
		writeAll(t, b.file, tt.text, tt.mode)
		for _, dry := range []bool{true, false} {
			_, err := b.Install(t.Context(), agent.Paths{Hook: tt.hook}, dry)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: error %v, want %v that says %q", tt.name, err, tt.want, tt.says)
			}
		}

		if got := b.read(); got != tt.text {
			t.Errorf("%s: file is now %q", tt.name, got)
		}
		if _, err := os.Stat(b.state); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: something was written into the state folder", tt.name)
		}
	}

	none := &Agent{fsys: vfs.OS{}}
	if _, err := none.Install(t.Context(), agent.Paths{Hook: hookPath}, false); !errors.Is(err, agent.ErrNoHome) {
		t.Errorf("no home: error %v, want %v", err, agent.ErrNoHome)
	}
}

func TestInstallDryRunWritesNothing(t *testing.T) {
	b := newBox(t, "2.1.328")
	changes, err := b.Install(t.Context(), agent.Paths{Hook: hookPath}, true)
	b.changed("dry install", changes, err, "create")
	if _, err := os.Stat(b.home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("config home was made: %v", err)
	}

	b.install(hookPath, "create")
	text := b.read()
	changes, err = b.Uninstall(agent.Paths{}, true)
	b.changed("dry uninstall", changes, err, "remove")
	if got := b.read(); got != text {
		t.Errorf("dry uninstall changed the file")
	}

	b.uninstall("remove")
}

// TestX04InstallRecordIsPrivate: the way back holds the user's settings, so nobody else may read it.
func TestX04InstallRecordIsPrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	b := newBox(t, "2.1.328")
	writeAll(t, b.file, `{"env":{"KEY":"value"}}`, 0o600)
	b.install(hookPath, "change")
	files := 0
	err := filepath.WalkDir(b.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if !d.IsDir() {
			files++
		}

		return err
	})

	if err != nil || files != 1 {
		t.Errorf("%d records, error %v; want 1", files, err)
	}
}
