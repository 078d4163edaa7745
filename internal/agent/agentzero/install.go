package agentzero

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"belay/internal/agent"
	"belay/internal/agent/kit/plugin"
	"belay/internal/agent/kit/settings"
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

// plugin is the extension in an installation. It lies in the folders of the program's user layer, which its updates
// leave alone.
func (a *Agent) plugin(root string) plugin.Plugin {
	pl := plugin.Plugin{What: "extension", Path: filepath.Join(root, "usr", "extensions", "python"), Tidy: a.tidy}
	text := func(p agent.Paths) (string, error) { return plugin.Fill(plugin.Set(extension, "ROOT", "", root), p) }
	for _, path := range places(root) {
		pl.Files = append(pl.Files, plugin.Part{
			File:   plugin.File{FS: a.fsys, Path: path, Marker: "# belay's extension for Agent Zero\n", DirMode: 0o755},
			Text:   text,
			Detail: "extension at " + filepath.Base(filepath.Dir(path)),
		})
	}

	return pl
}

// tidy removes what Python made of the extension.
func (a *Agent) tidy(dir string) {
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
}

// Install puts the extension into the first installation. The program loads it at its next start.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	roots := a.present()
	if len(roots) == 0 {
		return nil, fmt.Errorf("install extension: %w", ErrNoProgram)
	}
	return a.plugin(roots[0]).Install(p, dryRun)
}

// Uninstall takes the extension out of every installation.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	var changes []agent.Change
	for _, root := range a.present() {
		done, err := a.plugin(root).Uninstall(dryRun)
		changes = append(changes, done...)
		if err != nil {
			return changes, err
		}
	}

	return changes, nil
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string {
	roots := a.present()
	if len(roots) == 0 {
		return append(settings.CheckHook(p), ErrNoProgram.Error())
	}
	return a.plugin(roots[0]).Check(p)
}
