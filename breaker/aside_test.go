package breaker

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"belay/checkpoint"
)

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
