// Package state knows the layout of the state folder and reads sessions from it: the last saved state with the
// journal's later events folded in. It chooses the store of the checkpoints. It needs no daemon and disturbs none:
// readers take no lock, cut nothing and write nothing.
package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/vfs"
)

// Errors of a state folder.
var (
	// ErrForeign: the folder, or what lies in it, is not this user's alone; nothing is read from it.
	ErrForeign = vfs.ErrUnsafe
	// ErrNotFound: no such session here.
	ErrNotFound = errors.New("no such session")
)

const maxState = 16 << 20 // bytes of a state file that are read

// Dir is a state folder.
type Dir struct {
	Root string
	FS   vfs.FS
	// Store names the store of its checkpoints; empty: files in the folder.
	Store string
}

// Paths in the folder. The socket's is wire.SocketPlaces' to say, what lies in the journal, the spool, a mirror or the
// store is its package's.
func (d Dir) Journal() string  { return filepath.Join(d.Root, "journal") }
func (d Dir) Spool() string    { return filepath.Join(d.Root, "spool") }
func (d Dir) Install() string  { return filepath.Join(d.Root, "install") }
func (d Dir) Sessions() string { return filepath.Join(d.Root, "sessions") }
func (d Dir) Index() string    { return filepath.Join(d.Root, "index.db") }
func (d Dir) Lock() string     { return filepath.Join(d.Root, "belay.lock") }
func (d Dir) Breaker() string  { return filepath.Join(d.Root, "breaker.json") }
func (d Dir) Beat() string     { return filepath.Join(d.Root, "beat.json") }
func (d Dir) Active() string   { return filepath.Join(d.Root, "active.json") }

const stateName = "state.json" // in a session's folder

// Session is the folder of one session.
func (d Dir) Session(k checkpoint.Key) string { return filepath.Join(d.Sessions(), k.Dir()) }

func (d Dir) stateFile(k checkpoint.Key) string { return filepath.Join(d.Session(k), stateName) }

// Make creates the folder for this user alone, or says why it cannot be used.
func (d Dir) Make() error {
	if err := vfs.MakeDir(d.FS, d.Root); err != nil {
		return fmt.Errorf("make the state folder %s: %w", d.Root, err)
	}
	return d.Own()
}

// Own checks that the folder is this user's and closed to others. One that is too open is closed when it is belay's: a
// wrong
// --state-dir must not lock others out of a home or a system folder.
func (d Dir) Own() error {
	info, err := os.Stat(d.Root) // the root itself may be a link of the user's own making
	if err != nil {
		return fmt.Errorf("look at the state folder: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("state folder %s: %w", d.Root, syscall.ENOTDIR)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("state folder %s: %w (owner %d)", d.Root, ErrForeign, st.Uid)
	}

	if info.Mode().Perm()&0o077 != 0 {
		if err := d.belays(); err != nil {
			return err
		}
		if err := d.close(); err != nil {
			return fmt.Errorf("close the state folder %s to others: %w", d.Root, err)
		}
	}

	return nil
}

// belays says whether the folder is one that belay may close: it is empty, or a daemon has worked in it.
func (d Dir) belays() error {
	if _, err := d.FS.Lstat(d.Lock()); err == nil {
		return nil
	}

	names, err := d.FS.ReadDir(d.Root)
	if err != nil {
		return fmt.Errorf("look into the state folder: %w", err)
	}

	for _, n := range names {
		if n.Name() != "lost+found" { // of a file system that is there for belay alone
			return fmt.Errorf("state folder %s: %w: others may enter it, and it holds what is not belay's (%s)",
				d.Root, ErrForeign, n.Name())
		}
	}

	return nil
}

func (d Dir) close() error {
	f, err := d.FS.OpenFile(d.Root, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(vfs.DirMode), f.Close())
}

// SaveState puts a session's state in place, durably.
func (d Dir) SaveState(s *checkpoint.State) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("save state of %s: %w", s.Key, err)
	}

	// Where there is one already, the folders were made durable for it.
	if _, err := d.FS.Lstat(d.stateFile(s.Key)); err != nil {
		if err := vfs.MakeDir(d.FS, d.Session(s.Key)); err != nil {
			return fmt.Errorf("save state of %s: %w", s.Key, err)
		}
	}

	if err := d.safe(d.Sessions(), filepath.Dir(d.Session(s.Key)), d.Session(s.Key)); err != nil {
		return fmt.Errorf("save state of %s: %w", s.Key, err)
	}
	if err := vfs.Replace(d.FS, d.stateFile(s.Key), data); err != nil {
		return fmt.Errorf("save state of %s: %w", s.Key, err)
	}

	return nil
}

// safe refuses folders that are links or belong to somebody else.
func (d Dir) safe(folders ...string) error {
	for _, path := range folders {
		info, err := d.FS.Lstat(path)
		if err != nil {
			return err
		}
		if err := vfs.Safe(path, info, true); err != nil {
			return err
		}
	}
	return nil
}

// LoadState reads a saved state; fs.ErrNotExist when there is none.
func (d Dir) LoadState(k checkpoint.Key) (*checkpoint.State, error) {
	return d.readState(d.stateFile(k))
}

// StateIn reads the saved state in a session's folder, whatever session it is of.
func (d Dir) StateIn(folder string) (*checkpoint.State, error) {
	return d.readState(filepath.Join(folder, stateName))
}

// readState reads a state file that is this user's own, in folders that are.
func (d Dir) readState(name string) (*checkpoint.State, error) {
	if _, err := d.stateInfo(name); err != nil {
		return nil, err
	}

	data, err := vfs.ReadFile(d.FS, name, maxState)
	if err != nil {
		return nil, err
	}

	return checkpoint.DecodeState(data)
}

// SetAside renames a state file that cannot be used, so that a person can look at it when a new one stands in its
// place.
func (d Dir) SetAside(k checkpoint.Key) error {
	name := d.stateFile(k)
	return d.FS.Rename(name, name+".bad")
}

// Report says what a read of the folder met.
type Report struct {
	Journal journal.Report
	Bad     []string // state files that could not be read; the journal and checkpoints stand in for them
	Panics  int      // records that could not be applied to their session
	Panic   Panic    // the newest of them
}

// States reads every session that want accepts (nil: all) as it stands now.
func (d Dir) States(
	ctx context.Context, want func(checkpoint.Key) bool,
) (map[checkpoint.Key]*checkpoint.State, Report, error) {
	return d.gather(ctx, "", nil, want)
}

// gather reads the sessions that want accepts (nil: all) in folders whose names begin with prefix, and brings them up
// to date by the journal's records that hold needle (nil: all).
func (d Dir) gather(
	ctx context.Context, prefix string, needle []byte, want func(checkpoint.Key) bool,
) (states map[checkpoint.Key]*checkpoint.State, rep Report, err error) {
	err = d.withStore(func(store checkpoint.Store) error {
		return d.Steady(func() (journal.Report, error) {
			r := replay{
				dir:    d,
				store:  store,
				want:   want,
				needle: needle,
				states: map[checkpoint.Key]*checkpoint.State{},
			}

			err := d.eachState(func(name string) error {
				if !strings.HasPrefix(filepath.Base(filepath.Dir(name)), prefix) {
					return nil
				}
				if s := d.saved(ctx, store, name, &r.report); s != nil && (want == nil || want(s.Key)) {
					r.states[s.Key] = s
				}
				return ctx.Err()
			})

			if err == nil {
				err = r.run(ctx, d.scan)
			}

			states, rep = r.states, r.report
			return rep.Journal, err
		})
	})

	if err != nil {
		return nil, rep, err
	}

	return states, rep, nil
}

// saved reads a session by the name of its state file. Where that is lost or broken the newest whole checkpoint stands
// for it; nil when there is none.
func (d Dir) saved(ctx context.Context, store checkpoint.Store, name string, rep *Report) *checkpoint.State {
	s, err := d.readState(name)
	if err == nil {
		return s
	}
	if !errors.Is(err, fs.ErrNotExist) {
		rep.Bad = append(rep.Bad, fmt.Sprintf("%s: %v", name, err))
	}

	return standIn(ctx, store, sessionOf(name))
}

// scan reads the journal, which a daemon may be writing.
func (d Dir) scan(fn recordFunc) (journal.Report, error) {
	return journal.Scan(d.FS, d.Journal(), 0, fn)
}

// sessionOf is whose state file a path is, as checkpoint.Key.Dir names the session.
func sessionOf(stateFile string) string {
	folder := filepath.Dir(stateFile)
	return filepath.Base(filepath.Dir(folder)) + "/" + filepath.Base(folder)
}

// eachState calls fn with the path of every state file, links left out.
func (d Dir) eachState(fn func(name string) error) error {
	agents, err := d.FS.ReadDir(d.Sessions())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list sessions: %w", err)
	}

	for _, a := range agents {
		if !a.IsDir() {
			continue
		}

		dirs, err := d.FS.ReadDir(filepath.Join(d.Sessions(), a.Name()))
		if err != nil {
			return fmt.Errorf("list sessions of %s: %w", a.Name(), err)
		}

		for _, s := range dirs {
			if !s.IsDir() {
				continue
			}
			if err := fn(filepath.Join(d.Sessions(), a.Name(), s.Name(), stateName)); err != nil {
				return err
			}
		}
	}

	return nil
}

// Name is how a person or a hook names a session. Empty fields match anything.
type Name struct {
	Agent, Session, Child, Workspace string
}

// Matches says whether a session is meant. A session whose id is no UUID belongs to a workspace: it matches from there
// and from any folder below.
func (n Name) Matches(k checkpoint.Key, workspace string) bool {
	if n.Agent != "" && n.Agent != k.Agent || n.Session != "" && n.Session != k.Session || n.Child != k.Child {
		return false
	}
	if n.Workspace == "" || n.Session != "" && k.Workspace == "" {
		return true
	}
	if k.Workspace != "" {
		workspace = k.Workspace
	}

	return n.Workspace == workspace || n.Session != "" && within(n.Workspace, workspace)
}

func within(path, folder string) bool {
	return folder == "/" || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// Find reads the sessions that a name means, the newest first. With an exact session id the journal is read for that id
// alone.
func (d Dir) Find(ctx context.Context, n Name) ([]*checkpoint.State, Report, error) {
	var prefix string
	var needle []byte
	if n.Session != "" {
		prefix = dirPrefix(n)
		needle, _ = json.Marshal(n.Session) // a string always has a JSON form
	}

	states, rep, err := d.gather(ctx, prefix, needle, func(k checkpoint.Key) bool {
		return (n.Agent == "" || n.Agent == k.Agent) && (n.Session == "" || n.Session == k.Session)
	})
	if err != nil {
		return nil, rep, err
	}

	return Pick(states, n), rep, nil
}

// Pick gives those of all sessions that a name means, the newest first.
func Pick(states map[checkpoint.Key]*checkpoint.State, n Name) []*checkpoint.State {
	var found []*checkpoint.State
	for _, s := range states {
		if n.Matches(s.Key, s.Workspace) {
			found = append(found, s)
		}
	}

	if len(found) == 0 && n.Session == "" && n.Workspace != "" {
		found = nearest(states, n)
	}

	sortNewest(found)
	return found
}

// nearest gives the sessions of the nearest folder above the one that is named: agents are asked about from
// sub-folders.
func nearest(states map[checkpoint.Key]*checkpoint.State, n Name) []*checkpoint.State {
	for folder := n.Workspace; folder != filepath.Dir(folder); {
		folder = filepath.Dir(folder)
		var found []*checkpoint.State
		for _, s := range states {
			if above := (Name{n.Agent, n.Session, n.Child, folder}); above.Matches(s.Key, s.Workspace) {
				found = append(found, s)
			}
		}

		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// dirPrefix is how the folder names of a session id begin.
func dirPrefix(n Name) string {
	k := checkpoint.Key{Agent: "x", Session: n.Session}
	name := strings.TrimPrefix(k.Dir(), "x/")
	if len(name) > 80 { // a cut name ends in a hash that account and child change
		name = name[:80]
	}
	return name
}
