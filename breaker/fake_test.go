package breaker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"belay/checkpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDisk = errors.New("input/output error")

// fakeStore is a store in memory that fails as it is told.
type fakeStore struct {
	mu struct {
		sync.Mutex
		down   error            // everything fails with it
		broken map[string]error // writes of one session (Key.Dir) fail
		puts   int              // asked for
		probes []time.Time
		sizes  []int // of the probes
		room   int   // when not zero, no write and no probe may be larger
		saved  map[string]bool
	}
	hold  chan struct{} // when not nil, a probe waits for it
	stuck chan struct{} // when not nil, a write waits for it
}

func newFake() *fakeStore {
	f := &fakeStore{}
	f.mu.broken, f.mu.saved = map[string]error{}, map[string]bool{}
	return f
}

func (f *fakeStore) setDown(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.down = err
}

func (f *fakeStore) setBroken(k checkpoint.Key, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.broken[k.Dir()] = err
}

// setRoom lets the store take nothing larger than so many bytes.
func (f *fakeStore) setRoom(bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.room = bytes
}

func (f *fakeStore) asked() (puts, probes, saved int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.puts, len(f.mu.probes), len(f.mu.saved)
}

// probedAt gives the times of all probes, rounded to seconds, from start.
func (f *fakeStore) probedAt(start time.Time) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []time.Duration
	for _, at := range f.mu.probes {
		out = append(out, at.Sub(start).Round(time.Second))
	}
	return out
}

func (f *fakeStore) Put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	f.mu.Lock()
	f.mu.puts++
	f.mu.Unlock()
	if f.stuck != nil {
		<-f.stuck
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.mu.down != nil {
		return f.mu.down
	}
	if err := f.mu.broken[key.Dir()]; err != nil {
		return err
	}
	if f.mu.room > 0 && len(data) > f.mu.room {
		return syscall.ENOSPC
	}

	f.mu.saved[fmt.Sprintf("%s %d", key.Dir(), m.Number)] = true
	return nil
}

func (f *fakeStore) Probe(ctx context.Context, size int) error {
	f.mu.Lock()
	f.mu.probes = append(f.mu.probes, time.Now())
	f.mu.sizes = append(f.mu.sizes, size)
	err := f.mu.down
	if err == nil && f.mu.room > 0 && size > f.mu.room {
		err = syscall.ENOSPC
	}

	f.mu.Unlock()

	if ctx.Err() != nil {
		return ctx.Err()
	}

	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	return err
}

func (f *fakeStore) List(context.Context, checkpoint.Key) ([]checkpoint.Meta, error) { return nil, nil }
func (f *fakeStore) Get(context.Context, checkpoint.Key, uint64) ([]byte, error) {
	return nil, checkpoint.ErrNotFound
}
func (f *fakeStore) Delete(context.Context, checkpoint.Key, uint64) error { return nil }
func (f *fakeStore) Sessions(context.Context) ([]string, error)           { return nil, nil }
func (f *fakeStore) Close() error                                         { return nil }

func newBreaker(t *testing.T, store checkpoint.Store, opt Options) *Breaker {
	t.Helper()
	b, err := New(store, opt)
	if err != nil {
		t.Fatalf("new breaker: %v", err)
	}
	return b
}

// start runs the probing loop until the test ends or the returned function ends it.
func start(t *testing.T, b *Breaker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})

	t.Cleanup(stop)
	return stop
}

// changed gives the breaker's next change.
func changed(t *testing.T, b *Breaker) Change {
	t.Helper()
	select {
	case ch := <-b.Changes():
		return ch
	case <-time.After(time.Hour):
		t.Fatal("no change in an hour")
		return Change{}
	}
}

func session(n int) checkpoint.Key {
	return checkpoint.Key{Agent: "agent", Session: fmt.Sprintf("s%d", n)}
}

func put(b *Breaker, k checkpoint.Key, n uint64) error {
	return b.Put(context.Background(), k, checkpoint.Meta{Number: n, Level: checkpoint.Full}, []byte("x"))
}

// trip lets so many writes fail as open the breaker.
func trip(t *testing.T, b *Breaker, f *fakeStore) {
	t.Helper()
	f.setDown(errDisk)
	for n := range uint64(DefaultFailures) {
		if err := put(b, session(0), 1000+n); !errors.Is(err, errDisk) || errors.Is(err, ErrSession) {
			t.Fatalf("write %d on a bad disk: got %v, want the disk's error", n, err)
		}
	}

	if got := b.State().Phase; got != Open {
		t.Fatalf("after %d failures: %s, want open", DefaultFailures, got)
	}
}

func wantPhase(t *testing.T, b *Breaker, when string, want Phase) {
	t.Helper()
	if got := b.State(); got.Phase != want {
		t.Errorf("%s: %+v, want %s", when, got, want)
	}
}

// hooked is a logger that calls f with each message.
func hooked(f func(msg string)) *zap.Logger {
	core := zapcore.NewCore(
		zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zap.DebugLevel,
	)
	return zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		f(e.Message)
		return nil
	}))
}
