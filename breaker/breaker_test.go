package breaker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"belay/checkpoint"
	"belay/checkpoint/storetest"
	"belay/internal/state"
	"belay/internal/vfs"
)

// whole is a store with a breaker in front of what the breaker has to do with.
type whole struct {
	*Breaker
	below checkpoint.Store
}

func (w whole) Sessions(ctx context.Context) ([]string, error) { return w.below.Sessions(ctx) }
func (w whole) Probe(ctx context.Context, size int) error      { return w.below.Probe(ctx, size) }
func (w whole) Close() error                                   { return w.below.Close() }

// TestConformance: behind a closed breaker a store is as it was.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) checkpoint.Store {
		s, err := state.Dir{Root: t.TempDir(), FS: vfs.OS{}}.OpenStore()
		if err != nil {
			t.Fatal(err)
		}
		return whole{newBreaker(t, s, Options{}), s}
	})
}

func TestOpensAfterThreeFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		for round := range uint64(4) { // two failures and a success, again and again
			f.setDown(errDisk)
			for n := range uint64(2) {
				if err := put(b, session(1), n); !errors.Is(err, errDisk) {
					t.Fatalf("got %v, want the disk's error", err)
				}
			}

			wantPhase(t, b, "after two failures", Closed)
			f.setDown(nil)
			if err := put(b, session(1), 10+round); err != nil {
				t.Fatalf("write: %v", err)
			}
		}

		trip(t, b, f)
		puts, probes, _ := f.asked()
		for range 50 {
			err := put(b, session(2), 1)
			if !errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), errDisk.Error()) {
				t.Fatalf("write while open: got %v, want ErrOpen with the reason", err)
			}
		}

		if p, q, _ := f.asked(); p != puts || q != probes {
			t.Errorf("while open the store was asked for %d writes and %d probes, want none", p-puts, q-probes)
		}

		got := b.State()
		want := State{
			Phase: Open, Since: got.Since, Failures: 3, Trips: 1,
			NextProbe: got.Since.Add(DefaultPause), Reason: errDisk.Error(),
		}

		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("state: got %+v, want %+v", got, want)
		}
	})
}

func TestPausesDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		trip(t, b, f)
		f.mu.probes = nil
		began := time.Now()
		start(t, b)
		time.Sleep(time.Hour)
		want := []time.Duration{30, 90, 210, 450, 930, 1530, 2130, 2730, 3330}
		got := f.probedAt(began)
		for i := range want {
			want[i] *= time.Second
		}

		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("probes at %v, want %v", got, want)
		}
	})
}

// A disk on which probes work and writes do not gets no fresh start every 30 s.
func TestPauseIsSetBackByAWriteOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		start(t, b)
		for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute} {
			trip(t, b, f)
			s := b.State()
			if got := s.NextProbe.Sub(s.Since); got != want {
				t.Errorf("trip %d: pause %s, want %s", i+1, got, want)
			}

			f.setDown(nil)
			time.Sleep(want + time.Second)
			wantPhase(t, b, "after the probe", Closed)
		}

		if err := put(b, session(1), 1); err != nil {
			t.Fatal(err)
		}

		trip(t, b, f)
		if s := b.State(); s.NextProbe.Sub(s.Since) != DefaultPause || s.Trips != 4 {
			t.Errorf("after a write that worked: got %+v, want trip 4 with a pause of %s", s, DefaultPause)
		}
	})
}

func TestC07OpenRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		start(t, b)
		f.setDown(errDisk)
		for n := range uint64(5) {
			_ = put(b, session(1), n) // three reach the disk, two are refused
		}

		if ch := changed(t, b); !ch.Open || ch.Reason != errDisk.Error() || ch.Trips != 1 {
			t.Errorf("change: got %+v, want opened", ch)
		}

		opened := time.Now()
		f.setDown(nil)
		ch := changed(t, b)
		if ch.Open || !ch.Since.Equal(opened) || ch.Reason != errDisk.Error() ||
			ch.At.Sub(opened).Round(time.Second) != DefaultPause {
			t.Errorf("change: got %+v, want closed %s after %s", ch, DefaultPause, opened)
		}
		if err := put(b, session(1), 9); err != nil {
			t.Errorf("write after the breaker closed: %v", err)
		}
		if s := b.State(); s.Phase != Closed || s.Failures != 0 || s.Reason != "" || s.Trips != 1 ||
			!s.NextProbe.IsZero() {
			t.Errorf("state: got %+v, want closed, no failures, one trip", s)
		}
	})
}

// Of the two clocks' differences the larger counts, for the store and for a session.
func TestC07ClockSetBack(t *testing.T) {
	// The machine slept: the wall clock says an hour.
	now := time.Now()
	if got, want := elapsed(now.Round(0).Add(-time.Hour), now), time.Hour; got != want {
		t.Errorf("elapsed: got %s, want %s", got, want)
	}

	f := newFake()
	b := newBreaker(t, f, Options{})
	f.setBroken(session(1), errDisk)
	for n := range uint64(3) {
		_ = put(b, session(1), n)
	}

	trip(t, b, f)

	for name, c := range map[string]*circuit{
		"store": b.mu.circuit, "session": b.mu.sessions[session(1).Dir()].circuit,
	} {
		if !strings.Contains(c.from.String(), " m=") {
			t.Errorf("%s: waits from %s, which has no monotonic reading", name, c.from)
		}

		c.look(time.Now())
		if c.State() != gobreaker.StateOpen {
			t.Fatalf("%s: %s in the moment of the trip, want open", name, c.State())
		}

		// gobreaker has not seen the pause go by, as after a sleep or with a clock that was set.
		c.from = time.Now().Round(0).Add(-time.Hour)
		c.look(time.Now())
		if c.State() != gobreaker.StateHalfOpen {
			t.Errorf("%s: %s after an hour of sleep, want half-open", name, c.State())
		}
	}
}

func TestC08StateInsideOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var b *Breaker
		var logged atomic.Int32
		log := hooked(func(string) {
			if b != nil {
				_ = b.State() // would hang if a lock were held
			}
			logged.Add(1)
		})

		b = newBreaker(t, f, Options{Log: log})
		start(t, b)
		reader, quit := make(chan []Phase), make(chan struct{})
		go func() {
			var seen []Phase
			for {
				select {
				case <-b.Changes():
					seen = append(seen, b.State().Phase)
				case <-quit:
					reader <- seen
					return
				}
			}
		}()

		var writers sync.WaitGroup
		for i := range 4 {
			writers.Go(func() {
				for n := range uint64(200) {
					_ = put(b, session(i), n) // fails or not, as the disk is now
					time.Sleep(time.Second)
				}
			})
		}

		for range 3 {
			f.setDown(errDisk)
			time.Sleep(20 * time.Second)
			f.setDown(nil)
			time.Sleep(50 * time.Second)
		}

		writers.Wait()
		close(quit)
		if seen := <-reader; len(seen) != 6 {
			t.Errorf("changes: got %v, want open and closed three times", seen)
		}
		if logged.Load() < 6 {
			t.Errorf("%d lines logged, want one for each change", logged.Load())
		}

		wantPhase(t, b, "in the end", Closed)
	})
}

func TestNoFailure(t *testing.T) {
	for _, err := range []error{
		checkpoint.ErrExists, checkpoint.ErrNotFound, checkpoint.ErrDamaged, fs.ErrInvalid, context.Canceled,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			f := newFake()
			b := newBreaker(t, f, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			if errors.Is(err, context.Canceled) {
				cancel()
			}

			defer cancel()
			f.setBroken(session(1), fmt.Errorf("put: %w", err))
			for range 10 {
				got := b.Put(ctx, session(1), checkpoint.Meta{Number: 1, Level: checkpoint.Full}, nil)
				if !errors.Is(got, err) || errors.Is(got, ErrSession) {
					t.Fatalf("got %v, want the store's own %v", got, err)
				}
			}

			puts, probes, _ := f.asked()
			if s := b.State(); s.Phase != Closed || s.Failures != 0 || len(s.Aside) != 0 || puts != 10 || probes != 0 {
				t.Errorf("got %+v after %d writes and %d probes, want no failure and no probe", s, puts, probes)
			}
		})
	}
}

// A write whose own time was over proves nothing against a store that works.
func TestWritersDeadlineIsNotTheStores(t *testing.T) {
	f := newFake()
	b := newBreaker(t, f, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	for i := range 5 {
		err := b.Put(ctx, session(i), checkpoint.Meta{Number: 1, Level: checkpoint.Full}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrSession) {
			t.Errorf("got %v, want the session's own deadline", err)
		}
	}

	wantPhase(t, b, "after five late writes", Closed)
}

// The writers of a session that panics meet a breaker that counted a failure of the store.
func TestPanicIsTheStores(t *testing.T) {
	f := newFake()
	b := newBreaker(t, panicking{f}, Options{})
	for range DefaultFailures {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the writer")
				}
			}()
			_ = put(b, session(1), 1)
		}()
	}

	wantPhase(t, b, "after three panics", Open)
}

type panicking struct{ *fakeStore }

func (panicking) Put(context.Context, checkpoint.Key, checkpoint.Meta, []byte) error { panic("broken") }

func TestOptions(t *testing.T) {
	tests := []struct {
		name string
		opt  Options
		want string
	}{
		{"zero", Options{}, ""},
		{"long first pause", Options{Pause: time.Hour}, ""},
		{"negative failures", Options{Failures: -1}, "may be negative"},
		{"negative pause", Options{Pause: -1}, "may be negative"},
		{"pauses crossed", Options{Pause: time.Hour, MaxPause: time.Minute}, "shorter than the first"},
		{"no file", Options{FS: vfs.OS{}}, "no name for the state file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(newFake(), tt.opt)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
