package statedir

import (
	"context"
	"os"
	"slices"
	"time"

	"belay/checkpoint"
)

const maxRecent = 1000 // states that are looked at for one start

// Recent reads saved states of an agent whose files changed since a time, newest first, without the journal: for a daemon
// that holds the newer ones in memory.
func (d Dir) Recent(ctx context.Context, agent string, since time.Time) ([]*checkpoint.State, error) {
	type file struct {
		name string
		at   time.Time
	}
	var files []file
	err := d.eachState(func(name string) error {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && info.ModTime().After(since) {
			files = append(files, file{name, info.ModTime()})
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b file) int { return b.at.Compare(a.at) })
	var list []*checkpoint.State
	for _, f := range files[:min(len(files), maxRecent)] {
		s, err := d.readState(f.name)
		if err == nil && (agent == "" || s.Key.Agent == agent) { // a bad one is reported by doctor, and stops nobody here
			list = append(list, s)
		}
	}
	return list, ctx.Err()
}

func sortNewest(list []*checkpoint.State) {
	slices.SortFunc(list, func(a, b *checkpoint.State) int { return b.LastEvent.Compare(a.LastEvent) })
}
