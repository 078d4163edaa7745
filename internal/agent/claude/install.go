package claude

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"belay/internal/agent"
	"belay/internal/jsontext"
)

// maxSettings bounds the settings files that are only looked at: a larger one is none.
const maxSettings = jsontext.MaxFile

// settingsPath is the user's own settings file, the one of several that holds for all projects.
func (a *Agent) settingsPath() string { return filepath.Join(a.home, "settings.json") }

// files changes settings and keeps the way back.
func (a *Agent) files() jsontext.Files {
	return jsontext.Files{FS: a.fsys, Dir: filepath.Join(a.state, "install", name)}
}

func (a *Agent) readSettings() (jsontext.File, error) {
	if a.home == "" || a.state == "" {
		return jsontext.File{Path: a.settingsPath()}, agent.ErrNoHome
	}
	return a.files().Read(a.settingsPath())
}

// Install writes belay's hooks into the user's settings. Everything else in the file stays as it is, byte for byte; a
// second run changes nothing; hooks of an earlier belay, at another path or of another form, are replaced.
func (a *Agent) Install(ctx context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	if err := p.Valid(); err != nil {
		return nil, err
	}
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("install hooks: %w", err)
	}
	v, known := a.askVersion(ctx)
	want := wanted(p, v, known)
	next, err := merge(s.Text, want)
	var bare []byte
	if err == nil {
		bare, err = strip(s.Text, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", s.Path, err)
	}
	c := agent.Change{Path: s.Path, Action: "change", Detail: fmt.Sprintf("hooks for %d events", len(want)) + s.Note()}
	switch {
	case !s.Exists:
		c.Action = "create"
	case bytes.Equal(next, s.Text):
		c.Action = "keep"
		return []agent.Change{c}, nil
	}
	err = s.Locked
	if err == nil && !dryRun {
		err = a.files().Change(s, next, bare)
	}
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", s.Path, err)
	}
	return []agent.Change{c}, nil
}

// Uninstall takes belay's hooks out again. When nobody changed the file since Install, its old bytes come back, and a
// file or folder that Install made goes; else only belay's entries go.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks: %w", err)
	}
	u, err := a.undo(s)
	if err == nil && !dryRun {
		err = a.files().Do(u)
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", s.Path, err)
	}
	c := agent.Change{Path: s.Path, Action: u.Action}
	switch u.Action {
	case "restore":
		c.Detail = "as it was before install" + s.Note()
	case "remove":
		c.Detail = "was made by install" + s.Note()
	case "change":
		c.Detail = "belay's hooks taken out, the rest kept" + s.Note()
	default:
		c.Detail = "no hooks of belay's"
	}
	return []agent.Change{c}, nil
}

// undo decides how the file goes back.
func (a *Agent) undo(s jsontext.File) (jsontext.Undo, error) {
	bare, err := strip(s.Text, nil)
	if err != nil {
		return jsontext.Undo{}, err
	}
	return a.files().Undo(s, bare, jsontext.Empty(bare))
}
