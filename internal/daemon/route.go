package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
)

var errTooMany = errors.New("too many new sessions in a minute; this one is not recorded")

// take hands an event to its session, within the bound on new sessions.
func (d *Daemon) take(ctx context.Context, e checkpoint.Event) result {
	d.counts.events.Add(1)
	e = agent.CleanEvent(e)
	e.Key = d.resolve(e.Key)
	if !d.admit(e.Key) {
		d.counts.dropped.Add(1)
		return result{err: errTooMany}
	}
	r := d.apply(ctx, e.Key, e)
	d.publishEvent(e, r)
	return r
}

// admit bounds the new sessions of a minute: an agent that starts itself over and over must not fill the disk.
func (d *Daemon) admit(key checkpoint.Key) bool {
	if d.opt.SessionsPerMinute <= 0 || d.known(key) {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for len(d.mu.newest) > 0 && now.Sub(d.mu.newest[0]) > time.Minute {
		d.mu.newest = d.mu.newest[1:]
	}
	if len(d.mu.newest) < d.opt.SessionsPerMinute {
		d.mu.newest = append(d.mu.newest, now)
		return true
	}
	if d.counts.dropped.Load()%1000 == 0 {
		d.log.Warn("more new sessions than the limit: they are not recorded", zap.Int("per minute", d.opt.SessionsPerMinute))
	}
	return false
}

// known says whether anything was ever heard of a session.
func (d *Daemon) known(key checkpoint.Key) bool {
	d.mu.Lock()
	active := d.mu.sessions[key] != nil
	d.mu.Unlock()
	if active {
		return true
	}
	_, err := d.opt.FS.Lstat(d.dir.Session(key))
	return err == nil
}

// resolve finds the key of an event's session. An id that is no UUID belongs to a workspace, and events from its
// sub-folders to the same session.
func (d *Daemon) resolve(key checkpoint.Key) checkpoint.Key {
	key = agent.CleanKey(key)
	if key.Workspace == "" || d.known(key) {
		return key
	}
	for k := key; k.Workspace != filepath.Dir(k.Workspace); {
		k.Workspace = filepath.Dir(k.Workspace)
		if d.known(k) {
			return k
		}
	}
	return key
}

// account completes the key of a payload that names no transcript, and so does not say which of several homes of the agent
// it comes from: it belongs to the one session with that id that is known, if there is just one.
func (d *Daemon) account(key checkpoint.Key) checkpoint.Key {
	if key.Account != "" || d.known(key) {
		return key
	}
	var found []checkpoint.Key
	for _, s := range d.active() {
		k := s.key
		k.Account = ""
		if k == key {
			found = append(found, s.key)
		}
	}
	if len(found) == 0 {
		found = d.dir.Accounts(key)
	}
	if len(found) == 1 {
		return found[0]
	}
	return key
}

// realPath compares folders as the kernel does; a path that cannot be resolved stands for itself. A link may lead to a name
// that is no UTF-8, which keys are not.
func realPath(path string) string {
	if path == "" {
		return ""
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return agent.Text(target)
	}
	return agent.Text(filepath.Clean(path))
}
