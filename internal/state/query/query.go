// Package query answers questions from the state folder and the agents' transcripts alone: which sessions there are,
// what a checkpoint says, what the next session needs. With or without a daemon the answers are the same; it writes
// nothing.
package query

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/host/git"
	"belay/internal/host/proc"
	"belay/internal/state"
	"belay/internal/vfs"
	"belay/recovery"
)

// Errors of a question.
var (
	// ErrNotFound: no session fits the question.
	ErrNotFound = state.ErrNotFound
	// ErrSeveral: more than one session fits; nobody guesses.
	ErrSeveral = errors.New("several sessions fit")
	// ErrBadSince: --since is neither a checkpoint's number, nor a time, nor an age.
	ErrBadSince = errors.New("not a checkpoint number, a time or an age")
)

// Folder is a state folder to ask, and the agents whose transcripts can be read.
type Folder struct {
	Dir    state.Dir
	Agents []agent.Agent
	// All gives every session as it stands now, as the index does: without what was said. Where nothing but a folder or
	// a transcript says which session is meant, it saves reading all of them. nil: they are read.
	All func(context.Context) (map[checkpoint.Key]*checkpoint.State, error)
}

// Open gives the folder at a path. It need not exist.
func Open(root string, agents []agent.Agent) Folder {
	return Folder{Dir: state.Dir{Root: root, FS: vfs.Within(vfs.OS{}, root)}, Agents: agents}
}

// Question is what `belay recover` is asked.
type Question struct {
	Name       state.Name
	Transcript string // read this file instead of the one that the session names
	Since      string // checkpoint number, RFC 3339 time or age ("2h")
	Options    recovery.Options
	NoWorkTree bool
	Planted    func([]string) // told what Folder.Planted finds for the session; may be nil
}

// Agent finds an agent by its name.
func (f Folder) Agent(name string) (agent.Agent, bool) {
	for _, a := range f.Agents {
		if a.Name() == name {
			return a, true
		}
	}
	return nil, false
}

// Recover finds the session that is meant and writes its brief.
func (f Folder) Recover(ctx context.Context, q Question) (recovery.Result, error) {
	s, err := f.pick(ctx, q)
	if err != nil {
		return recovery.Result{}, err
	}
	if q.Planted != nil {
		q.Planted(f.Planted(s))
	}

	if q.Transcript != "" {
		if s.Transcript != q.Transcript {
			s.Cursor = "" // another file: its reader finds its own way
		}
		s.Transcript = q.Transcript
	}

	return f.Answer(ctx, s, false, q)
}

// pick loads the state that the question means.
func (f Folder) pick(ctx context.Context, q Question) (*checkpoint.State, error) {
	if q.Name.Session == "" && f.All != nil {
		return f.pickOfAll(ctx, q)
	}

	found, _, err := f.Dir.Find(ctx, q.Name)
	if err != nil {
		return nil, err
	}
	if len(found) > 1 && q.Name.Session != "" {
		return nil, fmt.Errorf("%w: session %s of %s", ErrSeveral, q.Name.Session, agentsOf(found))
	}
	if s := choose(found, q); s != nil {
		return s, nil
	}

	return f.unknown(ctx, q)
}

// choose takes, of the sessions that a name means, the one whose transcript is named, else the newest that did not end
// cleanly, else the newest; nil when there is none.
func choose(found []*checkpoint.State, q Question) *checkpoint.State {
	switch {
	case q.Name.Session == "" && q.Transcript != "":
		for _, s := range found {
			if s.Transcript == q.Transcript {
				return s
			}
		}
		return nil
	case len(found) == 0:
		return nil
	}
	return newestOpen(found)
}

// pickOfAll chooses among all sessions, and reads the one that was chosen.
func (f Folder) pickOfAll(ctx context.Context, q Question) (*checkpoint.State, error) {
	all, err := f.All(ctx)
	if err != nil {
		return nil, err
	}

	s := choose(state.Pick(all, q.Name), q)
	if s == nil {
		return f.unknown(ctx, q)
	}

	k := s.Key
	name := state.Name{Agent: k.Agent, Session: k.Session, Child: k.Child, Workspace: k.Workspace}
	whole, _, err := f.Dir.Find(ctx, name)
	if err != nil {
		return nil, err
	}

	for _, one := range whole {
		if one.Key == s.Key {
			return one, nil
		}
	}

	return nil, fmt.Errorf("session %s was removed just now: %w", s.Key.Session, ErrNotFound)
}

// newestOpen prefers, of a folder's sessions, the newest that did not end cleanly.
func newestOpen(list []*checkpoint.State) *checkpoint.State {
	for _, s := range list {
		if s.Ending == nil || !s.Ending.Clean {
			return s
		}
	}
	return list[0]
}

func agentsOf(list []*checkpoint.State) string {
	names := ""
	for _, s := range list {
		if names != "" {
			names += ", "
		}
		names += s.Key.Agent
		if s.Key.Workspace != "" {
			names += " in " + s.Key.Workspace
		}
	}

	return names
}

func (f Folder) agentNames(n state.Name) []string {
	if n.Agent != "" {
		return []string{n.Agent}
	}

	var names []string
	for _, a := range f.Agents {
		names = append(names, a.Name())
	}

	return names
}

// unknown looks for the transcript of a session that belay never heard of.
func (f Folder) unknown(ctx context.Context, q Question) (*checkpoint.State, error) {
	if q.Transcript != "" {
		name := q.Name.Agent
		if name == "" {
			name = f.Guess(q.Transcript)
		}
		if _, ok := f.Agent(name); !ok {
			return nil, fmt.Errorf("which agent wrote %s: %w", q.Transcript, ErrNotFound)
		}
		if _, err := os.Stat(q.Transcript); err != nil {
			return nil, fmt.Errorf("look at the transcript: %w", err)
		}

		session := q.Name.Session
		if session == "" {
			session = fileSession(q.Transcript)
		}

		s := checkpoint.NewState(checkpoint.NewKey(name, "", session, q.Name.Workspace))
		s.Transcript = q.Transcript
		return s, nil
	}

	query := agent.Query{Session: q.Name.Session, Workspace: q.Name.Workspace, Most: 2}
	if checkpoint.IsUUID(query.Session) {
		query.Workspace = "" // it is one session, whatever project the agent files it under
	}

	for _, name := range f.agentNames(q.Name) {
		a, ok := f.Agent(name)
		if !ok {
			continue
		}

		found, err := a.Locate(ctx, query)
		if err != nil || len(found) == 0 {
			continue
		}

		s := checkpoint.NewState(checkpoint.NewKey(name, "", found[0].Session, found[0].Workspace))
		s.Transcript, s.Workspace = found[0].Path, found[0].Workspace
		return s, nil
	}

	return nil, fmt.Errorf("%s: %w", describe(q.Name), ErrNotFound)
}

func describe(n state.Name) string {
	switch {
	case n.Session != "":
		return "session " + n.Session
	case n.Workspace != "":
		return "folder " + n.Workspace
	}
	return "a session"
}

// fileSession takes the session id out of a transcript's name.
func fileSession(path string) string {
	base := filepath.Base(path)
	return base[:len(base)-len(filepath.Ext(base))]
}

// Answer brings a state (the caller's own copy) up to date and writes its brief.
func (f Folder) Answer(ctx context.Context, s *checkpoint.State, adopted bool, q Question) (recovery.Result, error) {
	now := time.Now().UTC()
	in := recovery.Input{State: s, Adopted: adopted}
	NoticeDeath(s, now)
	store, err := f.Dir.OpenStore()
	if err != nil {
		return recovery.Result{}, err
	}

	defer store.Close() // nothing is written through it
	newest(ctx, store, s, &in)
	if a, ok := f.Agent(s.Key.Agent); ok && s.Transcript != "" {
		q.Options.Repairs = a.Limits().Repairs
		t := agent.OpenTranscript(a, agent.Source{Path: s.Transcript, Session: s.Key.Session, Child: s.Key.Child})
		gone, err := recovery.CatchUp(ctx, s, t, checkpoint.ReadOptions{Final: !alive(s)}, now)
		err = errors.Join(err, t.Close())
		if err != nil {
			return recovery.Result{}, err
		}

		in.Gone = gone
	}

	if err := since(ctx, store, s, q.Since, &q.Options); err != nil {
		return recovery.Result{}, err
	}
	if !q.NoWorkTree && s.Workspace != "" && in.Checkpoint != nil {
		in.WorkTree = git.Status(ctx, s.Workspace)
	}

	in.Processes = processes(s)
	if q.Options.Marker == "" {
		q.Options.Marker = Marker()
	}

	return recovery.Plan(in, q.Options, now)
}

// newest finds the newest whole checkpoint.
func newest(ctx context.Context, store checkpoint.Store, s *checkpoint.State, in *recovery.Input) {
	list, err := store.List(ctx, s.Key)
	if err != nil || len(list) == 0 {
		return
	}

	get := func(n uint64) ([]byte, error) { return store.Get(ctx, s.Key, n) }
	c, damaged, err := checkpoint.Newest(s.Key.Dir(), list, get)
	in.Damaged = damaged
	if err == nil {
		in.Checkpoint = c
	}
}

// since sets the border of the delta. It goes by checkpoints, never by stamps of the agent.
func since(ctx context.Context, store checkpoint.Store, s *checkpoint.State, word string, opt *recovery.Options) error {
	if word == "" {
		return nil
	}

	number, at, err := parseSince(word, time.Now())
	if err != nil {
		return err
	}

	list, err := store.List(ctx, s.Key)
	if err != nil {
		return err
	}

	var border uint64
	for _, m := range list {
		if number != 0 && m.Number != number || number == 0 && m.At.After(at) {
			continue
		}

		data, err := store.Get(ctx, s.Key, m.Number)
		if err != nil {
			return err
		}

		c, err := checkpoint.DecodeIn(s.Key.Dir(), data)
		if err != nil {
			return fmt.Errorf("read checkpoint %d: %w", m.Number, err)
		}

		border, opt.SinceTime = c.State.MsgSeq, c.At
		opt.SinceNum = &border
		return nil
	}

	if number != 0 {
		return fmt.Errorf("checkpoint %d of %s: %w", number, s.Key, checkpoint.ErrNotFound)
	}

	opt.SinceNum = &border // older than every checkpoint: everything is new
	return nil
}

func parseSince(word string, now time.Time) (number uint64, at time.Time, err error) {
	if n, err := strconv.ParseUint(word, 10, 32); err == nil && n > 0 {
		return n, at, nil
	}
	if age, err := time.ParseDuration(word); err == nil && age >= 0 {
		return 0, now.Add(-age), nil
	}

	layouts := []string{
		time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02",
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, word); err == nil {
			return 0, t, nil
		}
	}

	return 0, at, fmt.Errorf("--since %q: %w", word, ErrBadSince)
}

// NoticeDeath folds the end of the agent's process into a copy of a state, where no daemon has done so.
func NoticeDeath(s *checkpoint.State, now time.Time) {
	if c := Candidate(s); s.Live && c.Dead {
		s.Apply(checkpoint.Event{
			At: now, Key: s.Key, Kind: checkpoint.EventExit, Proc: s.Proc, Reason: "its process is gone",
		})
	}
}

func alive(s *checkpoint.State) bool {
	if s.Proc == nil {
		return false
	}
	live, known := proc.Alive(*s.Proc)
	return live || !known
}

// processes says for each open call what is known of its process: of the agent's descendants that were noted while it
// ran, any that lives is taken for it.
func processes(s *checkpoint.State) map[string]recovery.Process {
	m := map[string]recovery.Process{}
	for _, c := range s.InDoubt() {
		if len(c.Procs) == 0 {
			continue
		}

		m[c.ID] = recovery.ProcessGone
		for _, p := range c.Procs {
			live, known := proc.Alive(p)
			if live && known {
				m[c.ID] = recovery.ProcessRunning
				break
			}
			if !known {
				m[c.ID] = recovery.ProcessUnknown
			}
		}
	}

	return m
}

// Marker makes the frame's random word.
func Marker() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Candidate is what the choice of a predecessor needs to know of a session.
func Candidate(s *checkpoint.State) recovery.Candidate {
	c := recovery.Candidate{
		Key: s.Key, Workspace: s.Workspace, Title: s.Title, LastEvent: s.LastEvent, Ending: s.Ending,
		Open: len(s.InDoubt()), InTurn: s.InTurn(), Given: s.Given != nil && s.Given.Death == s.Deaths && s.Deaths > 0,
	}

	if s.Ending != nil && !s.Live {
		c.InTurn = s.Ending.InTurn
	}

	if s.Proc != nil {
		live, known := proc.Alive(*s.Proc)
		c.Dead = known && !live
		c.Alive = s.Live && !c.Dead
	}

	return c
}
