package codex

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/lazyre"
	"belay/internal/vfs"
)

var versionForm = lazyre.New(`^\d{1,6}\.\d{1,6}\.\d{1,6}\b`)

// Present says whether Codex is on this machine: its program is on the PATH or its home exists. The version is told where
// the installation names it; nothing is run for it.
func (a *Agent) Present() (string, bool) {
	for _, dir := range filepath.SplitList(a.path) {
		file := filepath.Join(dir, "codex")
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return a.versionOf(payload.RealPath(file)), true
		}
	}
	_, err := os.Stat(a.home)
	return "", a.home != "" && err == nil
}

// versionOf reads the version off the installation: npm has a package.json above the program.
func (a *Agent) versionOf(program string) string {
	dir := filepath.Dir(program)
	for range 4 {
		text, err := vfs.ReadFile(a.fsys, filepath.Join(dir, "package.json"), 1<<20)
		var pkg struct{ Name, Version string }
		if err == nil && json.Unmarshal(text, &pkg) == nil && pkg.Name == "@openai/codex" {
			return versionForm().FindString(pkg.Version)
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string {
	var found []string
	if info, err := os.Stat(p.Hook); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		found = append(found, fmt.Sprintf("%s is no program that can be started", p.Hook))
	}
	f, err := a.read(a.hooksPath())
	switch {
	case err != nil:
		return append(found, err.Error())
	case !f.Exists:
		return append(found, fmt.Sprintf("%s is not there: no hook is installed", f.Path))
	}
	if _, err := own().Handlers(f.Text, ""); err != nil {
		return append(found, fmt.Sprintf("%s: %v", f.Path, err))
	}
	want := wanted(p)
	for _, e := range hookEvents() {
		found = append(found, checkEvent(f.Text, e, want[e.name].(group).Hooks[0], p)...)
	}
	return append(found, a.checkConfig(f.Text)...)
}

// checkEvent compares an event's hooks with what belay would write.
func checkEvent(text []byte, e hookEvent, want handler, p agent.Paths) []string {
	list, err := own().Handlers(text, e.name)
	switch {
	case err != nil:
		return []string{err.Error()}
	case len(list) == 0:
		return []string{e.name + ": hook is missing"}
	case len(list) > 1:
		return []string{fmt.Sprintf("%s: hook is there %d times", e.name, len(list))}
	}
	var found []string
	argv := argvOf(list[0].Text)
	if argv[0] != p.Hook {
		found = append(found, fmt.Sprintf("%s: hook starts %s, not %s", e.name, argv[0], p.Hook))
	}
	if got := argv[len(argv)-1]; got != e.name {
		found = append(found, fmt.Sprintf("%s: hook reports the event as %s", e.name, got))
	}
	var h struct {
		Timeout *float64
		Async   bool
	}
	if json.Unmarshal(list[0].Text, &h) != nil || h.Timeout == nil {
		found = append(found, e.name+": hook has no timeout")
	} else if most := float64(want.Timeout); *h.Timeout > most {
		found = append(found, fmt.Sprintf("%s: hook's timeout is %g seconds, more than %g", e.name, *h.Timeout, most))
	}
	if h.Async {
		found = append(found, e.name+": hook is async: Codex loses those at its end")
	}
	var g struct{ Matcher string }
	// A matcher of another type is as wrong as a narrow one.
	if err := json.Unmarshal(list[0].GroupText, &g); err != nil || g.Matcher != "" && g.Matcher != "*" {
		found = append(found, fmt.Sprintf("%s: hook's matcher %q leaves calls out", e.name, g.Matcher))
	}
	return found
}

// checkConfig looks at config.toml: hooks can be off as a whole, and run only when they are trusted.
func (a *Agent) checkConfig(hooks []byte) []string {
	f, err := a.read(a.configPath())
	if err != nil {
		return []string{err.Error()}
	}
	all, err := decodeTOML(f.Text)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	features, _ := all["features"].(map[string]any)
	for _, key := range []string{"hooks", "codex_hooks"} {
		if features[key] == false {
			found = append(found, fmt.Sprintf("%s: features.%s is off: no hook runs", f.Path, key))
		}
	}
	if list := a.untrusted(hooks); len(list) > 0 {
		found = append(found, fmt.Sprintf("hooks are not trusted, so Codex does not run them: %s%s", strings.Join(list, ", "), howToTrust))
	}
	return found
}
