package settings

import (
	"encoding/json"
	"os"
	"path/filepath"

	"belay/internal/agent"
	"belay/internal/lazyre"
	"belay/internal/vfs"
)

// CheckHook says whether belay-hook can be started.
func CheckHook(p agent.Paths) []string {
	if program(p.Hook) {
		return nil
	}
	return []string{p.Hook + " is no program that can be started"}
}

func program(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// FindProgram looks for a program on a PATH; accept may refuse one that only has its name. It gives the file itself,
// with links followed.
func FindProgram(path, name string, accept func(file string) bool) (file string, ok bool) {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if !filepath.IsAbs(dir) || !program(file) {
			continue
		}
		if target, err := filepath.EvalSymlinks(file); err == nil {
			file = target
		}
		if accept == nil || accept(file) {
			return file, true
		}
	}
	return "", false
}

var versionForm = lazyre.New(`^\d{1,6}\.\d{1,6}\.\d{1,6}`)

// PackageVersion reads the version of a program off the npm package in which it lies; mine knows the package by its
// name.
func PackageVersion(fsys vfs.FS, program string, mine func(name string) bool) (version string, ok bool) {
	dir := filepath.Dir(program)
	for range 4 {
		data, err := vfs.ReadFile(fsys, filepath.Join(dir, "package.json"), 1<<20)
		var pkg struct{ Name, Version string }
		if err == nil && json.Unmarshal(data, &pkg) == nil && mine(pkg.Name) {
			return versionForm().FindString(pkg.Version), true
		}
		dir = filepath.Dir(dir)
	}

	return "", false
}

// Present says whether an agent is on this machine, by one of its programs on a PATH or by its folder, and its version
// where the npm package of the program tells it. Nothing is run for it.
func Present(fsys vfs.FS, path, home string, npm func(name string) bool, programs ...string) (version string, ok bool) {
	for _, name := range programs {
		if file, ok := FindProgram(path, name, nil); ok {
			if npm != nil {
				version, _ = PackageVersion(fsys, file, npm)
			}
			return version, true
		}
	}

	if home == "" {
		return "", false
	}

	_, err := os.Stat(home) // a link to a folder is one
	return "", err == nil
}
