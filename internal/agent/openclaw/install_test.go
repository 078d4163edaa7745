package openclaw

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
)

const settings5 = "// mine\n{\n  // agents first\n  agents: { defaults: { workspace: '/w' } },\n  \"plugins\": {\n    enabled: true, /* on */\n    load: { paths: [\n      '/other', // theirs\n    ] },\n    entries: { other: { enabled: true, }, },\n  },\n}\n"

func installed(t *testing.T, text string) (*Agent, string, agent.Paths) {
	t.Helper()
	home := t.TempDir()
	path := filepath.Join(home, ".openclaw", "openclaw.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}

	if text != "" {
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}

	return New(agenttest.Host(home)), path, agent.Paths{Hook: "/opt/be lay/belay-hook", Socket: "/run/b.sock"}
}

func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			files[path] = "folder"
			return err
		}

		data, err := os.ReadFile(path)
		info, ierr := e.Info()
		files[path] = info.Mode().String() + string(data)
		return errors.Join(err, ierr)
	})

	if err != nil {
		t.Fatal(err)
	}

	return files
}

func TestInstallAndBack(t *testing.T) {
	for name, text := range map[string]string{
		"none": "", "empty": "{}", "blank": " \n", "JSON": "{\n  \"gateway\": {\"port\": 1}\n}\n", "JSON5": settings5,
		"CRLF":       "{\r\n\t\"a\": 1\r\n}\r\n",
		"allow list": `{"plugins":{"allow":["telegram"]}}`, "empty objects": `{plugins:{load:{},entries:{}}}`,
		"BOM": "\uFEFF{\"a\":1,}",
	} {
		t.Run(name, func(t *testing.T) {
			a, path, p := installed(t, text)
			before := tree(t, filepath.Dir(path))
			if _, err := a.Install(t.Context(), p, true); err != nil {
				t.Fatal(err)
			}
			if after := tree(t, filepath.Dir(path)); !maps.Equal(after, before) {
				t.Errorf("a dry run changed files: %v", after)
			}
			if _, err := a.Install(t.Context(), p, false); err != nil {
				t.Fatal(err)
			}
			if list := a.Check(t.Context(), p); len(list) > 0 {
				t.Errorf("after install: %v", list)
			}

			now, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
				if line = strings.Trim(
					line, " \t\r},]",
				); name != "empty objects" && name != "allow list" &&
					!strings.Contains(string(now), line) {
					t.Errorf("line %q is gone:\n%s", line, now)
				}
			}

			again, err := a.Install(t.Context(), p, false)
			if err != nil || again[0].Action != "keep" || again[1].Action != "keep" {
				t.Errorf("second install: got %v, %v, want nothing done", again, err)
			}
			if _, err := a.Uninstall(p, false); err != nil {
				t.Fatal(err)
			}
			if after := tree(t, filepath.Dir(path)); !maps.Equal(after, before) {
				t.Errorf("after uninstall: got %v, want %v", after, before)
			}
		})
	}
}

// TestUninstallAfterOthersWrote: OpenClaw or the user wrote the settings since; only belay's entries go.
func TestUninstallAfterOthersWrote(t *testing.T) {
	a, path, p := installed(t, settings5)
	if _, err := a.Install(t.Context(), p, false); err != nil {
		t.Fatal(err)
	}

	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(now), "'/w'", "'/x'", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Uninstall(p, false); err != nil {
		t.Fatal(err)
	}

	now, err = os.ReadFile(path)
	if got, want := string(now), strings.Replace(settings5, "'/w'", "'/x'", 1); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestInstallRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"no object": {"[1]", ErrBadSettings}, "broken": {`{"a": }`, ErrBadSettings}, "half a comment": {"{/* ", ErrBadSettings},
		"foreign form": {`{"plugins": {"load": {"paths": "x"}}}`, ErrForeignForm}, "foreign plugins": {`{"plugins": 7}`, ErrForeignForm},
	} {
		a, path, p := installed(t, c.text)
		if _, err := a.Install(t.Context(), p, false); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != c.text {
			t.Errorf("%s: settings are %q, %v, want as before", name, now, err)
		}
	}

	a, path, p := installed(t, "{}")
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Install(t.Context(), p, false); !errors.Is(err, settings.ErrReadOnly) {
		t.Errorf("write-protected: got %v, want ErrReadOnly", err)
	}
}

// TestPresent: the program's package tells its version, and Check has nothing against one that it does not know.
func TestPresent(t *testing.T) {
	a, _, p := installed(t, "")
	if v, ok := a.Present(); ok || v != "" {
		t.Errorf("nothing is there: got %q, %v", v, ok)
	}

	dir := t.TempDir()
	for name, text := range map[string]string{
		"openclaw.mjs": "", "package.json": `{"name":"openclaw","version":"2026.10.1"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	bin := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "openclaw.mjs"), filepath.Join(bin, "openclaw")); err != nil {
		t.Fatal(err)
	}

	a.host.Env = func(string) string { return bin } // as PATH
	if v, ok := a.Present(); !ok || v != "2026.10.1" {
		t.Errorf("got %q, %v, want 2026.10.1", v, ok)
	}
	if _, err := a.Install(t.Context(), p, false); err != nil {
		t.Fatal(err)
	}
	if got := a.Check(t.Context(), p); len(got) != 0 {
		t.Errorf("got %q, want no finding: what was tried is the doctor's to say", got)
	}
}

func TestCheckFinds(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "load.paths", `{plugins:{enabled:false}}`: "no plugin runs", `{plugins:{deny:["belay"]}}`: "deny",
		`{plugins:{allow:["x"]}}`: "allow", `{`: "JSON5",
	} {
		a, _, p := installed(t, text)
		if got := strings.Join(a.Check(t.Context(), p), "; "); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q in it", text, got, want)
		}
	}
}

// wiredAlone is what one text says of a plugin in /p; it includes nothing.
func wiredAlone(text []byte) (wiring, error) {
	root, err := parseSettings(text)
	if err != nil {
		return wiring{}, err
	}
	none := includes{read: func(string) (settings.File, error) { return settings.File{}, ErrInclude }}
	return none.wiring(part{"", text, root.Open, root.End}, "/p")
}

// FuzzSettings: what is put in comes out again, and no text is made worse.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		settings5, "{}", "{a:1}", "{'a':'\\'b',}", "//\n{}", "{plugins:{load:{paths:[]}}}", "[",
		"{a:{b:[1,2,],},/**/}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys := []string{"plugins"}
		has, err := wiredAlone([]byte(text))
		if err != nil {
			return
		}

		with, err := withPlugin([]byte(text), "/p", keys, has)
		if err != nil {
			return
		}
		if has, err = wiredAlone(with); err != nil || !has.works() {
			t.Errorf("%q: after install: got %+v, %v in %q, want it to work", text, has, err, with)
		}

		without, err := withoutPlugin(with, "/p", keys)
		if err != nil {
			t.Errorf("%q: %v", with, err)
		}

		if root, err := parseSettings(without); err != nil {
			t.Errorf("%q became %q: %v", text, without, err)
		} else if _, there := jsontext.Lookup(without, root, "plugins", "entries", pluginID); there {
			if _, twice := root.Find("plugins"); !twice {
				t.Errorf("%q: the entry is still in %q", text, without)
			}
		}
	})
}
