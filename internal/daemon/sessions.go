package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/daemon/session"
	"belay/internal/state"
)

// sessions are those in memory, and how the others come there.
type sessions struct {
	services  *session.Services
	agents    []agent.Agent
	dir       state.Dir
	perMinute int // new ones; 0: no bound
	load      func(ctx context.Context, key checkpoint.Key) state.Loaded
	emptied   chan struct{} // told when the last one has left memory
	naming    chan struct{} // a place for the one that writes the list of active sessions

	mu struct {
		sync.Mutex
		active   map[checkpoint.Key]*session.Session
		cut      map[checkpoint.Key]chan struct{} // whose files are being cut: closed when that is done
		newest   []time.Time                      // starts of new sessions in the last minute
		stopping bool
	}
}

func newSessions(v *session.Services, opt Options, load func(context.Context, checkpoint.Key) state.Loaded) *sessions {
	s := &sessions{services: v, agents: opt.Agents, dir: v.Dir, perMinute: opt.SessionsPerMinute, load: load,
		emptied: make(chan struct{}, 1), naming: make(chan struct{}, 1)}
	s.mu.active, s.mu.cut = map[checkpoint.Key]*session.Session{}, map[checkpoint.Key]chan struct{}{}
	return s
}

// get gives a session that is in memory; nil for one that is not.
func (ss *sessions) get(key checkpoint.Key) *session.Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.mu.active[key]
}

// Session gives the active session of a key, activating it when needed. It fails only with ctx.
func (ss *sessions) Session(ctx context.Context, key checkpoint.Key) (*session.Session, error) {
	if s := ss.get(key); s != nil {
		return s, nil
	}
	return ss.start(ctx, ss.load(ctx, key), false)
}

// start makes a session active. Two callers get the same one.
func (ss *sessions) start(ctx context.Context, l state.Loaded, replayed bool) (*session.Session, error) {
	s := session.New(ss.services, l.State, ss.agent(l.Key.Agent), replayed)
	ss.mu.Lock()
	for ss.mu.cut[l.Key] != nil {
		done := ss.mu.cut[l.Key]
		ss.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}

		ss.mu.Lock()
	}

	defer ss.mu.Unlock()

	if other := ss.mu.active[l.Key]; other != nil {
		return other, nil
	}

	ss.mu.active[l.Key] = s
	ss.services.Spawn(func(ctx context.Context) {
		ss.mend(l)
		s.Run(ctx)
	})

	return s, nil
}

// mend puts right on disk what reading a session found to be wrong. The session's own goroutine does it, before
// anything else.
func (ss *sessions) mend(l state.Loaded) {
	if err := errors.Join(l.Err, ss.dir.Mend(l)); err != nil {
		ss.services.Log.Warn("load state", zap.Stringer("session", l.Key), zap.Error(err))
	}
}

func (ss *sessions) agent(name string) agent.Agent {
	for _, a := range ss.agents {
		if a.Name() == name {
			return a
		}
	}
	return nil
}

// Active lists the sessions in memory.
func (ss *sessions) Active() []*session.Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	list := make([]*session.Session, 0, len(ss.mu.active))
	for _, s := range ss.mu.active {
		list = append(list, s)
	}
	return list
}

// Leave takes an idle session out of memory; false when something reached its inbox meanwhile.
func (ss *sessions) Leave(s *session.Session) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s.HasMail() || ss.mu.stopping {
		return false
	}

	delete(ss.mu.active, s.Key)
	if len(ss.mu.active) == 0 {
		poke(ss.emptied)
	}

	return true
}

// stop keeps all sessions in memory from now on.
func (ss *sessions) stop() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.mu.stopping = true
}

func (ss *sessions) stopping() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.mu.stopping
}

// Apply hands an event to a session and waits for what the gates say.
func (ss *sessions) Apply(ctx context.Context, key checkpoint.Key, e checkpoint.Event) session.Result {
	for range 3 { // a session may leave memory between the look-up and the hand-over
		s, err := ss.Session(ctx, key)
		if err != nil {
			return session.Result{Err: err}
		}
		if r, ok := s.Apply(ctx, e); ok {
			return r
		}
		if ctx.Err() != nil {
			return session.Result{Err: ctx.Err()}
		}
	}
	return session.Result{Err: session.ErrStopping}
}

// Known says whether anything was ever heard of a session.
func (ss *sessions) Known(key checkpoint.Key) bool {
	if ss.get(key) != nil {
		return true
	}
	_, err := ss.dir.FS.Lstat(ss.dir.Session(key))
	return err == nil
}

// resolve finds the key of an event's session. An id that is no UUID belongs to a workspace, and events from its
// sub-folders to the same session.
func (ss *sessions) resolve(key checkpoint.Key) checkpoint.Key {
	key = agent.CleanKey(key)
	if key.Workspace == "" || ss.Known(key) {
		return key
	}

	for k := key; k.Workspace != filepath.Dir(k.Workspace); {
		k.Workspace = filepath.Dir(k.Workspace)
		if ss.Known(k) {
			return k
		}
	}

	return key
}

// account completes the key of a payload that names no transcript, and so does not say which of several homes of the
// agent it comes from: it belongs to the one session with that id that is known, if there is just one.
func (ss *sessions) account(key checkpoint.Key) checkpoint.Key {
	if key.Account != "" || ss.Known(key) {
		return key
	}

	var found []checkpoint.Key
	for _, s := range ss.Active() {
		k := s.Key
		k.Account = ""
		if k == key {
			found = append(found, s.Key)
		}
	}

	if len(found) == 0 {
		found = ss.dir.Accounts(key)
	}
	if len(found) == 1 {
		return found[0]
	}

	return key
}

// admit bounds the new sessions of a minute: an agent that starts itself over and over must not fill the disk.
func (ss *sessions) admit(key checkpoint.Key) bool {
	if ss.perMinute <= 0 || ss.Known(key) {
		return true
	}

	ss.mu.Lock()
	defer ss.mu.Unlock()
	now := time.Now()
	for len(ss.mu.newest) > 0 && now.Sub(ss.mu.newest[0]) > time.Minute {
		ss.mu.newest = ss.mu.newest[1:]
	}

	if len(ss.mu.newest) >= ss.perMinute {
		return false
	}

	ss.mu.newest = append(ss.mu.newest, now)
	return true
}

// hold keeps a session out of memory while its files are cut; false when it is in memory.
func (ss *sessions) hold(key checkpoint.Key) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.mu.active[key] != nil || ss.mu.cut[key] != nil {
		return false
	}
	ss.mu.cut[key] = make(chan struct{})
	return true
}

func (ss *sessions) letGo(key checkpoint.Key) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	close(ss.mu.cut[key])
	delete(ss.mu.cut, key)
}

// saveThrough saves every active session that has events up to a number which its file does not hold.
func (ss *sessions) saveThrough(ctx context.Context, last uint64) error {
	for _, s := range ss.Active() {
		if err := s.SaveThrough(ctx, last); err != nil {
			return err
		}
	}
	return nil
}

// saveActive keeps the names of the sessions that the next daemon must wake: agents that live, and what is owed.
func (ss *sessions) saveActive(ctx context.Context) error {
	var keys []checkpoint.Key
	for _, s := range ss.Active() {
		if s.Wanted(ctx) {
			keys = append(keys, s.Key)
		}
	}

	if ctx.Err() != nil {
		return ctx.Err() // not all could be asked: the list that is there says more
	}

	select {
	case ss.naming <- struct{}{}: // a stop and a full segment may both want to
		defer func() { <-ss.naming }()
	case <-ctx.Done():
		return ctx.Err()
	}

	return ss.dir.SaveActive(keys)
}
