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
)

//go:embed extension.ts
var extension string

// single is the extension's installer: pi loads it from there for all projects.
func (a *Program) single() plugin.Single {
	s := plugin.Single{What: "extension", Text: extension, Detail: fmt.Sprintf("extension for %d events", len(a.events))}
	s.FS, s.Marker = a.fsys, "// belay's extension for pi"
	if a.home != "" {
		s.Path = filepath.Join(a.home, "extensions", "belay.ts")
	}
	return s
}

// Install puts the extension where pi loads it from. A second run changes nothing; an extension of another belay is replaced.
func (a *Program) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.single().Install(p, dryRun)
}

// Uninstall takes the extension away again, and the folders that were made for it and are empty.
func (a *Program) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.single().Uninstall(dryRun)
}

// Check says what is wrong with the wiring, one finding each.
func (a *Program) Check(_ context.Context, p agent.Paths) []string { return a.single().Check(p) }

// Present says whether pi is on this machine: its program is on the PATH, or its folder is there. Nothing is run for it.
// Other programs are called pi as well: the one that is meant lies in a package of that name.
func (a *Program) Present() (string, bool) {
	var version string
	_, ok := plugin.FindProgram(a.path, "pi", func(file string) (mine bool) {
		version, mine = plugin.PackageVersion(a.fsys, file, func(name string) bool { return strings.HasSuffix(name, "/pi-coding-agent") })
		return mine
	})
	if ok {
		return version, true
	}
	info, err := os.Stat(a.home)
	return "", a.home != "" && err == nil && info.IsDir()
}
