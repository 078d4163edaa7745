package statedir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/vfs"
)

const maxActive = 4 << 20 // bytes of the list of active sessions

// SaveActive keeps which sessions the next daemon must wake although the journal may hold nothing of them any more.
func (d Dir) SaveActive(keys []checkpoint.Key) error {
	data, err := json.Marshal(keys)
	if err != nil {
		return fmt.Errorf("save active sessions: %w", err)
	}
	if err := vfs.Replace(d.FS, d.Active(), data); err != nil {
		return fmt.Errorf("save active sessions: %w", err)
	}
	return nil
}

// LoadActive gives what SaveActive kept. A list that cannot be read is empty: its sessions wake with their next event.
func (d Dir) LoadActive() []checkpoint.Key {
	data, err := vfs.ReadFile(d.FS, d.Active(), maxActive)
	if err != nil {
		return nil
	}
	var keys []checkpoint.Key
	if json.Unmarshal(data, &keys) != nil {
		return nil
	}
	return keys
}

// Sweep removes what a crash left of half-made files in the root. The lock must be held. Sessions sweep their own folders
// when they wake.
func (d Dir) Sweep() error { return vfs.SweepTemps(d.FS, d.Root) }

// Accounts gives the saved sessions that differ from k by their account only.
func (d Dir) Accounts(k checkpoint.Key) []checkpoint.Key {
	k.Account = ""
	prefix, _, _ := strings.Cut(filepath.Base(k.Dir()), "%00w.")
	entries, err := d.FS.ReadDir(filepath.Join(d.Sessions(), agentDir(k.Agent)))
	if err != nil {
		return nil
	}
	var found []checkpoint.Key
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix+"%00a.") {
			continue
		}
		s, err := d.readState(filepath.Join(d.Sessions(), agentDir(k.Agent), e.Name(), "state.json"))
		if err != nil {
			continue
		}
		if other := s.Key; other.Account != "" {
			other.Account = ""
			if other == k {
				found = append(found, s.Key)
			}
		}
	}
	return found
}

// Usage is what the checkpoints of one session take.
type Usage struct {
	Bytes  int64
	Newest time.Time // of its files

	dir string // of the session
}

// Usage tells what each session's checkpoints take, from names and sizes alone.
func (d Dir) Usage(ctx context.Context) ([]Usage, error) {
	var all []Usage
	err := d.eachState(func(name string) error {
		u := Usage{dir: filepath.Dir(name)}
		if err := d.measure(&u); err != nil {
			return err
		}
		if u.Bytes > 0 {
			all = append(all, u)
		}
		return ctx.Err()
	})
	return all, err
}

func (d Dir) measure(u *Usage) error {
	entries, err := d.FS.ReadDir(filepath.Join(u.dir, "checkpoints"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("measure %s: %w", u.dir, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // deleted since
		}
		u.Bytes += info.Size()
		if info.ModTime().After(u.Newest) {
			u.Newest = info.ModTime()
		}
	}
	return nil
}

// Size measures a session again.
func (d Dir) Size(u Usage) int64 {
	now := Usage{dir: u.dir}
	if d.measure(&now) != nil {
		return u.Bytes // as far as is known
	}
	return now.Bytes
}

// KeyOf tells whose checkpoints they are; false when the session's state cannot be read.
func (d Dir) KeyOf(u Usage) (checkpoint.Key, bool) {
	s, err := d.readState(filepath.Join(u.dir, "state.json"))
	if err != nil {
		return checkpoint.Key{}, false
	}
	return s.Key, true
}
