package openclaw

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"belay/internal/agent"
	"belay/internal/jsonedit"
	"belay/internal/vfs"
)

// Errors of Install and Uninstall. The settings are as they were after any of them.
var (
	// ErrNoHome: no home folder says where the settings are, or where belay keeps its own.
	ErrNoHome = errors.New("no home folder is known")
	// ErrBadHook: the path of belay-hook cannot stand in the plugin.
	ErrBadHook = errors.New("path of belay-hook cannot be used")
)

//go:embed plugin/index.js plugin/line.js plugin/package.json plugin/openclaw.plugin.json
var pluginFiles embed.FS

var pluginNames = []string{"index.js", "line.js", "package.json", "openclaw.plugin.json"}

const (
	folderName = "belay-plugin"
	// tried is the version with which plugin, database and resumes were run.
	tried = "2026.9.6"
)

// pluginFolder lies beside the settings: whoever removes OpenClaw's folder removes both.
func (a *Agent) pluginFolder() string { return filepath.Join(filepath.Dir(a.config), folderName) }

// settings keeps the way back of the settings file.
func (a *Agent) settings() jsonedit.Files {
	return jsonedit.Files{FS: a.fsys, Dir: filepath.Join(a.state, "install", name)}
}

func (a *Agent) readSettings() (jsonedit.File, error) {
	if a.config == "" || a.state == "" {
		return jsonedit.File{Path: a.config}, ErrNoHome
	}
	return a.settings().Read(a.config)
}

// Present finds OpenClaw by its settings or its program; the program's package tells its version.
func (a *Agent) Present() (version string, ok bool) {
	if program, err := exec.LookPath("openclaw"); err == nil {
		ok = true
		data, err := vfs.ReadFile(a.fsys, filepath.Join(filepath.Dir(realPath(program)), "package.json"), 1<<20)
		var p struct{ Name, Version string }
		if err == nil && json.Unmarshal(data, &p) == nil && p.Name == "openclaw" {
			version = p.Version
		}
	}
	if a.config != "" {
		if _, err := a.fsys.Lstat(a.config); err == nil {
			ok = true
		}
	}
	return version, ok
}

// files are the plugin's, with the places of belay-hook and of the socket in them.
func files(p agent.Paths) (map[string][]byte, error) {
	if !filepath.IsAbs(p.Hook) || !utf8.ValidString(p.Hook+p.Socket) {
		return nil, fmt.Errorf("%w: %q", ErrBadHook, p.Hook)
	}
	all := map[string][]byte{}
	for _, n := range pluginNames {
		data, err := pluginFiles.ReadFile("plugin/" + n)
		if err != nil {
			return nil, err
		}
		text := strings.Replace(string(data), `const HOOK = "belay-hook";`, "const HOOK = "+quote(p.Hook)+";", 1)
		all[n] = []byte(strings.Replace(text, `const SOCKET = "";`, "const SOCKET = "+quote(p.Socket)+";", 1))
	}
	return all, nil
}

// Install writes the plugin's folder and puts it into the settings. Everything else in there stays as it is, comments too.
func (a *Agent) Install(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	want, err := files(p)
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	before := string(s.Text)
	if strings.TrimSpace(before) == "" {
		before = "{}\n"
	}
	next, err := withPlugin(before, a.pluginFolder())
	bare := before
	if err == nil {
		bare, err = withoutPlugin(before, a.pluginFolder())
	}
	if err != nil {
		return nil, fmt.Errorf("install plugin in %s: %w", s.Path, err)
	}
	if bare == before {
		bare = string(s.Text)
	}
	plugin := agent.Change{Path: a.pluginFolder(), Action: "keep", Detail: "the plugin"}
	if !a.inPlace(want) {
		plugin.Action = "create"
	}
	change := agent.Change{Path: s.Path, Action: "change", Detail: "plugin " + pluginID + ", which may see conversations" + s.Note()}
	switch {
	case !s.Exists:
		change.Action = "create"
	case next == string(s.Text):
		change.Action = "keep"
	}
	if change.Action != "keep" {
		err = s.Locked
	}
	if err == nil && !dryRun {
		// The folder first: settings that name a plugin which is not there may keep OpenClaw from starting.
		if plugin.Action != "keep" {
			err = a.writePlugin(want)
		}
		if err == nil && change.Action != "keep" {
			err = a.settings().Change(s, []byte(next), []byte(bare))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	return []agent.Change{plugin, change}, nil
}

func (a *Agent) inPlace(want map[string][]byte) bool {
	for n, data := range want {
		got, err := vfs.ReadFile(a.fsys, filepath.Join(a.pluginFolder(), n), jsonedit.MaxFile)
		if err != nil || !bytes.Equal(got, data) {
			return false
		}
	}
	return true
}

func (a *Agent) writePlugin(want map[string][]byte) error {
	if err := a.fsys.MkdirAll(a.pluginFolder(), vfs.DirMode); err != nil {
		return err
	}
	for _, n := range pluginNames {
		if err := vfs.Replace(a.fsys, filepath.Join(a.pluginFolder(), n), want[n]); err != nil {
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
	bare := string(s.Text)
	if strings.TrimSpace(bare) != "" {
		bare, err = withoutPlugin(bare, a.pluginFolder())
	}
	var undo jsonedit.Undo
	if err == nil {
		undo, err = a.settings().Undo(s, []byte(bare), isEmpty(bare))
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin from %s: %w", s.Path, err)
	}
	change := agent.Change{Path: s.Path, Action: undo.Action, Detail: detail(undo.Action) + s.Note()}
	plugin := agent.Change{Path: a.pluginFolder(), Action: "keep", Detail: "no plugin of belay's"}
	if _, err := a.fsys.Lstat(a.pluginFolder()); err == nil {
		plugin.Action, plugin.Detail = "remove", "the plugin"
	}
	if !dryRun {
		// The settings first: they must not name a plugin that is not there.
		if err = a.settings().Do(undo); err == nil {
			err = a.dropPlugin()
		}
		if err != nil {
			return nil, fmt.Errorf("uninstall plugin: %w", err)
		}
	}
	return []agent.Change{change, plugin}, nil
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
		if err := a.fsys.Remove(filepath.Join(a.pluginFolder(), n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if left, err := a.fsys.ReadDir(a.pluginFolder()); err == nil && len(left) == 0 {
		if err := a.fsys.Remove(a.pluginFolder()); err != nil {
			return err
		}
	}
	return nil
}

// Check says what keeps the plugin from its work.
func (a *Agent) Check(p agent.Paths) []string {
	s, err := a.readSettings()
	if err != nil {
		return []string{err.Error()}
	}
	text := string(s.Text)
	root, err := parseSettings(text)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", s.Path, err)}
	}
	var list []string
	if want, err := files(p); err != nil {
		list = append(list, err.Error())
	} else if !a.inPlace(want) {
		list = append(list, a.pluginFolder()+" is missing or of another belay")
	}
	if paths, ok := root.find("plugins", "load", "paths"); !ok || paths.index(text, a.pluginFolder()) < 0 {
		list = append(list, "plugins.load.paths does not name the plugin")
	}
	if entry, ok := root.find("plugins", "entries", pluginID); !ok || !entryWorks(text, entry) {
		list = append(list, "plugins.entries.belay is not enabled with hooks.allowConversationAccess")
	}
	if on, ok := root.find("plugins", "enabled"); ok && text[on.start:on.end] == "false" {
		list = append(list, "plugins.enabled is false: no plugin runs")
	}
	if allow, ok := root.find("plugins", "allow"); ok && len(allow.items) > 0 && allow.index(text, pluginID) < 0 {
		list = append(list, "plugins.allow does not name belay")
	}
	if deny, ok := root.find("plugins", "deny"); ok && deny.index(text, pluginID) >= 0 {
		list = append(list, "plugins.deny names belay")
	}
	if v, _ := a.Present(); v != "" && v != tried {
		list = append(list, fmt.Sprintf("OpenClaw %s was not tried with this belay (tried: %s)", v, tried))
	}
	return list
}
