package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
	"belay/internal/vfs"
)

// since are the first versions that know an event's name. Older ones may refuse the whole file over it.
var since = map[string]version{
	"SessionStart": {1, 0, 62}, "UserPromptSubmit": {1, 0, 54}, "PreToolUse": {1, 0, 38}, "PostToolUse": {1, 0, 38},
	"PostToolUseFailure": {2, 1, 33}, "PreCompact": {1, 0, 48}, "PostCompact": {2, 1, 76}, "SubagentStart": {2, 0, 43},
	"SubagentStop": {1, 0, 41}, "Stop": {1, 0, 38}, "StopFailure": {2, 1, 78}, "SessionEnd": {1, 0, 85},
}

// hooks are belay's in the user's own settings, those of several files that hold for all projects.
func (a *Agent) hooks() settings.Spec {
	return settings.Spec{
		Agent: name, Home: a.home, File: "settings.json", State: a.state, FS: a.fsys,
		Type: "command", Exec: true, Unit: time.Second, Events: hookEvents(),
	}
}

// hooksOf are hooks for a version. From execForm on no shell is needed. A version that is not known gets the command
// line, which all understand, and every event: names that it does not know do not hurt since namesForgiven.
func (a *Agent) hooksOf(v version, known bool) settings.Spec {
	s := a.hooks()
	if known {
		s.Args = !v.before(execForm)
		s.Events = slices.DeleteFunc(s.Events, func(e settings.Event) bool {
			return v.before(since[e.Name]) && v.before(namesForgiven)
		})
	}

	return s
}

// Install writes belay's hooks into the user's settings. Hooks of an earlier belay, at another path or of another
// form, are replaced.
func (a *Agent) Install(ctx context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.hooksOf(a.askVersion(ctx)).Install(p, dryRun, nil)
}

// Uninstall takes belay's hooks out again.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.hooks().Uninstall(dryRun)
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(ctx context.Context, p agent.Paths) []string {
	found := append(a.checkManaged(), a.hooksOf(a.askVersion(ctx)).Check(p)...)
	s, err := a.hooks().Read()
	if err == nil && flagOf(s.Text, "disableAllHooks") {
		found = append(found, fmt.Sprintf("%s: disableAllHooks is on: no hook runs", s.Path))
	}
	return found
}

// checkManaged looks at the administrator's settings, which win over the user's.
func (a *Agent) checkManaged() []string {
	text, err := vfs.ReadFile(a.fsys, a.managed, settings.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []string{"managed settings cannot be read: " + err.Error()}
	}

	var found []string
	for _, key := range []string{"disableAllHooks", "allowManagedHooksOnly"} {
		if flagOf(text, key) {
			found = append(found, fmt.Sprintf("%s: %s is on: belay's hooks do not run", a.managed, key))
		}
	}

	return found
}

func flagOf(text []byte, key string) bool {
	var all map[string]json.RawMessage
	return jsontext.JSON.Decode(text, &all) == nil && payload.Payload(all).Flag(key)
}
