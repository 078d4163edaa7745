package session

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/redact"
	"belay/internal/state"
	"belay/internal/state/mirror"
)

// Services is what sessions need of the daemon around them. One value serves all sessions; its fields do not change.
type Services struct {
	Journal Journal
	Store   Store
	Watch   Watch
	Room    Room
	Others  Others
	Mirrors Mirrors

	Dir    state.Dir
	Log    *zap.Logger
	Counts *Counts
	Times  Times

	Settings func() Settings
	Draining func() bool // the spool is being emptied: checkpoints wait until it is
	// Spawn starts a goroutine that may outlive its session: it ends with the context that it is given, and the daemon
	// waits for it.
	Spawn  func(func(ctx context.Context))
	Builds chan struct{} // a slot for each checkpoint that is being written
}

// Journal is the durable log of events.
type Journal interface {
	Append(ctx context.Context, payload []byte) (uint64, error)
	Wait(ctx context.Context, seq uint64) error
}

// Store keeps checkpoints behind a breaker.
type Store interface {
	Put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error
	List(ctx context.Context, key checkpoint.Key) ([]checkpoint.Meta, error)
	Get(ctx context.Context, key checkpoint.Key, number uint64) ([]byte, error)
	State() breaker.State
}

// Watch looks after files and processes, and calls Session.Changed and Session.Exited. None of its methods blocks.
type Watch interface {
	Bind(path string, key checkpoint.Key)
	Unbind(path string, key checkpoint.Key)
	Active(path string) // its agent is at work: look often
	Await(p checkpoint.Proc)
}

// Room bounds what all sessions together keep on disk.
type Room interface {
	Make(ctx context.Context, key checkpoint.Key, bytes int64) // before a checkpoint is put; it never refuses
	Landed(bytes int64, err error)                             // how that put went
	Grown(bytes int64)                                         // a state or a mirror, after the fact
	Full() bool                                                // nothing but checkpoints may grow
	Trim(ctx context.Context, key checkpoint.Key) error        // leaves a session its last good FULL
}

// Others are the sessions beside this one.
type Others interface {
	Apply(ctx context.Context, key checkpoint.Key, e checkpoint.Event) Result
	Known(key checkpoint.Key) bool
	Leave(s *Session) bool // takes an idle session out of memory; false when something has reached its inbox
}

// Mirrors says what copies of transcripts are kept.
type Mirrors struct {
	Off   bool
	Codec *mirror.Codec
	Key   *mirror.Key // of exact mirrors; nil: mirrors without secrets
	NoKey string      // why there is no key although one is wanted
}

// Settings can change while sessions run.
type Settings struct {
	Gates    checkpoint.Gates
	WorkTree bool
}

// Times are no settings, because users have no reason to change them; tests have.
type Times struct {
	IdleAfter    time.Duration // a session without events and without a live process goes to disk
	LateText     time.Duration // how long a build waits for the last answer to reach the transcript
	FlushEvery   time.Duration
	ProcsAfter   time.Duration // a call open for so long has its processes noted
	QuietChain   time.Duration // a chain without an open call or news for so long has ended
	RetryFirst   time.Duration // after a failed checkpoint
	RetryLongest time.Duration
}

// UsualTimes are those outside of tests.
func UsualTimes() Times {
	return Times{
		IdleAfter:    10 * time.Minute,
		LateText:     2 * time.Second,
		FlushEvery:   time.Second,
		ProcsAfter:   time.Second,
		QuietChain:   2 * time.Minute,
		RetryFirst:   time.Second,
		RetryLongest: 30 * time.Second,
	}
}

// MaxBuilds bounds the checkpoints that are written at the same time, each with its git. A store that hangs for one
// session leaves room for the others.
const MaxBuilds = 16

// Counts are kept over all sessions.
type Counts struct {
	Taken, Panics, Ticks atomic.Int64
	LastEvent            atomic.Int64 // unix nanoseconds
	decisions            sync.Map     // code -> *atomic.Int64
}

func (c *Counts) decided(code checkpoint.Code) {
	n, _ := c.decisions.LoadOrStore(string(code), new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// Decisions gives how often the gates answered with each code.
func (c *Counts) Decisions() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		c.decisions.Range(func(code, n any) bool { return yield(code.(string), n.(*atomic.Int64).Load()) })
	}
}

// Degraded says that no checkpoint is written now.
func (v *Services) Degraded() bool { return v.Store.State().Phase != breaker.Closed }

// Safely runs f and survives its panic: one bad record must not take the daemon from all other sessions.
func (v *Services) Safely(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			v.Counts.Panics.Add(1)
			v.Log.Error("panic", zap.String("in", what), zap.String("panic", PanicText(p)),
				zap.ByteString("stack", debug.Stack()))
		}
	}()
	f()
}

// PanicText tells a panic without what it was about: a fault of the runtime quotes nothing, all else may quote what it
// choked on.
func PanicText(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return redact.Text(err.Error())
	}
	return fmt.Sprintf("%T", p)
}
