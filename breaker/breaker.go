// Package breaker stands between belay and a store of checkpoints that may fail. It is sony/gobreaker around a
// checkpoint.Store.
//
// While the breaker is closed it hands writes on. After three failures of the store in a row it opens: belay is
// degraded, Put answers ErrOpen at once and asks nobody, and the caller owes the checkpoint. After a pause one request
// goes through as the probe: Run's, or a write that comes first. If it works the breaker closes, and Changes tells the
// daemon to catch up. If it fails the next pause is longer.
//
// When a write fails, a probe of at least its size tells whose failure it is. If the probe fails too, it is the store's
// failure. If the probe works it is the session's (ErrSession): the store's breaker stays closed, and after three in a
// row a breaker of the session's own opens and sets that session aside (ErrAside). If then a second session is set
// aside and no write has worked in between, the failure is the store's after all.
//
// gobreaker does the breaking, for the store and for each session: its counts and ReadyToTrip open it, its Timeout is
// the pause, its ErrOpenState refuses, its half-open state lets one request through, its State is what status shows,
// and IsExcluded passes over what says nothing about the store, such as a cancelled write. Its shared store hands a
// state to the gobreaker with the next longer Timeout, and an open state to the first one after a restart. Ours are the
// growth of the pause, whose failure it is, asking in time (gobreaker turns half-open only when somebody asks), Reset,
// and what is stored.
//
// Trips are stored: after a restart an open breaker is open and is probed at once.
//
// The package promises that no failure of the store is hidden and that no state but Manual lasts for ever. It does not
// keep what it refused, it does not write again by itself, and it cannot end a write that hangs in the kernel.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
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
		return o, fmt.Errorf("new breaker: failures %d, pause %s, longest pause %s: none may be negative",
			o.Failures, o.Pause, o.MaxPause)
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
	if o.Manual {
		o.Pause, o.MaxPause = forever, forever
	}
	if o.FS != nil && o.StateFile == "" {
		return o, errors.New("new breaker: no name for the state file")
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}

	return o, nil
}

// Breaker refuses writes while the store below it fails.
type Breaker struct {
	store checkpoint.Store
	opt   Options

	changes chan Change
	kick    chan struct{} // tells Run that there is something to do
	second  atomic.Bool   // a second session was set aside since the last write that worked

	mu struct {
		sync.Mutex
		circuit  *circuit
		failures int // of the store, in a row: writes, then probes
		trips    int
		reason   string
		size     int // of the write that failed: the least that a probe writes, in bytes

		sessions map[string]*fault // by Key.Dir
		lastAway string            // the session set aside last, if no write has worked since
	}
}

// New puts a breaker around store and goes on with what the last run stored. It starts nothing: without Run an open
// breaker closes only by a write that comes after its pause.
func New(store checkpoint.Store, opt Options) (*Breaker, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}

	b := &Breaker{store: store, opt: opt, changes: make(chan Change, 1), kick: make(chan struct{}, 1)}
	now := time.Now()
	b.mu.circuit = newCircuit(b.settings(), opt.Pause, opt.MaxPause, now)
	b.mu.sessions = make(map[string]*fault)
	b.resume(load(opt.FS, opt.StateFile, opt.Log), now)
	return b, nil
}

// settings are those of the store's gobreaker.
func (b *Breaker) settings() gobreaker.Settings {
	return gobreaker.Settings{
		Name: "checkpoint store",
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return n.ConsecutiveFailures >= uint32(b.opt.Failures) || b.second.Load()
		},
		IsSuccessful: func(err error) bool { return err == nil || blames(err, bySession) },
		IsExcluded:   func(err error) bool { return blames(err, byNobody) },
		OnStateChange: func(string, gobreaker.State, gobreaker.State) {
			b.wake() // gobreaker holds its lock here: nothing but this
		},
	}
}

// who is to blame for a request that failed.
type who int

const (
	byStore   who = iota
	bySession     // the store works
	byNobody      // cancelled, bad input: it says nothing about the store
)

// verdict is a failed request with its blame, on its way through gobreaker.
type verdict struct {
	who who
	error
}

func (v *verdict) Unwrap() error { return v.error }

// blames says whether err is a verdict against w. A panic, which gobreaker takes for a failure, is none.
func blames(err error, w who) bool {
	v, ok := err.(*verdict)
	return ok && v.who == w
}

// harmless says whether a write's error tells nothing about store or session.
func harmless(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled) ||
		errors.Is(err, checkpoint.ErrExists) || errors.Is(err, checkpoint.ErrNotFound) ||
		errors.Is(err, checkpoint.ErrDamaged) || errors.Is(err, fs.ErrInvalid)
}

// Put writes through the breakers of the store and of the session. See the package comment and the errors above.
func (b *Breaker) Put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	dir := key.Dir()
	var session *gate
	store := b.update(func(now time.Time) {
		f := b.session(dir, now)
		f.look(now)
		session = f.gate
	})

	var own error
	err := do(store, func() error {
		own = do(session, func() error { return b.write(ctx, key, m, data) })
		return b.judge(dir, len(data), session, own)
	})

	err = b.settle(dir, own, err)
	if errors.Is(err, ErrOpen) || errors.Is(err, ErrAside) {
		return fmt.Errorf("put checkpoint %d of %s: %w", m.Number, key, err)
	}

	return err
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

	// The writer's own deadline may be over, which says nothing about the store.
	check, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()

	if b.store.Probe(check, len(data)) != nil {
		return &verdict{byStore, err}
	}

	return &verdict{bySession, err}
}

// judge turns what the session's breaker made of a write into what the store's breaker is told. It books a failure
// before gobreaker does, so that the reason is known when the breaker opens.
func (b *Breaker) judge(dir string, size int, session *gate, err error) error {
	if refused(err) {
		return &verdict{byNobody, ErrAside}
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if blames(err, bySession) && session.State() == gobreaker.StateOpen {
		last := b.mu.lastAway
		b.mu.lastAway = dir
		if last != "" && last != dir {
			b.second.Store(true)
			cause := errors.Unwrap(err)
			err = &verdict{byStore, fmt.Errorf("two sessions were set aside one after the other: %w", cause)}
		}
	}

	if blames(err, byStore) {
		b.failed(err)
		b.mu.size = max(b.mu.size, size)
	}

	return err
}

// settle books what became of a write and gives the error that the caller sees. own is what the session's breaker made
// of the write, err what the store's did.
func (b *Breaker) settle(dir string, own, err error) error {
	aside := false
	b.update(func(now time.Time) {
		f := b.session(dir, now)
		if blames(own, bySession) {
			own = fmt.Errorf("%w: %w", ErrSession, errors.Unwrap(own))
			aside = f.failed(cut(own.Error()), now)
		}

		switch {
		case refused(err):
			err = fmt.Errorf("%w (%s)", ErrOpen, b.mu.reason)
		case refused(own):
			err = fmt.Errorf("%w (%s)", ErrAside, f.reason)
		case err == nil:
			b.wrote()
			f.fails = 0
		case blames(err, byStore):
			aside = false // the breaker's change tells of it
		case blames(err, bySession):
			b.mu.failures = 0
			err = own
		}

		if f.fails == 0 {
			delete(b.mu.sessions, dir)
		}
	})

	if aside {
		b.opt.Log.Warn("session set aside: its checkpoints fail while others' work",
			zap.String("session", dir), zap.Error(err))
	}
	if v, ok := err.(*verdict); ok {
		return v.error
	}

	return err
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
