package watch

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

const (
	// retryEvery is the pause before a watch that could not be had is tried again: other programs give theirs back.
	retryEvery = time.Minute
	// settleRounds ends the race with somebody who makes and removes folders all the time; polling stays.
	settleRounds = 64
	// errorsInRow without an event between them mean that the notifier is broken, and not only once unlucky.
	errorsInRow = 8
)

// loop is what Run owns: one goroutine, no locks.
type loop struct {
	w        *Watcher
	notifier Notifier // nil: polling alone
	events   <-chan fsnotify.Event
	errors   <-chan error

	targets map[string]*target
	active  map[*target]struct{}
	folders map[string]*folder
	marks   *marks
	waiting string // the due mark that the caller has not taken yet; "" is none

	start   time.Time
	pollAt  time.Time // earliest poll of an active path; zero is none
	retryAt time.Time

	dirty  bool // the published list of folders is old
	why    string
	told   map[string]bool // warnings given
	inRow  int
	status Status // counters only
}

// target is one path of the caller.
type target struct {
	path  string
	deps  []dep
	last  os.FileInfo   // as last seen; nil is "not there"
	every time.Duration // poll interval now
	next  time.Time     // next poll
}

// folder is one real folder that targets depend on.
type folder struct {
	watched bool
	remote  bool
	id      os.FileInfo // the folder that the watch was put on; nil is not known
	names   map[string]map[*target]struct{}
}

func newLoop(w *Watcher) *loop {
	l := &loop{
		w: w, targets: make(map[string]*target), active: make(map[*target]struct{}), folders: make(map[string]*folder),
		marks: newMarks(w.opt.Quiet, w.opt.Longest), start: time.Now(), dirty: true, told: make(map[string]bool),
	}

	if w.opt.NotifyOff {
		l.why = "fsnotify is switched off"
	}

	l.openNotifier(l.start)
	return l
}

// obey carries out what the callers asked for.
func (l *loop) obey(commands []command, now time.Time) {
	for _, c := range commands {
		t := l.targets[c.path]
		switch {
		case c.verb == verbAdd && t == nil:
			t = &target{path: c.path, every: l.w.opt.Poll}
			l.targets[c.path] = t
			l.settle(t)
			t.last = look(t.path)
			l.mark(t, now)

		case t == nil || c.verb == verbAdd:
			continue // removed before, or there already
		case c.verb == verbRemove:
			l.forget(t)
		case c.verb == verbIdle:
			delete(l.active, t)
		case c.verb == verbActive:
			l.active[t] = struct{}{}
			l.poll(t, now)
			l.pollSoon(t, now)
		}
	}
}

func (l *loop) forget(t *target) {
	delete(l.targets, t.path)
	delete(l.active, t)
	l.marks.drop(t.path)
	if l.waiting == t.path {
		l.waiting = ""
	}

	l.release(t, t.deps, nil)
	t.deps = nil
}

// mark notes that a path may have changed.
func (l *loop) mark(t *target, now time.Time) {
	if l.waiting != t.path { // else the caller will read after this change
		l.marks.add(t.path, now)
	}
	l.pollSoon(t, now)
}

// head is the due mark that is offered to the caller. The file is looked at now, before the caller reads it: what
// changes later differs from this look and is found by polling, events or not.
func (l *loop) head(now time.Time) (string, bool) {
	if l.waiting == "" {
		path, ok := l.marks.take(now)
		if !ok {
			return "", false
		}
		l.waiting = path
		l.see(l.targets[path], look(path))
	}
	return l.waiting, true
}

func (l *loop) sent() { l.waiting = "" }

// next is when the loop must wake up by itself; zero is never.
func (l *loop) next(waiting bool) time.Time {
	next := l.pollAt
	if len(l.active) == 0 {
		next = time.Time{}
	}
	if due := l.marks.next(); !waiting && !due.IsZero() && (next.IsZero() || due.Before(next)) {
		next = due
	}

	return next
}

// pollDue looks at the active paths whose time has come.
func (l *loop) pollDue(now time.Time) {
	if len(l.active) == 0 || l.pollAt.After(now) {
		return
	}

	l.retry(now)
	for t := range l.active {
		if t.next.After(now) {
			continue
		}
		if l.poll(t, now) {
			l.pollSoon(t, now)
			continue
		}

		t.every = min(2*t.every, l.w.opt.PollMax)
		t.next = l.grid(now.Add(t.every))
	}

	l.pollAt = time.Time{}
	for t := range l.active {
		if l.pollAt.IsZero() || t.next.Before(l.pollAt) {
			l.pollAt = t.next
		}
	}
}

// poll compares a path with the last look and marks it when it differs.
func (l *loop) poll(t *target, now time.Time) (changed bool) {
	if l.waiting == t.path || l.marks.has(t.path) {
		return true // on its way already
	}

	info := look(t.path)
	if same(t.last, info) && (info == nil || info.Size() == t.last.Size() && info.ModTime().Equal(t.last.ModTime())) {
		return false
	}

	l.see(t, info)
	l.mark(t, now)
	return true
}

// see remembers a look. Another file under the same path may lie in another folder: a renamed parent gives no event.
func (l *loop) see(t *target, info os.FileInfo) {
	if !same(t.last, info) {
		l.settle(t)
	}
	t.last = info
}

// pollSoon makes a path's interval short again.
func (l *loop) pollSoon(t *target, now time.Time) {
	t.every = l.w.opt.Poll
	t.next = l.grid(now.Add(t.every))
	if _, ok := l.active[t]; ok && (l.pollAt.IsZero() || t.next.Before(l.pollAt)) {
		l.pollAt = t.next
	}
}

// grid moves a time back to a multiple of the shortest interval, so that all paths share their wake-ups.
func (l *loop) grid(at time.Time) time.Time {
	return l.start.Add(at.Sub(l.start).Truncate(l.w.opt.Poll))
}

// settle puts watches on the folders that the path depends on now. A folder may get its next part between the look and
// the watch, so it looks again after every new watch.
func (l *loop) settle(t *target) {
	for range settleRounds {
		deps, fresh := resolve(t.path), false
		for _, d := range deps {
			f := l.folders[d.dir]
			if f == nil {
				f = &folder{names: make(map[string]map[*target]struct{})}
				l.folders[d.dir] = f
				l.watch(d.dir, f)
				fresh = true
			} else if id, err := os.Lstat(d.dir); err != nil || f.id == nil || !os.SameFile(f.id, id) {
				l.unwatch(d.dir, f)
				l.watch(d.dir, f)
				fresh = true
			}

			if f.names[d.name] == nil {
				f.names[d.name] = make(map[*target]struct{})
			}

			f.names[d.name][t] = struct{}{}
		}

		l.release(t, t.deps, deps)
		t.deps = deps
		if !fresh {
			return
		}
	}
}

// release drops what is in old and not in kept; a folder that nobody needs any more loses its watch.
func (l *loop) release(t *target, old, kept []dep) {
	for _, d := range old {
		f := l.folders[d.dir]
		if slices.Contains(kept, d) || f == nil {
			continue
		}
		if delete(f.names[d.name], t); len(f.names[d.name]) == 0 {
			delete(f.names, d.name)
		}

		if len(f.names) == 0 {
			l.unwatch(d.dir, f)
			delete(l.folders, d.dir)
			l.dirty = true
		}
	}
}

func (l *loop) watch(dir string, f *folder) {
	l.dirty = true
	f.watched, f.remote = false, remote(dir)
	f.id, _ = os.Lstat(dir) // nil when it vanished: the next settle sees that
	if l.notifier == nil {
		return
	}

	if err := l.notifier.Add(dir); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.complain(limit(err, "fs.inotify.max_user_watches"), err)
		}
		return
	}

	f.watched = true
}

func (l *loop) unwatch(dir string, f *folder) {
	if f.watched && l.notifier != nil {
		_ = l.notifier.Remove(dir) // the kernel has dropped it already when the folder is gone
	}
	f.watched, f.id = false, nil
}

// touch is for a change of names: the path may mean another file now.
func (l *loop) touch(t *target, now time.Time) {
	l.settle(t)
	if t.last != nil || look(t.path) != nil {
		l.mark(t, now)
	}
}

func (l *loop) onEvent(ev fsnotify.Event, ok bool, now time.Time) {
	if !ok {
		l.lose(errors.New("its channel is closed"), now)
		return
	}

	l.inRow = 0
	name := filepath.Clean(ev.Name)
	names := ev.Has(fsnotify.Create) || ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)
	if f := l.folders[name]; f != nil && names { // a watched folder itself came or went
		l.unwatch(name, f)
		for t := range f.all() {
			l.touch(t, now)
		}
	}

	dir, base := parent(name)
	f := l.folders[dir]
	if f == nil {
		return
	}

	for t := range maps.Clone(f.names[base]) {
		if names {
			l.touch(t, now)
		} else {
			l.mark(t, now)
		}
	}
}

// all gives a copy of the folder's targets: settling changes the original.
func (f *folder) all() map[*target]struct{} {
	all := make(map[*target]struct{})
	for _, targets := range f.names {
		maps.Copy(all, targets)
	}
	return all
}

// onError handles what the notifier tells of its own trouble. An unknown set of events is lost, so every path is
// marked.
func (l *loop) onError(err error, ok bool, now time.Time) {
	if !ok {
		l.lose(errors.New("its channel is closed"), now)
		return
	}

	l.dirty = true
	if errors.Is(err, fsnotify.ErrEventOverflow) {
		l.status.Overflow++
	} else {
		l.status.Errors++
		l.complain("fsnotify: "+err.Error(), err)
		if l.inRow++; l.inRow >= errorsInRow {
			l.lose(err, now)
		}
	}

	for dir, f := range l.folders {
		l.watch(dir, f) // whether the old watch still lives is among the lost events
	}

	for _, t := range l.targets {
		l.settle(t)
		l.mark(t, now)
	}
}

func (l *loop) openNotifier(now time.Time) {
	l.retryAt = now.Add(retryEvery)
	if l.w.opt.NotifyOff {
		return
	}

	n, err := l.w.opt.NewWatcher()
	if err != nil {
		l.complain(limit(err, "fs.inotify.max_user_instances"), err)
		return
	}

	l.notifier, l.events, l.errors, l.inRow = n, n.Events(), n.Errors(), 0
}

func (l *loop) closeNotifier() {
	if l.notifier != nil {
		_ = l.notifier.Close() // nothing of ours is in it
	}
	l.notifier, l.events, l.errors = nil, nil, nil
}

// lose gives up a broken notifier; polling goes on alone, and a new one is tried later.
func (l *loop) lose(err error, now time.Time) {
	l.complain("fsnotify: "+err.Error(), err)
	l.closeNotifier()
	for _, f := range l.folders {
		f.watched = false
	}
	l.retryAt = now.Add(retryEvery)
}

// retry asks again for what could not be had.
func (l *loop) retry(now time.Time) {
	if l.w.opt.NotifyOff || now.Before(l.retryAt) {
		return
	}

	l.retryAt = now.Add(retryEvery)
	if l.notifier == nil {
		l.openNotifier(now)
	}
	if l.notifier == nil {
		return
	}

	l.why, l.dirty = "", true
	for dir, f := range l.folders {
		if !f.watched {
			l.watch(dir, f)
		}
	}
}

// complain keeps the reason for Status and warns once for each.
func (l *loop) complain(why string, err error) {
	l.why, l.dirty = why, true
	if !l.told[why] && len(l.told) < 20 {
		l.told[why] = true
		l.w.opt.Log.Warn("no change events, polling instead", zap.String("why", why), zap.Error(err))
	}
}

// limit names the kernel's limit behind an error that reads like a full disk.
func limit(err error, inotify string) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "the limit fs.inotify.max_user_watches is reached"
	case errors.Is(err, syscall.EMFILE):
		return "the limit " + inotify + " or the limit of open files (ulimit -n) is reached"
	}
	return "fsnotify: " + err.Error()
}

// publish brings the status up to date.
func (l *loop) publish() {
	l.status.Wakeups++
	if l.dirty {
		l.dirty = false
		l.status.Notify, l.status.Why = l.notifier != nil, l.why
		l.status.Folders, l.status.Polled = 0, nil
		for dir, f := range l.folders {
			if f.watched && !f.remote {
				l.status.Folders++
			} else {
				l.status.Polled = append(l.status.Polled, dir)
			}
		}

		slices.Sort(l.status.Polled)
	}

	l.status.Paths, l.status.Active = len(l.targets), len(l.active)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.mu.status = l.status
}

// look is one stat; nil when there is nothing that could be read.
func look(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// same says whether two looks saw the same file, or both none.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b)
}
