package claude

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"belay/internal/agent"
	"belay/internal/jsonedit"
	"belay/internal/vfs"
)

// Errors of Install and Uninstall. The settings file is as it was after any of them.
var (
	// ErrNoHome: neither $CLAUDE_CONFIG_DIR nor a home folder says where the settings are, or where belay keeps its own.
	ErrNoHome = errors.New("no home folder is known")
	// ErrBadHook: the path of belay-hook cannot stand in the settings.
	ErrBadHook = errors.New("path of belay-hook cannot be used")
	// ErrReadOnly: the file is write-protected, by its mode or as another user's. Somebody wants that.
	ErrReadOnly = errors.New("settings file is write-protected")
	// ErrChanged: somebody wrote the file while belay did.
	ErrChanged = errors.New("settings file changed meanwhile")
)

// maxSettings bounds the settings file: a larger one is none.
const maxSettings = 4 << 20

// settings is the user's settings file as it was read.
type settings struct {
	path   string // as people name it
	target string // where the bytes are: path with all links followed
	text   []byte
	exists bool
	mode   fs.FileMode
	locked error // why it must not be written
}

// settingsPath is the user's own settings file, the one of several that holds for all projects.
func (a *Agent) settingsPath() string { return filepath.Join(a.home, "settings.json") }

func (a *Agent) readSettings() (settings, error) {
	s := settings{path: a.settingsPath(), mode: vfs.FileMode}
	if a.home == "" || a.state == "" {
		return s, ErrNoHome
	}
	s.target = followLinks(s.path)
	info, err := a.fsys.Lstat(s.target)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read %s: %w", s.path, err)
	}
	if !info.Mode().IsRegular() {
		return s, fmt.Errorf("read %s: no regular file", s.path)
	}
	s.exists, s.mode = true, info.Mode().Perm()
	if s.text, err = vfs.ReadFile(a.fsys, s.target, maxSettings); err != nil {
		return s, fmt.Errorf("read %s: %w", s.path, err)
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		s.locked = fmt.Errorf("%w: it belongs to user %d", ErrReadOnly, sys.Uid)
	}
	if s.mode&0o200 == 0 {
		s.locked = fmt.Errorf("%w: its mode is %04o", ErrReadOnly, s.mode)
	}
	return s, nil
}

// followLinks gives the file that is written when path is written. Dotfile managers keep settings elsewhere and put a
// link in their place, which may lead nowhere yet.
func followLinks(path string) string {
	for range 40 { // as many as the kernel follows
		path = filepath.Join(realPath(filepath.Dir(path)), filepath.Base(path))
		link, err := os.Readlink(path)
		if err != nil {
			return path
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = link
	}
	return path
}

// note names the place that is really written.
func (s settings) note() string {
	if s.target != filepath.Join(realPath(filepath.Dir(s.path)), filepath.Base(s.path)) {
		return " (link to " + s.target + ")"
	}
	return ""
}

// Install writes belay's hooks into the user's settings. Everything else in the file stays as it is, byte for byte; a
// second run changes nothing; hooks of an earlier belay, at another path or of another form, are replaced.
func (a *Agent) Install(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	if err := checkHook(p); err != nil {
		return nil, err
	}
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("install hooks: %w", err)
	}
	v, known := a.askVersion()
	want := wanted(p, v, known)
	next, err := merge(s.text, want)
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", s.path, err)
	}
	c := agent.Change{Path: s.path, Action: "change", Detail: fmt.Sprintf("hooks for %d events", len(want)) + s.note()}
	switch {
	case !s.exists:
		c.Action = "create"
	case bytes.Equal(next, s.text):
		c.Action = "keep"
		return []agent.Change{c}, nil
	}
	err = s.locked
	if err == nil && !dryRun {
		err = a.replaceSettings(s, next)
	}
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", s.path, err)
	}
	return []agent.Change{c}, nil
}

func checkHook(p agent.Paths) error {
	switch {
	case !filepath.IsAbs(p.Hook):
		return fmt.Errorf("%w: %q is not absolute", ErrBadHook, p.Hook)
	case !utf8.ValidString(p.Hook + p.Socket):
		return fmt.Errorf("%w: %q is no valid UTF-8", ErrBadHook, p.Hook+p.Socket)
	case !strings.HasPrefix(filepath.Base(p.Hook), hookBinary):
		return fmt.Errorf("%w: %q is not named %s", ErrBadHook, p.Hook, hookBinary)
	}
	return nil
}

// replaceSettings keeps the way back first, then puts the new text in place. A crash between the two leaves the old text
// and a record that fits nothing, which Uninstall and the next Install see.
func (a *Agent) replaceSettings(s settings, next []byte) error {
	rec, err := a.readRecord(s.target)
	if err != nil {
		return err
	}
	made := false
	if dir := filepath.Dir(s.target); !s.exists {
		_, err := a.fsys.Lstat(dir)
		if made = errors.Is(err, fs.ErrNotExist); made {
			err = a.fsys.MkdirAll(dir, vfs.DirMode)
		}
		if err != nil {
			return err
		}
	}
	if rec, err = rec.after(s, next, made); err != nil {
		return err
	}
	if err := a.writeRecord(rec); err != nil {
		return err
	}
	return a.write(s, next)
}

// write replaces the file's bytes and keeps its mode, unless somebody else changed them since they were read.
func (a *Agent) write(s settings, next []byte) error {
	now, err := a.readSettings()
	if err != nil {
		return err
	}
	if now.exists != s.exists || now.target != s.target || !bytes.Equal(now.text, s.text) {
		return ErrChanged
	}
	return vfs.Replace(modeFS{a.fsys, s.mode}, s.target, next)
}

// modeFS creates files with the mode of the file that they replace.
type modeFS struct {
	vfs.FS
	mode fs.FileMode
}

func (m modeFS) OpenFile(name string, flag int, _ fs.FileMode) (vfs.File, error) {
	f, err := m.FS.OpenFile(name, flag, m.mode)
	if err != nil || flag&os.O_CREATE == 0 {
		return f, err
	}
	// The umask may have taken bits away, and a left-over of a crash may have others.
	if c, ok := f.(interface{ Chmod(fs.FileMode) error }); ok {
		if err := c.Chmod(m.mode); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// Uninstall takes belay's hooks out again. When nobody changed the file since Install, its old bytes come back, and a
// file or folder that Install made goes; else only belay's entries go.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	s, err := a.readSettings()
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks: %w", err)
	}
	rec, err := a.readRecord(s.target)
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks: %w", err)
	}
	c, next, err := undo(s, rec)
	if err == nil && c.Action != "keep" {
		err = s.locked
	}
	if err == nil && !dryRun {
		err = a.carryOut(c.Action, s, rec, next)
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", s.path, err)
	}
	return []agent.Change{c}, nil
}

func (a *Agent) carryOut(action string, s settings, rec record, next []byte) error {
	var err error
	switch action {
	case "restore", "change":
		err = a.write(s, next)
	case "remove":
		err = a.removeSettings(s, rec)
	}
	if err != nil {
		return err
	}
	return a.dropRecord(s.target)
}

// undo decides what Uninstall does with the file. Pure.
func undo(s settings, rec record) (agent.Change, []byte, error) {
	c := agent.Change{Path: s.path, Action: "keep", Detail: "no hooks of belay's"}
	if !s.exists {
		return c, nil, nil
	}
	if rec.wrote(s.text) {
		c.Action, c.Detail = "restore", "as it was before install"+s.note()
		if !rec.Existed {
			c.Action, c.Detail = "remove", "was made by install"+s.note()
		}
		return c, rec.Original, nil
	}
	next, err := strip(s.text, nil)
	if err != nil {
		return c, nil, err
	}
	if bytes.Equal(next, s.text) {
		return c, nil, nil
	}
	c.Action, c.Detail = "change", "belay's hooks taken out, the rest kept"+s.note()
	if len(rec.Written) > 0 && !rec.Existed && jsonedit.Empty(next) {
		c.Action, c.Detail = "remove", "was made by install"+s.note()
	}
	return c, next, nil
}

// removeSettings removes what Install made: the file, and the folder when nothing else came into it.
func (a *Agent) removeSettings(s settings, rec record) error {
	if err := a.fsys.Remove(s.target); err != nil {
		return err
	}
	dir := filepath.Dir(s.target)
	if !rec.MadeDir {
		return a.fsys.SyncDir(dir)
	}
	left, err := a.fsys.ReadDir(dir)
	if err != nil || len(left) > 0 {
		return errors.Join(err, a.fsys.SyncDir(dir))
	}
	return a.fsys.Remove(dir)
}
