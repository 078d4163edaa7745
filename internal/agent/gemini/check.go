package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/jsontext"
	"belay/internal/vfs"
)

// systemSettings is where the administrator's settings are.
func systemSettings(h agent.Host) string {
	if path := h.Var("GEMINI_CLI_SYSTEM_SETTINGS_PATH"); path != "" {
		return path
	}
	if runtime.GOOS == "darwin" {
		return "/Library/Application Support/GeminiCli/settings.json"
	}
	return "/etc/gemini-cli/settings.json"
}

// Present says whether Gemini CLI is on this machine: its program is on the PATH or its home exists. The version is read off
// the package's own description; nothing is run for it.
func (a *Agent) Present() (string, bool) {
	program := a.program()
	if program == "" {
		_, err := os.Stat(a.home)
		return "", a.home != "" && err == nil
	}
	dir := filepath.Dir(program)
	for range 4 {
		text, err := vfs.ReadFile(a.fsys, filepath.Join(dir, "package.json"), 1<<20)
		var pkg struct{ Name, Version string }
		if err == nil && json.Unmarshal(text, &pkg) == nil && strings.HasSuffix(pkg.Name, "/gemini-cli") {
			return pkg.Version, true
		}
		dir = filepath.Dir(dir)
	}
	return "", true
}

// program is the gemini program on the PATH, links resolved; empty when there is none.
func (a *Agent) program() string {
	for _, dir := range filepath.SplitList(a.path) {
		file := filepath.Join(dir, "gemini")
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return payload.RealPath(file)
		}
	}
	return ""
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string {
	var found []string
	if info, err := os.Stat(p.Hook); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		found = append(found, fmt.Sprintf("%s is no program that can be started", p.Hook))
	}
	text, err := vfs.ReadFile(a.fsys, a.managed, jsontext.MaxFile)
	if err == nil {
		found = append(found, turnedOff(a.managed, text)...)
	} else if !errors.Is(err, fs.ErrNotExist) {
		found = append(found, "the administrator's settings cannot be read: "+err.Error())
	}
	f, _, err := a.settings()
	switch {
	case err != nil:
		return append(found, fmt.Sprintf("%s: %v", a.settingsPath(), err))
	case !f.Exists:
		return append(found, fmt.Sprintf("%s is not there: no hook is installed", f.Path))
	}
	found = append(found, turnedOff(f.Path, f.Text)...)
	for _, e := range hookEvents() {
		list, err := hooks().Handlers(hide(f.Text).text, e.name)
		if err != nil {
			return append(found, fmt.Sprintf("%s: %v", f.Path, err))
		}
		found = append(found, checkEvent(e, list, p)...)
	}
	return found
}

// turnedOff looks for settings that keep belay's hooks from running.
func turnedOff(path string, text []byte) (found []string) {
	var s struct {
		Hooks struct {
			Enabled  *bool    `json:"enabled"`
			Disabled []string `json:"disabled"`
		} `json:"hooksConfig"`
	}
	if json.Unmarshal(hide(text).text, &s) != nil {
		return nil // of another form: nothing is known
	}
	if s.Hooks.Enabled != nil && !*s.Hooks.Enabled {
		found = append(found, fmt.Sprintf("%s: hooksConfig.enabled is false: no hook runs", path))
	}
	if slices.Contains(s.Hooks.Disabled, hookName) {
		found = append(found, fmt.Sprintf("%s: hooksConfig.disabled names %q: belay's hooks do not run", path, hookName))
	}
	return found
}

// checkEvent compares an event's hooks with what belay would write.
func checkEvent(e hookEvent, list []jsontext.Handler, p agent.Paths) []string {
	switch len(list) {
	case 0:
		return []string{e.name + ": hook is missing"}
	case 1:
	default:
		return []string{fmt.Sprintf("%s: hook is there %d times", e.name, len(list))}
	}
	var found []string
	program, event, _ := started(list[0].Text)
	if program != p.Hook {
		found = append(found, fmt.Sprintf("%s: hook starts %s, not %s", e.name, program, p.Hook))
	}
	if event != e.name {
		found = append(found, fmt.Sprintf("%s: hook reports the event as %s", e.name, event))
	}
	var h struct{ Timeout *float64 }
	switch err := json.Unmarshal(list[0].Text, &h); {
	case err != nil || h.Timeout == nil:
		found = append(found, e.name+": hook has no timeout")
	case *h.Timeout > hookTimeout:
		found = append(found, fmt.Sprintf("%s: hook's timeout is %g milliseconds, more than %d", e.name, *h.Timeout, hookTimeout))
	case *h.Timeout < 1000:
		found = append(found, fmt.Sprintf("%s: hook's timeout is %g milliseconds, less than a second: the unit is no second here", e.name, *h.Timeout))
	}
	var g struct{ Matcher string }
	// A matcher of another type is as wrong as a narrow one.
	if err := json.Unmarshal(list[0].GroupText, &g); err != nil || g.Matcher != e.matcher && g.Matcher != "" && g.Matcher != "*" {
		found = append(found, fmt.Sprintf("%s: hook's matcher %q leaves calls out", e.name, g.Matcher))
	}
	return found
}
