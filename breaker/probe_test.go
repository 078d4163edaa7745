package breaker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"belay/checkpoint"
	"belay/internal/vfs/vfstest"
)

func TestC09ParallelWritesInHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		trip(t, b, f)
		puts, probes, _ := f.asked()
		f.setDown(nil)
		f.hold = make(chan struct{})
		start(t, b)
		time.Sleep(DefaultPause + time.Second)
		wantPhase(t, b, "while the probe is under way", HalfOpen)
		var deferred atomic.Int32
		var writers sync.WaitGroup
		owed := make(chan int, 20)
		for i := range 20 {
			writers.Go(func() {
				if err := put(b, session(i), 1); errors.Is(err, ErrOpen) {
					deferred.Add(1)
					owed <- i
				}
			})
		}

		writers.Wait()
		if p, q, _ := f.asked(); p != puts || q != probes+1 || deferred.Load() != 20 {
			t.Errorf("got %d writes, %d probes, %d deferred; want 0, 1, 20", p-puts, q-probes, deferred.Load())
		}

		close(f.hold)
		synctest.Wait()
		wantPhase(t, b, "after the probe", Closed)
		close(owed)
		for i := range owed {
			if err := put(b, session(i), 1); err != nil {
				t.Errorf("owed write: %v", err)
			}
		}

		if _, _, saved := f.asked(); saved != 20 {
			t.Errorf("%d saved in the end, want 20", saved)
		}
	})
}

// Without Run the first write after the pause is the probe, and gobreaker refuses the others.
func TestC09OneWriteIsTheProbe(t *testing.T) {
	for name, after := range map[string]error{"works": nil, "fails": errDisk} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				b := newBreaker(t, f, Options{})
				trip(t, b, f)
				f.setDown(after)
				before, _, _ := f.asked()
				f.stuck = make(chan struct{})
				time.Sleep(DefaultPause + time.Second)

				var refused atomic.Int32
				var writers sync.WaitGroup
				for i := range 20 {
					writers.Go(func() {
						if err := put(b, session(i), 1); errors.Is(err, ErrOpen) {
							refused.Add(1)
						}
					})
				}

				synctest.Wait()
				wantPhase(t, b, "while a write is the probe", HalfOpen)
				close(f.stuck)
				writers.Wait()
				if puts, _, _ := f.asked(); puts != before+1 || refused.Load() != 19 {
					t.Errorf("%d writes and %d refused, want 1 and 19", puts-before, refused.Load())
				}

				if after == nil {
					wantPhase(t, b, "after the write", Closed)
					return
				}

				wantPhase(t, b, "after the write", Open)
				if got := time.Until(b.State().NextProbe); got != 2*DefaultPause {
					t.Errorf("next probe in %s, want %s", got, 2*DefaultPause)
				}
			})
		})
	}
}

// A write that began before the trip and ends while the breaker is open neither closes it nor prolongs the pause.
func TestLateWriteChangesNothing(t *testing.T) {
	for name, broken := range map[string]error{"works": nil, "fails": errDisk} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				b := newBreaker(t, f, Options{})
				stuck := make(chan struct{})
				release := sync.OnceFunc(func() { close(stuck) })
				t.Cleanup(release)
				f.stuck = stuck
				late := make(chan error, 1)
				go func() { late <- put(b, session(1), 1) }()
				synctest.Wait()
				f.stuck = nil
				trip(t, b, f)
				want := b.State().NextProbe

				time.Sleep(time.Second)
				f.setDown(broken)
				release()
				if err := <-late; !errors.Is(err, broken) {
					t.Errorf("the late write: got %v, want %v", err, broken)
				}
				if s := b.State(); s.Phase != Open || !s.NextProbe.Equal(want) || s.Trips != 1 {
					t.Errorf("after the late write: %+v, want open with a probe at %s", s, want)
				}
			})
		})
	}
}

// A cancelled write in half-open says nothing, and the next request is the probe.
func TestCancelledWriteIsNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		trip(t, b, f)
		f.setDown(nil)
		time.Sleep(DefaultPause + time.Second)

		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		meta := checkpoint.Meta{Number: 1, Level: checkpoint.Full}
		if err := b.Put(ctx, session(1), meta, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}

		wantPhase(t, b, "after the cancelled write", HalfOpen)
		if err := put(b, session(1), 1); err != nil {
			t.Errorf("the next write: %v", err)
		}

		wantPhase(t, b, "after the next write", Closed)
	})
}

// A disk with room for a few bytes takes no checkpoint. Probes of the size that failed tell so, after a restart too.
func TestNearlyFullDiskIsTheStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, f := vfstest.NewMem(), newFake()
		opt := Options{FS: mem, StateFile: stateFile}
		b := newBreaker(t, f, opt)
		stop := start(t, b)
		f.setRoom(100)
		for n := range uint64(DefaultFailures) {
			err := b.Put(
				t.Context(), session(1), checkpoint.Meta{Number: n, Level: checkpoint.Full}, make([]byte, 5000),
			)
			if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrSession) {
				t.Errorf("got %v, want the disk's error", err)
			}
		}

		time.Sleep(time.Minute)
		wantPhase(t, b, "after a probe of the nearly full disk", Open)
		stop()

		b = newBreaker(t, f, opt)
		start(t, b)
		time.Sleep(time.Second)
		wantPhase(t, b, "after the restart", Open)
		f.setRoom(0)
		time.Sleep(DefaultMaxPause)
		wantPhase(t, b, "after a probe of the disk with room", Closed)
		for i, size := range f.mu.sizes {
			if size < 5000 {
				t.Errorf("probe %d wrote %d bytes, want 5000 at least", i+1, size)
			}
		}
	})
}
