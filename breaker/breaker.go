// Package breaker stands between belay and a store of checkpoints that may fail. It is sony/gobreaker around a
// checkpoint.Store.
//
// Closed, it hands writes on. After three failures of the store in a row it opens: belay is degraded, Put answers
// ErrOpen at once and asks nobody, and its caller owes the checkpoint. Run probes the store with a growing pause and
// closes the breaker when a probe works; Changes then tells the daemon to catch up. A write that fails while the store's
// probe works is the session's own failure (ErrSession): the breaker stays as it is, and after three in a row that
// session alone is set aside (ErrAside), with a growing pause of its own.
//
// Trips are stored: after a restart an open breaker is open and is probed at once.
//
// It promises that no failure of the store is hidden and that no state but Manual lasts for ever. It does not keep what
// it refused, it does not retry by itself, and it cannot end a write that hangs in the kernel.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/vfs"
)

// Errors of Put. Each comes wrapped; use errors.Is.
var (
	// ErrOpen: the breaker is open, nothing was asked or written. The checkpoint is owed.
	ErrOpen = errors.New("degraded: the store's breaker is open")
	// ErrSession: this write failed although the store works. The cause is wrapped too.
	ErrSession = errors.New("the store works, but not for this session")
	// ErrAside: the session failed too often and is set aside; nothing was asked or written. The checkpoint is owed.
	ErrAside = errors.New("session set aside")
)

// errLate ends a write that was let in and met an open breaker.
var errLate = errors.New("opened meanwhile")

// Defaults of Options.
const (
	DefaultFailures = 3
	DefaultPause    = 30 * time.Second
	DefaultMaxPause = 10 * time.Minute
)

// checkTimeout bounds the probe after a failed write and each probe of an open breaker.
const checkTimeout = 30 * time.Second

// Options of New. The zero value is usable.
type Options struct {
	Failures int           // in a row: of the store to open, of a session to set it aside
	Pause    time.Duration // before the first probe; it doubles
	MaxPause time.Duration // and grows no further
	// Manual: only Reset or a restart closes the breaker and takes sessions back.
	Manual bool
	// FS and StateFile are where trips are stored; without FS they are not.
	FS        vfs.FS
	StateFile string
	Log       *zap.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Failures < 0 || o.Pause < 0 || o.MaxPause < 0 {
		return o, fmt.Errorf("new breaker: failures %d, pause %s, longest pause %s: none may be negative", o.Failures, o.Pause, o.MaxPause)
	}
	if o.Failures == 0 {
		o.Failures = DefaultFailures
	}
	if o.Pause == 0 {
		o.Pause = DefaultPause
	}
	if o.MaxPause == 0 {
		o.MaxPause = max(DefaultMaxPause, o.Pause)
	}
	if o.MaxPause < o.Pause {
		return o, fmt.Errorf("new breaker: longest pause %s is shorter than the first, %s", o.MaxPause, o.Pause)
	}
	if o.FS != nil && o.StateFile == "" {
		return o, errors.New("new breaker: no name for the state file")
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return o, nil
}

// Phase is the breaker's state.
type Phase string

// The phases. HalfOpen is open with a probe under way: writes are refused in both.
const (
	Closed   Phase = "closed"
	Open     Phase = "open"
	HalfOpen Phase = "half-open"
)

// State is what status shows.
type State struct {
	Phase     Phase     `json:"phase"`
	Since     time.Time `json:"since"`
	Failures  int       `json:"failures"` // of the store, in a row
	Trips     int       `json:"trips"`    // in all, restarts included
	NextProbe time.Time `json:"next_probe,omitzero"`
	Reason    string    `json:"reason,omitempty"` // the store's last failure; empty after the breaker closed
	Manual    bool      `json:"manual,omitempty"`
	Aside     []Aside   `json:"aside,omitempty"` // by session
}

// Aside is a session that was set aside.
type Aside struct {
	Session  string    `json:"session"` // Key.Dir
	Failures int       `json:"failures"`
	Since    time.Time `json:"since"` // its first failure
	Reason   string    `json:"reason"`
	NextTry  time.Time `json:"next_try,omitzero"` // its next write from then on is tried
}

// Change says that the breaker opened or closed.
type Change struct {
	Open   bool
	At     time.Time
	Since  time.Time // when it opened; for both
	Reason string    // why it opened; for both
	Trips  int
}

// Breaker is a checkpoint.Store that refuses writes while the store below it fails.
type Breaker struct {
	store checkpoint.Store
	opt   Options
	cb    *gobreaker.CircuitBreaker[struct{}]

	transitions chan gobreaker.State // filled under gobreaker's lock, emptied under mu
	changes     chan Change
	kick        chan struct{} // tells Run that there is something to do
	slot        chan struct{} // holds a token while nobody probes

	mu struct {
		sync.Mutex
		core core
	}
}

var _ checkpoint.Store = (*Breaker)(nil)

// New puts a breaker around store and replays what the last run stored. It starts nothing: without Run an open breaker
// stays open.
func New(store checkpoint.Store, opt Options) (*Breaker, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Breaker{
		store: store, opt: opt,
		transitions: make(chan gobreaker.State, 16),
		changes:     make(chan Change, 1),
		kick:        make(chan struct{}, 1),
		slot:        make(chan struct{}, 1),
	}
	b.slot <- struct{}{}
	b.cb = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "checkpoint store",
		MaxRequests: 1,
		// All pauses are ours. With the shortest one it lets our probe in whenever we ask, and nobody else asks.
		Timeout:      time.Nanosecond,
		ReadyToTrip:  func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= uint32(opt.Failures) },
		IsSuccessful: func(err error) bool { return err == nil || blame(err) == bySession },
		IsExcluded:   func(err error) bool { return err != nil && blame(err) == byNobody },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			// gobreaker holds its lock here: nothing but this. The buffer is larger than the transitions that can happen
			// before one of those who caused them empties it.
			select {
			case b.transitions <- to:
			default:
			}
		},
	})
	now := time.Now()
	b.mu.core = newCore(opt.Failures, opt.Pause, opt.MaxPause, opt.Manual, now)
	b.replay(load(opt.FS, opt.StateFile, opt.Log), now)
	return b, nil
}

// replay makes gobreaker, whose state cannot be set, fail as often as it takes to open.
func (b *Breaker) replay(r record, now time.Time) {
	if r.Version == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.core.resume(r, now)
	if !r.Open {
		return
	}
	for range b.opt.Failures {
		_, _ = b.cb.Execute(func() (struct{}, error) { return struct{}{}, &verdict{byStore, ErrOpen} }) // it fails, as it must
	}
	<-b.transitions // to open, which resume has booked
	b.opt.Log.Warn("degraded since before the restart: the store is probed at once", zap.String("reason", r.Reason))
	b.emit(Change{Open: true, At: now, Since: b.mu.core.since, Reason: r.Reason, Trips: b.mu.core.trips})
}

// who is to blame for a write or probe that failed.
type who int

const (
	byStore   who = iota // it counts against the store
	bySession            // the store works
	byNobody             // cancelled, bad input: it says nothing about the store
)

// verdict is a failed write with its blame, on its way through gobreaker.
type verdict struct {
	who who
	error
}

func (v *verdict) Unwrap() error { return v.error }

// blame reads a verdict. What has none is a panic, which gobreaker turned into an error: the store's.
func blame(err error) who {
	if v, ok := err.(*verdict); ok {
		return v.who
	}
	return byStore
}

// harmless says whether a write's error tells nothing about store or session.
func harmless(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled) ||
		errors.Is(err, checkpoint.ErrExists) || errors.Is(err, checkpoint.ErrNotFound) || errors.Is(err, checkpoint.ErrDamaged) ||
		errors.Is(err, fs.ErrInvalid)
}

// Put writes through the breaker. See the package comment and the errors above.
func (b *Breaker) Put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	dir := key.Dir()
	if err := b.admit(dir); err != nil {
		return fmt.Errorf("put checkpoint %d of %s: %w", m.Number, key, err)
	}
	_, err := b.cb.Execute(func() (struct{}, error) {
		// Between admit and here somebody else's failure may have opened the breaker, and gobreaker then takes this write
		// for a probe. It is none.
		if !b.closed() {
			return struct{}{}, &verdict{byNobody, errLate}
		}
		return struct{}{}, b.write(ctx, key, m, data)
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) || errors.Is(err, errLate) {
		return fmt.Errorf("put checkpoint %d of %s: %w", m.Number, key, ErrOpen)
	}
	b.settle(dir, err)
	if v, ok := err.(*verdict); ok {
		return v.error
	}
	return err
}

// admit refuses at once what needs no asking.
func (b *Breaker) admit(dir string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.mu.core
	if c.open {
		return fmt.Errorf("%w (%s)", ErrOpen, c.reason)
	}
	if reason, yes := c.aside(dir, time.Now()); yes {
		return fmt.Errorf("%w (%s)", ErrAside, reason)
	}
	return nil
}

func (b *Breaker) closed() (yes bool) {
	b.update(func(time.Time) {})
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.mu.core.open
}

// write does the write, and when it fails finds out who is to blame.
func (b *Breaker) write(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	err := b.store.Put(ctx, key, m, data)
	if err == nil {
		return nil
	}
	if harmless(ctx, err) {
		return &verdict{byNobody, err}
	}
	// The writer's own deadline may be over, which is no reason to blame the store.
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	if perr := b.store.Probe(check); perr != nil {
		return &verdict{byStore, err}
	}
	return &verdict{bySession, fmt.Errorf("%w: %w", ErrSession, err)}
}

// settle books what became of a write that was asked for.
func (b *Breaker) settle(dir string, err error) {
	aside := false
	b.update(func(now time.Time) {
		c := &b.mu.core
		switch {
		case err == nil:
			c.wrote()
			delete(c.sessions, dir)
		case blame(err) == bySession:
			c.failures = 0
			aside = c.sessionFailed(dir, cut(err.Error()), now)
		case blame(err) == byStore && !c.open:
			c.failed(cut(err.Error()))
		}
	})
	if aside {
		b.opt.Log.Warn("session set aside: its checkpoints fail while others' work", zap.String("session", dir), zap.Error(err))
	}
}

// update changes what the breaker knows, then books the transitions that gobreaker has reported so far.
func (b *Breaker) update(f func(now time.Time)) {
	var happened []Change
	b.mu.Lock()
	now := time.Now()
	f(now)
	for more := true; more; {
		select {
		case to := <-b.transitions:
			if ch, ok := b.book(to, now); ok {
				happened = append(happened, ch)
				b.emit(ch)
			}
		default:
			more = false
		}
	}
	next := b.mu.core.probe.at()
	b.mu.Unlock()
	for _, ch := range happened {
		if ch.Open {
			b.opt.Log.Warn("degraded: the store's breaker opened, no checkpoint is written",
				zap.String("reason", ch.Reason), zap.Int("trips", ch.Trips), zap.Time("next_probe", next))
		} else {
			b.opt.Log.Info("the store's breaker closed, checkpoints are written again", zap.Duration("open_for", elapsed(ch.Since, ch.At)))
		}
		b.wake()
	}
}

// book is called under the lock. Half-open is only gobreaker's way from open to closed and changes nothing for us; so
// does its way back after a failed probe.
func (b *Breaker) book(to gobreaker.State, now time.Time) (Change, bool) {
	c := &b.mu.core
	switch {
	case to == gobreaker.StateOpen && !c.open:
		c.trip(now)
		return Change{Open: true, At: now, Since: now, Reason: c.reason, Trips: c.trips}, true
	case to == gobreaker.StateClosed && c.open:
		ch := Change{At: now, Since: c.since, Reason: c.reason, Trips: c.trips}
		c.close(now)
		return ch, true
	}
	return Change{}, false
}

// emit is called under the lock, so that there is one sender: a change that nobody has read gives way to the newer one.
func (b *Breaker) emit(ch Change) {
	select {
	case <-b.changes:
	default:
	}
	b.changes <- ch
}

func (b *Breaker) wake() {
	select {
	case b.kick <- struct{}{}:
	default: // Run is told already
	}
}

// Changes gives the newest change; older ones that were not read are left out. It is never closed.
func (b *Breaker) Changes() <-chan Change { return b.changes }

// State is the breaker's state now.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.core.state()
}

// List passes through.
func (b *Breaker) List(ctx context.Context, key checkpoint.Key) ([]checkpoint.Meta, error) {
	return b.store.List(ctx, key)
}

// Get passes through.
func (b *Breaker) Get(ctx context.Context, key checkpoint.Key, number uint64) ([]byte, error) {
	return b.store.Get(ctx, key, number)
}

// Delete passes through.
func (b *Breaker) Delete(ctx context.Context, key checkpoint.Key, number uint64) error {
	return b.store.Delete(ctx, key, number)
}

// Sessions passes through.
func (b *Breaker) Sessions(ctx context.Context) ([]string, error) { return b.store.Sessions(ctx) }

// Probe passes through: it does not change the breaker. Reset does.
func (b *Breaker) Probe(ctx context.Context) error { return b.store.Probe(ctx) }

// Close closes the store.
func (b *Breaker) Close() error { return b.store.Close() }
