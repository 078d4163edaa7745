package settings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/internal/agent"
	"belay/internal/jsontext"
	"belay/internal/vfs"
)

// hookFile is the hooks of an agent called "one", below a folder, and a belay-hook that can be started.
func hookFile(t *testing.T) (Spec, agent.Paths) {
	t.Helper()
	dir := t.TempDir()
	p := agent.Paths{Hook: filepath.Join(dir, "it's here", "belay-hook")}
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(p.Hook), 0o700), os.WriteFile(p.Hook, []byte("#!"), 0o700),
	); err != nil {
		t.Fatal(err)
	}

	home := filepath.Join(dir, "home")
	return Spec{
		Agent:  "one",
		Home:   home,
		File:   "hooks.json",
		State:  filepath.Join(dir, "state"),
		FS:     vfs.OS{},
		Flat:   true,
		Unit:   time.Second,
		Events: []Event{{Name: "begin", Timeout: time.Second, Waits: true}, {Name: "end", Timeout: time.Second}},
	}, p
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o640)); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "absent"
	}
	if err != nil {
		t.Fatal(err)
	}

	return string(data)
}

// TestInstallAndBack: from each beginning the hooks are in place, once, and every byte of the user's comes back.
func TestInstallAndBack(t *testing.T) {
	const theirs = `{ "version":1,"hooks" : {"begin":[{"command":"./mine.sh","matcher":"x"}], "other": []}, "more":[1,2 ]}`
	for _, c := range []struct{ before, action, back string }{
		{"absent", "create", "remove"},
		{"", "change", "restore"},
		{"{}", "change", "restore"},
		{theirs, "change", "restore"},
		{"\xef\xbb\xbf" + theirs + "\r\n", "change", "restore"},
		{`{"version":1,"hooks":{"begin":[{"command":"/old/belay-hook-1 one begin"},{"command":"/old/belay-hook two begin"}]}}`, "change", "restore"},
	} {
		f, p := hookFile(t)
		if c.before != "absent" {
			put(t, f.Path(), c.before)
		}

		for n, want := range []string{c.action, "keep"} {
			for _, dry := range []bool{true, false} {
				got, err := f.Install(p, dry, nil)
				if err != nil || len(got) != 1 || got[0].Action != want {
					t.Errorf("%q: install %d, dry %v: %+v %v, want %s", c.before, n, dry, got, err, want)
				}
				if now := get(t, f.Path()); dry && n == 0 && now != c.before {
					t.Errorf("%q: a dry run left %q", c.before, now)
				}
			}
		}

		now := get(t, f.Path())
		if found := f.Check(p); len(found) > 0 {
			t.Errorf("%q: %v in\n%s", c.before, found, now)
		}
		if strings.Contains(now, "/old/belay-hook-1") ||
			strings.Contains(c.before, "two") && !strings.Contains(now, "belay-hook two begin") {
			t.Errorf("%q became\n%s\nwant the older hook of this agent gone, and another agent's kept", c.before, now)
		}

		before := c.before
		if strings.Contains(before, "-1 one") { // an older belay's goes too
			before = `{"version":1,"hooks":{"begin":[{"command":"/old/belay-hook two begin"}]}}`
		}

		got, err := f.Uninstall(false)
		if now := get(t, f.Path()); err != nil || got[0].Action != c.back || now != before {
			t.Errorf("%q: uninstall: %+v %v, left %q", c.before, got, err, now)
		}
		if _, err := os.Stat(f.Home); c.before == "absent" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder that install made is left: %v", err)
		}
		if got, err := f.Uninstall(false); err != nil || got[0].Action != "keep" {
			t.Errorf("%q: uninstall once more: %+v %v, want keep", c.before, got, err)
		}
	}
}

// What the user added to a file that install made stays; a file in which nothing is theirs goes.
func TestUninstallAfterEdits(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"version": 1`, `"version": 1, "mine": true`, "{\n  \"version\": 1, \"mine\": true\n}\n"},
		{"\n}\n", "\n}", "absent"},
	} {
		f, p := hookFile(t)
		if _, err := f.Install(p, false, nil); err != nil {
			t.Fatal(err)
		}

		put(t, f.Path(), strings.Replace(get(t, f.Path()), c.from, c.to, 1))
		if _, err := f.Uninstall(false); err != nil {
			t.Fatal(err)
		}
		if now := get(t, f.Path()); now != c.want {
			t.Errorf("%q changed to %q: left %q, want %q", c.from, c.to, now, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		text string
		hook string
		want error
	}{
		{"{", "", jsontext.ErrNoObject},
		{`{"hooks":[]}`, "", ErrForeignForm},
		{`{"hooks":{"begin":{}}}`, "", ErrForeignForm},
		{"{}", "belay-hook", agent.ErrBadHook},
		{"{}", "/x/other", agent.ErrBadHook},
		{"{}", "/x\n/belay-hook", agent.ErrBadHook},
	} {
		f, p := hookFile(t)
		put(t, f.Path(), c.text)
		if c.hook != "" {
			p.Hook = c.hook
		}
		if _, err := f.Install(p, false, nil); !errors.Is(err, c.want) || get(t, f.Path()) != c.text {
			t.Errorf("%s %q: %v, %q left; want %v and nothing changed", c.text, c.hook, err, get(t, f.Path()), c.want)
		}
	}

	f, p := hookFile(t)
	f.Home = ""
	if _, err := f.Install(p, false, nil); !errors.Is(err, agent.ErrNoHome) {
		t.Errorf("no home: %v, want agent.ErrNoHome", err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{` one begin"`, ` one end"`, "begin: hook reports the event as end"},
		{` --wait one`, ` one`, "begin: hook is of an earlier belay"},
		{`"timeout": 1`, `"timeout": 1000`, "begin: hook's timeout is 1000 seconds, more than 1"},
		{`"timeout": 1`, `"other": 1`, "begin: hook has no timeout"},
		{`"timeout": 1`, `"timeout": 1, "matcher": "x"`, `begin: hook's matcher "x" leaves calls out`},
		{`"begin"`, `"Begin"`, "begin: hook is missing"},
		{"/belay-hook'", "/belay-hook-old'", "begin: hook starts "},
		{`"begin": [`, `"begin": [{"command":"/x/belay-hook --wait one begin"},`, "begin: hook is there 2 times"},
	} {
		f, p := hookFile(t)
		if _, err := f.Install(p, false, nil); err != nil {
			t.Fatal(err)
		}

		put(t, f.Path(), strings.Replace(get(t, f.Path()), c.from, c.to, 1))
		if found := f.Check(p); len(found) != 1 || !strings.HasPrefix(found[0], c.want) {
			t.Errorf("%s to %s: %q, want %q", c.from, c.to, found, c.want)
		}
	}

	f, p := hookFile(t)
	if found := f.Check(p); len(found) != 1 || !strings.Contains(found[0], "no hook is installed") {
		t.Errorf("not installed: %q", found)
	}

	p.Hook = "/absent/belay-hook"
	if found := f.Check(p); len(found) != 2 {
		t.Errorf("no program: %q, want it said beside", found)
	}
}
