package openclaw

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/kit/plugin"
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

// settings keeps the way back of the settings file.
func (a *Agent) settings() jsontext.Files {
	return jsontext.Files{FS: a.host.FS, Dir: filepath.Join(a.host.State, "install", name)}
}

func (a *Agent) readSettings() (jsontext.File, error) {
	if a.config == "" || a.host.State == "" {
		return jsontext.File{Path: a.config}, agent.ErrNoHome
	}
	return a.settings().Read(a.config)
}

// Present finds OpenClaw by its settings or its program; the program's package tells its version.
func (a *Agent) Present() (version string, ok bool) {
	if program, found := plugin.FindProgram(a.host.Var("PATH"), "openclaw", nil); found {
		ok = true
		data, err := vfs.ReadFile(a.host.FS, filepath.Join(filepath.Dir(payload.RealPath(program)), "package.json"), 1<<20)
		var p struct{ Name, Version string }
		if err == nil && json.Unmarshal(data, &p) == nil && p.Name == "openclaw" {
			version = p.Version
		}
	}
	if a.config != "" {
		if _, err := a.host.FS.Lstat(a.config); err == nil {
			ok = true
		}
	}
	return version, ok
}

// files are the plugin's, with the places of belay-hook and of the socket in them.
func files(p agent.Paths) (map[string][]byte, error) {
	text, err := plugin.Line(p)
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{lineName: []byte(text)}
	for _, n := range pluginNames {
		if n == lineName {
			continue
		}
		if all[n], err = pluginFiles.ReadFile("plugin/" + n); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Install writes the plugin's folder and puts it into the settings. Everything else in there stays as it is, comments too.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	want, err := files(p)
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	at, next, bare, err := a.plan(s)
	if err != nil {
		return nil, fmt.Errorf("install plugin in %s: %w", at.Path, err)
	}
	plugin := agent.Change{Path: a.pluginFolder(), Action: "keep", Detail: "the plugin"}
	if !a.inPlace(want) {
		plugin.Action = "create"
	}
	change := agent.Change{Path: at.Path, Action: "change", Detail: "plugin " + pluginID + ", which may see conversations" + at.Note()}
	switch {
	case !at.Exists:
		change.Action = "create"
	case next == string(at.Text):
		change.Action = "keep"
	}
	if change.Action != "keep" {
		err = at.Locked
	}
	if err == nil && !dryRun {
		// The folder first: settings that name a plugin which is not there may keep OpenClaw from starting.
		if plugin.Action != "keep" {
			err = a.writePlugin(want)
		}
		if err == nil && change.Action != "keep" {
			err = a.settings().Change(at.File, []byte(next), []byte(bare))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	return []agent.Change{plugin, change}, nil
}

// plan decides which file of the settings gets the plugin, and its text with it and without it.
func (a *Agent) plan(s jsontext.File) (at spot, next, bare string, err error) {
	list, err := a.spots(s)
	if at = list[0]; err != nil {
		return at, "", "", err
	}
	next = blank(string(at.Text))
	if bare, err = withoutPlugin(next, a.pluginFolder(), at.keys); err != nil {
		return at, "", "", err
	}
	if bare == next {
		bare = string(at.Text)
	}
	has, err := a.wired(s, at, next)
	if err != nil || has.works() {
		return at, next, bare, err
	}
	if next, err = withPlugin(next, a.pluginFolder(), at.keys, has); err == nil {
		has, err = a.wired(s, at, next)
	}
	if err == nil && !has.works() {
		err = fmt.Errorf("%w: one of their files says otherwise; there, let plugins.load.paths name %s and plugins.entries.%s be %s",
			ErrForeignForm, a.pluginFolder(), pluginID, entryText)
	}
	return at, next, bare, err
}

func (a *Agent) inPlace(want map[string][]byte) bool {
	for n, data := range want {
		got, err := vfs.ReadFile(a.host.FS, filepath.Join(a.pluginFolder(), n), jsontext.MaxFile)
		if err != nil || !bytes.Equal(got, data) {
			return false
		}
	}
	return true
}

// madeNote is where belay keeps that it made the folder of the settings: it names the outermost that was not there.
func (a *Agent) madeNote() string { return filepath.Join(a.settings().Dir, "made") }

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

// dropFolders removes the folders that Install made, unless something is in them.
func (a *Agent) dropFolders() error {
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

func (a *Agent) writePlugin(want map[string][]byte) error {
	if err := a.noteFolders(); err != nil {
		return fmt.Errorf("note the folders made: %w", err)
	}
	if err := vfs.MakeDir(a.host.FS, a.pluginFolder()); err != nil {
		return err
	}
	for _, n := range pluginNames {
		if err := vfs.Replace(a.host.FS, filepath.Join(a.pluginFolder(), n), want[n]); err != nil {
			return fmt.Errorf("write %s: %w", n, err)
		}
	}
	return nil
}

// Uninstall takes the plugin out of the settings, then removes its folder. When nobody changed the settings since Install,
// their old bytes come back.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin: %w", err)
	}
	list, err := a.spots(s)
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin from %s: %w", s.Path, err)
	}
	var undos []jsontext.Undo
	var changes []agent.Change
	for _, at := range list {
		bare := string(at.Text)
		if strings.TrimSpace(bare) != "" {
			bare, err = withoutPlugin(bare, a.pluginFolder(), at.keys)
		}
		var undo jsontext.Undo
		if err == nil {
			undo, err = a.settings().Undo(at.File, []byte(bare), isEmpty(bare))
		}
		if err != nil {
			return nil, fmt.Errorf("uninstall plugin from %s: %w", at.Path, err)
		}
		undos = append(undos, undo)
		if undo.Action != "keep" || at.Path == s.Path {
			changes = append(changes, agent.Change{Path: at.Path, Action: undo.Action, Detail: detail(undo.Action) + at.Note()})
		}
	}
	plugin := agent.Change{Path: a.pluginFolder(), Action: "keep", Detail: "no plugin of belay's"}
	if _, err = a.host.FS.Lstat(a.pluginFolder()); err == nil {
		plugin.Action, plugin.Detail = "remove", "the plugin"
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if !dryRun {
		// The settings first: they must not name a plugin that is not there.
		for _, undo := range undos {
			if err == nil {
				err = a.settings().Do(undo)
			}
		}
		if err == nil {
			err = a.dropPlugin()
		}
		if err == nil {
			err = a.dropFolders()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin: %w", err)
	}
	return append(changes, plugin), nil
}

// detail says what Uninstall does with the settings.
func detail(action string) string {
	switch action {
	case "restore":
		return "as it was before install"
	case "remove":
		return "was made by install"
	case "change":
		return "belay's plugin taken out, the rest kept"
	}
	return "no plugin of belay's"
}

func isEmpty(text string) bool {
	root, err := parseSettings(text)
	return err == nil && len(root.items) == 0
}

// dropPlugin removes the plugin's own files, and the folder when nothing else is in it.
func (a *Agent) dropPlugin() error {
	for _, n := range pluginNames {
		for _, file := range []string{n, "." + n + vfs.TempSuffix} { // a crash may have left one half written
			if err := a.host.FS.Remove(filepath.Join(a.pluginFolder(), file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return a.dropEmpty(a.pluginFolder())
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

// Check says what keeps the plugin from its work.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string {
	s, err := a.readSettings()
	if err != nil {
		return []string{err.Error()}
	}
	list, err := a.spots(s)
	var has wiring
	if at := list[0]; err == nil {
		has, err = a.wired(s, at, blank(string(at.Text)))
	}
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", s.Path, err)}
	}
	var found []string
	if want, err := files(p); err != nil {
		found = append(found, err.Error())
	} else if !a.inPlace(want) {
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
