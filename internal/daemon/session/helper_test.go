package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"belay/breaker"
	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/state"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("the store is broken")

// disk is a store in memory that fails while fault is set, and never has a breaker.
type disk struct {
	checkpoint.Store
	mu    sync.Mutex
	fault func() error
	puts  []time.Time
}

func (d *disk) Put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	d.mu.Lock()
	fault := d.fault
	d.puts = append(d.puts, time.Now())
	d.mu.Unlock()
	if fault != nil {
		if err := fault(); err != nil {
			return err
		}
	}

	return d.Store.Put(ctx, key, m, data)
}

func (d *disk) State() breaker.State { return breaker.State{Phase: breaker.Closed} }

func (d *disk) fail(fault func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// surroundings are what a daemon is to a session: nobody watches, there is room, and no other session is there.
type surroundings struct{ left atomic.Bool }

func (*surroundings) Bind(string, checkpoint.Key)                 {}
func (*surroundings) Unbind(string, checkpoint.Key)               {}
func (*surroundings) Active(string)                               {}
func (*surroundings) Await(checkpoint.Proc)                       {}
func (*surroundings) Make(context.Context, checkpoint.Key, int64) {}
func (*surroundings) Landed(int64, error)                         {}
func (*surroundings) Grown(int64)                                 {}
func (*surroundings) Full() bool                                  { return false }
func (*surroundings) Trim(context.Context, checkpoint.Key) error  { return nil }
func (*surroundings) Known(checkpoint.Key) bool                   { return false }

func (h *surroundings) Leave(
	s *Session,
) bool {
	h.left.Store(!s.HasMail())
	return h.left.Load()
}
func (*surroundings) Apply(context.Context, checkpoint.Key, checkpoint.Event) Result { return Result{} }

// bench is a session on the test's clock, without a daemon.
type bench struct {
	*Session
	t     *testing.T
	began time.Time
	disk  *disk
	house *surroundings
	logs  *observer.ObservedLogs
	ended chan struct{}
}

// alone runs a test with one session in a bubble.
func alone(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir := state.Dir{Root: "/state", FS: vfstest.NewMem()}
		if err := vfs.MakeDir(dir.FS, dir.Root); err != nil {
			t.Fatal(err)
		}

		j, err := journal.Open(dir.FS, dir.Journal(), journal.Options{})
		if err != nil {
			t.Fatal(err)
		}

		store, err := dir.OpenStore()
		if err != nil {
			t.Fatal(err)
		}

		core, logs := observer.New(zapcore.DebugLevel)
		b := &bench{
			t:     t,
			began: time.Now(),
			disk:  &disk{Store: store},
			house: &surroundings{},
			logs:  logs,
			ended: make(chan struct{}),
		}

		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var all sync.WaitGroup
		settings := Settings{
			Gates: checkpoint.Gates{
				SparseTime:   5 * time.Minute,
				SparseRounds: 5,
				FullTime:     5 * time.Minute,
				ForcedTime:   time.Second,
			},
		}

		key := checkpoint.NewKey("tester", "", "s", "/proj")
		b.Session = New(
			&Services{
				Journal:  j,
				Store:    b.disk,
				Watch:    b.house,
				Room:     b.house,
				Others:   b.house,
				Dir:      dir,
				Log:      zap.New(core),
				Counts:   &Counts{},
				Times:    UsualTimes(),
				Settings: func() Settings { return settings },
				Draining: func() bool { return false },
				Spawn:    func(f func(context.Context)) { all.Go(func() { f(ctx) }) },
				Builds:   make(chan struct{}, MaxBuilds),
			},
			checkpoint.NewState(key),
			nil,
			false,
		)

		all.Go(func() {
			if err := j.Run(ctx); err != nil {
				t.Error(err)
			}
		})

		all.Go(func() { defer close(b.ended); b.Run(ctx) })
		test(t, b)
		cancel()
		all.Wait()
	})
}

// at waits for a moment of the test.
func (b *bench) at(when time.Duration) {
	time.Sleep(time.Until(b.began.Add(when)))
	synctest.Wait()
}

// say hands an event to the session.
func (b *bench) say(e checkpoint.Event) Result {
	b.t.Helper()
	r, ok := b.Apply(b.t.Context(), e)
	if !ok || r.Err != nil {
		b.t.Fatalf("%s: %+v, answered: %t", e.Kind, r, ok)
	}
	return r
}

// round plays one prompt and its answer.
func (b *bench) round() Result {
	b.t.Helper()
	b.say(checkpoint.Event{Kind: checkpoint.EventPrompt, Text: "a wish"})
	return b.say(checkpoint.Event{Kind: checkpoint.EventStop, Text: "an answer"})
}

// taken lists the session's checkpoints, oldest first, each as its level and its time.
func (b *bench) taken() (list []string) {
	b.t.Helper()
	synctest.Wait()
	metas, err := b.Store.List(b.t.Context(), b.Key)
	if err != nil {
		b.t.Fatal(err)
	}

	for _, m := range metas {
		list = append([]string{string(m.Level) + " " + m.At.Sub(b.began).Round(time.Second).String()}, list...)
	}

	return list
}
