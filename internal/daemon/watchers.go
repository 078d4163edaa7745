package daemon

import (
	"context"
	"sync"

	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/host/proc"
	"belay/watch"
)

// watchers look after the transcripts and processes of active sessions, without polling where the system allows it.
type watchers struct {
	watch    *watch.Watcher
	sessions *sessions
	drain    *drain

	mu struct {
		sync.Mutex
		paths map[string]map[checkpoint.Key]bool // transcripts and who reads them
		procs map[checkpoint.Proc]bool           // processes that are waited for
	}
}

func newWatchers(opt Options, ss *sessions, d *drain) *watchers {
	w := &watchers{sessions: ss, drain: d,
		watch: watch.New(watch.Options{Log: opt.Log, Poll: opt.Poll, PollMax: opt.PollMax, NotifyOff: !opt.Notify})}
	w.mu.paths, w.mu.procs = map[string]map[checkpoint.Key]bool{}, map[checkpoint.Proc]bool{}
	return w
}

// Bind notes who reads a transcript.
func (w *watchers) Bind(path string, key checkpoint.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.paths[path] == nil {
		w.mu.paths[path] = map[checkpoint.Key]bool{}
	}

	w.mu.paths[path][key] = true
	w.watch.Add(path)
	w.watch.Active(path, true)
}

// Unbind ends a Bind.
func (w *watchers) Unbind(path string, key checkpoint.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.paths[path], key)
	if len(w.mu.paths[path]) == 0 {
		delete(w.mu.paths, path)
		w.watch.Remove(path) // it never blocks; under the lock, so that a Bind that follows comes after it
	}
}

// Active has the watch look at a transcript often.
func (w *watchers) Active(path string) { w.watch.Active(path, true) }

// readers are the active sessions that read a transcript.
func (w *watchers) readers(path string) (list []*session.Session) {
	w.mu.Lock()
	keys := make([]checkpoint.Key, 0, len(w.mu.paths[path]))
	for key := range w.mu.paths[path] {
		keys = append(keys, key)
	}

	w.mu.Unlock()

	for _, key := range keys {
		if s := w.sessions.get(key); s != nil {
			list = append(list, s)
		}
	}

	return list
}

// Await notices the end of an agent's process, and tells every session.
func (w *watchers) Await(p checkpoint.Proc) {
	if p.Start == 0 {
		return // it cannot be told from a later process with the same number
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.procs[p] {
		return
	}

	w.mu.procs[p] = true

	w.sessions.services.Spawn(func(ctx context.Context) {
		err := proc.Wait(ctx, p)
		w.mu.Lock()
		delete(w.mu.procs, p)
		w.mu.Unlock()
		if err != nil || ctx.Err() != nil {
			return
		}

		// What the agent said before its end may still lie in the spool: its good-bye, most of all. A spool that cannot
		// be read holds no death back.
		_, _ = w.drain.once(ctx)
		for _, s := range w.sessions.Active() {
			s.Exited(ctx, p)
		}
	})
}

// living is how many processes are waited for.
func (w *watchers) living() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mu.procs)
}
