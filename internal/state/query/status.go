package query

import (
	"context"
	"time"

	"belay/checkpoint"
	"belay/internal/state"
)

// SessionStatus is one session in `belay status`. The first eight names are those of the original scripts.
type SessionStatus struct {
	SessionID            string     `json:"sessionId"`
	MessageCount         int        `json:"messageCount"`
	LastSparseCheckpoint *time.Time `json:"lastSparseCheckpoint"`
	LastFullCheckpoint   *time.Time `json:"lastFullCheckpoint"`
	ConsecutiveFailures  int        `json:"consecutiveFailures"`
	Degraded             bool       `json:"degraded"`
	CurrentTask          string     `json:"currentTask"`
	PendingToolChain     bool       `json:"pendingToolChain"`

	Agent      string            `json:"agent"`
	Child      string            `json:"child,omitempty"`
	Parent     string            `json:"parent,omitempty"`
	Workspace  string            `json:"workspace,omitempty"`
	Title      string            `json:"title,omitempty"`
	State      string            `json:"state"` // at work, idle, ended, died
	LastEvent  time.Time         `json:"lastEvent,omitzero"`
	Checkpoint uint64            `json:"checkpoint,omitempty"` // number of the newest
	OpenCalls  []checkpoint.Call `json:"openCalls,omitempty"`
	Owed       string            `json:"owed,omitempty"`
	AtRisk     AtRisk            `json:"atRisk"`
	Transcript *Transcript       `json:"transcript,omitempty"`
	Lost       checkpoint.Losses `json:"lost,omitzero"`
	Dropped    int               `json:"dropped,omitempty"`
	Aside      string            `json:"aside,omitempty"` // why its checkpoints are set aside
}

// AtRisk is what no checkpoint and no mirror holds now.
type AtRisk struct {
	Rounds  int   `json:"rounds"`
	Seconds int64 `json:"seconds"` // since the newest checkpoint, while there is something new
	Bytes   int64 `json:"bytes"`   // of the transcript that the mirror does not hold
}

// Transcript is what is known of the agent's own record.
type Transcript struct {
	Path        string    `json:"path"`
	SilentSince time.Time `json:"silentSince,omitzero"` // set when hooks tell of more than the file does
	Generations int       `json:"generations,omitempty"`
	MirrorError string    `json:"mirrorError,omitempty"`
}

// StatusOf describes a state.
func StatusOf(s *checkpoint.State, now time.Time) SessionStatus {
	st := SessionStatus{
		SessionID: s.Key.Session, MessageCount: s.Rounds, CurrentTask: s.Task, PendingToolChain: s.Chain,
		Agent: s.Key.Agent, Child: s.Key.Child, Parent: s.Parent, Workspace: s.Workspace, Title: s.Title,
		State: stateWord(s), LastEvent: s.LastEvent, Checkpoint: s.LastNumber, Lost: s.Losses, Dropped: s.Dropped,
	}

	var newest *checkpoint.Taken
	if t := s.LastSparse; t != nil {
		st.LastSparseCheckpoint, newest = &t.At, t
	}

	if t := s.LastFull; t != nil {
		st.LastFullCheckpoint = &t.At
		if newest == nil || t.News > newest.News {
			newest = t
		}
	}

	for _, c := range s.Calls {
		if c.State == checkpoint.CallOpen {
			st.OpenCalls = append(st.OpenCalls, c)
		}
	}

	switch {
	case s.OwedFull != "":
		st.Owed = "FULL: " + string(s.OwedFull)
	case s.OwedSparse:
		st.Owed = "SPARSE"
	}

	held, since := uint64(0), s.Began
	st.AtRisk.Rounds = s.Rounds
	if newest != nil {
		held, since = newest.News, newest.At
		st.AtRisk.Rounds = s.Rounds - newest.Rounds
	}
	if s.News > held && !since.IsZero() {
		st.AtRisk.Seconds = int64(max(now.Sub(since), 0).Seconds())
	}

	if s.Transcript != "" {
		st.Transcript = &Transcript{Path: s.Transcript}
		last := s.LastFile
		if last.IsZero() { // it was never written
			last = s.Began
		}
		if s.LastHook.Sub(last) > time.Minute {
			st.Transcript.SilentSince = last
		}
	}

	return st
}

func stateWord(s *checkpoint.State) string {
	c := Candidate(s)
	switch {
	case s.Live && c.Dead, s.Ending != nil && !s.Live && !s.Ending.Clean:
		return "died"
	case s.Ending != nil && !s.Live:
		return "ended"
	case s.InTurn():
		return "at work"
	}

	return "idle"
}

// Sessions describes every session of the folder that a name means, newest first, at most so many (0: all).
func (f Folder) Sessions(ctx context.Context, n state.Name, most int) ([]SessionStatus, error) {
	states, _, err := f.Dir.Find(ctx, n)
	if err != nil {
		return nil, err
	}
	if most > 0 && len(states) > most {
		states = states[:most]
	}

	now := time.Now()
	list := make([]SessionStatus, 0, len(states))
	for _, s := range states {
		list = append(list, StatusOf(s, now))
	}

	return list, nil
}

// Listed describes, of all sessions, those that a name means, newest first, at most so many (0: all). With children the
// sessions of its sub-agents follow each, as far as belay has any of them: an agent may name a sub-agent and tell
// nothing of it.
func Listed(
	all map[checkpoint.Key]*checkpoint.State, n state.Name, most int, children bool, now time.Time,
) []SessionStatus {
	found := state.Pick(all, n)
	if most > 0 && len(found) > most {
		found = found[:most]
	}

	// By session id: searching all sessions for each child would take long.
	families := map[string]map[checkpoint.Key]*checkpoint.State{}
	for k, s := range all {
		if k.Child != "" && children {
			if families[k.Session] == nil {
				families[k.Session] = map[checkpoint.Key]*checkpoint.State{}
			}
			families[k.Session][k] = s
		}
	}

	list := []SessionStatus{}
	for _, s := range found {
		list = append(list, StatusOf(s, now))
		for _, c := range s.Children {
			child := state.Name{Agent: s.Key.Agent, Session: s.Key.Session, Child: c.ID, Workspace: s.Key.Workspace}
			for _, s := range state.Pick(families[s.Key.Session], child) {
				list = append(list, StatusOf(s, now))
			}
		}
	}

	return list
}
