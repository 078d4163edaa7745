package opencode

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"belay/internal/agent"
	"belay/internal/lazyre"
	"belay/internal/vfs"
)

// Errors of Install and Uninstall. Nothing of opencode's has changed after any of them.
var (
	// ErrNoHome: neither $XDG_CONFIG_HOME nor a home folder says where opencode looks for plugins.
	ErrNoHome = errors.New("no home folder is known")
	// ErrBadHook: the path of belay-hook cannot stand in the plugin.
	ErrBadHook = errors.New("path of belay-hook cannot be used")
	// ErrForeign: the plugin's place is taken by something that belay did not write.
	ErrForeign = errors.New("not written by belay")
)

// The versions that the lab ran.
func tried() []string { return []string{"1.18.33"} }

//go:embed plugin.js
var plugin []byte

// dependency is what opencode itself puts beside plugins, once, whether they need it (belay's does not) or not. Where npm does
// not answer that takes minutes.
const dependency = "@opencode-ai/plugin"

const (
	pluginName = "belay.js"
	maxPlugin  = 1 << 20
	// marker begins the first line of every plugin that belay wrote.
	marker = "// belay's plugin for opencode"
)

// made is the line that says how many folders Install made for the file: Uninstall takes those away again.
var made = lazyre.New(`(?m)^// Folders made for it: ([0-3])$`)

// pluginPath is where the plugin is, or belongs. opencode looks into both of its folders: the one that is there is taken, and
// the one that older versions know as well is made.
func (a *Agent) pluginPath() string {
	plain := filepath.Join(a.config, "plugin", pluginName)
	other := filepath.Join(a.config, "plugins", pluginName)
	for _, path := range []string{plain, other} {
		if _, err := a.fsys.Lstat(path); err == nil {
			return path
		}
	}
	if a.isDir(filepath.Dir(other)) && !a.isDir(filepath.Dir(plain)) {
		return other
	}
	return plain
}

func (a *Agent) isDir(path string) bool {
	info, err := os.Stat(path) // a link to a folder is one
	return err == nil && info.IsDir()
}

// render is the plugin's text for a place of belay-hook.
func render(p agent.Paths, folders int) ([]byte, error) {
	hook, err := json.Marshal(p.Hook)
	if err != nil {
		return nil, err
	}
	socket, err := json.Marshal(p.Socket)
	if err != nil {
		return nil, err
	}
	out := bytes.Replace(plugin, []byte(`const HOOK = "belay-hook";`), []byte("const HOOK = "+string(hook)+";"), 1)
	out = bytes.Replace(out, []byte(`const SOCKET = "";`), []byte("const SOCKET = "+string(socket)+";"), 1)
	head, rest, _ := bytes.Cut(out, []byte("\n\n"))
	return fmt.Appendf(nil, "%s\n// Folders made for it: %d\n\n%s", head, folders, rest), nil
}

// installed gives the plugin that is there; nil when there is none.
func (a *Agent) installed() ([]byte, error) {
	if a.config == "" {
		return nil, ErrNoHome
	}
	path := a.pluginPath()
	info, err := a.fsys.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: no regular file", path, ErrForeign)
	}
	data, err := vfs.ReadFile(a.fsys, path, maxPlugin)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if !bytes.HasPrefix(data, []byte(marker)) {
		return nil, fmt.Errorf("%s: %w", path, ErrForeign)
	}
	return data, nil
}

// Install puts the plugin where opencode loads it from, for all projects. A second run changes nothing; a plugin of another
// belay is replaced.
func (a *Agent) Install(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	if err := checkHook(p); err != nil {
		return nil, err
	}
	old, err := a.installed()
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	folders := foldersMade(old)
	if old == nil {
		folders = a.missing()
	}
	next, err := render(p, folders)
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	path := a.pluginPath()
	c := agent.Change{Path: path, Action: "create", Detail: fmt.Sprintf("plugin for %d events", len(a.Events()))}
	if !a.isDir(filepath.Join(a.config, "node_modules")) {
		c.Detail += "; at its next start opencode fetches " + dependency + " from npm, and every plugin waits for that"
	}
	switch {
	case bytes.Equal(old, next):
		c.Action = "keep"
		return []agent.Change{c}, nil
	case old != nil:
		c.Action = "change"
	}
	if dryRun {
		return []agent.Change{c}, nil
	}
	if err = a.fsys.MkdirAll(filepath.Dir(path), vfs.DirMode); err == nil {
		err = vfs.Replace(a.fsys, path, next)
	}
	if err != nil {
		if old == nil {
			a.removeFolders(folders) // what was made is nothing without the file
		}
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	return []agent.Change{c}, nil
}

func checkHook(p agent.Paths) error {
	switch {
	case !filepath.IsAbs(p.Hook):
		return fmt.Errorf("%w: %q is not absolute", ErrBadHook, p.Hook)
	case !utf8.ValidString(p.Hook + p.Socket):
		return fmt.Errorf("%w: %q is no valid UTF-8", ErrBadHook, p.Hook+p.Socket)
	}
	return nil
}

// missing counts the folders that Install has to make, at most those of opencode itself.
func (a *Agent) missing() int {
	n := 0
	for dir := filepath.Dir(a.pluginPath()); n < 3; dir = filepath.Dir(dir) {
		if _, err := a.fsys.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		n++
	}
	return n
}

func foldersMade(text []byte) int {
	m := made().FindSubmatch(text)
	if m == nil {
		return 0
	}
	return int(m[1][0] - '0')
}

// removeFolders takes away the folders that Install made, as far as nothing else came into them.
func (a *Agent) removeFolders(n int) {
	dir := filepath.Dir(a.pluginPath())
	for ; n > 0; n-- {
		if left, err := a.fsys.ReadDir(dir); err != nil || len(left) > 0 || a.fsys.Remove(dir) != nil {
			return // somebody uses it now
		}
		dir = filepath.Dir(dir)
	}
}

// Uninstall takes the plugin away again, and the folders that were made for it and are empty.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	old, err := a.installed()
	c := agent.Change{Path: a.pluginPath(), Action: "keep", Detail: "no plugin of belay's"}
	switch {
	case errors.Is(err, ErrForeign):
		return []agent.Change{c}, nil // another's: that is none of ours to take away
	case err != nil:
		return nil, fmt.Errorf("uninstall plugin: %w", err)
	case old == nil:
		return []agent.Change{c}, nil
	}
	c.Action, c.Detail = "remove", "was made by install"
	if dryRun {
		return []agent.Change{c}, nil
	}
	if err = a.fsys.Remove(c.Path); err == nil {
		err = a.fsys.SyncDir(filepath.Dir(c.Path))
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin: %w", err)
	}
	a.removeFolders(foldersMade(old))
	return []agent.Change{c}, nil
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(p agent.Paths) []string {
	var found []string
	if info, err := os.Stat(p.Hook); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		found = append(found, fmt.Sprintf("%s is no program that can be started", p.Hook))
	}
	if v, _ := a.Present(); v != "" && !slices.Contains(tried(), v) {
		found = append(found, fmt.Sprintf("opencode %s was not tried with this belay (tried: %s)", v, strings.Join(tried(), ", ")))
	}
	old, err := a.installed()
	switch {
	case err != nil:
		return append(found, err.Error())
	case old == nil:
		return append(found, a.pluginPath()+" is not there: the plugin is not installed")
	}
	if want, err := render(p, foldersMade(old)); err == nil && !bytes.Equal(old, want) {
		what := "was written by another belay"
		if hook := strconv.Quote(p.Hook); !bytes.Contains(old, []byte("const HOOK = "+hook+";")) {
			what = "starts another belay-hook than " + p.Hook
		}
		found = append(found, fmt.Sprintf("%s %s: install it again", a.pluginPath(), what))
	}
	return found
}

// Present says whether opencode is on this machine: its program is on the PATH, or its folder is there. Nothing is run for it.
func (a *Agent) Present() (string, bool) {
	for _, dir := range filepath.SplitList(a.path) {
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		if filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return a.packageVersion(realPath(file)), true
		}
	}
	return "", a.config != "" && a.isDir(a.config) || a.data != "" && a.isDir(a.data)
}

var versionForm = lazyre.New(`^\d{1,6}\.\d{1,6}\.\d{1,6}`)

// packageVersion reads the version off an installation with npm: a package.json lies above the program.
func (a *Agent) packageVersion(program string) string {
	dir := filepath.Dir(program)
	for range 3 {
		data, err := vfs.ReadFile(a.fsys, filepath.Join(dir, "package.json"), 1<<20)
		var pkg struct{ Name, Version string }
		if err == nil && json.Unmarshal(data, &pkg) == nil && strings.HasPrefix(pkg.Name, name) {
			return versionForm().FindString(pkg.Version)
		}
		dir = filepath.Dir(dir)
	}
	return ""
}
