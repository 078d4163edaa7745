// Package daemon wires belay together: the socket, one goroutine for each active session, the journal, the store behind
// its breaker, the watch over transcripts, the heartbeat, and stopping. Deciding lies in package checkpoint, writing the
// brief in package recovery; here things are only carried from one to the other.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/heartbeat"
	"belay/internal/daemon/socket"
	"belay/internal/redact"
	"belay/internal/state"
	"belay/internal/state/mirror"
	"belay/internal/vfs"
	"belay/watch"
)

// Daemon is one belay daemon. Make it with New, run it with Run.
type Daemon struct {
	opt       Options
	set       *atomic.Pointer[Options] // with what Reload changed
	times     times
	log       *zap.Logger
	dir       state.Dir
	openStore func() (checkpoint.Store, error)
	journal   *journal.Journal
	store     *breaker.Breaker
	watch     *watch.Watcher
	beats     *heartbeat.Heart
	codec     *mirror.Codec
	key       *mirror.Key // of exact mirrors
	keyless   string      // why there is none although it is wanted
	started   time.Time
	ready     chan struct{}   // closed when the journal was replayed: requests wait for it
	life      context.Context // of the sessions: ends after the last checkpoint of a stop
	served    chan struct{}   // closed when the last connection has ended
	wait      sync.WaitGroup  // every goroutine below life
	stop      context.CancelFunc
	place     *socket.Place
	health    error         // why the state folder cannot be used, if it cannot
	homeless  bool          // the state folder could not be made
	root      os.FileInfo   // the state folder as it was then
	gone      chan struct{} // told when the socket or the state folder was removed
	spooled   chan struct{} // told when the spool may hold something
	resting   chan struct{} // told when the last session has left memory
	drain     sync.Mutex    // one drain at a time: its files are in order
	builds    chan struct{} // a place for each checkpoint that is being written
	server    *socket.Server
	feed      socket.Feed
	naming    chan struct{} // a place for the one that writes the list of active sessions

	mu struct {
		sync.Mutex
		sessions map[checkpoint.Key]*session
		paths    map[string]map[checkpoint.Key]bool // transcripts and who reads them
		procs    map[checkpoint.Proc]bool           // processes that are waited for
		claimed  map[checkpoint.Key]bool            // predecessors whose death is being told right now
		cut      map[checkpoint.Key]chan struct{}   // whose files are being cut: closed when that is done
		newest   []time.Time                        // starts of new sessions in the last minute
		told     troubles
		stopping bool
	}
	counts   counters
	budget   *budget
	overfull chan struct{} // told when mirrors have grown past what is allowed
}

type counters struct {
	events, taken, dropped, lost, panics, ticks atomic.Int64
	draining                                    atomic.Bool
	decisions                                   sync.Map // code -> *atomic.Int64
	lastLive                                    atomic.Int64
}

// New checks the options; nothing is opened before Run.
func New(opt Options) *Daemon {
	opt.FS = vfs.Within(opt.FS, opt.StateDir)
	d := &Daemon{opt: opt, set: new(atomic.Pointer[Options]), times: usualTimes(), log: opt.Log,
		dir: state.Dir{Root: opt.StateDir, FS: opt.FS}, started: time.Now(), ready: make(chan struct{}),
		gone: make(chan struct{}, 1), spooled: make(chan struct{}, 1), resting: make(chan struct{}, 1), builds: make(chan struct{}, maxBuilds)}
	d.budget, d.overfull, d.naming = newBudget(), make(chan struct{}, 1), make(chan struct{}, 1)
	d.openStore = d.openFiles
	d.set.Store(&opt)
	d.mu.sessions = map[checkpoint.Key]*session{}
	d.mu.paths = map[string]map[checkpoint.Key]bool{}
	d.mu.procs = map[checkpoint.Proc]bool{}
	d.mu.claimed = map[checkpoint.Key]bool{}
	d.mu.cut = map[checkpoint.Key]chan struct{}{}
	return d
}

// errGone: the socket or the state folder was removed under the daemon.
var errGone = errors.New("the socket is gone")

// Run listens, replays, serves until ctx ends, and then takes the last checkpoints. It returns socket.ErrRunning when another
// daemon holds the lock. When somebody removes the state folder or the socket, what is in memory is saved and all begins
// anew.
func (d *Daemon) Run(ctx context.Context) error {
	for {
		err := d.run(ctx)
		if !errors.Is(err, errGone) {
			return err
		}
		if ctx.Err() != nil {
			return nil // told to stop when it was about to begin anew
		}
		next := New(d.opt)
		next.set, next.times, next.openStore = d.set, d.times, d.openStore
		d = next
	}
}

func (d *Daemon) run(ctx context.Context) error {
	if err := d.dir.Make(); err != nil {
		if errors.Is(err, state.ErrForeign) {
			return err
		}
		d.health, d.homeless = err, true // degraded from the start: events are held in memory, hooks notice nothing
		d.log.Error("state folder", zap.Error(err))
	}
	d.root, _ = os.Stat(d.opt.StateDir) // nil when it is not there
	var err error
	d.server = socket.New(d, socket.Options{Ready: d.ready, Connections: d.opt.Connections, Log: d.log,
		Times: socket.Times{Ready: d.times.readyBudget, Frame: d.times.frameBudget, Write: d.times.writeBudget}})
	if d.place, err = socket.Listen(d.opt.StateDir); err != nil {
		return err
	}
	defer d.place.Unlock() // the kernel does it in any case
	d.wait.Go(redact.Warm) // beside the start: the first log line and the first event need the rules
	d.life, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer d.settled()
	defer d.stop()
	talk, hang := context.WithCancel(d.life)
	d.served = make(chan struct{})
	go func() { defer close(d.served); d.server.Serve(d.life, talk, d.place) }() // first of all: clients wait for ready, not for a socket
	if err := d.open(ctx); err != nil {
		hang()
		return errors.Join(err, d.place.Close())
	}
	close(d.ready)
	if d.opt.Ready != nil {
		d.opt.Ready()
	}
	d.log.Info("ready", zap.String("socket", d.place.Path), zap.Duration("after", time.Since(d.started)))
	d.wait.Go(func() { d.drainSpool(d.life) })
	d.wait.Go(func() { d.rest(d.life) })
	d.wait.Go(func() {
		if err := d.dir.SweepAll(d.life, d.started); err != nil && d.life.Err() == nil {
			d.log.Warn("sweep left-over files", zap.Error(err))
		}
	})
	select {
	case <-ctx.Done():
	case <-d.served:
	case <-d.gone:
		d.log.Warn("the socket was removed: saving what is in memory and starting again", zap.String("socket", d.place.Path))
		d.forgetDisk()
		err = errGone
	case <-d.idleExit(ctx):
		d.log.Info("no live agent for long; the next hook starts belay again")
	}
	return errors.Join(err, d.shutdown(hang))
}

const hangBudget = time.Second

// settled waits until everything has ended. A store or a disk that hangs is not waited for: the process ends anyway.
func (d *Daemon) settled() {
	ended := make(chan struct{})
	go func() { <-d.served; d.wait.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(hangBudget):
		d.log.Warn("something still hangs on the disk; not waiting for it")
	}
}

// open brings up everything behind the socket.
func (d *Daemon) open(ctx context.Context) (err error) {
	if err := d.dir.Sweep(); err != nil {
		d.log.Warn("sweep left-over files", zap.Error(err))
	}
	if d.journal, err = d.openJournal(); err != nil {
		return err
	}
	bo := d.opt.Breaker
	bo.FS, bo.StateFile, bo.Log = d.opt.FS, d.dir.Breaker(), d.log
	if d.store, err = breaker.New(&lateStore{open: d.openStore}, bo); err != nil {
		return fmt.Errorf("open the breaker: %w", err)
	}
	if d.codec, err = mirror.NewCodec(); err != nil {
		return fmt.Errorf("open the mirror's codec: %w", err)
	}
	d.openKey()
	d.watch = watch.New(watch.Options{Log: d.log, Poll: d.opt.Poll, PollMax: d.opt.PollMax, NotifyOff: !d.opt.Notify})
	states, err := d.replay(ctx)
	if err != nil {
		return err
	}
	if d.beats, err = d.newBeats(); err != nil {
		return err
	}
	for what, run := range map[string]func(context.Context) error{
		"journal": d.journal.Run, "breaker": d.store.Run, "watch": d.watch.Run, "heartbeat": d.beats.Run,
	} {
		d.wait.Go(func() {
			if err := run(d.life); err != nil && d.life.Err() == nil {
				d.log.Error(what+" ended", zap.Error(err))
			}
		})
	}
	for _, path := range []string{d.place.Path, d.opt.StateDir, d.dir.Spool(), d.dir.Journal()} {
		d.watch.Add(path)
		d.watch.Active(path, !d.opt.Notify)
	}
	for _, s := range states {
		d.start(s, true)
	}
	d.wait.Go(func() { d.followChanges(d.life) })
	d.wait.Go(func() { d.followBreaker(d.life) })
	d.wait.Go(func() { d.followJournal(d.life) })
	d.wait.Go(func() { d.followBudget(d.life) })
	return nil
}

// replay gives the states that were active when the last daemon ended, with the journal's events folded in: a session that
// still lives, or to which something is owed, may have no event in what is left of the journal.
func (d *Daemon) replay(ctx context.Context) ([]*checkpoint.State, error) {
	states := map[checkpoint.Key]*checkpoint.State{}
	last := d.journal.Health().Last
	for _, key := range d.dir.LoadActive() {
		states[key] = d.load(key, last)
	}
	rep, err := d.journal.Replay(ctx, 0, func(seq uint64, payload []byte) error {
		var e checkpoint.Event
		if json.Unmarshal(payload, &e) != nil {
			return nil // of a later version
		}
		s := states[e.Key]
		if s == nil {
			s = d.load(e.Key, last)
			states[e.Key] = s
		}
		if seq > s.Seq {
			e.Seq = seq
			d.safely("replay", func() { s.Apply(e) })
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("replay the journal: %w", err)
	}
	d.counts.lost.Add(int64(rep.Lost))
	d.log.Info("replayed", zap.Any("report", rep), zap.Int("sessions", len(states)))
	list := make([]*checkpoint.State, 0, len(states))
	for _, s := range states {
		list = append(list, s)
	}
	return list, nil
}

// safely runs f and survives its panic: one bad record must not take the daemon from all other sessions.
func (d *Daemon) safely(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			d.counts.panics.Add(1)
			d.log.Error("panic", zap.String("in", what), zap.String("panic", panicText(p)), zap.ByteString("stack", debug.Stack()))
		}
	}()
	f()
}

// panicText tells a panic without what it was about: a fault of the runtime names none, all else may quote what it choked on.
func panicText(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return redact.Text(err.Error())
	}
	return fmt.Sprintf("%T", p)
}

// load reads a session from disk: its saved state, else its newest checkpoint, else nothing.
func (d *Daemon) load(key checkpoint.Key, last uint64) *checkpoint.State {
	s, err := d.dir.LoadState(key)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			d.log.Warn("load state", zap.Stringer("session", key), zap.Error(err))
			if err := d.dir.SetAside(key); err != nil {
				d.log.Warn("set a bad state aside", zap.Stringer("session", key), zap.Error(err))
			}
		}
		if s = d.fromCheckpoints(key); s == nil {
			return checkpoint.NewState(key)
		}
	}
	if c := d.newest(key, s.LastNumber); c != nil && c.State.Seq > last {
		s = c.Restore() // it was taken while the journal's disk failed, and is all that holds what came then: it is waited for
	}
	if s.Seq > last {
		// The journal lost what the state holds, and its numbers start again below. The file must say so before they do:
		// a replay would pass over them.
		s.Seq = last
		if err := d.dir.SaveState(s); err != nil {
			d.log.Warn("save state with a lower number", zap.Stringer("session", key), zap.Error(err))
		}
	}
	return s
}

// fromCheckpoints restores a session from its newest whole checkpoint.
func (d *Daemon) fromCheckpoints(key checkpoint.Key) *checkpoint.State {
	if c := d.newest(key, 0); c != nil {
		return c.Restore()
	}
	return nil
}

// newest gives a session's newest whole checkpoint; nil when there is none above a number.
func (d *Daemon) newest(key checkpoint.Key, above uint64) *checkpoint.Checkpoint {
	list, err := d.store.List(d.life, key)
	if err != nil || len(list) == 0 || list[0].Number <= above {
		return nil
	}
	c, damaged, err := checkpoint.Newest(key.Dir(), list, func(n uint64) ([]byte, error) { return d.store.Get(d.life, key, n) })
	if err != nil {
		d.log.Warn("no usable checkpoint", zap.Stringer("session", key), zap.Int("damaged", damaged), zap.Error(err))
		return nil
	}
	if c.Number <= above {
		return nil
	}
	return c
}

// session gives the active session of a key, activating it when needed.
func (d *Daemon) session(key checkpoint.Key) *session {
	d.mu.Lock()
	s := d.mu.sessions[key]
	d.mu.Unlock()
	if s != nil {
		return s
	}
	return d.start(d.load(key, d.journal.Health().Last), false)
}

// start makes a session active. Two callers get the same one.
func (d *Daemon) start(state *checkpoint.State, replayed bool) *session {
	s := &session{d: d, key: state.Key, folder: d.dir.Session(state.Key), inbox: make(chan func(), 64), done: make(chan struct{}), state: state, saved: state.Seq,
		fresh: state.Began.IsZero(), lastSeen: time.Now(), noted: map[string]bool{}, agent: d.agentNamed(state.Key.Agent)}
	if replayed {
		s.saved = 0 // what the journal added is not in the file
		s.lastSeen = state.LastEvent
		s.resume()
	}
	s.show()
	d.mu.Lock()
	for d.mu.cut[state.Key] != nil {
		done := d.mu.cut[state.Key]
		d.mu.Unlock()
		<-done
		d.mu.Lock()
	}
	if other := d.mu.sessions[state.Key]; other != nil {
		d.mu.Unlock()
		return other
	}
	d.mu.sessions[state.Key] = s
	d.mu.Unlock()
	d.wait.Go(func() { s.run(d.life) })
	if state.Proc != nil && state.Live {
		d.waitFor(*state.Proc)
	}
	if state.Transcript != "" {
		s.do(d.life, func() { s.read() })
	}
	return s
}

// resume owes what a restart found unsaved.
func (s *session) resume() {
	st := s.state
	if st.News > 0 && (st.LastFull == nil || st.LastFull.News < st.News) && st.OwedFull == "" {
		st.OwedFull = checkpoint.CauseHeartbeat
	}
}

// retire takes an idle session out of memory; false when something reached its inbox meanwhile.
func (d *Daemon) retire(s *session) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(s.inbox) > 0 || d.mu.stopping {
		return false
	}
	delete(d.mu.sessions, s.key)
	if len(d.mu.sessions) == 0 {
		poke(d.resting)
	}
	return true
}

// apply hands an event to a session and waits for what the gates say.
func (d *Daemon) apply(ctx context.Context, key checkpoint.Key, e checkpoint.Event) result {
	for range 3 { // a session may retire between the look-up and the hand-over
		r, ok := ask(ctx, d.session(key), func(s *session) result {
			r := result{err: errPanic}
			d.safely("event", func() { r = s.event(e) })
			return r
		})
		if ok {
			return r
		}
		if ctx.Err() != nil {
			return result{err: ctx.Err()}
		}
	}
	return result{err: errStopping}
}

// active lists the sessions in memory.
func (d *Daemon) active() []*session {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]*session, 0, len(d.mu.sessions))
	for _, s := range d.mu.sessions {
		list = append(list, s)
	}
	return list
}

func (d *Daemon) degraded() bool { return d.store.State().Phase != breaker.Closed }

func (d *Daemon) count(dec checkpoint.Decision) {
	c, _ := d.counts.decisions.LoadOrStore(string(dec.Code), new(atomic.Int64))
	c.(*atomic.Int64).Add(1)
}

// bind notes who reads a transcript, for the watch.
func (d *Daemon) bind(path string, key checkpoint.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.paths[path] == nil {
		d.mu.paths[path] = map[checkpoint.Key]bool{}
	}
	d.mu.paths[path][key] = true
	d.watch.Add(path)
	d.watch.Active(path, true)
}

func (d *Daemon) unbind(path string, key checkpoint.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.paths[path], key)
	if len(d.mu.paths[path]) == 0 {
		delete(d.mu.paths, path)
		d.watch.Remove(path) // it never blocks; under the lock, so that a bind that follows comes after it
	}
}
