package opencode

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/plugin"
	"belay/internal/agent/kit/settings"
)

//go:embed plugin.js
var pluginText string

const pluginName = "belay.js"

// dependency is what opencode itself puts beside plugins, once, whether they need it (belay's does not) or not. Where
// npm does not answer that takes minutes.
const dependency = "@opencode-ai/plugin"

// pluginPath is where the plugin is, or belongs. opencode looks into both of its folders: the one that is there is
// taken, and the one that older versions know as well is made.
func (a *Agent) pluginPath() string {
	plain := filepath.Join(a.config, "plugin", pluginName)
	other := filepath.Join(a.config, "plugins", pluginName)
	for _, path := range []string{plain, other} {
		if _, err := a.fsys.Lstat(path); err == nil {
			return path
		}
	}

	if isDir(filepath.Dir(other)) && !isDir(filepath.Dir(plain)) {
		return other
	}

	return plain
}

func isDir(path string) bool {
	info, err := os.Stat(path) // a link to a folder is one
	return err == nil && info.IsDir()
}

// plugin is the plugin: opencode loads it from there for all projects.
func (a *Agent) plugin() plugin.Plugin {
	f := plugin.File{FS: a.fsys, Marker: "// belay's plugin for opencode"}
	detail := fmt.Sprintf("plugin for %d events", len(a.Events()))
	if a.config != "" {
		f.Path = a.pluginPath()
		if !isDir(filepath.Join(a.config, "node_modules")) {
			detail += "; at its next start opencode fetches " + dependency +
				" from npm, and every plugin waits for that"
		}
	}

	text := func(p agent.Paths) (string, error) { return plugin.OneFile(pluginText, p) }
	return plugin.Plugin{What: "plugin", Path: f.Path, Files: []plugin.Part{{File: f, Text: text, Detail: detail}}}
}

// Install puts the plugin where opencode loads it from. A second run changes nothing; a plugin of another belay is
// replaced.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.plugin().Install(p, dryRun)
}

// Uninstall takes the plugin away again, and the folders that were made for it and are empty.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.plugin().Uninstall(dryRun)
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string { return a.plugin().Check(p) }

// Present says whether opencode is on this machine: its program is on the PATH, or its folder is there. Nothing is
// run for it.
func (a *Agent) Present() (string, bool) {
	if file, ok := settings.FindProgram(a.path, name, nil); ok {
		mine := func(pkg string) bool { return strings.HasPrefix(pkg, name) }
		version, _ := settings.PackageVersion(a.fsys, file, mine)
		return version, true
	}
	return "", a.config != "" && isDir(a.config) || a.data != "" && isDir(a.data)
}
