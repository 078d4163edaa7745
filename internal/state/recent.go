package state

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"time"

	"belay/checkpoint"
	"belay/internal/vfs"
)

const maxRecent = 1000 // states that are looked at for one start

// Recent reads saved states of an agent's sessions in a workspace whose files changed since a time, newest first,
// without the journal: for a daemon that holds the newer ones in memory, and says by held which folders are theirs. A
// bad file is reported by doctor, and stops nobody here.
func (d Dir) Recent(
	ctx context.Context, agent, workspace string, since time.Time, held map[string]bool,
) ([]*checkpoint.State, error) {
	type file struct {
		name string
		at   time.Time
	}

	var files []file
	ours := agentDir(agent)
	err := d.eachState(func(name string) error {
		if filepath.Base(filepath.Dir(filepath.Dir(name))) != ours || held[filepath.Dir(name)] {
			return ctx.Err()
		}
		if info, err := d.FS.Lstat(name); err == nil && info.ModTime().After(since) {
			files = append(files, file{name, info.ModTime()})
		}
		return ctx.Err()
	})

	if err != nil {
		return nil, err
	}

	slices.SortFunc(files, func(a, b file) int { return b.at.Compare(a.at) })
	needle, _ := json.Marshal(workspace) // a string always has a JSON form
	var list []*checkpoint.State
	for _, f := range files[:min(len(files), maxRecent)] {
		data, err := vfs.ReadFile(d.FS, f.name, maxState)
		if err != nil || !bytes.Contains(data, needle) { // decoding costs much more
			continue
		}
		if s, err := d.readState(f.name); err == nil && s.Key.Agent == agent && s.Workspace == workspace {
			list = append(list, s)
		}
	}

	return list, ctx.Err()
}

func agentDir(agent string) string {
	return filepath.Dir(checkpoint.Key{Agent: agent, Session: "x"}.Dir())
}

// sortNewest is the same for the same sessions, in whatever order they come.
func sortNewest(list []*checkpoint.State) {
	slices.SortFunc(list, func(a, b *checkpoint.State) int {
		k, l := a.Key, b.Key
		return cmp.Or(
			b.LastEvent.Compare(a.LastEvent), cmp.Compare(k.Agent, l.Agent), cmp.Compare(k.Session, l.Session),
			cmp.Compare(k.Child, l.Child), cmp.Compare(k.Account, l.Account), cmp.Compare(k.Workspace, l.Workspace),
		)
	})
}
