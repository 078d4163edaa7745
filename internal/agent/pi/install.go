package pi

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

//go:embed extension.ts
var extension string

// plugin is the extension: the program loads it from there for all projects.
func (a *Program) plugin() plugin.Plugin {
	f := plugin.File{FS: a.fsys, Marker: "// belay's extension for " + a.name}
	if a.kin.Home != "" {
		f.Path = filepath.Join(a.kin.Home, "extensions", "belay.ts")
	}
	text := func(p agent.Paths) (string, error) { return plugin.OneFile(a.kin.Extension, p) }
	part := plugin.Part{File: f, Text: text, Detail: fmt.Sprintf("extension for %d events", len(a.events))}
	return plugin.Plugin{What: "extension", Path: f.Path, Files: []plugin.Part{part}}
}

// Install puts the extension where the program loads it from. A second run changes nothing; an extension of another
// belay is replaced.
func (a *Program) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.plugin().Install(p, dryRun)
}

// Uninstall takes the extension away again, and the folders that were made for it and are empty.
func (a *Program) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.plugin().Uninstall(dryRun)
}

// Check says what is wrong with the wiring, one finding each.
func (a *Program) Check(_ context.Context, p agent.Paths) []string { return a.plugin().Check(p) }

// Present says whether the program is on this machine: it is on the PATH, or its folder is there. Nothing is run for
// it. Other programs are called pi as well: the one that is meant lies in a package of that name.
func (a *Program) Present() (string, bool) {
	var version string
	_, ok := settings.FindProgram(a.path, a.kin.Program, func(file string) (mine bool) {
		of := func(name string) bool { return strings.HasSuffix(name, "/pi-coding-agent") }
		version, mine = settings.PackageVersion(a.fsys, file, of)
		return mine
	})

	if ok {
		return version, true
	}

	info, err := os.Stat(a.kin.Home)
	return "", a.kin.Home != "" && err == nil && info.IsDir()
}
