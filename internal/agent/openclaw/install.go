package openclaw

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"belay/internal/agent"
	"belay/internal/vfs"
)

// Errors of Install and Uninstall. The settings are as they were after any of them.
var (
	// ErrNoHome: no home folder says where the settings are, or where belay keeps its own.
	ErrNoHome = errors.New("no home folder is known")
	// ErrBadHook: the path of belay-hook cannot stand in the plugin.
	ErrBadHook = errors.New("path of belay-hook cannot be used")
	// ErrReadOnly: the settings are write-protected. Somebody wants that.
	ErrReadOnly = errors.New("settings file is write-protected")
	// ErrChanged: somebody wrote the settings while belay did.
	ErrChanged = errors.New("settings file changed meanwhile")
)

//go:embed plugin/index.js plugin/line.js plugin/package.json plugin/openclaw.plugin.json
var pluginFiles embed.FS

var pluginNames = []string{"index.js", "line.js", "package.json", "openclaw.plugin.json"}

const (
	maxSettings = 4 << 20
	folderName  = "belay-plugin"
)

// settings is the file as it was read.
type settings struct {
	path   string // as people name it
	target string // where the bytes are
	text   string
	exists bool
	mode   fs.FileMode
}

// record is the way back from Install. It holds the user's bytes, so it is as private as they are.
type record struct {
	Target   string   `json:"target"`
	Existed  bool     `json:"existed"`
	Original []byte   `json:"original"`
	Written  []string `json:"written"` // hashes of the texts that Install wrote, the newest two
}

// pluginFolder lies beside the settings: whoever removes OpenClaw's folder removes both.
func (a *Agent) pluginFolder() string { return filepath.Join(filepath.Dir(a.config), folderName) }

func (a *Agent) readSettings() (settings, error) {
	s := settings{path: a.config, mode: vfs.FileMode}
	if a.config == "" || a.state == "" {
		return s, ErrNoHome
	}
	s.target = filepath.Join(realPath(filepath.Dir(a.config)), filepath.Base(a.config))
	if real, err := filepath.EvalSymlinks(a.config); err == nil {
		s.target = real
	}
	info, err := a.fsys.Lstat(s.target)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("no regular file")
	}
	if err != nil {
		return s, fmt.Errorf("read %s: %w", s.path, err)
	}
	data, err := vfs.ReadFile(a.fsys, s.target, maxSettings)
	if err != nil {
		return s, fmt.Errorf("read %s: %w", s.path, err)
	}
	s.text, s.exists, s.mode = string(data), true, info.Mode().Perm()
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() || s.mode&0o200 == 0 {
		return s, fmt.Errorf("%s: %w", s.path, ErrReadOnly)
	}
	return s, nil
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
	before := s.text
	if strings.TrimSpace(before) == "" {
		before = "{}\n"
	}
	next, err := withPlugin(before, a.pluginFolder())
	if err != nil {
		return nil, fmt.Errorf("install plugin in %s: %w", s.path, err)
	}
	plugin := agent.Change{Path: a.pluginFolder(), Action: "keep", Detail: "the plugin"}
	if !a.inPlace(want) {
		plugin.Action = "create"
	}
	change := agent.Change{Path: s.path, Action: "change", Detail: "plugin " + pluginID + ", which may see conversations"}
	switch {
	case !s.exists:
		change.Action = "create"
	case next == s.text:
		change.Action = "keep"
	}
	if !dryRun {
		// The folder first: settings that name a plugin which is not there may keep OpenClaw from starting.
		if plugin.Action != "keep" {
			err = a.writePlugin(want)
		}
		if err == nil && change.Action != "keep" {
			err = a.replaceSettings(s, next)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("install plugin: %w", err)
	}
	return []agent.Change{plugin, change}, nil
}

func (a *Agent) inPlace(want map[string][]byte) bool {
	for n, data := range want {
		got, err := vfs.ReadFile(a.fsys, filepath.Join(a.pluginFolder(), n), maxSettings)
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

// replaceSettings keeps the way back first, then puts the new text in place.
func (a *Agent) replaceSettings(s settings, next string) error {
	rec, err := a.readRecord(s.target)
	if err != nil {
		return err
	}
	if s.exists && rec.wrote(s.text) {
		rec.Written = []string{hashOf(s.text), hashOf(next)} // a crash may come before the new text is in place
	} else {
		original := s.text
		if s.exists && strings.TrimSpace(original) != "" {
			if original, err = withoutPlugin(s.text, a.pluginFolder()); err != nil {
				return err
			}
		}
		rec = record{Target: s.target, Existed: s.exists, Original: []byte(original), Written: []string{hashOf(next)}}
	}
	data, err := json.Marshal(rec)
	if err == nil {
		err = a.fsys.MkdirAll(filepath.Dir(a.recordPath(s.target)), vfs.DirMode)
	}
	if err == nil {
		err = vfs.Replace(a.fsys, a.recordPath(s.target), data)
	}
	if err != nil {
		return fmt.Errorf("keep the way back of %s: %w", s.path, err)
	}
	return a.write(s, next)
}

// write replaces the file's bytes and keeps its mode, unless somebody else changed them since they were read.
func (a *Agent) write(s settings, next string) error {
	now, err := a.readSettings()
	if err != nil {
		return err
	}
	if now.exists != s.exists || now.target != s.target || now.text != s.text {
		return fmt.Errorf("%s: %w", s.path, ErrChanged)
	}
	if err := vfs.Replace(a.fsys, s.target, []byte(next)); err != nil {
		return err
	}
	if s.mode == vfs.FileMode {
		return nil
	}
	return os.Chmod(s.target, s.mode)
}

// Uninstall takes the plugin out of the settings, then removes its folder. When nobody changed the settings since Install,
// their old bytes come back.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin: %w", err)
	}
	rec, err := a.readRecord(s.target)
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin: %w", err)
	}
	change, next, err := undo(s, rec, a.pluginFolder())
	if err != nil {
		return nil, fmt.Errorf("uninstall plugin from %s: %w", s.path, err)
	}
	plugin := agent.Change{Path: a.pluginFolder(), Action: "keep", Detail: "no plugin of belay's"}
	if _, err := a.fsys.Lstat(a.pluginFolder()); err == nil {
		plugin.Action, plugin.Detail = "remove", "the plugin"
	}
	if !dryRun {
		switch change.Action {
		case "remove":
			err = a.fsys.Remove(s.target)
		case "restore", "change":
			err = a.write(s, next)
		}
		if err == nil {
			err = a.dropPlugin(s.target)
		}
		if err != nil {
			return nil, fmt.Errorf("uninstall plugin: %w", err)
		}
	}
	return []agent.Change{change, plugin}, nil
}

// undo decides what Uninstall does with the settings. Pure.
func undo(s settings, rec record, folder string) (agent.Change, string, error) {
	c := agent.Change{Path: s.path, Action: "keep", Detail: "no plugin of belay's"}
	if !s.exists {
		return c, "", nil
	}
	if rec.wrote(s.text) {
		c.Action, c.Detail = "restore", "as it was before install"
		if !rec.Existed {
			c.Action, c.Detail = "remove", "was made by install"
		}
		return c, string(rec.Original), nil
	}
	next, err := withoutPlugin(s.text, folder)
	if err != nil || next == s.text {
		return c, "", err
	}
	c.Action, c.Detail = "change", "belay's plugin taken out, the rest kept"
	return c, next, nil
}

// dropPlugin removes the plugin's own files, the folder when nothing else is in it, and the way back.
func (a *Agent) dropPlugin(target string) error {
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
	if err := a.fsys.Remove(a.recordPath(target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Check says what keeps the plugin from its work.
func (a *Agent) Check(p agent.Paths) []string {
	s, err := a.readSettings()
	if err != nil && !errors.Is(err, ErrReadOnly) {
		return []string{err.Error()}
	}
	root, err := parseSettings(s.text)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", s.path, err)}
	}
	var list []string
	if want, err := files(p); err != nil {
		list = append(list, err.Error())
	} else if !a.inPlace(want) {
		list = append(list, a.pluginFolder()+" is missing or of another belay")
	}
	if paths, ok := root.find("plugins", "load", "paths"); !ok || paths.index(s.text, a.pluginFolder()) < 0 {
		list = append(list, "plugins.load.paths does not name the plugin")
	}
	if entry, ok := root.find("plugins", "entries", pluginID); !ok || !entryWorks(s.text, entry) {
		list = append(list, "plugins.entries.belay is not enabled with hooks.allowConversationAccess")
	}
	if on, ok := root.find("plugins", "enabled"); ok && s.text[on.start:on.end] == "false" {
		list = append(list, "plugins.enabled is false: no plugin runs")
	}
	if allow, ok := root.find("plugins", "allow"); ok && len(allow.items) > 0 && allow.index(s.text, pluginID) < 0 {
		list = append(list, "plugins.allow does not name belay")
	}
	if deny, ok := root.find("plugins", "deny"); ok && deny.index(s.text, pluginID) >= 0 {
		list = append(list, "plugins.deny names belay")
	}
	return list
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (r record) wrote(text string) bool { return slices.Contains(r.Written, hashOf(text)) }

func (a *Agent) recordPath(target string) string {
	return filepath.Join(a.state, "install", name, hashOf(target)[:16]+".json")
}

// readRecord gives the zero record when there is none, or a broken one: then Uninstall takes out belay's entries only.
func (a *Agent) readRecord(target string) (record, error) {
	data, err := vfs.ReadFile(a.fsys, a.recordPath(target), 4*maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read install record: %w", err)
	}
	var r record
	if json.Unmarshal(data, &r) != nil || r.Target != target {
		return record{}, nil
	}
	return r, nil
}
