package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"belay/internal/agent"
	"belay/internal/lazyre"
	"belay/internal/vfs"
)

// Single installs a plugin that is one file.
type Single struct {
	File
	What   string // what the program calls it: extension, plugin
	Text   string // the plugin, which imports the line
	Detail string // what Install tells of it
}

// Install puts the plugin in its place. A second run changes nothing; the plugin of another belay is replaced.
func (s Single) Install(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	text, err := OneFile(s.Text, p)
	if err != nil {
		return nil, err
	}
	action, err := s.Put(text, dryRun)
	if err != nil {
		return nil, fmt.Errorf("install %s: %w", s.What, err)
	}
	return []agent.Change{{Path: s.Path, Action: action, Detail: s.Detail}}, nil
}

// Uninstall takes the plugin away again, and the folders that were made for it and are empty.
func (s Single) Uninstall(dryRun bool) ([]agent.Change, error) {
	c := agent.Change{Path: s.Path, Action: "keep", Detail: "no " + s.What + " of belay's"}
	old, err := s.Read()
	if old != nil {
		c.Action, c.Detail = "remove", "was made by install"
	}
	if err == nil && !dryRun {
		err = s.Remove(nil) // also where there is none: a crash may have left one half written
	}
	if err != nil && !errors.Is(err, ErrForeign) { // another's is none of ours to take away
		return nil, fmt.Errorf("uninstall %s: %w", s.What, err)
	}
	return []agent.Change{c}, nil
}

// Check says what is wrong with the wiring, one finding each.
func (s Single) Check(p agent.Paths) []string {
	found := CheckHook(p)
	old, err := s.Read()
	switch {
	case err != nil:
		return append(found, err.Error())
	case old == nil:
		return append(found, fmt.Sprintf("%s is not there: the %s is not installed", s.Path, s.What))
	}
	if want, err := OneFile(s.Text, p); err == nil && !s.Holds(old, want) {
		what := "was written by another belay"
		if !bytes.Contains(old, []byte("const HOOK = "+strconv.Quote(p.Hook)+";")) {
			what = "starts another belay-hook than " + p.Hook
		}
		found = append(found, fmt.Sprintf("%s %s: install it again", s.Path, what))
	}
	return found
}

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

// FindProgram looks for a program on a PATH; accept may refuse one that only has its name. It gives the file itself, with
// links followed.
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

// PackageVersion reads the version of a program off the npm package in which it lies; mine knows the package by its name.
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
