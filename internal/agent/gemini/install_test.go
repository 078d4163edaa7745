package gemini

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
	"belay/internal/vfs"
)

// world is an agent with a home and a belay of its own.
func world(t *testing.T) (*Agent, agent.Paths) {
	t.Helper()
	dir := payload.RealPath(t.TempDir())
	hook := filepath.Join(dir, "bin", "belay-hook")
	put(t, hook, "#!/bin/sh\n")
	if err := os.Chmod(hook, 0o700); err != nil {
		t.Fatal(err)
	}

	a := &Agent{
		home:    filepath.Join(dir, ".gemini"),
		state:   filepath.Join(dir, "state"),
		managed: filepath.Join(dir, "managed.json"),
		fsys:    vfs.OS{},
	}

	a.plain = a.home
	return a, agent.Paths{Hook: hook}
}

func action(t *testing.T, list []agent.Change, err error) string {
	t.Helper()
	if err != nil || len(list) != 1 {
		t.Fatalf("got %d changes, %v, want one", len(list), err)
	}
	return list[0].Action
}

// texts are settings as people have them.
var texts = map[string]string{
	"compact":        `{"theme":"x"}`,
	"none":           "{}",
	"blank":          "\n",
	"lines":          "{\n   \"theme\":  \"x\" ,\n\t\"general\": { \"enableAutoUpdate\": false } }  \n\n",
	"line comments":  "// mine\n{\n  // the theme, \"quoted\" {\n  \"theme\": \"x\", // why\n  \"url\": \"http://x\" // last\n}\n// end",
	"block comments": "/* a\n * b */ { /* c */ \"theme\": /* d */ \"x\" /* e, */ } /**/\n",
	"only comments":  "// nothing yet\n",
	"empty inside":   "{\n  // nothing yet\n}\n",
	"windows":        "\xef\xbb\xbf{\r\n  // theme\r\n  \"theme\": \"x\"\r\n}\r\n",
	"other hooks":    "{\n  \"hooks\": {\n    // mine\n    \"BeforeTool\": [\n      { \"matcher\": \"x\", \"hooks\": [ { \"type\": \"command\", \"command\": \"mine\" } ] } // keep\n    ]\n  },\n  \"hooksConfig\": {\"enabled\": true}\n}\n",
	"empty hooks":    "{\n  \"hooks\": {\n    /* none */\n  }\n}\n",
}

// comments are the comments of a text.
func comments(text string) (list []string) {
	for text != "" {
		size := 1
		switch {
		case text[0] == '"':
			for size < len(text) && text[size] != '"' {
				if text[size] == '\\' {
					size++
				}
				size++
			}
			size++

		case strings.HasPrefix(text, "//"):
			if size = strings.IndexAny(text, "\r\n"); size < 0 {
				size = len(text)
			}
			list = append(list, text[:size])

		case strings.HasPrefix(text, "/*"):
			if n := strings.Index(text[2:], "*/"); n >= 0 {
				size = n + 4
				list = append(list, text[:size])
			}
		}

		text = text[min(size, len(text)):]
	}
	return list
}

func TestInstallAndBack(t *testing.T) {
	for name, text := range texts {
		a, p := world(t)
		path := a.hooks().Path()
		put(t, path, text)
		list, err := a.Install(t.Context(), p, true)
		if got := action(t, list, err); got != "change" {
			t.Errorf("%s: dry run: got %s, want change", name, got)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("%s: a dry run changed the file: %q, %v", name, data, err)
		}

		list, err = a.Install(t.Context(), p, false)
		action(t, list, err)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		checkInstalled(t, name, text, string(data))
		if found := a.Check(t.Context(), p); len(found) > 0 {
			t.Errorf("%s: check after install: %q", name, found)
		}

		list, err = a.Install(t.Context(), p, false)
		if got := action(t, list, err); got != "keep" {
			t.Errorf("%s: second install: got %s, want keep", name, got)
		}

		list, err = a.Uninstall(p, false)
		if got := action(t, list, err); got != "restore" {
			t.Errorf("%s: uninstall: got %s, want restore", name, got)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("%s: after uninstall: got %q, %v, want %q", name, data, err, text)
		}
	}
}

// checkInstalled: hooks and all that was the user's are there, comments too.
func checkInstalled(t *testing.T, name, before, after string) {
	t.Helper()
	var got, want map[string]json.RawMessage
	if err := jsontext.Comments.Decode([]byte(after), &got); err != nil {
		t.Fatalf("%s: after install it is no JSON with comments: %v\n%s", name, err, after)
	}

	// A text without JSON has no keys to keep.
	_ = jsontext.Comments.Decode([]byte(before), &want)
	for key, v := range want {
		if key != "hooks" && string(got[key]) != string(v) {
			t.Errorf("%s: %s: got %s, want %s", name, key, got[key], v)
		}
	}

	if n := strings.Count(after, "belay-hook"); n != len(hookEvents()) {
		t.Errorf("%s: %d hooks, want %d", name, n, len(hookEvents()))
	}
	if strings.Contains(before, `"mine"`) && !strings.Contains(after, `"mine"`) {
		t.Errorf("%s: the user's hook is gone:\n%s", name, after)
	}
	if g, w := comments(after), comments(before); len(g) != len(w) {
		t.Errorf("%s: got comments %q, want %q", name, g, w)
	}

	for _, c := range comments(before) {
		if strings.Count(after, c) != strings.Count(before, c) {
			t.Errorf("%s: comment %q is not there as often as before:\n%s", name, c, after)
		}
	}
}

// TestUninstallAfterChanges: what the user did meanwhile stays.
func TestUninstallAfterChanges(t *testing.T) {
	for name, text := range texts {
		a, p := world(t)
		path := a.hooks().Path()
		put(t, path, text)
		if _, err := a.Install(t.Context(), p, false); err != nil {
			t.Fatal(err)
		}

		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		changed := strings.Replace(string(data), "{", "{ // new\n \"added\": 1,", 1)
		put(t, path, changed)
		list, err := a.Uninstall(p, false)
		if got := action(t, list, err); got != "change" {
			t.Errorf("%s: got %s, want change", name, got)
		}

		left, err := os.ReadFile(path)
		_, jerr := jsontext.Comments.Object(left)
		if errors.Join(err, jerr) != nil || strings.Contains(string(left), "belay-hook") ||
			!strings.Contains(string(left), "\"added\": 1") {
			t.Errorf("%s: got %s, %v, want the user's change and no hook", name, left, err)
		}

		for _, c := range comments(changed) {
			if !strings.Contains(string(left), c) {
				t.Errorf("%s: comment %q is gone:\n%s", name, c, left)
			}
		}
	}
}

func TestInstallCreates(t *testing.T) {
	a, p := world(t)
	list, err := a.Install(t.Context(), p, false)
	if got := action(t, list, err); got != "create" {
		t.Errorf("got %s, want create", got)
	}
	if found := a.Check(t.Context(), p); len(found) > 0 {
		t.Errorf("check: %q", found)
	}

	list, err = a.Uninstall(p, false)
	if got := action(t, list, err); got != "remove" {
		t.Errorf("got %s, want remove", got)
	}
	if _, err := os.Stat(a.home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder that install made is there: %v", err)
	}

	list, err = a.Uninstall(p, false)
	if got := action(t, list, err); got != "keep" {
		t.Errorf("nothing to take out: got %s, want keep", got)
	}
}

// TestInstallReplacesOlder: another path, another socket, seconds for milliseconds.
func TestInstallReplacesOlder(t *testing.T) {
	a, p := world(t)
	old := `{"hooks":{"BeforeTool":[{"hooks":[{"type":"command","name":"belay","command":"/old/belay-hook gemini BeforeTool","timeout":5}]}],
"AfterTool":[{"hooks":[{"type":"command","command":"exec '/o l'\\''d/belay-hook' --socket /s gemini AfterTool","timeout":5},{"type":"command","command":"mine gemini AfterTool"}]}],
"Stop":[{"hooks":[{"type":"command","command":"/old/belay-hook claude-code Stop"}]}]}}`
	put(t, a.hooks().Path(), old)
	found := strings.Join(a.Check(t.Context(), p), "\n")
	for _, want := range []string{
		"/old/belay-hook, not ", "5 milliseconds, less than a second", "SessionStart: hook is missing",
		`/o l'd/belay-hook`,
	} {
		if !strings.Contains(found, want) {
			t.Errorf("check: got\n%s\nwant %q in it", found, want)
		}
	}

	p.Socket = "/elsewhere/belay.sock"
	if _, err := a.Install(t.Context(), p, false); err != nil {
		t.Fatal(err)
	}

	data, err := os.ReadFile(a.hooks().Path())
	if err != nil {
		t.Fatal(err)
	}

	if got := string(
		data,
	); strings.Contains(got, "/old/belay-hook gemini") || strings.Contains(got, "/o l") || !strings.Contains(got, "mine gemini AfterTool") ||
		!strings.Contains(
			got, "/old/belay-hook claude-code Stop",
		) || !strings.Contains(got, " --socket /elsewhere/belay.sock gemini BeforeTool") ||
		!strings.Contains(got, `"timeout":5000`) {
		t.Errorf("got %s, want the older hooks of this agent replaced and all else kept", got)
	}
}

func TestCheckTurnedOff(t *testing.T) {
	a, p := world(t)
	put(t, a.hooks().Path(), `{"hooksConfig":{"disabled":["belay"]}}`)
	put(t, a.managed, "{ // ours\n\"hooksConfig\":{\"enabled\":false}}")
	if _, err := a.Install(t.Context(), p, false); err != nil {
		t.Fatal(err)
	}

	found := strings.Join(a.Check(t.Context(), p), "\n")
	for _, want := range []string{`hooksConfig.disabled names "belay"`, "managed.json: hooksConfig.enabled is false"} {
		if !strings.Contains(found, want) {
			t.Errorf("got\n%s\nwant %q in it", found, want)
		}
	}
}

func TestInstallRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		hook       string
		mode       os.FileMode
		want       error
	}{
		{"no JSON", `{"theme":`, "", 0o600, jsontext.ErrNoObject},
		{"a list", `[]`, "", 0o600, jsontext.ErrNoObject},
		{"a comment without an end", `{} /* x`, "", 0o600, jsontext.ErrNoObject},
		{"hooks of another form", `{"hooks":[]}`, "", 0o600, settings.ErrForeignForm},
		{"write-protected", `{}`, "", 0o400, settings.ErrReadOnly},
		{"a hook of another name", `{}`, "/bin/other", 0o600, agent.ErrBadHook},
		{"a relative hook", `{}`, "belay-hook", 0o600, agent.ErrBadHook},
	} {
		a, p := world(t)
		put(t, a.hooks().Path(), tt.text)
		if err := os.Chmod(a.hooks().Path(), tt.mode); err != nil {
			t.Fatal(err)
		}
		if tt.hook != "" {
			p.Hook = tt.hook
		}
		if _, err := a.Install(t.Context(), p, false); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if data, err := os.ReadFile(a.hooks().Path()); err != nil || string(data) != tt.text {
			t.Errorf("%s: the file is %q, %v, want it as it was", tt.name, data, err)
		}
	}

	a, p := world(t)
	a.home = ""
	if _, err := a.Install(t.Context(), p, false); !errors.Is(err, agent.ErrNoHome) {
		t.Errorf("got %v, want agent.ErrNoHome", err)
	}
}

func TestPresent(t *testing.T) {
	a, _ := world(t)
	if _, ok := a.Present(); ok {
		t.Error("present without program and home")
	}

	bin := filepath.Join(filepath.Dir(a.home), "lib/@google/gemini-cli")
	put(t, filepath.Join(bin, "package.json"), `{"name":"@google/gemini-cli","version":"0.61.0"}`)
	put(t, filepath.Join(bin, "bundle/gemini.js"), "#!/usr/bin/env node\n")
	if err := os.Chmod(filepath.Join(bin, "bundle/gemini.js"), 0o700); err != nil {
		t.Fatal(err)
	}

	a.path = filepath.Join(filepath.Dir(a.home), "path")
	if err := os.Mkdir(a.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(bin, "bundle/gemini.js"), filepath.Join(a.path, "gemini")); err != nil {
		t.Fatal(err)
	}
	if v, ok := a.Present(); !ok || v != "0.61.0" {
		t.Errorf("got %q %v, want 0.61.0", v, ok)
	}
}

// FuzzComments: a text that nothing is changed in comes back as it was; one that is edited keeps its comments.
func FuzzComments(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}

	f.Add("{\"a\":1} //\r\r\n/*")
	f.Fuzz(func(t *testing.T, text string) {
		hooks := (&Agent{}).hooks()
		if got, err := hooks.Strip(
			[]byte(text),
		); err == nil && string(got) != text &&
			!strings.Contains(text, "belay-hook") {
			t.Errorf("got %q, want %q", got, text)
		}

		next, err := hooks.Merge([]byte(text), agent.Paths{Hook: "/belay-hook"})
		if err != nil || strings.Contains(text, "belay-hook") {
			return
		}

		for _, c := range comments(text) {
			if !strings.Contains(string(next), c) {
				t.Errorf("%q: comment %q is gone: %q", text, c, next)
			}
		}

		if _, err := jsontext.Comments.Object(next); err != nil {
			t.Errorf("%q: came to no JSON: %q, %v", text, next, err)
		}

		bare, err := hooks.Strip(next)
		if err != nil {
			t.Errorf("%q: %v", next, err)
		}

		for _, c := range comments(text) {
			if !strings.Contains(string(bare), c) {
				t.Errorf("%q: comment %q is gone with the hooks: %q", text, c, bare)
			}
		}
	})
}
