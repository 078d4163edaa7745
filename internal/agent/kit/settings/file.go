package settings

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"belay/internal/agent"
	"belay/internal/vfs"
)

// Errors of reading and writing a settings file. It is as it was after any of them.
var (
	// ErrReadOnly: the file is write-protected, by its mode or as another user's. Somebody wants that.
	ErrReadOnly = errors.New("settings file is write-protected")
	// ErrChanged: somebody wrote the file while belay did.
	ErrChanged = errors.New("settings file changed meanwhile")
)

// MaxFile bounds a settings file: a larger one is none.
const MaxFile = 4 << 20

// Files changes settings files of another program and keeps the way back: one record for each file, in Dir. A record
// holds the user's bytes, so it is as private as they are.
type Files struct {
	FS  vfs.FS
	Dir string
}

// File is a settings file as it was read.
type File struct {
	Path   string // as people name it
	Target string // where the bytes are: Path with all links followed
	Text   []byte
	Exists bool
	locked error // why it must not be written
	mode   fs.FileMode
}

// Read reads a file, which need not be there.
func (k Files) Read(path string) (File, error) {
	f := File{Path: path, Target: followLinks(path), mode: vfs.FileMode}
	info, err := k.FS.Lstat(f.Target)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("read %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return f, fmt.Errorf("read %s: no regular file", path)
	}

	f.Exists, f.mode = true, info.Mode().Perm()
	if f.Text, err = vfs.ReadFile(k.FS, f.Target, MaxFile); err != nil {
		return f, fmt.Errorf("read %s: %w", path, err)
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		f.locked = fmt.Errorf("%w: it belongs to user %d", ErrReadOnly, sys.Uid)
	}
	if f.mode&0o200 == 0 {
		f.locked = fmt.Errorf("%w: its mode is %04o", ErrReadOnly, f.mode)
	}

	return f, nil
}

// followLinks gives the file that is written when path is written. Dotfile managers keep settings elsewhere and put a
// link in their place, which may lead nowhere yet.
func followLinks(path string) string {
	for range 40 { // as many as the kernel follows
		path = filepath.Join(realDir(path), filepath.Base(path))
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

func realDir(path string) string {
	dir := filepath.Dir(path)
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		return target
	}
	return filepath.Clean(dir)
}

// note names the place that is really written; empty where that is the path.
func (f File) note() string {
	if f.Target != filepath.Join(realDir(f.Path), filepath.Base(f.Path)) {
		return " (link to " + f.Target + ")"
	}
	return ""
}

// record is the way back from change.
type record struct {
	Target   string   `json:"target"`
	Existed  bool     `json:"existed"`  // before the first change
	MadeDir  bool     `json:"made_dir"` // change made the folder too
	Original []byte   `json:"original"`
	Written  []string `json:"written"` // hashes of the texts that change wrote, the newest two
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// wrote says whether a text is one that change wrote, so that nobody changed it since.
func (r record) wrote(text []byte) bool { return slices.Contains(r.Written, hashOf(text)) }

// Put writes a file's next text and says what it did; bare is the present text without anything of belay's. A dry run
// says the same, refusals too, and writes nothing.
func (k Files) Put(f File, next, bare []byte, detail string, dryRun bool) (agent.Change, error) {
	c := agent.Change{Path: f.Path, Action: "change", Detail: detail + f.note()}
	switch {
	case !f.Exists:
		c.Action = "create"
	case bytes.Equal(next, f.Text):
		c.Action = "keep"
		return c, nil
	}

	if f.locked != nil || dryRun {
		return c, f.locked
	}

	return c, k.change(f, next, bare)
}

// change puts next in the file's place. The way back is kept first: a crash between the two leaves the old text and a
// record that fits nothing, which Undo and the next change see. While the file is as change left it, what was there
// before the first change is the way back; once the user changed it, bare.
func (k Files) change(f File, next, bare []byte) error {
	rec, err := k.readRecord(f.Target)
	if err != nil {
		return err
	}

	made := false
	if dir := filepath.Dir(f.Target); !f.Exists {
		_, err := k.FS.Lstat(dir)
		if made = errors.Is(err, fs.ErrNotExist); made {
			err = vfs.MakeDir(k.FS, dir)
		}
		if err != nil {
			return err
		}
	}

	hash := hashOf(next)
	if f.Exists && rec.wrote(f.Text) {
		// The one before stays: a crash may come before the new text is in place.
		rec.Written = []string{hashOf(f.Text), hash}
	} else {
		rec = record{Target: f.Target, Existed: f.Exists, MadeDir: made, Original: bare, Written: []string{hash}}
	}

	if err := k.writeRecord(rec); err != nil {
		return err
	}

	return k.write(f, next)
}

// write replaces the file's bytes and keeps its mode, unless somebody else changed them since they were read.
func (k Files) write(f File, next []byte) error {
	now, err := k.Read(f.Path)
	if err != nil {
		return err
	}
	if now.Exists != f.Exists || now.Target != f.Target || !bytes.Equal(now.Text, f.Text) {
		return ErrChanged
	}

	return vfs.ReplaceMode(k.FS, f.Target, next, f.mode)
}

// Undo is what takes a file back.
type Undo struct {
	Action string // keep, change, restore or remove
	file   File
	rec    record
	next   []byte
}

// Undo decides how a file goes back; bare is the present text without anything of belay's, and empty says that
// nothing is in that. When nobody changed the file since Put its old bytes come back, and a file or folder that Put
// made goes; else only what is belay's goes.
func (k Files) Undo(f File, bare []byte, empty bool) (Undo, error) {
	u := Undo{Action: "keep", file: f}
	var err error
	if u.rec, err = k.readRecord(f.Target); err != nil || !f.Exists {
		return u, err
	}

	switch made := len(u.rec.Written) > 0 && !u.rec.Existed; {
	case u.rec.wrote(f.Text) && u.rec.Existed:
		u.Action, u.next = "restore", u.rec.Original
	case u.rec.wrote(f.Text):
		u.Action = "remove"
	case bytes.Equal(bare, f.Text):
		return u, nil
	case made && empty:
		u.Action = "remove"
	default:
		u.Action, u.next = "change", bare
	}

	return u, f.locked
}

// Change says what an undo does; what is that which belay had put there.
func (u Undo) Change(what string) agent.Change {
	detail := map[string]string{
		"keep":    "no " + what + " of belay's",
		"change":  "belay's " + what + " taken out, the rest kept" + u.file.note(),
		"restore": "as it was before install" + u.file.note(),
		"remove":  "was made by install" + u.file.note(),
	}
	return agent.Change{Path: u.file.Path, Action: u.Action, Detail: detail[u.Action]}
}

// Do carries it out. What a crash in Put left beside the file goes too: the user's own settings are in it, and nobody
// else sweeps that folder.
func (k Files) Do(u Undo) error {
	err := vfs.RemoveTemp(k.FS, u.file.Target)
	if err != nil {
		return err
	}

	switch u.Action {
	case "restore", "change":
		err = k.write(u.file, u.next)
	case "remove":
		err = k.remove(u.file, u.rec)
	}

	if err != nil {
		return err
	}

	return k.dropRecord(u.file.Target)
}

// remove removes what Put made: the file, and the folder when nothing else came into it.
func (k Files) remove(f File, rec record) error {
	if err := k.FS.Remove(f.Target); err != nil {
		return err
	}

	dir := filepath.Dir(f.Target)
	if !rec.MadeDir {
		return k.FS.SyncDir(dir)
	}

	left, err := k.FS.ReadDir(dir)
	if err != nil || len(left) > 0 {
		return errors.Join(err, k.FS.SyncDir(dir))
	}

	return k.FS.Remove(dir)
}

func (k Files) recordPath(target string) string {
	return filepath.Join(k.Dir, hashOf([]byte(target))[:16]+".json")
}

// readRecord gives the zero record when there is none, and when it is broken: then Undo takes out what is belay's only,
// which is right whatever the record said.
func (k Files) readRecord(target string) (record, error) {
	path := k.recordPath(target)
	text, err := vfs.ReadFile(k.FS, path, 4*MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read install record %s: %w", path, err)
	}

	var r record
	if json.Unmarshal(text, &r) != nil || r.Target != target {
		return record{}, nil
	}

	return r, nil
}

func (k Files) writeRecord(r record) error {
	path := k.recordPath(r.Target)
	text, err := json.Marshal(r)
	if err == nil {
		err = vfs.MakeDir(k.FS, filepath.Dir(path))
	}
	if err == nil {
		err = vfs.Replace(k.FS, path, text)
	}
	if err != nil {
		return fmt.Errorf("write install record %s: %w", path, err)
	}

	return nil
}

// dropRecord forgets the way back once it was gone.
func (k Files) dropRecord(target string) error {
	path := k.recordPath(target)
	if err := k.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove install record %s: %w", path, err)
	}
	return nil
}
