package agentzero

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/plugin"
	"belay/internal/lazyre"
)

// ErrNoProgram is returned by Install when no folder holds an Agent Zero.
var ErrNoProgram = errors.New("no folder of Agent Zero's is known; AGENT_ZERO_DIR names it")

//go:embed extension.py
var extension string

// compiled is what Python leaves of the extension beside it.
var compiled = lazyre.New(`^_\d\d_belay\.[A-Za-z0-9_-]+(?:\.opt-\d)?\.pyc$`)

// places are the extension's files: one for each point, which its folder names. A call's arguments are looked at before
// the program puts real secrets in the place of their names (_10_), its result after they were taken out again.
func places(root string) []string {
	dir := filepath.Join(root, "usr", "extensions", "python")
	return []string{
		filepath.Join(dir, "monologue_start", "_95_belay.py"),
		filepath.Join(dir, "message_loop_prompts_after", "_95_belay.py"),
		filepath.Join(dir, "tool_execute_before", "_05_belay.py"),
		filepath.Join(dir, "tool_execute_after", "_95_belay.py"),
		filepath.Join(dir, "monologue_end", "_95_belay.py"),
	}
}

// present gives the folders in which an Agent Zero lies.
func (a *Agent) present() []string {
	var list []string
	for _, root := range a.roots {
		program, err := os.Stat(filepath.Join(root, "agent.py"))
		if err != nil || !program.Mode().IsRegular() {
			continue
		}
		if usr, err := os.Stat(filepath.Join(root, "usr")); err == nil && usr.IsDir() {
			list = append(list, root)
		}
	}
	return list
}

// Present says whether Agent Zero is on this machine. Its files do not tell a version.
func (a *Agent) Present() (string, bool) { return "", len(a.present()) > 0 }

// file is one place of the extension's.
func (a *Agent) file(path string) plugin.File {
	return plugin.File{FS: a.fsys, Path: path, Marker: "# belay's extension for Agent Zero\n", DirMode: 0o755}
}

// render is the extension's text for an installation and a place of belay-hook.
func render(p agent.Paths, root string) (string, error) {
	return plugin.Fill(plugin.Set(extension, "ROOT", "", root), p)
}

// Install puts the extension into the folders of the program's user layer, which its updates leave alone. A second run
// changes nothing; an extension of another belay is replaced. The program loads it at its next start.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	roots := a.present()
	if len(roots) == 0 {
		return nil, fmt.Errorf("install extension: %w", ErrNoProgram)
	}
	root := roots[0]
	text, err := render(p, root)
	for _, path := range places(root) { // all or none: what is in the way is found before anything is written
		if err == nil {
			_, err = a.file(path).Read()
		}
	}
	var changes []agent.Change
	for _, path := range places(root) {
		c := agent.Change{Path: path, Detail: "extension at " + filepath.Base(filepath.Dir(path))}
		if err == nil {
			c.Action, err = a.file(path).Put(text, dryRun)
		}
		if err != nil {
			for _, done := range changes {
				if done.Action == "create" && !dryRun {
					_ = a.remove(done.Path) // a part of it is of no use; what cannot go is found by doctor
				}
			}
			return nil, fmt.Errorf("install extension: %w", err)
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// remove takes one file of the extension away, what Python made of it, and the folders that were made for it.
func (a *Agent) remove(path string) error {
	return a.file(path).Remove(func(dir string) {
		cache := filepath.Join(dir, "__pycache__")
		entries, err := a.fsys.ReadDir(cache)
		if err != nil {
			return // there is none
		}
		gone := 0
		for _, e := range entries {
			if compiled().MatchString(e.Name()) && a.fsys.Remove(filepath.Join(cache, e.Name())) == nil {
				gone++
			}
		}
		if gone > 0 && gone == len(entries) {
			_ = a.fsys.Remove(cache) // something may have come into it: then it stays
		}
	})
}

// Uninstall takes the extension away again, and the folders that were made for it and are empty.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	var changes []agent.Change
	for _, root := range a.present() {
		list := places(root)
		for i := len(list) - 1; i >= 0; i-- { // the first one made the folders of all
			old, err := a.file(list[i]).Read()
			if errors.Is(err, plugin.ErrForeign) || err == nil && old == nil {
				continue // there is none, or another's
			}
			if err == nil && !dryRun {
				err = a.remove(list[i])
			}
			if err != nil {
				return changes, fmt.Errorf("uninstall extension: %w", err)
			}
			changes = append(changes, agent.Change{Path: list[i], Action: "remove", Detail: "was made by install"})
		}
		if len(changes) == 0 {
			changes = append(changes, agent.Change{Path: filepath.Join(root, "usr", "extensions", "python"), Action: "keep", Detail: "no extension of belay's"})
		}
	}
	return changes, nil
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string {
	found := plugin.CheckHook(p)
	roots := a.present()
	if len(roots) == 0 {
		return append(found, ErrNoProgram.Error())
	}
	var absent []string
	for _, path := range places(roots[0]) {
		old, err := a.file(path).Read()
		switch {
		case err != nil:
			found = append(found, err.Error())
			continue
		case old == nil:
			absent = append(absent, filepath.Base(filepath.Dir(path)))
			continue
		}
		if want, err := render(p, roots[0]); err == nil && !a.file(path).Holds(old, want) {
			found = append(found, path+" was written by another belay, or for another belay-hook: install it again")
		}
	}
	if len(absent) > 0 {
		found = append(found, "the extension is not installed at "+strings.Join(absent, ", "))
	}
	return found
}
