package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"belay/checkpoint"
	"belay/internal/host/proc"
	"belay/internal/state"
	"belay/internal/state/query"
	"belay/internal/wire"
)

// Marker is the session that was named to the agent, for verbs and events.
type Marker struct {
	Agent, Session, Workspace string
}

// Witness tells the daemon what it saw.
type Witness struct {
	Folder query.Folder
	Family *Family
	Marker Marker
	Began  time.Time
	ID     func() string // makes the id of an event
}

// Begin tells that the agent is about to start, for a session whose agent has no hooks to say so. Its process is ours:
// we end when it does, and the session is there before the agent's first event.
func (w Witness) Begin(ctx context.Context, c *wire.Conn) error {
	body, err := json.Marshal(wire.Event{Kind: string(checkpoint.EventStart), Source: "startup", PID: os.Getpid()})
	if err != nil {
		return err
	}

	return send(
		ctx,
		c,
		wire.Request{
			Op:        "event",
			Agent:     w.Marker.Agent,
			Session:   w.Marker.Session,
			Workspace: w.Marker.Workspace,
			ID:        w.ID(),
			Body:      body,
		},
	)
}

func send(ctx context.Context, c *wire.Conn, req wire.Request) error {
	r, _, err := c.Do(ctx, req, nil)
	if err == nil && !r.OK {
		err = errors.New(r.Message)
	}
	if err != nil {
		return fmt.Errorf("tell the daemon of session %s: %w", req.Session, err)
	}

	return nil
}

// Tell reports the end of the agent to all sessions that were its own, and gives them as they are after that. Exit code
// 0 is a good-bye, and a death only for a session in the middle of a turn; all else is the end of a process.
func (w Witness) Tell(ctx context.Context, c *wire.Conn, end End) ([]*checkpoint.State, error) {
	own, err := w.sessions(ctx, c)
	if err != nil {
		return nil, err
	}

	kind := checkpoint.EventExit
	if end.Clean() {
		kind = checkpoint.EventEnd
	}

	body, err := json.Marshal(wire.Event{Kind: string(kind), Reason: end.String()})
	if err != nil {
		return nil, err
	}

	var after []*checkpoint.State
	var errs []error
	for _, s := range own {
		req := wire.Request{
			Op:        "event",
			Agent:     s.Key.Agent,
			Account:   s.Key.Account,
			Session:   s.Key.Session,
			Workspace: s.Key.Workspace,
			ID:        w.ID(),
			Body:      body,
		}

		if err := send(ctx, c, req); err != nil {
			errs = append(errs, err)
			continue
		}

		now, err := w.find(ctx, s.Key) // the reply came when the journal had it, so the disk tells it
		if err != nil {
			errs = append(errs, err)
		}

		after = append(after, now...)
	}

	return after, errors.Join(errs...)
}

// sessions are those that the agent's end concerns.
func (w Witness) sessions(ctx context.Context, c *wire.Conn) ([]*checkpoint.State, error) {
	r, _, err := c.Do(ctx, wire.Request{Op: "status"}, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon for its sessions: %w", err)
	}

	var status struct{ Sessions []query.SessionStatus }
	if err := json.Unmarshal(r.Body, &status); err != nil {
		return nil, fmt.Errorf("read the daemon's sessions: %w", err)
	}

	names := map[state.Name]bool{{Session: w.Marker.Session, Workspace: w.Marker.Workspace}: true}
	for _, s := range status.Sessions {
		if s.Child == "" && !s.LastEvent.Before(w.Began) {
			names[state.Name{Agent: s.Agent, Session: s.SessionID}] = true
		}
	}

	known := map[checkpoint.Key]bool{}
	var own []*checkpoint.State
	for name := range names {
		found, _, err := w.Folder.Dir.Find(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look for session %s: %w", name.Session, err)
		}

		for _, s := range found {
			if !known[s.Key] && w.concerns(s) {
				known[s.Key] = true
				own = append(own, s)
			}
		}
	}

	return own, nil
}

// concerns says whether a session was the agent's. One that is alive in another process, or in a descendant that
// outlived the agent, goes on.
func (w Witness) concerns(s *checkpoint.State) bool {
	if s.LastEvent.Before(w.Began) {
		return false
	}
	if s.Key.Session == w.Marker.Session && (s.Proc == nil || isSelf(*s.Proc)) {
		return true
	}
	if s.Proc == nil {
		return false
	}

	alive, known := proc.Alive(*s.Proc)
	return w.Family.Has(*s.Proc) && (!alive || !known)
}

func isSelf(p checkpoint.Proc) bool {
	self, err := proc.Self(os.Getpid())
	return err == nil && nameless(self) == nameless(p)
}

func (w Witness) find(ctx context.Context, key checkpoint.Key) ([]*checkpoint.State, error) {
	found, _, err := w.Folder.Dir.Find(
		ctx, state.Name{Agent: key.Agent, Session: key.Session, Workspace: key.Workspace},
	)

	var same []*checkpoint.State
	for _, s := range found {
		if s.Key == key {
			same = append(same, s)
		}
	}

	return same, err
}
