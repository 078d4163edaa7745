package pi

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

// Errors of Install and Uninstall. Nothing of pi's has changed after any of them.
var (
	// ErrNoHome: neither $PI_CODING_AGENT_DIR nor a home folder says where pi looks for extensions.
	ErrNoHome = errors.New("no home folder is known")
	// ErrBadHook: the path of belay-hook cannot stand in the extension.
	ErrBadHook = errors.New("path of belay-hook cannot be used")
	// ErrForeign: the extension's place is taken by something that belay did not write.
	ErrForeign = errors.New("not written by belay")
)

// The versions that the lab ran.
func tried() []string { return []string{"0.73.1", "1.6.0"} }

//go:embed extension.ts
var extension []byte

const (
	extensionName = "belay.ts"
	maxExtension  = 1 << 20
	// marker begins the first line of every extension that belay wrote.
	marker = "// belay's extension for pi"
)

// made is the line that says how many folders Install made for the file: Uninstall takes those away again.
var made = lazyre.New(`(?m)^// Folders made for it: ([0-3])$`)

func (a *Program) extensionPath() string { return filepath.Join(a.home, "extensions", extensionName) }

// render is the extension's text for a place of belay-hook.
func render(p agent.Paths, folders int) ([]byte, error) {
	hook, err := json.Marshal(p.Hook)
	if err != nil {
		return nil, err
	}
	socket, err := json.Marshal(p.Socket)
	if err != nil {
		return nil, err
	}
	out := bytes.Replace(extension, []byte(`const HOOK = "belay-hook";`), []byte("const HOOK = "+string(hook)+";"), 1)
	out = bytes.Replace(out, []byte(`const SOCKET = "";`), []byte("const SOCKET = "+string(socket)+";"), 1)
	head, rest, _ := bytes.Cut(out, []byte("\n\n"))
	return fmt.Appendf(nil, "%s\n// Folders made for it: %d\n\n%s", head, folders, rest), nil
}

// installed gives the extension that is there; nil when there is none.
func (a *Program) installed() ([]byte, error) {
	if a.home == "" {
		return nil, ErrNoHome
	}
	path := a.extensionPath()
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
	data, err := vfs.ReadFile(a.fsys, path, maxExtension)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if !bytes.HasPrefix(data, []byte(marker)) {
		return nil, fmt.Errorf("%s: %w", path, ErrForeign)
	}
	return data, nil
}

// Install puts the extension where pi loads it from, for all projects. A second run changes nothing; an extension of another
// belay is replaced.
func (a *Program) Install(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	if err := checkHook(p); err != nil {
		return nil, err
	}
	old, err := a.installed()
	if err != nil {
		return nil, fmt.Errorf("install extension: %w", err)
	}
	folders := foldersMade(old)
	if old == nil {
		folders = a.missing()
	}
	next, err := render(p, folders)
	if err != nil {
		return nil, fmt.Errorf("install extension: %w", err)
	}
	path := a.extensionPath()
	c := agent.Change{Path: path, Action: "create", Detail: fmt.Sprintf("extension for %d events", len(a.events))}
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
		return nil, fmt.Errorf("install extension: %w", err)
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

// missing counts the folders that Install has to make, at most those of pi itself.
func (a *Program) missing() int {
	n := 0
	for dir := filepath.Dir(a.extensionPath()); n < 3; dir = filepath.Dir(dir) {
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
func (a *Program) removeFolders(n int) {
	dir := filepath.Dir(a.extensionPath())
	for ; n > 0; n-- {
		if left, err := a.fsys.ReadDir(dir); err != nil || len(left) > 0 || a.fsys.Remove(dir) != nil {
			return // somebody uses it now
		}
		dir = filepath.Dir(dir)
	}
}

// Uninstall takes the extension away again, and the folders that were made for it and are empty.
func (a *Program) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	old, err := a.installed()
	c := agent.Change{Path: a.extensionPath(), Action: "keep", Detail: "no extension of belay's"}
	switch {
	case errors.Is(err, ErrForeign):
		return []agent.Change{c}, nil // another's: that is none of ours to take away
	case err != nil:
		return nil, fmt.Errorf("uninstall extension: %w", err)
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
		return nil, fmt.Errorf("uninstall extension: %w", err)
	}
	a.removeFolders(foldersMade(old))
	return []agent.Change{c}, nil
}

// Check says what is wrong with the wiring, one finding each.
func (a *Program) Check(p agent.Paths) []string {
	var found []string
	if info, err := os.Stat(p.Hook); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		found = append(found, fmt.Sprintf("%s is no program that can be started", p.Hook))
	}
	if v, _ := a.Present(); v != "" && !slices.Contains(tried(), v) {
		found = append(found, fmt.Sprintf("pi %s was not tried with this belay (tried: %s)", v, strings.Join(tried(), ", ")))
	}
	old, err := a.installed()
	switch {
	case err != nil:
		return append(found, err.Error())
	case old == nil:
		return append(found, a.extensionPath()+" is not there: the extension is not installed")
	}
	if want, err := render(p, foldersMade(old)); err == nil && !bytes.Equal(old, want) {
		what := "was written by another belay"
		if hook := strconv.Quote(p.Hook); !bytes.Contains(old, []byte("const HOOK = "+hook+";")) {
			what = "starts another belay-hook than " + p.Hook
		}
		found = append(found, fmt.Sprintf("%s %s: install it again", a.extensionPath(), what))
	}
	return found
}

// Present says whether pi is on this machine: its program is on the PATH, or its folder is there. Nothing is run for it.
// Other programs are called pi as well: the one that is meant lies in a package of that name.
func (a *Program) Present() (string, bool) {
	for _, dir := range filepath.SplitList(a.path) {
		file := filepath.Join(dir, "pi")
		info, err := os.Stat(file)
		if !filepath.IsAbs(dir) || err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if v, ok := a.packageVersion(realPath(file)); ok {
			return v, true
		}
	}
	info, err := os.Stat(a.home)
	return "", a.home != "" && err == nil && info.IsDir()
}

var versionForm = lazyre.New(`^\d{1,6}\.\d{1,6}\.\d{1,6}`)

// packageVersion reads the version off the installation: a package.json lies beside the program or above it.
func (a *Program) packageVersion(program string) (string, bool) {
	dir := filepath.Dir(program)
	for range 4 {
		data, err := vfs.ReadFile(a.fsys, filepath.Join(dir, "package.json"), 1<<20)
		var pkg struct{ Name, Version string }
		if err == nil && json.Unmarshal(data, &pkg) == nil && strings.HasSuffix(pkg.Name, "/pi-coding-agent") {
			return versionForm().FindString(pkg.Version), true
		}
		dir = filepath.Dir(dir)
	}
	return "", false
}
