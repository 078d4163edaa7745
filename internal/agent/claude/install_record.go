package claude

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"belay/internal/vfs"
)

// record is the way back from Install: one file of belay's own for each settings file. It holds the user's bytes, so it
// is as private as they are.
type record struct {
	Target   string   `json:"target"`
	Existed  bool     `json:"existed"`  // before the first Install
	MadeDir  bool     `json:"made_dir"` // Install made the folder too
	Original []byte   `json:"original"`
	Written  []string `json:"written"` // hashes of the texts that Install wrote, the newest two
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// wrote says whether a text is one that Install wrote, so that nobody changed it since.
func (r record) wrote(text []byte) bool { return slices.Contains(r.Written, hashOf(text)) }

// after is the record once next is written over s. While the file is as Install left it, what was there before the first
// Install is the way back; once the user changed it, that is the user's present text without belay's hooks.
func (r record) after(s settings, next []byte, madeDir bool) (record, error) {
	hash := hashOf(next)
	if s.exists && r.wrote(s.text) {
		// The hash before stays: a crash may come before the new text is in place.
		r.Written = []string{hashOf(s.text), hash}
		return r, nil
	}
	original, err := strip(s.text, nil)
	if err != nil {
		return r, err
	}
	return record{Target: s.target, Existed: s.exists, MadeDir: madeDir, Original: original, Written: []string{hash}}, nil
}

func (a *Agent) recordPath(target string) string {
	return filepath.Join(a.state, "install", name, hashOf([]byte(target))[:16]+".json")
}

// readRecord gives the zero record when there is none, and when it is broken: then Uninstall takes out belay's entries
// only, which is right whatever the record said.
func (a *Agent) readRecord(target string) (record, error) {
	path := a.recordPath(target)
	text, err := vfs.ReadFile(a.fsys, path, 4*maxSettings)
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

func (a *Agent) writeRecord(r record) error {
	path := a.recordPath(r.Target)
	text, err := json.Marshal(r)
	if err == nil {
		err = a.fsys.MkdirAll(filepath.Dir(path), vfs.DirMode)
	}
	if err == nil {
		err = vfs.Replace(a.fsys, path, text)
	}
	if err != nil {
		return fmt.Errorf("write install record %s: %w", path, err)
	}
	return nil
}

// dropRecord forgets the way back once it was gone.
func (a *Agent) dropRecord(target string) error {
	path := a.recordPath(target)
	if err := a.fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove install record %s: %w", path, err)
	}
	return nil
}
