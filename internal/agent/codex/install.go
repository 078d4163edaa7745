package codex

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/jsontext"
)

// Errors of Install, Trust and Uninstall. The files are as they were after any of them.
var (
	// ErrNotInstalled: there are no hooks of belay's, or not in the present form, that could be trusted.
	ErrNotInstalled = errors.New("hooks are not installed")
)

// group and handler are Codex's form of a hook, in the order in which people write it.
type group struct {
	Hooks []handler `json:"hooks"`
}

type handler struct {
	Type    string `json:"type"`
	Command string `json:"command"`
	Timeout int    `json:"timeout"` // seconds
}

// wanted is what belay writes for each event. There is no form without a shell; exec replaces it by the hook, so that the
// hook's parent is the agent.
func wanted(p agent.Paths) map[string]any {
	want := map[string]any{}
	for _, e := range hookEvents() {
		line := "exec " + payload.ShellWord(p.Hook)
		if p.Socket != "" {
			line += " --socket " + payload.ShellWord(p.Socket)
		}
		line += " " + name + " " + e.name
		want[e.name] = group{Hooks: []handler{{Type: "command", Command: line, Timeout: e.timeout}}}
	}
	return want
}

// own edits belay's hooks in the text of hooks.json.
func own() jsontext.Hooks {
	h := jsontext.Hooks{Own: isOwn}
	for _, e := range hookEvents() {
		h.Events = append(h.Events, e.name)
	}
	return h
}

// isOwn recognises a hook of belay's by what it starts, at any path: a wrapper of the user's around belay-hook is the
// user's.
func isOwn(raw []byte) bool {
	argv := argvOf(raw)
	return len(argv) >= 3 && strings.HasPrefix(filepath.Base(argv[0]), agent.HookBinary) && argv[len(argv)-2] == name
}

// argvOf is what a command hook starts.
func argvOf(raw []byte) []string {
	var h handler
	if json.Unmarshal(raw, &h) != nil || h.Type != "command" {
		return nil
	}
	argv := payload.ShellWords(h.Command)
	if len(argv) > 0 && argv[0] == "exec" {
		argv = argv[1:]
	}
	return argv
}

func (a *Agent) hooksPath() string  { return filepath.Join(a.home, "hooks.json") }
func (a *Agent) configPath() string { return filepath.Join(a.home, "config.toml") }

func (a *Agent) files() jsontext.Files {
	return jsontext.Files{FS: a.fsys, Dir: filepath.Join(a.state, "install", name)}
}

func (a *Agent) read(path string) (jsontext.File, error) {
	if a.home == "" || a.state == "" {
		return jsontext.File{Path: path}, agent.ErrNoHome
	}
	return a.files().Read(path)
}

// howToTrust is told with every Install: without it nothing of belay's runs, and Codex says nothing.
const howToTrust = "; Codex runs them only once you trust them: start codex and open /hooks, or run belay install codex --trust"

// Install writes belay's hooks into the user's hooks.json. Everything else in the file stays as it is, byte for byte; a
// second run changes nothing; hooks of an earlier belay at another path are replaced, which needs a person's trust again.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	if err := p.Valid(); err != nil {
		return nil, err
	}
	f, err := a.read(a.hooksPath())
	if err != nil {
		return nil, fmt.Errorf("install hooks: %w", err)
	}
	want := wanted(p)
	next, err := own().Merge(f.Text, want)
	var bare []byte
	if err == nil {
		bare, err = own().Strip(f.Text, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", f.Path, err)
	}
	c := agent.Change{Path: f.Path, Action: "change", Detail: fmt.Sprintf("hooks for %d events", len(want)) + f.Note()}
	if len(a.untrusted(next)) > 0 {
		c.Detail += howToTrust
	}
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

// Uninstall takes belay's hooks out again, and the trust that Trust wrote for them. When nobody changed a file since, its
// old bytes come back, and a file or folder that Install made goes; else only belay's entries go.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	hooks, err := a.read(a.hooksPath())
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks: %w", err)
	}
	config, err := a.read(a.configPath())
	if err != nil {
		return nil, fmt.Errorf("uninstall trust: %w", err)
	}
	// Trust goes first: what belay's is in it is known by the hooks.
	trust, err := a.undoTrust(config, hooks.Text)
	if err != nil {
		return nil, fmt.Errorf("uninstall trust from %s: %w", config.Path, err)
	}
	bare, err := own().Strip(hooks.Text, nil)
	var u jsontext.Undo
	if err == nil {
		u, err = a.files().Undo(hooks, bare, jsontext.Empty(bare))
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", hooks.Path, err)
	}
	changes := []agent.Change{told(u, hooks, "hooks")}
	if trust.Action != "keep" {
		changes = append(changes, told(trust, config, "trust"))
	}
	if dryRun {
		return changes, nil
	}
	if err := a.files().Do(trust); err != nil {
		return nil, fmt.Errorf("uninstall trust from %s: %w", config.Path, err)
	}
	if err := a.files().Do(u); err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", hooks.Path, err)
	}
	return changes, nil
}

// told says what an undo does to a file.
func told(u jsontext.Undo, f jsontext.File, what string) agent.Change {
	c := agent.Change{Path: f.Path, Action: u.Action}
	switch u.Action {
	case "restore":
		c.Detail = "as it was before install" + f.Note()
	case "remove":
		c.Detail = "was made by install" + f.Note()
	case "change":
		c.Detail = "belay's " + what + " taken out, the rest kept" + f.Note()
	default:
		c.Detail = "no " + what + " of belay's"
	}
	return c
}
