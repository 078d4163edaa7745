package gemini

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
	"belay/internal/vfs"
)

// hookName is that under which the program shows a hook, and under which it can be turned off.
const hookName = "belay"

// hooks are belay's in the user's settings, which may have comments. Timeouts are milliseconds: that is this
// program's unit.
func (a *Agent) hooks() settings.Spec {
	return settings.Spec{
		Agent: name, Home: a.home, File: "settings.json", State: a.state, FS: a.fsys, Dialect: jsontext.Comments,
		Type: "command", Label: hookName, Exec: true, Unit: time.Millisecond, Events: hookEvents(),
	}
}

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

// Present says whether Gemini CLI is on this machine: its program is on the PATH or its home exists.
func (a *Agent) Present() (string, bool) {
	mine := func(pkg string) bool { return strings.HasSuffix(pkg, "/gemini-cli") }
	return settings.Present(a.fsys, a.path, a.home, mine, name)
}

// Install writes belay's hooks into the user's settings. Hooks of an earlier belay, at another path or of another
// form, are replaced.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.hooks().Install(p, dryRun, nil)
}

// Uninstall takes belay's hooks out again.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.hooks().Uninstall(dryRun)
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) (found []string) {
	text, err := vfs.ReadFile(a.fsys, a.managed, settings.MaxFile)
	if err == nil {
		found = turnedOff(a.managed, text)
	} else if !errors.Is(err, fs.ErrNotExist) {
		found = append(found, "the administrator's settings cannot be read: "+err.Error())
	}

	if f, err := a.hooks().Read(); err == nil {
		found = append(found, turnedOff(f.Path, f.Text)...)
	}

	return append(found, a.hooks().Check(p)...)
}

// turnedOff looks for settings that keep belay's hooks from running.
func turnedOff(path string, text []byte) (found []string) {
	var s struct {
		Hooks struct {
			Enabled  *bool    `json:"enabled"`
			Disabled []string `json:"disabled"`
		} `json:"hooksConfig"`
	}

	if jsontext.Comments.Decode(text, &s) != nil {
		return nil // of another form: nothing is known
	}
	if s.Hooks.Enabled != nil && !*s.Hooks.Enabled {
		found = append(found, fmt.Sprintf("%s: hooksConfig.enabled is false: no hook runs", path))
	}

	if slices.Contains(s.Hooks.Disabled, hookName) {
		found = append(
			found, fmt.Sprintf("%s: hooksConfig.disabled names %q: belay's hooks do not run", path, hookName),
		)
	}

	return found
}
