// Package watch says "this path may have changed". It reads nothing: it looks at names, sizes and times only.
//
// Polling by stat is the base, because network and container file systems give no events; fsnotify makes it quicker. A
// path need not exist yet, nor its folder; it may be replaced by a rename, be a symbolic link or have one on its way.
//
// Promised: every change of an active path is followed by a mark within the poll interval, whatever fsnotify does (no
// watcher at all, limits of the kernel, overflow of its queue, errors); changes are coalesced and never lost while the
// caller is slow; nothing wakes up while no path is active and no event comes; no goroutine per path.
//
// Not promised: that something did change (the caller reads and sees), an order between paths, or more than a mark for
// a folder whose entries come and go. A stat that hangs (a dead network mount) holds up all paths.
package watch

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// Options of a Watcher. Zero values mean the defaults.
type Options struct {
	Log     *zap.Logger
	Poll    time.Duration // shortest poll interval of an active path; 1 s
	PollMax time.Duration // the interval doubles up to this while the path does not change; 30 s
	Quiet   time.Duration // a mark waits until its path was quiet for so long; 50 ms
	Longest time.Duration // but never longer than this; 250 ms
	// NotifyOff leaves out fsnotify: all paths are polled.
	NotifyOff bool
	// NewWatcher opens the notifier; fsnotify by default. Tests put faults here.
	NewWatcher func() (Notifier, error)
}

// Notifier is what a Watcher needs of fsnotify.
type Notifier interface {
	Add(folder string) error
	Remove(folder string) error
	Events() <-chan fsnotify.Event
	Errors() <-chan error
	Close() error
}

// Status tells how paths are watched now.
type Status struct {
	Paths    int      `json:"paths"`
	Active   int      `json:"active"`
	Notify   bool     `json:"notify"`             // fsnotify is in use
	Folders  int      `json:"folders"`            // folders that give events
	Polled   []string `json:"polled,omitempty"`   // folders without events: their paths are noticed by polling alone
	Why      string   `json:"why,omitempty"`      // why some are polled
	Overflow uint64   `json:"overflow,omitempty"` // times that events were lost and every path was marked
	Errors   uint64   `json:"errors,omitempty"`   // other errors of the notifier
	Wakeups  uint64   `json:"wakeups"`            // turns of the loop since the start
}

// Watcher watches paths. Make one with New; all methods may be called from several goroutines and never block.
type Watcher struct {
	opt     Options
	changes chan string
	wake    chan struct{} // one pending wake-up is enough

	mu struct {
		sync.Mutex
		commands []command
		status   Status
	}
}

type verb int

const (
	verbAdd verb = iota
	verbRemove
	verbActive
	verbIdle
)

type command struct {
	verb verb
	path string
}

// New makes a Watcher; nothing happens before Run.
func New(opt Options) *Watcher {
	if opt.Log == nil {
		opt.Log = zap.NewNop()
	}

	setDefault(&opt.Poll, time.Second)
	setDefault(&opt.PollMax, 30*time.Second)
	setDefault(&opt.Quiet, 50*time.Millisecond)
	setDefault(&opt.Longest, 250*time.Millisecond)
	opt.PollMax = max(opt.PollMax, opt.Poll)
	if opt.NewWatcher == nil {
		opt.NewWatcher = newFsnotify
	}

	return &Watcher{opt: opt, changes: make(chan string), wake: make(chan struct{}, 1)}
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// Add watches an absolute path until Remove; adding it again does nothing. Once the watch is in place the path is
// marked, so that no change between the caller's last look and the watch is lost. The path is not polled before Active.
func (w *Watcher) Add(path string) { w.send(verbAdd, path) }

// Remove ends the watch of a path. A mark that is on its way may still come.
func (w *Watcher) Remove(path string) { w.send(verbRemove, path) }

// Active says whether a path is polled. Saying true again makes the interval short again, so call it with each sign of
// life; a change since the last look is marked at once.
func (w *Watcher) Active(path string, active bool) {
	if active {
		w.send(verbActive, path)
	} else {
		w.send(verbIdle, path)
	}
}

// Changes gives each path that may have changed, as it was added. There is one pending mark for a path however often it
// changes; what changes after a mark was received brings another. Run closes the channel when it ends.
func (w *Watcher) Changes() <-chan string { return w.changes }

// Status gives a copy of the state of the last turn.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.mu.status
	s.Polled = append([]string(nil), s.Polled...)
	return s
}

// Run watches until ctx ends and then returns nil. It is called once. No fault of the notifier ends it.
func (w *Watcher) Run(ctx context.Context) error {
	defer close(w.changes)
	l := newLoop(w)
	defer l.closeNotifier()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		now := time.Now()
		l.obey(w.received(), now)
		l.pollDue(now)
		head, ready := l.head(now)
		var out chan string
		if ready {
			out = w.changes
		}

		l.publish()
		if next := l.next(ready); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}

		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		case <-timer.C:
		case out <- head:
			l.sent()
		case ev, ok := <-l.events:
			l.onEvent(ev, ok, time.Now())
		case err, ok := <-l.errors:
			l.onError(err, ok, time.Now())
		}
	}
}

func (w *Watcher) send(v verb, path string) {
	w.mu.Lock()
	w.mu.commands = append(w.mu.commands, command{v, path})
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // one is pending: the loop will see this command too
	}
}

func (w *Watcher) received() []command {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.mu.commands
	w.mu.commands = nil
	return c
}

// realNotifier is fsnotify behind the interface: its channels are fields.
type realNotifier struct{ *fsnotify.Watcher }

func newFsnotify() (Notifier, error) {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return realNotifier{n}, nil
}

func (n realNotifier) Events() <-chan fsnotify.Event { return n.Watcher.Events }
func (n realNotifier) Errors() <-chan error          { return n.Watcher.Errors }

// parent is the folder of an event's name.
func parent(name string) (dir, base string) { return filepath.Dir(name), filepath.Base(name) }
