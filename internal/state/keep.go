package state

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
	"belay/checkpoint/filestore"
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

// beatFile is what is kept of the heartbeat.
type beatFile struct {
	Last time.Time `json:"last"`
}

const maxBeat = 4 << 10 // bytes of it that are read

// SaveBeat keeps when the last heartbeat did its work.
func (d Dir) SaveBeat(at time.Time) error {
	data, err := json.Marshal(beatFile{Last: at.UTC()})
	if err != nil {
		return fmt.Errorf("save heartbeat: %w", err)
	}
	if err := vfs.Replace(d.FS, d.Beat(), data); err != nil {
		return fmt.Errorf("save heartbeat: %w", err)
	}

	return nil
}

// LastBeat gives what SaveBeat kept; the zero time where nothing can be read, which means a beat too many at the worst.
func (d Dir) LastBeat() time.Time {
	var b beatFile
	if data, err := vfs.ReadFile(d.FS, d.Beat(), maxBeat); err != nil || json.Unmarshal(data, &b) != nil {
		return time.Time{}
	}
	return b.Last
}

// Sweep removes what a crash left of half-made files in the root and in the journal. The lock must be held, and nothing
// be written yet.
func (d Dir) Sweep() error {
	return errors.Join(
		vfs.SweepTemps(d.FS, d.Root, time.Time{}),
		vfs.SweepTemps(d.FS, filepath.Join(d.Journal(), "damaged"), time.Time{}),
	)
}

// othersTemp is how old a left-over must be where other processes than the daemon write: they take no lock.
const othersTemp = time.Hour

// SweepBefore is the time from which a temporary file at a path may still be in use, for a daemon that was started at a
// time: an older one is a left-over.
func (d Dir) SweepBefore(path string, started time.Time) time.Time {
	for _, shared := range []string{d.Spool(), d.Install()} {
		if path == shared || within(path, shared) {
			return started.Add(-othersTemp)
		}
	}
	return started
}

// SweepAll removes the left-overs everywhere else, while a daemon works that was started at a time. A session that
// wakes sweeps its own folder, so that one which is at work now has none from before.
func (d Dir) SweepAll(ctx context.Context, started time.Time) error {
	folders := []string{d.Spool(), filepath.Join(d.Spool(), "bad"), d.Sessions()}
	for _, above := range []string{d.Install(), d.Sessions()} {
		entries, _ := d.FS.ReadDir(above) // one that is not there has none
		for _, e := range entries {
			folders = append(folders, filepath.Join(above, e.Name()))
		}
	}

	err := d.eachState(func(name string) error {
		folder := filepath.Dir(name)
		folders = append(folders, folder, filepath.Join(folder, filestore.Folder))
		return nil
	})

	for _, folder := range folders {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = errors.Join(err, vfs.SweepTemps(d.FS, folder, d.SweepBefore(folder, started)))
	}

	return err
}

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

		s, err := d.readState(filepath.Join(d.Sessions(), agentDir(k.Agent), e.Name(), stateName))
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

// Usage is what one session keeps: checkpoints, mirror and state.
type Usage struct {
	Bytes  int64
	Newest time.Time // of its files
	Spare  bool      // there is more than one checkpoint and the state
	Folder string    // of the session
}

// Usage tells what each session keeps, half-made files included, from names and sizes alone.
func (d Dir) Usage(ctx context.Context) ([]Usage, error) {
	var all []Usage
	err := d.eachState(func(name string) error {
		u := Usage{Folder: filepath.Dir(name)}
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
	files := 0
	for _, dir := range []string{u.Folder, filepath.Join(u.Folder, filestore.Folder)} {
		entries, err := d.FS.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("measure %s: %w", u.Folder, err)
		}

		for _, e := range entries {
			info, err := e.Info()
			if err != nil || info.IsDir() {
				continue // deleted since, or the folder that comes next
			}

			u.Bytes += info.Size()
			if e.Name() != stateName {
				files++
			}
			if info.ModTime().After(u.Newest) {
				u.Newest = info.ModTime()
			}
		}
	}

	u.Spare = files > 1
	return nil
}

// Size measures a session again.
func (d Dir) Size(u Usage) int64 {
	now := Usage{Folder: u.Folder}
	if d.measure(&now) != nil {
		return u.Bytes // as far as is known
	}
	return now.Bytes
}

// Copies is what the copies of a session's transcript take, half-made ones included.
func (d Dir) Copies(k checkpoint.Key) (bytes int64) {
	entries, _ := d.FS.ReadDir(d.Session(k)) // one that cannot be read holds nothing that could be cut
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(strings.TrimPrefix(e.Name(), "."), "transcript.") {
			bytes += info.Size()
		}
	}
	return bytes
}

// StateBytes is what a session's saved state takes.
func (d Dir) StateBytes(k checkpoint.Key) int64 {
	info, err := d.FS.Lstat(d.stateFile(k))
	if err != nil {
		return 0
	}
	return info.Size()
}

// KeyOf tells whose files they are; false when the session's state cannot be read.
func (d Dir) KeyOf(u Usage) (checkpoint.Key, bool) {
	s, err := d.readState(filepath.Join(u.Folder, stateName))
	if err != nil {
		return checkpoint.Key{}, false
	}
	return s.Key, true
}
