package breaker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/checkpoint/storetest"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
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
		s, err := filestore.Open(vfs.OS{}, t.TempDir())
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
		if s := b.State(); s.Phase != Closed || s.Failures != 0 || s.Reason != "" || s.Trips != 1 || !s.NextProbe.IsZero() {
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
			err := b.Put(t.Context(), session(1), checkpoint.Meta{Number: n, Level: checkpoint.Full}, make([]byte, 5000))
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

// A mount below the folder that the probe writes to may fail for many sessions and let every probe pass.
func TestTwoSessionsAsideAreTheStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		start(t, b)
		for i := range 2 {
			f.setBroken(session(i), errDisk)
		}
		fail := func(i int) (err error) {
			for n := range uint64(DefaultFailures) {
				err = put(b, session(i), n)
			}
			return err
		}

		if err := fail(0); !errors.Is(err, ErrSession) {
			t.Errorf("the first session: got %v, want ErrSession", err)
		}
		if err := put(b, session(2), 1); err != nil {
			t.Fatal(err)
		}
		if err := fail(1); !errors.Is(err, ErrSession) {
			t.Errorf("the second session, after a write that worked: got %v, want ErrSession", err)
		}
		wantPhase(t, b, "with a write that worked between the two", Closed)

		time.Sleep(DefaultMaxPause)
		for range 2 { // the same session twice is not two
			if err := put(b, session(1), 1); !errors.Is(err, ErrSession) {
				t.Errorf("the second session again: got %v, want ErrSession", err)
			}
			time.Sleep(DefaultMaxPause)
		}
		wantPhase(t, b, "with one session again and again", Closed)
		if err := put(b, session(0), 1); !errors.Is(err, errDisk) || errors.Is(err, ErrSession) {
			t.Errorf("the first session again: got %v, want the disk's error", err)
		}
		if s := b.State(); s.Phase != Open || s.Trips != 1 || len(s.Aside) != 2 ||
			!strings.Contains(s.Reason, "two sessions") || !strings.Contains(s.Reason, errDisk.Error()) {
			t.Errorf("state: got %+v, want open for two sessions set aside", s)
		}

		f.setBroken(session(0), nil)
		f.setBroken(session(1), nil)
		time.Sleep(2 * DefaultMaxPause)
		for i := range 2 {
			if err := put(b, session(i), 9); err != nil {
				t.Errorf("session %d after it healed: %v", i, err)
			}
		}
	})
}

func TestC13OneBadSessionAmongAHundred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var messages atomic.Int32
		b := newBreaker(t, f, Options{Log: hooked(func(msg string) {
			if strings.Contains(msg, "set aside") {
				messages.Add(1)
			}
		})})
		bad := errors.New("name too long")
		f.setBroken(session(50), bad)
		done, aside := 0, 0
		for round := range uint64(6) {
			done, aside = 0, 0
			for i := range 100 {
				switch err := put(b, session(i), round+1); {
				case err == nil:
					done++
				case errors.Is(err, ErrAside):
					aside++
				case !errors.Is(err, bad) || !errors.Is(err, ErrSession):
					t.Errorf("got %v, want the session's own error", err)
				}
			}
		}
		if done != 99 || aside != 1 || messages.Load() != 1 {
			t.Errorf("got %d done, %d aside, %d messages; want 99, 1, 1", done, aside, messages.Load())
		}
		wantPhase(t, b, "with one bad session", Closed)
		s := b.State()
		if len(s.Aside) != 1 || s.Aside[0].Session != session(50).Dir() || s.Aside[0].Failures != 3 ||
			!strings.Contains(s.Aside[0].Reason, bad.Error()) {
			t.Errorf("aside: got %+v, want session 50 after 3 failures with its reason", s.Aside)
		}
	})
}

func TestC14SessionHealsAndHurtsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		a, other := session(1), session(2)
		f.setBroken(a, errDisk)
		for n := range uint64(3) {
			if err := put(b, a, n); !errors.Is(err, ErrSession) {
				t.Fatalf("got %v, want ErrSession", err)
			}
		}
		tries := func(d time.Duration) (asked int) {
			before, _, _ := f.asked()
			for range int(d / time.Second) {
				_ = put(b, a, 7)
				time.Sleep(time.Second)
			}
			after, _, _ := f.asked()
			return after - before
		}
		if got := tries(10 * time.Minute); got != 4 { // 30 s, 1 min, 2 min, 4 min: at 30, 90, 210, 450 s
			t.Errorf("in 10 minutes the session was tried %d times, want 4", got)
		}
		if err := put(b, other, 1); err != nil {
			t.Errorf("the other session: %v", err)
		}
		wantPhase(t, b, "with a session aside", Closed)
		f.setBroken(a, nil)
		time.Sleep(DefaultMaxPause)
		if err := put(b, a, 7); err != nil {
			t.Errorf("the session after it healed: %v", err)
		}
		if s := b.State(); len(s.Aside) != 0 {
			t.Errorf("aside: got %+v, want none", s.Aside)
		}
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

func TestFaultsOfSessionsAreBounded(t *testing.T) {
	b := newBreaker(t, newFake(), Options{})
	now := time.Now()
	for i := range maxFaults + 50 {
		b.session(fmt.Sprint(i), now).failed("x", now.Add(time.Duration(i)))
	}
	if _, ok := b.mu.sessions[fmt.Sprint(maxFaults+49)]; len(b.mu.sessions) != maxFaults || !ok {
		t.Errorf("%d sessions kept, newest kept: %v; want %d with the newest", len(b.mu.sessions), ok, maxFaults)
	}
}

// Sessions whose writes work, or say nothing, are not kept in memory.
func TestHealthySessionsAreForgotten(t *testing.T) {
	f := newFake()
	b := newBreaker(t, f, Options{})
	for i := range 10 {
		f.setBroken(session(i), map[bool]error{true: checkpoint.ErrExists}[i%2 == 0])
		_ = put(b, session(i), 1)
	}
	if len(b.mu.sessions) != 0 {
		t.Errorf("%d sessions kept, want none", len(b.mu.sessions))
	}
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
