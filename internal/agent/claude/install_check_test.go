package claude

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent"
)

func TestCheckFindings(t *testing.T) {
	edit := func(from, to string) func(b box) {
		return func(b box) {
			text := b.read()
			if !strings.Contains(text, from) {
				b.t.Fatalf("no %q in\n%s", from, text)
			}
			writeAll(b.t, b.file, strings.Replace(text, from, to, 1), 0o600)
		}
	}

	for _, tt := range []struct {
		name, want string
		breaks     func(b box)
	}{
		{"all is well", "", func(box) {}},
		{"missing event", "Stop: hook is missing", edit(`"Stop"`, `"Stopp"`)},
		{"milliseconds", "SessionStart: hook's timeout is 5000 seconds, more than 5", edit(`"timeout": 5`, `"timeout": 5000`)},
		{"no timeout", "SessionStart: hook has no timeout", edit(`"timeout": 5`, `"x": 5`)},
		{"H13 narrow matcher", `SessionStart: hook's matcher "startup" leaves calls out`, edit("startup|resume|clear|compact|fork", "startup")},
		{"wrong event", "hook reports the event as Stop", edit(`"SessionStart"
            ]`, `"Stop"
            ]`)},
		{"all hooks off", "disableAllHooks is on", edit(`{`, `{"disableAllHooks": true,`)},
		{"managed only", "allowManagedHooksOnly is on", func(b box) { writeAll(b.t, b.managed, `{"allowManagedHooksOnly":true}`, 0o644) }},
		{"broken file", "settings are no JSON object", edit(`{`, `{,`)},
		{"no file", "is not there", func(b box) { b.uninstall("remove") }},
		{"other version", "", func(b box) { b.path = newBox(b.t, "2.1.400").path }},
		{"no program", "is no program", func(b box) { _ = os.Remove(filepath.Join(b.state, "belay-hook")) }},
	} {
		b := newBox(t, "2.1.328")
		hook := filepath.Join(b.state, "belay-hook")
		writeAll(t, hook, "", 0o755)
		b.install(hook, "create")
		tt.breaks(b)
		found := b.Check(t.Context(), agent.Paths{Hook: hook})
		if tt.want == "" && len(found) > 0 ||
			tt.want != "" && (len(found) != 1 || !strings.Contains(found[0], tt.want)) {
			t.Errorf("%s: %q, want one finding %q", tt.name, found, tt.want)
		}
	}

	b := newBox(t, "2.1.328")
	b.install("/elsewhere/belay-hook", "create")
	if found := b.Check(t.Context(), agent.Paths{Hook: hookPath}); len(found) != 1+len(hookEvents()) {
		t.Errorf("other path: %q, want one finding for each event and one for the program", found)
	}
}

func TestPresentTellsTheVersionCheaply(t *testing.T) {
	b := newBox(t, "")
	if v, ok := b.Present(); ok {
		t.Errorf("empty machine: present, version %q", v)
	}
	if err := os.Mkdir(b.home, 0o755); err != nil {
		t.Fatal(err)
	}
	if v, ok := b.Present(); !ok || v != "" {
		t.Errorf("config home alone: %q %v, want present without version", v, ok)
	}
	if v, ok := newBox(t, "2.1.328").Present(); !ok || v != "2.1.328" {
		t.Errorf("native installer: %q %v, want 2.1.328", v, ok)
	}

	dir := t.TempDir()
	writeAll(
		t, filepath.Join(dir, "pkg", "package.json"), `{"name":"@anthropic-ai/claude-code","version":"2.1.9"}`,
		0o644,
	)

	writeAll(t, filepath.Join(dir, "pkg", "bin", "cli.js"), "", 0o755)
	link(t, filepath.Join(dir, "pkg", "bin", "cli.js"), filepath.Join(dir, "bin", "claude"))
	b.path = filepath.Join(dir, "bin")
	if v, ok := b.Present(); !ok || v != "2.1.9" {
		t.Errorf("npm: %q %v, want 2.1.9", v, ok)
	}

	// Nothing names it: Install asks the program itself.
	writeAll(
		t, filepath.Join(dir, "own", "claude"), "#!/bin/sh\necho \"2.1.200 (Claude Code) $BELAY_INTERNAL\"\n",
		0o755,
	)

	b.path = filepath.Join(dir, "own")
	if v, ok := b.Present(); !ok || v != "" {
		t.Errorf("unnamed: %q %v, want present without version", v, ok)
	}
	if v, ok := b.askVersion(t.Context()); !ok || v != (version{2, 1, 200}) {
		t.Errorf("asked: %v %v, want 2.1.200", v, ok)
	}
}
