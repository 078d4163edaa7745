package agentzero

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"belay/internal/agent"
	"belay/internal/lazyre"
	"belay/internal/vfs"
)

// Errors of Install and Uninstall. Nothing of Agent Zero's has changed after any of them.
var (
	// ErrNoProgram: no folder holds an Agent Zero.
	ErrNoProgram = errors.New("no folder of Agent Zero's is known; AGENT_ZERO_DIR names it")
	// ErrBadHook: the path of belay-hook cannot stand in the extension.
	ErrBadHook = errors.New("path of belay-hook cannot be used")
	// ErrForeign: the extension's place is taken by something that belay did not write.
	ErrForeign = errors.New("not written by belay")
)

//go:embed extension.py
var extension []byte

const (
	maxExtension = 1 << 20
	// marker is the first line of every extension that belay wrote.
	marker = "# belay's extension for Agent Zero"
)

// made is the line that says how many folders Install made for the file: Uninstall takes those away again.
var made = lazyre.New(`(?m)^# Folders made for it: ([0-3])$`)

// compiled is what Python leaves of the extension beside it.
var compiled = lazyre.New(`^_\d\d_belay\.[A-Za-z0-9_-]+(?:\.opt-\d)?\.pyc$`)

// places are the extension's files: one for each point, which its folder names. A call's arguments are looked at before
// the program puts real secrets in the place of their names (_10_), its result after they were taken out again.
func places(root string) []string {
	dir := filepath.Join(root, "usr", "extensions", "python")
	return []string{
		filepath.Join(dir, "monologue_start", "_95_belay.py"),
		filepath.Join(dir, "message_loop_prompts_after", "_95_belay.py"),
		filepath.Join(dir, "tool_execute_before", "_05_belay.py"),
		filepath.Join(dir, "tool_execute_after", "_95_belay.py"),
		filepath.Join(dir, "monologue_end", "_95_belay.py"),
	}
}

// present gives the folders in which an Agent Zero lies.
func (a *Agent) present() []string {
	var list []string
	for _, root := range a.roots {
		program, err := os.Stat(filepath.Join(root, "agent.py"))
		if err != nil || !program.Mode().IsRegular() {
			continue
		}
		if usr, err := os.Stat(filepath.Join(root, "usr")); err == nil && usr.IsDir() {
			list = append(list, root)
		}
	}
	return list
}

// Present says whether Agent Zero is on this machine. Its files do not tell a version.
func (a *Agent) Present() (string, bool) { return "", len(a.present()) > 0 }

// render is the extension's text for an installation and a place of belay-hook.
func render(p agent.Paths, root string, folders int) ([]byte, error) {
	out := extension
	for _, v := range []struct{ name, was, is string }{{"HOOK", "belay-hook", p.Hook}, {"SOCKET", "", p.Socket}, {"ROOT", "", root}} {
		is, err := json.Marshal(v.is) // what JSON writes of a string, Python reads as the same string
		if err != nil {
			return nil, err
		}
		out = bytes.Replace(out, fmt.Appendf(nil, "\n%s = %q\n", v.name, v.was), fmt.Appendf(nil, "\n%s = %s\n", v.name, is), 1)
	}
	head, rest, _ := bytes.Cut(out, []byte("\n\n"))
	return fmt.Appendf(nil, "%s\n# Folders made for it: %d\n\n%s", head, folders, rest), nil
}

// installed gives the extension that is at path; nil when there is none.
func (a *Agent) installed(path string) ([]byte, error) {
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
	if !bytes.HasPrefix(data, []byte(marker+"\n")) {
		return nil, fmt.Errorf("%s: %w", path, ErrForeign)
	}
	return data, nil
}

// Install puts the extension into the folders of the program's user layer, which its updates leave alone. A second run
// changes nothing; an extension of another belay is replaced. The program loads it at its next start.
func (a *Agent) Install(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	roots := a.present()
	switch {
	case !filepath.IsAbs(p.Hook):
		return nil, fmt.Errorf("install extension: %w: %q is not absolute", ErrBadHook, p.Hook)
	case !utf8.ValidString(p.Hook + p.Socket):
		return nil, fmt.Errorf("install extension: %w: %q is no valid UTF-8", ErrBadHook, p.Hook+p.Socket)
	case len(roots) == 0:
		return nil, fmt.Errorf("install extension: %w", ErrNoProgram)
	}
	root := roots[0]
	for _, path := range places(root) { // all or none: what is in the way is found before anything is written
		if _, err := a.installed(path); err != nil {
			return nil, fmt.Errorf("install extension: %w", err)
		}
	}
	var changes []agent.Change
	for _, path := range places(root) {
		c, err := a.put(p, root, path, dryRun)
		if err != nil {
			for _, done := range changes {
				if done.Action == "create" && !dryRun {
					_ = a.remove(done.Path) // a part of it is of no use; what cannot go is found by doctor
				}
			}
			return nil, fmt.Errorf("install extension: %w", err)
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// put writes one file.
func (a *Agent) put(p agent.Paths, root, path string, dryRun bool) (agent.Change, error) {
	c := agent.Change{Path: path, Action: "create", Detail: "extension at " + filepath.Base(filepath.Dir(path))}
	old, err := a.installed(path)
	if err != nil {
		return c, err
	}
	folders := foldersMade(old)
	if old == nil {
		folders = a.missing(path)
	}
	next, err := render(p, root, folders)
	switch {
	case err != nil:
		return c, err
	case bytes.Equal(old, next):
		c.Action = "keep"
		return c, nil
	case old != nil:
		c.Action = "change"
	}
	if dryRun {
		return c, nil
	}
	if err = a.fsys.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = vfs.Replace(a.fsys, path, next)
	}
	if err != nil && old == nil {
		a.removeFolders(filepath.Dir(path), folders) // what was made is nothing without the file
	}
	return c, err
}

// missing counts the folders that have to be made for a file, at most those below usr.
func (a *Agent) missing(path string) int {
	n := 0
	for dir := filepath.Dir(path); n < 3; dir = filepath.Dir(dir) {
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
func (a *Agent) removeFolders(dir string, n int) {
	for ; n > 0; n-- {
		if left, err := a.fsys.ReadDir(dir); err != nil || len(left) > 0 || a.fsys.Remove(dir) != nil {
			return // somebody uses it now
		}
		dir = filepath.Dir(dir)
	}
}

// remove takes one file of the extension away, what Python made of it, and the folders that were made for it.
func (a *Agent) remove(path string) error {
	old, err := a.installed(path)
	if err != nil || old == nil {
		return err
	}
	dir := filepath.Dir(path)
	if err = a.fsys.Remove(path); err == nil {
		err = a.fsys.SyncDir(dir)
	}
	if err != nil {
		return err
	}
	cache := filepath.Join(dir, "__pycache__")
	entries, err := a.fsys.ReadDir(cache)
	if err == nil {
		gone := 0
		for _, e := range entries {
			if compiled().MatchString(e.Name()) && a.fsys.Remove(filepath.Join(cache, e.Name())) == nil {
				gone++
			}
		}
		if gone > 0 && gone == len(entries) {
			_ = a.fsys.Remove(cache) // something may have come into it: then it stays
		}
	}
	a.removeFolders(dir, foldersMade(old))
	return nil
}

// Uninstall takes the extension away again, and the folders that were made for it and are empty.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	var changes []agent.Change
	for _, root := range a.present() {
		list := places(root)
		for i := len(list) - 1; i >= 0; i-- { // the first one made the folders of all
			old, err := a.installed(list[i])
			if errors.Is(err, ErrForeign) || err == nil && old == nil {
				continue // there is none, or another's
			}
			if err == nil && !dryRun {
				err = a.remove(list[i])
			}
			if err != nil {
				return changes, fmt.Errorf("uninstall extension: %w", err)
			}
			changes = append(changes, agent.Change{Path: list[i], Action: "remove", Detail: "was made by install"})
		}
		if len(changes) == 0 {
			changes = append(changes, agent.Change{Path: filepath.Join(root, "usr", "extensions", "python"), Action: "keep", Detail: "no extension of belay's"})
		}
	}
	return changes, nil
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(p agent.Paths) []string {
	var found []string
	if info, err := os.Stat(p.Hook); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		found = append(found, fmt.Sprintf("%s is no program that can be started", p.Hook))
	}
	roots := a.present()
	if len(roots) == 0 {
		return append(found, ErrNoProgram.Error())
	}
	var absent []string
	for _, path := range places(roots[0]) {
		old, err := a.installed(path)
		switch {
		case err != nil:
			found = append(found, err.Error())
			continue
		case old == nil:
			absent = append(absent, filepath.Base(filepath.Dir(path)))
			continue
		}
		if want, err := render(p, roots[0], foldersMade(old)); err == nil && !bytes.Equal(old, want) {
			found = append(found, path+" was written by another belay, or for another belay-hook: install it again")
		}
	}
	if len(absent) > 0 {
		found = append(found, "the extension is not installed at "+strings.Join(absent, ", "))
	}
	return found
}
