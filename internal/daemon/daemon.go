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
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/checkpoint/journal"
	"belay/heartbeat"
	"belay/internal/agent"
	"belay/internal/mirror"
	"belay/internal/statedir"
	"belay/internal/vfs"
	"belay/watch"
)

// Daemon is one belay daemon. Make it with New, run it with Run.
type Daemon struct {
	opt     Options
	log     *zap.Logger
	dir     statedir.Dir
	journal *journal.Journal
	store   *breaker.Breaker
	watch   *watch.Watcher
	beats   *heartbeat.Heart
	codec   *mirror.Codec
	started time.Time
	ready   chan struct{}   // closed when the journal was replayed: requests wait for it
	life    context.Context // of the sessions: ends after the last checkpoint of a stop
	wait    sync.WaitGroup  // every goroutine below life
	stop    context.CancelFunc
	socket  string
	health  error // why the state folder cannot be used, if it cannot

	mu struct {
		sync.Mutex
		sessions map[checkpoint.Key]*session
		paths    map[string]map[checkpoint.Key]bool // transcripts and who reads them
		procs    map[checkpoint.Proc]bool           // processes that are waited for
		claimed  map[checkpoint.Key]int             // predecessors whose death is being told right now
		subs     map[*subscriber]bool
		newest   []time.Time // starts of new sessions in the last minute
		stopping bool
	}
	counts counters
}

type counters struct {
	events, doubles, taken, badFrames, cutFrames, refused, dropped atomic.Int64
	decisions                                                      sync.Map // code -> *atomic.Int64
	lastLive                                                       atomic.Int64
}

// New checks the options; nothing is opened before Run.
func New(opt Options) *Daemon {
	d := &Daemon{opt: opt, log: opt.Log, dir: statedir.Dir{Root: opt.StateDir, FS: opt.FS}, ready: make(chan struct{}), started: time.Now()}
	d.mu.sessions = map[checkpoint.Key]*session{}
	d.mu.paths = map[string]map[checkpoint.Key]bool{}
	d.mu.procs = map[checkpoint.Proc]bool{}
	d.mu.claimed = map[checkpoint.Key]int{}
	d.mu.subs = map[*subscriber]bool{}
	return d
}

// Run listens, replays, serves until ctx ends, and then takes the last checkpoints. It returns ErrRunning when another
// daemon holds the lock.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.dir.Make(); err != nil {
		if errors.Is(err, statedir.ErrForeign) {
			return err
		}
		d.health = err // degraded from the start: events are held in memory, hooks notice nothing
		d.log.Error("state folder", zap.Error(err))
	}
	l, unlock, err := Listen(d.opt.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	d.socket = l.Addr().String()
	d.life, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer d.wait.Wait()
	defer d.stop()
	served := make(chan error, 1)
	go func() { served <- d.serve(ctx, l) }() // first of all: clients wait for ready, not for a socket
	if err := d.open(ctx); err != nil {
		return errors.Join(err, l.Close(), <-served)
	}
	close(d.ready)
	d.log.Info("ready", zap.String("socket", d.socket), zap.Duration("after", time.Since(d.started)))
	d.wait.Go(func() { d.drainSpool(d.life) })
	select {
	case <-ctx.Done():
	case err = <-served:
		served <- nil
	case <-d.idleExit(ctx):
		d.log.Info("no live agent for long; the next hook starts belay again")
	}
	return errors.Join(err, d.shutdown(l, served))
}

// open brings up everything behind the socket.
func (d *Daemon) open(ctx context.Context) (err error) {
	if err := d.sweep(); err != nil {
		d.log.Warn("sweep left-over files", zap.Error(err))
	}
	if d.journal, err = journal.Open(d.opt.FS, d.dir.Journal(), journal.Options{SegmentBytes: d.opt.SegmentBytes, Memory: d.opt.MemoryBytes}); err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	files, err := filestore.Open(d.opt.FS, d.opt.StateDir)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	bo := d.opt.Breaker
	bo.FS, bo.StateFile, bo.Log = d.opt.FS, d.dir.Breaker(), d.log
	if d.store, err = breaker.New(files, bo); err != nil {
		return fmt.Errorf("open the breaker: %w", err)
	}
	if d.codec, err = mirror.NewCodec(); err != nil {
		return fmt.Errorf("open the mirror's codec: %w", err)
	}
	d.watch = watch.New(watch.Options{Log: d.log, Poll: d.opt.Poll, PollMax: d.opt.PollMax, NotifyOff: !d.opt.Notify})
	states, err := d.replay(ctx)
	if err != nil {
		return err
	}
	if d.beats, err = d.newBeats(); err != nil {
		return err
	}
	d.wait.Go(func() { d.must("journal", d.journal.Run(d.life)) })
	d.wait.Go(func() { d.must("breaker", d.store.Run(d.life)) })
	d.wait.Go(func() { d.must("watch", d.watch.Run(d.life)) })
	d.wait.Go(func() { d.must("heartbeat", d.beats.Run(d.life)) })
	d.wait.Go(func() { d.followChanges(d.life) })
	d.wait.Go(func() { d.followBreaker(d.life) })
	d.wait.Go(func() { d.followJournal(d.life) })
	for _, s := range states {
		d.start(s, true)
	}
	return nil
}

func (d *Daemon) must(what string, err error) {
	if err != nil && d.life.Err() == nil {
		d.log.Error(what+" ended", zap.Error(err))
	}
}

// sweep removes what a crash left of half-made files; the lock is ours.
func (d *Daemon) sweep() error {
	return vfs.SweepTemps(d.opt.FS, d.opt.StateDir)
}

// replay folds the journal into the states that it touches.
func (d *Daemon) replay(ctx context.Context) ([]*checkpoint.State, error) {
	states := map[checkpoint.Key]*checkpoint.State{}
	last := d.journal.Health().Last
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
			s.Apply(e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("replay the journal: %w", err)
	}
	d.log.Info("replayed", zap.Any("report", rep), zap.Int("sessions", len(states)))
	list := make([]*checkpoint.State, 0, len(states))
	for _, s := range states {
		list = append(list, s)
	}
	return list, nil
}

// load reads a session from disk: its saved state, else its newest checkpoint, else nothing.
func (d *Daemon) load(key checkpoint.Key, last uint64) *checkpoint.State {
	s, err := d.dir.LoadState(key)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.log.Warn("load state", zap.Stringer("session", key), zap.Error(err))
		}
		if s = d.fromCheckpoints(key); s == nil {
			return checkpoint.NewState(key)
		}
	}
	if s.Seq > last {
		s.Seq = last // the journal lost what the state holds: its numbers start again below
	}
	return s
}

// fromCheckpoints restores a session from its newest whole checkpoint.
func (d *Daemon) fromCheckpoints(key checkpoint.Key) *checkpoint.State {
	list, err := d.store.List(d.life, key)
	if err != nil || len(list) == 0 {
		return nil
	}
	c, damaged, err := checkpoint.Newest(list, func(n uint64) ([]byte, error) { return d.store.Get(d.life, key, n) })
	if err != nil {
		d.log.Warn("no usable checkpoint", zap.Stringer("session", key), zap.Int("damaged", damaged), zap.Error(err))
		return nil
	}
	return c.Restore()
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
	s := &session{d: d, key: state.Key, inbox: make(chan func(), 64), done: make(chan struct{}), state: state, saved: state.Seq,
		fresh: state.Began.IsZero(), lastSeen: time.Now(), noted: map[string]bool{}}
	for _, a := range d.opt.Agents {
		if a.Name() == state.Key.Agent {
			s.agent = a
		}
	}
	if replayed {
		s.saved = 0 // what the journal added is not in the file
		s.lastSeen = state.LastEvent
		s.resume()
	}
	d.mu.Lock()
	if other := d.mu.sessions[state.Key]; other != nil {
		d.mu.Unlock()
		return other
	}
	d.mu.sessions[state.Key] = s
	d.mu.Unlock()
	d.wait.Go(func() {
		s.run(d.life)
		s.closeSource()
	})
	if state.Proc != nil && state.Live {
		d.waitFor(*state.Proc, s.key)
	}
	if state.Transcript != "" {
		s.do(d.life, func() { s.changed(d.life) })
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
func (d *Daemon) retire(ctx context.Context, s *session) bool {
	if err := s.save(ctx); err != nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(s.inbox) > 0 || d.mu.stopping {
		return false
	}
	delete(d.mu.sessions, s.key)
	return true
}

// deliver hands an event to a session, without waiting for its answer.
func (d *Daemon) deliver(ctx context.Context, key checkpoint.Key, e checkpoint.Event) {
	d.wait.Go(func() { d.apply(ctx, key, e) })
}

// apply hands an event to a session and waits for what the gates say.
func (d *Daemon) apply(ctx context.Context, key checkpoint.Key, e checkpoint.Event) result {
	reply := make(chan result, 1)
	for range 3 { // a session may retire between the look-up and the hand-over
		s := d.session(key)
		if s.do(ctx, func() { reply <- s.event(ctx, e) }) {
			select {
			case r := <-reply:
				return r
			case <-s.done:
				select {
				case r := <-reply:
					return r
				default:
				}
			case <-ctx.Done():
				return result{err: ctx.Err()}
			}
		}
		if ctx.Err() != nil {
			return result{err: ctx.Err()}
		}
	}
	return result{err: errors.New("the session is stopping")}
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
}

func (d *Daemon) unbind(path string, key checkpoint.Key) {
	d.mu.Lock()
	delete(d.mu.paths[path], key)
	last := len(d.mu.paths[path]) == 0
	if last {
		delete(d.mu.paths, path)
	}
	d.mu.Unlock()
	if last {
		d.watch.Remove(path)
	}
}

// shutdown takes the forced FULL of every session with something new, newest activity first, within its budget; the rest
// is owed at the next start. Then everything ends.
func (d *Daemon) shutdown(l net.Listener, served <-chan error) error {
	d.mu.Lock()
	d.mu.stopping = true
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(d.life, stopBudget)
	defer cancel()
	d.lastCheckpoints(ctx)
	err := l.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	d.stop()
	err = errors.Join(err, <-served)
	d.wait.Wait()
	return err
}

var _ agent.Agent // the daemon knows agents by this interface alone
