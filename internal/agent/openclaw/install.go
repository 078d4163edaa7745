package openclaw

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/plugin"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
	"belay/internal/vfs"
)

//go:embed plugin/index.js plugin/package.json plugin/openclaw.plugin.json
var pluginFiles embed.FS

const lineName = "line.js"

var pluginNames = []string{"index.js", lineName, "package.json", "openclaw.plugin.json"}

const folderName = "belay-plugin"

// pluginFolder lies beside the settings: whoever removes OpenClaw's folder removes both.
func (a *Agent) pluginFolder() string { return filepath.Join(filepath.Dir(a.config), folderName) }

// plugin is the plugin's folder.
func (a *Agent) plugin() plugin.Plugin {
	pl := plugin.Plugin{What: "plugin", Path: a.pluginFolder()}
	for _, n := range pluginNames {
		f := plugin.File{FS: a.host.FS, Path: filepath.Join(a.pluginFolder(), n)}
		pl.Files = append(pl.Files, plugin.Part{File: f, Text: func(p agent.Paths) (string, error) {
			if n == lineName {
				return plugin.Line(p)
			}
			text, err := pluginFiles.ReadFile("plugin/" + n)
			return string(text), err
		}})
	}

	return pl
}

// files keeps the way back of the settings.
func (a *Agent) files() settings.Files {
	return settings.Files{FS: a.host.FS, Dir: filepath.Join(a.host.State, "install", name)}
}

func (a *Agent) readSettings() (settings.File, error) {
	if a.config == "" || a.host.State == "" {
		return settings.File{Path: a.config}, agent.ErrNoHome
	}
	return a.files().Read(a.config)
}

// Present finds OpenClaw by its settings or its program; the program's package tells its version.
func (a *Agent) Present() (version string, ok bool) {
	if program, found := settings.FindProgram(a.host.Var("PATH"), "openclaw", nil); found {
		mine := func(pkg string) bool { return pkg == "openclaw" }
		version, _ = settings.PackageVersion(a.host.FS, program, mine)
		return version, true
	}

	if a.config != "" {
		_, err := a.host.FS.Lstat(a.config)
		ok = err == nil
	}

	return "", ok
}

// Install writes the plugin's folder and puts it into the settings. Everything else in there stays as it is, comments
// too.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}

	at, next, bare, err := a.plan(s)
	if err != nil {
		return nil, fmt.Errorf("install plugin in %s: %w", at.Path, err)
	}

	put := func(dryRun bool) (agent.Change, error) {
		return a.files().Put(at.File, next, bare, "plugin "+pluginID+", which may see conversations", dryRun)
	}
	change, err := put(true) // whether it would be refused
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}

	// The folder first: settings that name a plugin which is not there may keep OpenClaw from starting.
	if !dryRun {
		if err := a.noteFolders(); err != nil {
			return nil, fmt.Errorf("install plugin: note the folders made: %w", err)
		}
	}

	done, err := a.plugin().Install(p, dryRun)
	if err != nil {
		return nil, err
	}

	if !dryRun {
		if _, err := put(false); err != nil {
			return nil, fmt.Errorf("install plugin: %w", err)
		}
	}

	folder := agent.Change{Path: a.pluginFolder(), Action: "keep", Detail: "the plugin"}
	if slices.ContainsFunc(done, func(c agent.Change) bool { return c.Action != "keep" }) {
		folder.Action = "create"
	}

	return []agent.Change{folder, change}, nil
}

// plan decides which file of the settings gets the plugin, and its text with it and without it.
func (a *Agent) plan(s settings.File) (at spot, next, bare []byte, err error) {
	list, err := a.spots(s)
	if at = list[0]; err != nil {
		return at, nil, nil, err
	}

	next = filled(at.Text)
	if bare, err = withoutPlugin(next, a.pluginFolder(), at.keys); err != nil {
		return at, nil, nil, err
	}
	if string(bare) == string(next) {
		bare = at.Text
	}

	has, err := a.wired(s, at, next)
	if err != nil || has.works() {
		return at, next, bare, err
	}
	if next, err = withPlugin(next, a.pluginFolder(), at.keys, has); err == nil {
		has, err = a.wired(s, at, next)
	}
	if err == nil && !has.works() {
		err = fmt.Errorf("%w: one of their files says otherwise; there, let plugins.load.paths name %s and "+
			"plugins.entries.%s be %s", ErrForeignForm, a.pluginFolder(), pluginID, entryText)
	}

	return at, next, bare, err
}

// Uninstall takes the plugin out of the settings, then removes its folder. When nobody changed the settings since
// Install, their old bytes come back.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin: %w", err)
	}

	list, err := a.spots(s)
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin from %s: %w", s.Path, err)
	}

	var undos []settings.Undo
	var changes []agent.Change
	for _, at := range list {
		undo, err := a.undo(at)
		if err != nil {
			return nil, fmt.Errorf("uninstall plugin from %s: %w", at.Path, err)
		}

		undos = append(undos, undo)
		if undo.Action != "keep" || at.Path == s.Path {
			changes = append(changes, undo.Change("plugin"))
		}
	}

	if !dryRun {
		for _, undo := range undos { // the settings first: they must not name a plugin that is not there
			if err := a.files().Do(undo); err != nil {
				return nil, fmt.Errorf("uninstall plugin: %w", err)
			}
		}
	}

	done, err := a.plugin().Uninstall(dryRun)
	if err != nil {
		return nil, err
	}

	if !dryRun {
		if err := a.dropFolders(); err != nil {
			return nil, fmt.Errorf("uninstall plugin: %w", err)
		}
	}

	folder := agent.Change{Path: a.pluginFolder(), Action: done[0].Action, Detail: "the plugin"}
	if folder.Action == "keep" {
		folder.Detail = done[0].Detail
	}

	return append(changes, folder), nil
}

// madeNote is where belay keeps that it made the folder of the settings: it names the outermost that was not there.
func (a *Agent) madeNote() string { return filepath.Join(a.files().Dir, "made") }

// noteFolders says, before they are made, which folders are.
func (a *Agent) noteFolders() error {
	outer := ""
	for dir := filepath.Dir(a.pluginFolder()); ; dir = filepath.Dir(dir) {
		_, err := a.host.FS.Lstat(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil {
			break
		}

		outer = dir
	}

	if outer == "" {
		return nil
	}
	if err := vfs.MakeDir(a.host.FS, filepath.Dir(a.madeNote())); err != nil {
		return err
	}

	return vfs.Replace(a.host.FS, a.madeNote(), []byte(outer))
}

// dropFolders removes the plugin's folder and those that Install made for it, unless something is in them.
func (a *Agent) dropFolders() error {
	if err := a.dropEmpty(a.pluginFolder()); err != nil {
		return err
	}

	outer, err := vfs.ReadFile(a.host.FS, a.madeNote(), maxPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	for dir := filepath.Dir(a.pluginFolder()); strings.HasPrefix(dir+"/", string(outer)+"/"); dir = filepath.Dir(dir) {
		if err := a.dropEmpty(dir); err != nil {
			return err
		}
	}

	return a.host.FS.Remove(a.madeNote())
}

// dropEmpty removes a folder unless something is in it.
func (a *Agent) dropEmpty(dir string) error {
	left, err := a.host.FS.ReadDir(dir)
	if err == nil && len(left) == 0 {
		err = a.host.FS.Remove(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}

// undo decides how a file of the settings goes back.
func (a *Agent) undo(at spot) (settings.Undo, error) {
	if jsontext.JSON.Blank(at.Text) {
		return a.files().Undo(at.File, at.Text, false)
	}

	bare, err := withoutPlugin(at.Text, a.pluginFolder(), at.keys)
	if err != nil {
		return settings.Undo{}, err
	}

	root, err := parseSettings(bare)
	if err != nil {
		return settings.Undo{}, err
	}

	return a.files().Undo(at.File, bare, len(root.Items) == 0)
}

// Check says what keeps the plugin from its work.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string {
	s, err := a.readSettings()
	if err != nil {
		return []string{err.Error()}
	}

	list, err := a.spots(s)
	var has wiring
	if at := list[0]; err == nil {
		has, err = a.wired(s, at, filled(at.Text))
	}
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", s.Path, err)}
	}

	var found []string
	if err := p.Valid(); err != nil {
		found = append(found, err.Error())
	} else if !a.plugin().InPlace(p) {
		found = append(found, a.pluginFolder()+" is missing or of another belay")
	}

	for _, c := range []struct {
		wrong bool
		words string
	}{
		{!has.path, "plugins.load.paths does not name the plugin"},
		{!has.entry, "plugins.entries.belay is not enabled with hooks.allowConversationAccess"},
		{has.off, "plugins.enabled is false: no plugin runs"},
		{!has.allowed, "plugins.allow does not name belay"},
		{has.denied, "plugins.deny names belay"},
	} {
		if c.wrong {
			found = append(found, c.words)
		}
	}

	return found
}
