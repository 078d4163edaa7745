package openclaw

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent"
)

// putAll writes files beside the settings.
func putAll(t *testing.T, settings string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(filepath.Dir(settings), name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInclude: settings that are cut into files get the plugin where OpenClaw would put it, the effect is right, and
// all files come back.
func TestInclude(t *testing.T) {
	const own = "// ours\n{\n  entries: { other: { enabled: true } }, // theirs\n  allow: ['other'],\n}\n"
	for name, c := range map[string]struct {
		main    string
		files   map[string]string
		changed string // the one file that install changes; empty for none
	}{
		"elsewhere": {"{ agents: { $include: './agents.json5' } }", map[string]string{
			"agents.json5": "{}",
		}, "openclaw.json"},
		"plugins alone": {"{ plugins: { $include: './plugins.json5' }, /* all */ }", map[string]string{
			"plugins.json5": own,
		}, "plugins.json5"},
		"escaped": {`{"plugins": {"\u0024include": "plugins.json5"}}`, map[string]string{
			"plugins.json5": own,
		}, "plugins.json5"},
		"one behind other": {"{ plugins: { $include: 'a.json5' } }", map[string]string{
			"a.json5": "{$include: 'sub/b.json5'}", "sub/b.json5": own,
		}, "sub/b.json5"},
		"beside others": {"{ plugins: { $include: 'plugins.json5', enabled: true } }", map[string]string{
			"plugins.json5": own,
		}, "openclaw.json"},
		"several": {"{ plugins: { $include: ['a.json5', 'b.json5'] } }", map[string]string{
			"a.json5": own, "b.json5": "{}",
		}, "openclaw.json"},
		"the whole":         {"{ $include: 'base.json5' }", map[string]string{"base.json5": "{ plugins: " + own + "}"}, "openclaw.json"},
		"by hand elsewhere": {"{ $include: 'base.json5' }", map[string]string{"base.json5": "{ plugins: { load: { paths: ['%FOLDER%'] }, entries: { belay: " + entryText + " } } }"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, path, p := installed(t, c.main)
			for n, text := range c.files {
				c.files[n] = strings.ReplaceAll(text, "%FOLDER%", a.pluginFolder())
			}

			putAll(t, path, c.files)
			before := tree(t, filepath.Dir(path))
			if _, err := a.Install(t.Context(), p, false); err != nil {
				t.Fatal(err)
			}
			if list := a.Check(t.Context(), p); len(list) > 0 {
				t.Errorf("after install: %v", list)
			}

			var changed []string
			after := tree(t, filepath.Dir(path))
			for file, was := range before {
				if after[file] != was {
					rel, _ := filepath.Rel(filepath.Dir(path), file) // both are absolute
					changed = append(changed, rel)
				}
			}

			if got := strings.Join(changed, " "); got != c.changed {
				t.Errorf("install changed %q, want %q", got, c.changed)
			}

			if again, err := a.Install(
				t.Context(), p, false,
			); err != nil || again[0].Action != "keep" ||
				again[1].Action != "keep" {
				t.Errorf("second install: got %v, %v, want nothing done", again, err)
			}

			if name == "by hand elsewhere" {
				return // uninstall takes only what install could have put there
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

// TestIncludeRefused: what cannot be followed, or says otherwise where belay does not write, is named and left alone.
func TestIncludeRefused(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "p.json5"), []byte("{ load: { paths: 7 } }"), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		main  string
		files map[string]string
		want  error
		words string
	}{
		"absent":      {"{ plugins: { $include: 'gone.json5' } }", nil, ErrInclude, "gone.json5"},
		"absent base": {"{ $include: 'gone.json5' }", nil, ErrInclude, "gone.json5"},
		"round": {"{ $include: 'a.json5' }", map[string]string{
			"a.json5": "{ $include: 'a.json5' }",
		}, ErrInclude, "deep"},
		"round alone": {"{ plugins: { $include: 'a.json5' } }", map[string]string{
			"a.json5": "{ $include: 'a.json5' }",
		}, ErrInclude, "deep"},
		"no text": {"{ plugins: { $include: 7 } }", nil, ErrInclude, "names no file"},
		"broken": {"{ plugins: { $include: 'a.json5' } }", map[string]string{
			"a.json5": "{ load: ",
		}, ErrBadSettings, "a.json5"},
		"list of its own": {"{ plugins: { load: { paths: { $include: 'a.json5' } } } }", map[string]string{
			"a.json5": "['/x']",
		}, ErrBadSettings,
			"a.json5"},
		"switched off last": {"{ plugins: { $include: 'a.json5', entries: { $include: 'b.json5' } } }",
			map[string]string{"a.json5": "{}", "b.json5": "{ belay: 7 }"}, nil, ""},
		"foreign outside": {"{ plugins: { $include: '" + outside + "/p.json5', load: { paths: 'x' } } }", nil, ErrForeignForm, "no list"},
	} {
		a, path, p := installed(t, c.main)
		putAll(t, path, c.files)
		before := tree(t, filepath.Dir(path))
		_, err := a.Install(t.Context(), p, false)
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: got %v, want %v with %q", name, err, c.want, c.words)
		}

		if c.want == nil {
			if list := a.Check(t.Context(), p); len(list) > 0 {
				t.Errorf("%s: after install: %v", name, list)
			}
			continue
		}

		if after := tree(t, filepath.Dir(path)); !maps.Equal(after, before) {
			t.Errorf("%s: install changed files: got %v, want %v", name, after, before)
		}
		if list := a.Check(t.Context(), agent.Paths{Hook: p.Hook}); len(list) == 0 {
			t.Errorf("%s: Check finds nothing, want what is wrong", name)
		}
	}
}
