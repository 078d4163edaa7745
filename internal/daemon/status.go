package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
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

func (l *life) statusOp(ctx context.Context, req wire.Request) *socket.Answer {
	return &socket.Answer{Finish: func(ctx context.Context, a *socket.Answer) {
		n := state.Name{Agent: req.Agent, Session: req.Session, Child: req.Child, Workspace: realPath(req.Workspace)}
		if req.Session == "" {
			a.Reply = l.bodyAnswer(l.status(ctx)).Reply
			return
		}

		st, err := l.sessionStatus(ctx, n)
		if err != nil {
			a.Reply = socket.Failure(wire.CodeNotFound, err.Error(), "belay list shows the sessions").Reply
			return
		}

		a.Reply = l.bodyAnswer(st).Reply
	}}
}

// status describes the daemon and its active sessions.
func (l *life) status(ctx context.Context) Status {
	h := l.journal.Health()
	b := l.store.State()
	st := Status{
		Version:   l.opt.Version,
		PID:       os.Getpid(),
		Started:   l.began.UTC(),
		Socket:    l.site.path(),
		StateDir:  l.opt.StateDir,
		Breaker:   b,
		Degraded:  b.Phase != breaker.Closed,
		Watch:     l.watchers.watch.Status(),
		Counts:    l.numbers(),
		Sessions:  []query.SessionStatus{},
		Heartbeat: l.beats.Last(),
		Journal:   JournalStatus{Stored: h.Stored, Last: h.Last, Held: h.Held, Dropped: h.Dropped, Since: h.Since},
	}

	if h.Err != nil {
		st.Journal.Error = h.Err.Error()
		st.Journal.Full = errors.Is(h.Err, syscall.ENOSPC) || errors.Is(h.Err, syscall.EDQUOT)
	}
	if l.site.problem != nil && (h.Err != nil || st.Degraded || h.Stored == 0) {
		st.Problem = redact.Text(l.site.problem.Error())
	}

	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	st.Memory = mem.HeapAlloc
	for _, s := range l.sessions.Active() {
		if one, ok := s.Status(ctx); ok {
			st.Sessions = append(st.Sessions, one)
		}
	}

	slices.SortFunc(st.Sessions, func(a, b query.SessionStatus) int { return b.LastEvent.Compare(a.LastEvent) })
	return st
}

func (l *life) sessionStatus(ctx context.Context, n state.Name) (query.SessionStatus, error) {
	for _, s := range l.sessions.Active() {
		if n.Matches(s.Key, s.Key.Workspace) {
			if st, ok := s.Status(ctx); ok {
				return st, nil
			}
		}
	}

	list, err := l.folder().Sessions(ctx, n, 1)
	if err != nil {
		return query.SessionStatus{}, err
	}
	if len(list) == 0 {
		return query.SessionStatus{}, query.ErrNotFound
	}

	list[0].Degraded = l.sessions.services.Degraded()
	return list[0], nil
}

func (l *life) numbers() map[string]int64 {
	m := map[string]int64{
		"events":              l.counts.events.Load(),
		"checkpoints":         l.counts.Taken.Load(),
		"bad_frames":          l.server.Counts.BadFrames.Load(),
		"cut_frames":          l.server.Counts.CutFrames.Load(),
		"refused_connections": l.server.Counts.Refused.Load(),
		"idle_put_out":        l.server.Counts.Evicted.Load(),
		"dropped":             l.counts.dropped.Load(),
		"lost_records":        l.counts.lost.Load(),
		"panics":              l.counts.Panics.Load(),
		"session_ticks":       l.counts.Ticks.Load(),
		"kept_bytes":          l.budget.kept.Load(),
		"kept_most":           l.settings.Load().TotalBytes,
		"goroutines":          int64(runtime.NumGoroutine()),
	}

	for code, n := range l.counts.Decisions() {
		m["decision_"+code] = n
	}

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

func (l *life) lookupOp(_ context.Context, req wire.Request) *socket.Answer {
	return &socket.Answer{Finish: func(ctx context.Context, a *socket.Answer) {
		v, err := l.look(ctx, req)
		switch {
		case errors.Is(err, query.ErrNotFound), errors.Is(err, checkpoint.ErrNotFound):
			a.Reply = socket.Failure(wire.CodeNotFound, err.Error(), "belay list shows the sessions").Reply
		case err != nil:
			a.Reply = socket.Failure(wire.CodeBadRequest, err.Error(), "").Reply
		default:
			a.Reply = l.bodyAnswer(v).Reply
		}
	}}
}

func (l *life) look(ctx context.Context, req wire.Request) (any, error) {
	var ask Ask
	if len(req.Body) > 0 {
		if err := json.Unmarshal(req.Body, &ask); err != nil {
			return nil, err
		}
	}

	n := state.Name{Agent: req.Agent, Session: req.Session, Child: req.Child, Workspace: realPath(req.Workspace)}
	switch req.Op {
	case "list":
		list, err := l.folder().Sessions(ctx, n, ask.Most)
		return map[string]any{"sessions": list}, err
	case "show":
		return l.folder().Show(ctx, n, ask.Number)
	}

	if ask.Start == "" {
		ask.Start = recovery.StartManual
	}
	if f := recovery.Format(ask.Format); f != "" && f != recovery.Brief && f != recovery.Delta {
		return nil, fmt.Errorf("format %q: brief or delta", ask.Format)
	}

	return l.folder().Recover(ctx, query.Question{Name: n, Transcript: ask.Transcript, Since: ask.Since,
		Options: recovery.Options{Start: ask.Start, Format: recovery.Format(ask.Format),
			MaxBytes: ask.MaxBytes, MaxMessages: ask.MaxMessages}})
}
