package codex

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

const hookPath = "/opt/belay/belay-hook"

// usersHooks are a user's own, in a form that no program would write.
const usersHooks = "{ \"hooks\":  {\"Stop\": [ {\"hooks\":[{\"type\":\"command\",\"command\":\"say done\"}]} ],\r\n\t\"Other\":[]},\r\n \"x\":1 }  \r\n\r\n"

// usersConfig is a config.toml with what a person and Codex put there.
const usersConfig = `model = "gpt-5.1-codex"   # mine
developer_instructions = """
[hooks.state."not a table"]
"""

[projects."/home/u/proj"]
trust_level = "trusted"

[hooks.state."/home/u/other/hooks.json:stop:0:0"]
trusted_hash = "sha256:aa"
`

// box is one user's machine.
type box struct {
	*Agent
	t *testing.T
}

func newBox(t *testing.T) box {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	home := filepath.Join(dir, ".codex")
	return box{
		&Agent{
			home:  home,
			plain: home,
			state: filepath.Join(dir, "state"),
			path:  filepath.Join(dir, "bin"),
			fsys:  quickFS{},
		},
		t,
	}
}

// quickFS is the real file system without the wait for the disk.
type quickFS struct{ vfs.OS }

type quickFile struct{ *os.File }

func (quickFile) Sync() error          { return nil }
func (quickFS) SyncDir(_ string) error { return nil }

func (quickFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return quickFile{f}, nil
}

// do checks one step: what it says that it did, file by file.
func (b box) do(what string, changes []agent.Change, err error, want string) {
	b.t.Helper()
	var got []string
	for _, c := range changes {
		got = append(got, filepath.Base(c.Path)+" "+c.Action)
	}

	if err != nil || strings.Join(got, ", ") != want {
		b.t.Errorf("%s: got %q, %v, want %q", what, got, err, want)
	}
}

func (b box) install(want string) {
	b.t.Helper()
	changes, err := b.Install(b.t.Context(), agent.Paths{Hook: hookPath}, false)
	b.do("install", changes, err, want)
}

func (b box) trust(want string) {
	b.t.Helper()
	changes, err := b.Trust(agent.Paths{Hook: hookPath}, false)
	b.do("trust", changes, err, want)
}

func (b box) uninstall(want string) {
	b.t.Helper()
	changes, err := b.Uninstall(agent.Paths{}, false)
	b.do("uninstall", changes, err, want)
}

// TestInstallAndBack: whatever a user has there comes back byte for byte, with trust and without.
func TestInstallAndBack(t *testing.T) {
	for name, hooks := range map[string]string{
		"own hooks": usersHooks, "empty": "", "empty object": "{}", "one line": `{"hooks":{"Stop":[{"hooks":[]}]}}`,
		"indented": "{\n    \"hooks\": {\n        \"SessionStart\": []\n    }\n}\n", "byte order mark": "\ufeff{}\n",
	} {
		for _, trust := range []bool{false, true} {
			b := newBox(t)
			writeMode(t, b.hooks().Path(), hooks, 0o640)
			writeMode(t, b.configPath(), usersConfig, 0o644)
			before := stamps(t, b.home)
			b.install("hooks.json change")
			b.install("hooks.json keep")
			undo := "hooks.json restore"
			if trust {
				b.trust("config.toml change")
				b.trust("config.toml keep")
				if list := b.untrusted([]byte(read(t, b.hooks().Path()))); len(list) > 0 {
					t.Errorf("%s: not trusted: %v", name, list)
				}
				undo += ", config.toml restore"
			}

			if h := b.hooksIn(); len(h["Stop"]) == 0 || h["Stop"][len(h["Stop"])-1] != "exec "+hookPath+" codex Stop" ||
				len(h) < len(hookEvents()) {
				t.Errorf("%s: hooks are %v", name, h)
			}

			b.uninstall(undo)
			if after := stamps(t, b.home); withoutTimes(after) != withoutTimes(before) {
				t.Errorf("%s, trust %v: got\n%s\nwant\n%s", name, trust, after, before)
			}

			b.uninstall("hooks.json keep")
		}
	}
}

// withoutTimes leaves out when files were written: that they were is no secret.
func withoutTimes(stamps string) string {
	var list []string
	for _, l := range strings.Split(stamps, "\n") {
		f := strings.Fields(l)
		list = append(list, f[0]+f[1]+f[len(f)-1])
	}
	return strings.Join(list, "\n")
}

// hooksIn are the commands of each event.
func (b box) hooksIn() map[string][]string {
	b.t.Helper()
	var all struct {
		Hooks map[string][]struct{ Hooks []struct{ Command string } }
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(read(b.t, b.hooks().Path()), jsontext.BOM)), &all); err != nil {
		b.t.Fatal(err)
	}

	got := map[string][]string{}
	for event, groups := range all.Hooks {
		for _, g := range groups {
			for _, h := range g.Hooks {
				got[event] = append(got[event], h.Command)
			}
		}
	}

	return got
}

// TestInstallFromNothing: what install made goes again, folder and all.
func TestInstallFromNothing(t *testing.T) {
	b := newBox(t)
	b.install("hooks.json create")
	b.trust("config.toml create")
	if info, err := os.Stat(b.hooks().Path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("new file: %v, %v, want mode 0600", info, err)
	}

	b.uninstall("hooks.json remove, config.toml remove")
	if _, err := os.Stat(b.home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder that install made is still there: %v", err)
	}
}

// TestUninstallAfterOthersWrote: only belay's goes, when the user or Codex changed the files.
func TestUninstallAfterOthersWrote(t *testing.T) {
	b := newBox(t)
	write(t, b.hooks().Path(), usersHooks)
	write(t, b.configPath(), usersConfig)
	b.install("hooks.json change")
	b.trust("config.toml change")
	write(t, b.hooks().Path(), strings.Replace(read(t, b.hooks().Path()), "say done", "say bye", 1))
	mine := "\n[projects.\"/new\"]\ntrust_level = \"trusted\"\n"
	write(t, b.configPath(), strings.Replace(read(t, b.configPath()), "gpt-5.1", "gpt-6", 1)+mine)
	b.uninstall("hooks.json change, config.toml change")
	if got, want := read(t, b.hooks().Path()), strings.Replace(usersHooks, "say done", "say bye", 1); got != want {
		t.Errorf("hooks: got %q, want %q", got, want)
	}
	if got, want := read(t, b.configPath()), strings.Replace(usersConfig, "gpt-5.1", "gpt-6", 1)+mine; got != want {
		t.Errorf("config: got %q, want %q", got, want)
	}

	// A trust that the person gave in the program goes with the hooks that it was for.
	b.install("hooks.json change")
	grants, err := b.grants([]byte(read(t, b.hooks().Path())))
	if err != nil {
		t.Fatal(err)
	}

	person, _, err := trusted([]byte(read(t, b.configPath())), grants)
	if err != nil {
		t.Fatal(err)
	}

	before := read(t, b.configPath())
	write(t, b.configPath(), string(person))
	b.uninstall("hooks.json restore, config.toml change")
	if got := read(t, b.configPath()); got != before {
		t.Errorf("config: got %q, want %q", got, before)
	}
}

// TestInstallUpgrade: a new place of belay-hook replaces the old entry and asks for trust again.
func TestInstallUpgrade(t *testing.T) {
	b := newBox(t)
	write(t, b.hooks().Path(), usersHooks)
	changes, err := b.Install(b.t.Context(), agent.Paths{Hook: "/old place/belay-hook", Socket: "/s p/x.sock"}, false)
	b.do("install", changes, err, "hooks.json change")
	if got := b.hooksIn()["Stop"][1]; got != "exec '/old place/belay-hook' --socket '/s p/x.sock' codex Stop" {
		t.Errorf("got %s", got)
	}

	changes, err = b.Trust(agent.Paths{Hook: "/old place/belay-hook", Socket: "/s p/x.sock"}, false)
	b.do("trust", changes, err, "config.toml create")
	changes, err = b.Install(b.t.Context(), agent.Paths{Hook: hookPath}, false)
	b.do("install", changes, err, "hooks.json change")
	if got := changes[0].Detail; !strings.Contains(got, "/hooks") || !strings.Contains(got, "--trust") {
		t.Errorf("detail %q, want how to trust", got)
	}

	b.trust("config.toml change")
	if n := strings.Count(read(t, b.configPath()), "trusted_hash"); n != len(hookEvents()) {
		t.Errorf("%d hashes, want %d", n, len(hookEvents()))
	}

	if changes, err = b.Install(
		b.t.Context(), agent.Paths{Hook: hookPath}, false,
	); strings.Contains(
		changes[0].Detail, "--trust",
	) {
		t.Errorf("detail %q, %v: trust is given", changes[0].Detail, err)
	}

	b.uninstall("hooks.json restore, config.toml remove")
	if got := read(t, b.hooks().Path()); got != usersHooks {
		t.Errorf("got %q, want %q", got, usersHooks)
	}
}

// TestRefusals: a clear error, and nothing is touched.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name, hooks, config, hook string
		mode                      fs.FileMode
		want                      error
	}{
		{"broken JSON", `{"a": 1,}`, "", hookPath, 0o600, jsontext.ErrNoObject},
		{"hooks are a list", `{"hooks":[]}`, "", hookPath, 0o600, settings.ErrForeignForm},
		{"an event is an object", `{"hooks":{"Stop":{}}}`, "", hookPath, 0o600, settings.ErrForeignForm},
		{"read-only file", `{}`, "", hookPath, 0o444, settings.ErrReadOnly},
		{"relative hook", `{}`, "", "belay-hook", 0o600, agent.ErrBadHook},
		{"other program", `{}`, "", "/bin/sh", 0o600, agent.ErrBadHook},
	} {
		b := newBox(t)
		writeMode(t, b.hooks().Path(), tt.hooks, tt.mode)
		for _, dry := range []bool{true, false} {
			if _, err := b.Install(b.t.Context(), agent.Paths{Hook: tt.hook}, dry); !errors.Is(err, tt.want) {
				t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
			}
		}

		if got := read(t, b.hooks().Path()); got != tt.hooks {
			t.Errorf("%s: file is now %q", tt.name, got)
		}
	}

	for name, config := range map[string]string{
		"no TOML": "model = \n", "state in one line": "[hooks]\nstate = {}\n",
		"hooks in one line": "hooks = {state = {x = 1}}\n",
		"dotted keys":       "hooks.state.\"x\".trusted_hash = \"y\"\n",
	} {
		b := newBox(t)
		b.install("hooks.json create")
		write(t, b.configPath(), config)
		if _, err := b.Trust(agent.Paths{Hook: hookPath}, false); !errors.Is(err, ErrBadConfig) {
			t.Errorf("%s: error %v, want %v", name, err, ErrBadConfig)
		}
		if got := read(t, b.configPath()); got != config {
			t.Errorf("%s: config is now %q", name, got)
		}
	}

	b := newBox(t)
	if _, err := b.Trust(agent.Paths{Hook: hookPath}, false); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("trust before install: %v, want %v", err, ErrNotInstalled)
	}

	b.install("hooks.json create")
	if _, err := b.Trust(agent.Paths{Hook: "/elsewhere/belay-hook"}, false); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("trust in other hooks than are installed: %v, want %v", err, ErrNotInstalled)
	}

	none := &Agent{fsys: vfs.OS{}}
	if _, err := none.Install(t.Context(), agent.Paths{Hook: hookPath}, false); !errors.Is(err, agent.ErrNoHome) {
		t.Errorf("no home: error %v, want %v", err, agent.ErrNoHome)
	}
}

// TestDryRunsWriteNothing.
func TestDryRunsWriteNothing(t *testing.T) {
	b := newBox(t)
	changes, err := b.Install(b.t.Context(), agent.Paths{Hook: hookPath}, true)
	b.do("dry install", changes, err, "hooks.json create")
	if _, err := os.Stat(b.home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("home was made: %v", err)
	}

	b.install("hooks.json create")
	before := stamps(t, filepath.Dir(b.home))
	changes, err = b.Trust(agent.Paths{Hook: hookPath}, true)
	b.do("dry trust", changes, err, "config.toml create")
	changes, err = b.Uninstall(agent.Paths{}, true)
	b.do("dry uninstall", changes, err, "hooks.json remove")
	if stamps(t, filepath.Dir(b.home)) != before {
		t.Error("a dry run changed files")
	}
}

// TestFaultAtEveryOperation: whatever fails, each file is the old or the new one, the error is told, and the way back
// is open.
func TestFaultAtEveryOperation(t *testing.T) {
	for _, what := range []string{"install", "trust", "uninstall"} {
		for k := 0; ; k++ {
			b := newBox(t)
			write(t, b.hooks().Path(), usersHooks)
			write(t, b.configPath(), usersConfig)
			before := withoutTimes(stamps(t, b.home))
			p := agent.Paths{Hook: hookPath}
			step := map[string]func() ([]agent.Change, error){
				"install":   func() ([]agent.Change, error) { return b.Install(b.t.Context(), p, false) },
				"trust":     func() ([]agent.Change, error) { return b.Trust(p, false) },
				"uninstall": func() ([]agent.Change, error) { return b.Uninstall(p, false) },
			}

			for _, s := range []string{"install", "trust"} {
				if s == what {
					break
				}
				if _, err := step[s](); err != nil {
					t.Fatal(err)
				}
			}

			fault := vfstest.NewFault(quickFS{}, k, syscall.ENOSPC)
			b.fsys = fault
			_, err := step[what]()

			// Closing a file that was only read cannot lose anything; what Codex trusts already is only asked for a
			// hint.
			harmless := strings.HasPrefix(fault.Op(), "close") && !strings.HasSuffix(fault.Op(), vfs.TempSuffix) ||
				what == "install" && strings.Contains(fault.Op(), "config.toml")
			if fault.Fired() && !harmless && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s, operation %d (%s): error %v", what, k, fault.Op(), err)
			}

			b.fsys = quickFS{}
			if _, err := b.Uninstall(p, false); err != nil {
				t.Errorf("%s, operation %d (%s): uninstall later: %v", what, k, fault.Op(), err)
			}
			if got := withoutTimes(stamps(t, b.home)); got != before {
				t.Errorf("%s, operation %d (%s): got\n%s\nwant\n%s", what, k, fault.Op(), got, before)
			}
			if !fault.Fired() {
				break
			}
		}
	}
}

// TestTrustHashes: they are those that Codex itself wrote when a person trusted hooks in its terminal program.
func TestTrustHashes(t *testing.T) {
	state, err := stateOf([]byte(read(t, filepath.Join("testdata", "hooks", "config-after-trust.toml"))))
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range hookEvents() {
		was, _ := state["/home/u/.codex/hooks.json:"+trustKey(e.Name)+":0:0"].(map[string]any)
		h := `{"type":"command","command":"$HOME/hooklog.sh ` + e.Name + `"}`
		if got := trustHash(
			e, settings.Handler{Text: []byte(h), GroupText: []byte(`{"hooks":[` + h + `]}`)},
		); got != was[hashKey] {
			t.Errorf("%s: got %s, want %v", e.Name, got, was[hashKey])
		}
	}
}

// TestTrustEdits: a table that is there is used, whatever is in it and however it is written; nothing else moves.
func TestTrustEdits(t *testing.T) {
	g := []grant{{"/h/hooks.json:stop:0:0", "sha256:new"}}
	for _, tt := range []struct{ name, before, after, bare string }{
		{"nothing", "", "[hooks.state.\"/h/hooks.json:stop:0:0\"]\ntrusted_hash = \"sha256:new\"\n", ""},
		{"no last newline", "a = 1", "a = 1\n\n[hooks.state.\"/h/hooks.json:stop:0:0\"]\ntrusted_hash = \"sha256:new\"\n", "a = 1"},
		{"windows", "a = 1\r\n", "a = 1\r\n\r\n[hooks.state.\"/h/hooks.json:stop:0:0\"]\r\ntrusted_hash = \"sha256:new\"\r\n", "a = 1\r\n"},
		{"an old hash", "[ hooks . state . '/h/hooks.json:stop:0:0' ] # x\ntrusted_hash = \"sha256:old\"\n# end\n[b]\n",
			"# end\n[b]\n\n[hooks.state.\"/h/hooks.json:stop:0:0\"]\ntrusted_hash = \"sha256:new\"\n", "# end\n[b]\n"},
		{"more in the table", "[hooks.state.\"/h/hooks.json:stop:0:0\"]\nenabled = true\ntrusted_hash = \"sha256:old\"\n[b]\nc = 1\n",
			"[hooks.state.\"/h/hooks.json:stop:0:0\"]\ntrusted_hash = \"sha256:new\"\nenabled = true\n[b]\nc = 1\n", "[hooks.state.\"/h/hooks.json:stop:0:0\"]\nenabled = true\n[b]\nc = 1\n"},
	} {
		next, bare, err := trusted([]byte(tt.before), g)
		if err != nil || string(next) != tt.after || string(bare) != tt.bare {
			t.Errorf("%s: got %q and %q, %v\nwant %q and %q", tt.name, next, bare, err, tt.after, tt.bare)
		}
	}
}

func FuzzTrust(f *testing.F) {
	f.Add([]byte(usersConfig))
	f.Add([]byte("[hooks.state.\"k:stop:0:0\"]\ntrusted_hash = \"x\"\ny=[\n[1],\n]\n"))
	g := []grant{{"k:stop:0:0", "sha256:1"}, {`k"\:end:0:0`, "sha256:2"}}
	f.Fuzz(func(t *testing.T, text []byte) {
		next, _, err := trusted(text, g)
		if err != nil {
			return
		}
		if again, _, err := trusted(next, g); err != nil || string(again) != string(next) {
			t.Errorf("%q: the second time %q, %v", next, again, err)
		}
		if _, err := distrusted(next, g); err != nil {
			t.Errorf("%q: the way back: %v", next, err)
		}
	})
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		breaks     func(b box)
	}{
		{"all is well", "", func(box) {}},
		{"missing event", "Stop: hook is missing", func(b box) { b.edit(b.hooks().Path(), `"Stop"`, `"Stopp"`) }},
		{"milliseconds", "Interrupt: hook's timeout is 1000 seconds, more than 1", func(b box) { b.edit(b.hooks().Path(), `"timeout": 1`, `"timeout": 1000`) }},
		{"async", "hook is async", func(b box) { b.edit(b.hooks().Path(), `"timeout": 5`, `"async":true,"timeout": 5`) }},
		{"narrow matcher", "leaves calls out", func(b box) {
			b.edit(b.hooks().Path(), `"hooks": [
          {`, `"matcher":"startup","hooks": [
          {`)
		}},
		{"hooks are off", "features.hooks is off", func(b box) { b.edit(b.configPath(), "[hooks", "[features]\nhooks=false\n[hooks") }},
		{"trust of another hash", "not trusted", func(b box) { b.edit(b.configPath(), "sha256:", "sha256:0") }},
		{"no config", "not trusted", func(b box) { _ = os.Remove(b.configPath()) }},
		{"no file", "is not there", func(b box) { b.uninstall("hooks.json remove, config.toml remove") }},
		{"no program", "is no program", func(b box) { _ = os.Remove(filepath.Join(b.state, "belay-hook")) }},
	} {
		b := newBox(t)
		p := agent.Paths{Hook: filepath.Join(b.state, "belay-hook")}
		writeMode(t, p.Hook, "", 0o755)
		if _, err := b.Install(b.t.Context(), p, false); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Trust(p, false); err != nil {
			t.Fatal(err)
		}

		tt.breaks(b)
		found := strings.Join(b.Check(b.t.Context(), p), "\n")
		if tt.want == "" && found != "" || !strings.Contains(found, tt.want) {
			t.Errorf("%s: got %q, want one that says %q", tt.name, found, tt.want)
		}
	}
}

func (b box) edit(path, from, to string) {
	b.t.Helper()
	text := read(b.t, path)
	if !strings.Contains(text, from) {
		b.t.Fatalf("no %q in\n%s", from, text)
	}
	write(b.t, path, strings.Replace(text, from, to, 1))
}

func TestPresent(t *testing.T) {
	b := newBox(t)
	if v, ok := b.Present(); ok {
		t.Errorf("empty machine: present, version %q", v)
	}

	b.install("hooks.json create")
	if v, ok := b.Present(); !ok || v != "" {
		t.Errorf("home alone: %q %v, want present without version", v, ok)
	}
}

// TestHomeOfTheEnvironment: $CODEX_HOME counts, by its real path, as Codex itself takes it; else ~/.codex by its name.
func TestHomeOfTheEnvironment(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "real"), 0o755), os.Symlink("real", filepath.Join(dir, ".codex")),
	); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct{ env, want string }{{filepath.Join(dir, ".codex"), "real"}, {"", ".codex"}, {"relative", ".codex"}} {
		if got := New(agenttest.Host(dir, "CODEX_HOME="+tt.env)).home; got != filepath.Join(dir, tt.want) {
			t.Errorf("CODEX_HOME=%q: home %s, want %s", tt.env, got, tt.want)
		}
	}
}
