package codex

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
)

// ErrNotInstalled: there are no hooks of belay's, or not in the present form, that could be trusted. Nothing is
// written.
var ErrNotInstalled = errors.New("hooks are not installed")

// howToTrust is told with every Install: without it nothing of belay's runs, and Codex says nothing.
const howToTrust = "; Codex runs them only once you trust them: " +
	"start codex and open /hooks, or run belay install codex --trust"

// hooks are belay's in hooks.json. Codex has no form without a shell.
func (a *Agent) hooks() settings.Spec {
	return settings.Spec{
		Agent: name, Home: a.home, File: "hooks.json", State: a.state, FS: a.fsys,
		Type: "command", Exec: true, Unit: time.Second, Async: "Codex loses those at its end", Events: hookEvents(),
	}
}

func (a *Agent) configPath() string { return filepath.Join(a.home, "config.toml") }

// readConfig gives config.toml, which need not be there.
func (a *Agent) readConfig() (settings.File, error) {
	if a.home == "" || a.state == "" {
		return settings.File{Path: a.configPath()}, agent.ErrNoHome
	}
	return a.hooks().Files().Read(a.configPath())
}

// Present says whether Codex is on this machine: its program is on the PATH or its home exists.
func (a *Agent) Present() (string, bool) {
	mine := func(pkg string) bool { return pkg == "@openai/codex" }
	return settings.Present(a.fsys, a.path, a.home, mine, name)
}

// Install writes belay's hooks into the user's hooks.json. Hooks of an earlier belay, at another path or of another
// form, are replaced, which needs a person's trust again.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.hooks().Install(p, dryRun, func(next []byte) string {
		if len(a.untrusted(next)) > 0 {
			return howToTrust
		}
		return ""
	})
}

// Uninstall takes belay's hooks out again, and the trust that Trust wrote for them.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	// Trust goes first: what belay's is in it is known by the hooks.
	trust, err := a.undoTrust()
	if err != nil {
		return nil, fmt.Errorf("uninstall trust from %s: %w", a.configPath(), err)
	}

	hooks, err := a.hooks().Undo()
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", a.hooks().Path(), err)
	}

	changes := []agent.Change{hooks.Change("hooks")}
	if trust.Action != "keep" {
		changes = append(changes, trust.Change("trust"))
	}
	if dryRun {
		return changes, nil
	}

	if err := a.hooks().Files().Do(trust); err != nil {
		return nil, fmt.Errorf("uninstall trust from %s: %w", a.configPath(), err)
	}
	if err := a.hooks().Files().Do(hooks); err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", a.hooks().Path(), err)
	}

	return changes, nil
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string {
	found := a.hooks().Check(p)
	hooks, err := a.hooks().Read()
	if err != nil || !hooks.Exists {
		return found // Check has said so
	}
	return append(found, a.checkConfig(hooks.Text)...)
}

// checkConfig looks at config.toml: hooks can be off as a whole, and run only when they are trusted.
func (a *Agent) checkConfig(hooks []byte) []string {
	f, err := a.readConfig()
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
		found = append(found, "hooks are not trusted, so Codex does not run them: "+strings.Join(list, ", ")+howToTrust)
	}

	return found
}
