package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/jsontext"
	"belay/internal/lazyre"
)

const (
	hookName    = "belay" // under which the program shows the hook, and under which it can be turned off
	hookTimeout = 5000    // milliseconds: that is this program's unit
)

// group and handler are the program's form of a hook, in the order in which people write it.
type group struct {
	Matcher string    `json:"matcher,omitempty"`
	Hooks   []handler `json:"hooks"`
}

type handler struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Command string `json:"command"`
	Timeout int    `json:"timeout"` // milliseconds
}

// wanted is what belay writes for each event. The command line replaces its shell by the hook (exec), so that the hook's
// parent is the agent.
func wanted(p agent.Paths) map[string]any {
	want := map[string]any{}
	for _, e := range hookEvents() {
		line := "exec " + payload.ShellWord(p.Hook)
		if p.Socket != "" {
			line += " --socket " + payload.ShellWord(p.Socket)
		}
		line += " " + name + " " + e.name
		want[e.name] = group{Matcher: e.matcher, Hooks: []handler{{"command", hookName, line, hookTimeout}}}
	}
	return want
}

// hooks edits belay's hooks in a settings text.
func hooks() jsontext.Hooks {
	var events []string
	for _, e := range hookEvents() {
		events = append(events, e.name)
	}
	return jsontext.Hooks{Events: events, Own: isOwn}
}

// commandLine is a command as belay writes it: the program, plain or quoted, and at its end the agent and the event.
var commandLine = lazyre.New(`^(?:exec +)?(?:'((?:[^']|'\\'')*)'|([^\s']+)) (?:.* )?` + name + ` +([A-Za-z]+)$`)

// isOwn recognises a hook of belay's by what it starts, at any path: a wrapper of the user's around belay-hook is the user's.
func isOwn(raw []byte) bool {
	program, _, ok := started(raw)
	return ok && strings.HasPrefix(filepath.Base(program), agent.HookBinary)
}

// started is the program that a command hook starts, and the event that it is told.
func started(raw []byte) (program, event string, ok bool) {
	var h handler
	// A field of another type is as if absent; then it is no command of belay's.
	if json.Unmarshal(raw, &h) != nil && h.Command == "" || h.Type != "command" {
		return "", "", false
	}
	m := commandLine().FindStringSubmatch(h.Command)
	if m == nil {
		return "", "", false
	}
	program = m[2]
	if program == "" {
		program = strings.ReplaceAll(m[1], `'\''`, "'")
	}
	return program, m[3], true
}

func (a *Agent) settingsPath() string { return filepath.Join(a.home, "settings.json") }

func (a *Agent) files() jsontext.Files {
	return jsontext.Files{FS: a.fsys, Dir: filepath.Join(a.state, "install", name)}
}

// settings reads the user's settings, and gives them without anything of belay's as well.
func (a *Agent) settings() (f jsontext.File, bare []byte, err error) {
	if a.home == "" || a.state == "" {
		return f, nil, agent.ErrNoHome
	}
	if f, err = a.files().Read(a.settingsPath()); err != nil {
		return f, nil, err
	}
	bare, err = edit(f.Text, func(b []byte) ([]byte, error) { return hooks().Strip(b, nil) })
	return f, bare, err
}

// Install writes belay's hooks into the user's settings. Everything else in the file stays as it is, comments too; a
// second run changes nothing; hooks of an earlier belay, at another path or of another form, are replaced.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	if err := p.OneLine(); err != nil {
		return nil, err
	}
	f, bare, err := a.settings()
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", a.settingsPath(), err)
	}
	next, err := edit(f.Text, func(b []byte) ([]byte, error) { return hooks().Merge(b, wanted(p)) })
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", f.Path, err)
	}
	c := agent.Change{Path: f.Path, Action: "change", Detail: fmt.Sprintf("hooks for %d events", len(hookEvents())) + f.Note()}
	switch {
	case !f.Exists:
		c.Action = "create"
	case bytes.Equal(next, f.Text):
		c.Action = "keep"
		return []agent.Change{c}, nil
	}
	err = f.Locked
	if err == nil && !dryRun {
		err = a.files().Change(f, next, bare)
	}
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", f.Path, err)
	}
	return []agent.Change{c}, nil
}

// Uninstall takes belay's hooks out again. When nobody changed the file since Install, its old bytes come back, and a
// file or folder that Install made goes; else only belay's entries go.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	f, bare, err := a.settings()
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", a.settingsPath(), err)
	}
	u, err := a.files().Undo(f, bare, jsontext.Empty(bare))
	if err == nil && !dryRun {
		err = a.files().Do(u)
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", f.Path, err)
	}
	details := map[string]string{
		"keep":    "no hooks of belay's",
		"change":  "belay's hooks taken out, the rest kept" + f.Note(),
		"restore": "as it was before install" + f.Note(),
		"remove":  "was made by install" + f.Note(),
	}
	return []agent.Change{{Path: f.Path, Action: u.Action, Detail: details[u.Action]}}, nil
}
