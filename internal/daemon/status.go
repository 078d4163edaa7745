package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/daemon/socket"
	"belay/internal/redact"
	"belay/internal/state"
	"belay/internal/state/query"
	"belay/internal/wire"
	"belay/recovery"
	"belay/watch"
)

// Status is what `belay status` tells of the daemon.
type Status struct {
	Version   string                `json:"version"`
	PID       int                   `json:"pid"`
	Started   time.Time             `json:"started"`
	Socket    string                `json:"socket"`
	StateDir  string                `json:"state_dir"`
	Problem   string                `json:"problem,omitempty"` // why the state folder cannot be used
	Degraded  bool                  `json:"degraded"`
	Breaker   breaker.State         `json:"breaker"`
	Journal   JournalStatus         `json:"journal"`
	Watch     watch.Status          `json:"watch"`
	Counts    map[string]int64      `json:"counts"`
	Memory    uint64                `json:"heap_bytes"`
	Sessions  []query.SessionStatus `json:"sessions"`
	Heartbeat time.Time             `json:"heartbeat,omitzero"` // the last one that did its work
}

// JournalStatus is the journal's health.
type JournalStatus struct {
	Stored  uint64    `json:"stored"` // newest record on disk
	Last    uint64    `json:"last"`   // newest record
	Held    int       `json:"held"`   // in memory only
	Dropped uint64    `json:"dropped"`
	Error   string    `json:"error,omitempty"`
	Full    bool      `json:"disk_full,omitempty"` // the error says that there is no room
	Since   time.Time `json:"since,omitzero"`
}

func (d *Daemon) statusOp(ctx context.Context, req wire.Request) *socket.Answer {
	return &socket.Answer{Finish: func(ctx context.Context, a *socket.Answer) {
		n := state.Name{Agent: req.Agent, Session: req.Session, Child: req.Child, Workspace: realPath(req.Workspace)}
		if req.Session == "" {
			a.Reply = d.bodyAnswer(d.status(ctx)).Reply
			return
		}
		st, err := d.sessionStatus(ctx, n)
		if err != nil {
			a.Reply = socket.Failure(wire.CodeNotFound, err.Error(), "belay list shows the sessions").Reply
			return
		}
		a.Reply = d.bodyAnswer(st).Reply
	}}
}

// status describes the daemon and its active sessions.
func (d *Daemon) status(ctx context.Context) Status {
	h := d.journal.Health()
	b := d.store.State()
	st := Status{Version: d.opt.Version, PID: os.Getpid(), Started: d.started.UTC(), Socket: d.place.Path, StateDir: d.opt.StateDir, Breaker: b, Degraded: b.Phase != breaker.Closed,
		Watch: d.watch.Status(), Counts: d.numbers(), Sessions: []query.SessionStatus{}, Heartbeat: d.beats.Last(),
		Journal: JournalStatus{Stored: h.Stored, Last: h.Last, Held: h.Held, Dropped: h.Dropped, Since: h.Since}}
	if h.Err != nil {
		st.Journal.Error = h.Err.Error()
		st.Journal.Full = errors.Is(h.Err, syscall.ENOSPC) || errors.Is(h.Err, syscall.EDQUOT)
	}
	if d.health != nil && (h.Err != nil || st.Degraded || h.Stored == 0) {
		st.Problem = redact.Text(d.health.Error())
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	st.Memory = mem.HeapAlloc
	for _, s := range d.active() {
		if one, ok := s.describe(ctx); ok {
			st.Sessions = append(st.Sessions, one)
		}
	}
	slices.SortFunc(st.Sessions, func(a, b query.SessionStatus) int { return b.LastEvent.Compare(a.LastEvent) })
	return st
}

// describe adds to a session's state what only the daemon knows.
func (s *session) describe(ctx context.Context) (query.SessionStatus, bool) {
	return ask(ctx, s, func(s *session) query.SessionStatus {
		st := query.StatusOf(s.state, time.Now())
		st.ConsecutiveFailures, st.Degraded = s.failures, s.d.degraded()
		st.AtRisk.Bytes = s.file.behind
		if st.Transcript != nil {
			st.Transcript.Generations, st.Transcript.MirrorError = s.file.gens, cmp.Or(s.file.mirrorErr, s.d.keyless)
		}
		for _, a := range s.d.store.State().Aside {
			if a.Session == s.key.Dir() {
				st.Aside = a.Reason
			}
		}
		return st
	})
}

func (d *Daemon) sessionStatus(ctx context.Context, n state.Name) (query.SessionStatus, error) {
	for _, s := range d.active() {
		if n.Matches(s.key, s.key.Workspace) {
			if st, ok := s.describe(ctx); ok {
				return st, nil
			}
		}
	}
	list, err := d.folder().Sessions(ctx, n, 1)
	if err != nil {
		return query.SessionStatus{}, err
	}
	if len(list) == 0 {
		return query.SessionStatus{}, query.ErrNotFound
	}
	list[0].Degraded = d.degraded()
	return list[0], nil
}

func (d *Daemon) folder() query.Folder { return query.Folder{Dir: d.dir, Agents: d.opt.Agents} }

func (d *Daemon) numbers() map[string]int64 {
	m := map[string]int64{"events": d.counts.events.Load(), "checkpoints": d.counts.taken.Load(), "bad_frames": d.server.Counts.BadFrames.Load(),
		"cut_frames": d.server.Counts.CutFrames.Load(), "refused_connections": d.server.Counts.Refused.Load(), "idle_put_out": d.server.Counts.Evicted.Load(), "dropped": d.counts.dropped.Load(),
		"lost_records": d.counts.lost.Load(), "panics": d.counts.panics.Load(), "session_ticks": d.counts.ticks.Load(), "kept_bytes": d.budget.kept.Load(), "kept_most": d.set.Load().TotalBytes, "goroutines": int64(runtime.NumGoroutine())}
	d.counts.decisions.Range(func(k, v any) bool {
		m["decision_"+k.(string)] = v.(*atomic.Int64).Load()
		return true
	})
	return m
}

// Ask is the body of ops list, show and recover.
type Ask struct {
	Transcript  string `json:"transcript,omitempty"`
	Since       string `json:"since,omitempty"`
	MaxBytes    int    `json:"max_bytes,omitempty"`
	MaxMessages int    `json:"max_messages,omitempty"`
	Format      string `json:"format,omitempty"`
	Start       string `json:"start,omitempty"`
	Number      uint64 `json:"number,omitempty"`
	Most        int    `json:"most,omitempty"`
}

func (d *Daemon) lookupOp(_ context.Context, req wire.Request) *socket.Answer {
	return &socket.Answer{Finish: func(ctx context.Context, a *socket.Answer) {
		v, err := d.look(ctx, req)
		switch {
		case errors.Is(err, query.ErrNotFound), errors.Is(err, checkpoint.ErrNotFound):
			a.Reply = socket.Failure(wire.CodeNotFound, err.Error(), "belay list shows the sessions").Reply
		case err != nil:
			a.Reply = socket.Failure(wire.CodeBadRequest, err.Error(), "").Reply
		default:
			a.Reply = d.bodyAnswer(v).Reply
		}
	}}
}

func (d *Daemon) look(ctx context.Context, req wire.Request) (any, error) {
	var ask Ask
	if len(req.Body) > 0 {
		if err := json.Unmarshal(req.Body, &ask); err != nil {
			return nil, err
		}
	}
	n := state.Name{Agent: req.Agent, Session: req.Session, Child: req.Child, Workspace: realPath(req.Workspace)}
	switch req.Op {
	case "list":
		list, err := d.folder().Sessions(ctx, n, ask.Most)
		return map[string]any{"sessions": list}, err
	case "show":
		return d.folder().Show(ctx, n, ask.Number)
	}
	if ask.Start == "" {
		ask.Start = recovery.StartManual
	}
	if f := recovery.Format(ask.Format); f != "" && f != recovery.Brief && f != recovery.Delta {
		return nil, fmt.Errorf("format %q: brief or delta", ask.Format)
	}
	return d.folder().Recover(ctx, query.Question{Name: n, Transcript: ask.Transcript, Since: ask.Since,
		Options: recovery.Options{Start: ask.Start, Format: recovery.Format(ask.Format), MaxBytes: ask.MaxBytes, MaxMessages: ask.MaxMessages}})
}
