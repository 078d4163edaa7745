package breaker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

const stateFile = "/breaker.json"

func stored(t *testing.T, fsys vfs.FS) record {
	t.Helper()
	data, err := vfs.ReadFile(fsys, stateFile, maxRecord)
	if err != nil {
		t.Fatalf("read the state file: %v", err)
	}

	r, err := decodeRecord(data)
	if err != nil {
		t.Fatalf("decode %s: %v", data, err)
	}

	return r
}

func write(t *testing.T, fsys vfs.FS, text string) {
	t.Helper()
	if err := vfs.Replace(fsys, stateFile, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestRestartNeitherHidesNorKeepsOpen(t *testing.T) {
	for _, manual := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			mem, f := vfstest.NewMem(), newFake()
			opt := Options{FS: mem, StateFile: stateFile, Manual: manual}
			b := newBreaker(t, f, opt)
			stop := start(t, b)
			trip(t, b, f)
			since := b.State().Since
			synctest.Wait()
			if r := stored(
				t, mem,
			); !r.Open || r.Trips != 1 || r.Reason != errDisk.Error() ||
				r.NextProbe.IsZero() != manual {
				t.Errorf("stored: got %+v, want open after one trip", r)
			}

			stop()
			time.Sleep(5 * time.Second)

			b = newBreaker(t, f, opt)
			if err := put(b, session(1), 1); !errors.Is(err, ErrOpen) {
				t.Errorf("write after the restart: got %v, want ErrOpen", err)
			}
			if ch := changed(t, b); !ch.Open || ch.Trips != 1 || ch.Reason != errDisk.Error() {
				t.Errorf("change: got %+v, want opened", ch)
			}
			if s := b.State(); s.Phase != Open || s.Trips != 1 || s.Since.Sub(since).Abs() > time.Second ||
				!s.NextProbe.Equal(time.Now()) {
				t.Errorf("state: got %+v, want open since %s and due now", s, since)
			}

			_, before, _ := f.asked()
			f.setDown(nil)
			stop = start(t, b)
			began := time.Now()
			if ch := changed(t, b); ch.Open || time.Since(began) > time.Second {
				t.Errorf("change: got %+v after %s, want closed at once", ch, time.Since(began))
			}
			if _, after, _ := f.asked(); after != before+1 {
				t.Errorf("%d probes, want one", after-before)
			}
			if err := put(b, session(1), 1); err != nil {
				t.Errorf("write: %v", err)
			}

			stop()
			if r := stored(t, mem); r.Open || r.Trips != 1 {
				t.Errorf("stored: got %+v, want closed, one trip", r)
			}
		})
	}
}

func TestRestartGoesOnWithTheGrownPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, f := vfstest.NewMem(), newFake()
		opt := Options{FS: mem, StateFile: stateFile}
		b := newBreaker(t, f, opt)
		stop := start(t, b)
		trip(t, b, f)
		time.Sleep(4 * time.Minute) // probes at 30, 90 and 210 s: the next pause is 8 min
		stop()
		b = newBreaker(t, f, opt)
		f.mu.probes = nil
		began := time.Now()
		start(t, b)
		time.Sleep(20 * time.Minute)
		got := f.probedAt(began)
		if len(got) != 3 || got[0] != 0 || got[1] != 8*time.Minute || got[2] != 18*time.Minute {
			t.Errorf("probes after the restart at %v, want at once, after 8 and after 18 minutes", got)
		}
	})
}

// The clock was set back by years while the breaker was open and belay was down: nothing waits for those years.
func TestC07StoredTimesInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, f := vfstest.NewMem(), newFake()
		future := time.Now().AddDate(5, 0, 0)
		data, err := json.Marshal(record{
			Version: 1, Open: true, Since: future, NextProbe: future, Trips: 2, PauseSeconds: 1 << 33,
		})
		if err != nil {
			t.Fatal(err)
		}

		write(t, mem, string(data))
		b := newBreaker(t, f, Options{FS: mem, StateFile: stateFile})
		if s := b.State(); s.Phase != Open || s.Since.After(time.Now()) || s.NextProbe.After(time.Now()) {
			t.Errorf("state: got %+v, want open and due", s)
		}

		start(t, b)
		time.Sleep(time.Second)
		wantPhase(t, b, "a second after the start", Closed)
	})
}

func TestStateFileIsAHelpOnly(t *testing.T) {
	for name, text := range map[string]string{
		"empty":    "",
		"garbage":  "\x00\x00\x00",
		"version":  `{"v":99,"open":true}`,
		"negative": `{"v":1,"open":true,"pause_s":-1}`,
		"size":     `{"v":1,"open":true,"size":99999999999}`,
		"huge":     `{"v":1,"reason":"` + strings.Repeat("x", maxRecord) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfstest.NewMem()
			write(t, mem, text)
			warned := 0
			b := newBreaker(
				t, newFake(), Options{FS: mem, StateFile: stateFile, Log: hooked(func(string) { warned++ })},
			)

			wantPhase(t, b, "with a broken file", Closed)
			if warned != 1 {
				t.Errorf("%d lines logged, want one", warned)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // its disk fails too
		fault, f := vfstest.NewFault(vfstest.NewMem(), -1, nil), newFake()
		fault.FailNow(syscall.ENOSPC)
		b := newBreaker(t, f, Options{FS: fault, StateFile: stateFile})
		start(t, b)
		trip(t, b, f)
		f.setDown(nil)
		time.Sleep(DefaultPause + time.Second)
		wantPhase(t, b, "after the probe", Closed)
	})
}

func TestManual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{Manual: true})
		start(t, b)
		f.setBroken(session(7), errDisk)
		for n := range uint64(3) {
			_ = put(b, session(7), n) // the session's own failures
		}

		trip(t, b, f)
		_, before, _ := f.asked()
		time.Sleep(24 * time.Hour)
		if _, after, _ := f.asked(); after != before {
			t.Errorf("%d probes in a day, want none", after-before)
		}
		if err := b.Reset(context.Background()); !errors.Is(err, errDisk) {
			t.Errorf("reset with a bad disk: got %v, want the disk's error", err)
		}

		wantPhase(t, b, "after a reset that failed", Open)
		f.setDown(nil)
		f.setBroken(session(7), nil)
		time.Sleep(24 * time.Hour)
		wantPhase(t, b, "a day later", Open)
		if err := b.Reset(context.Background()); err != nil {
			t.Errorf("reset: %v", err)
		}

		wantPhase(t, b, "after the reset", Closed)
		if err := put(b, session(7), 9); err != nil {
			t.Errorf("the session that was aside: %v", err)
		}
	})
}

// Reset does not wait for gobreaker's pause.
func TestResetAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		trip(t, b, f)
		f.setDown(nil)
		if err := b.Reset(context.Background()); err != nil {
			t.Errorf("reset: %v", err)
		}

		wantPhase(t, b, "after the reset", Closed)
	})
}

func TestCancelledResetChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := newBreaker(t, f, Options{})
		trip(t, b, f)
		f.hold = make(chan struct{})
		before := b.State()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.Reset(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("reset: got %v, want the deadline", err)
		}
		if got := b.State(); got.Phase != Open || !got.NextProbe.Equal(before.NextProbe) ||
			got.Failures != before.Failures {
			t.Errorf("state: got %+v, want %+v", got, before)
		}
	})
}

// A state file as earlier versions wrote it, which did not store the size of a probe.
func TestOldStateFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, f := vfstest.NewMem(), newFake()
		write(t, mem, `{"v":1,"open":true,"since":"1999-12-31T23:00:00.5Z","trips":7,"reason":"input/output error",`+
			`"next_probe":"2000-01-01T00:08:00Z","pause_s":240}`+"\n")
		f.setDown(errDisk)
		b := newBreaker(t, f, Options{FS: mem, StateFile: stateFile})
		want := time.Date(1999, 12, 31, 23, 0, 0, 500_000_000, time.UTC)
		if s := b.State(); s.Phase != Open || s.Trips != 7 || !s.Since.Equal(want) || s.Reason != errDisk.Error() {
			t.Errorf("state: got %+v, want open since %s after 7 trips", s, want)
		}

		start(t, b)
		time.Sleep(time.Second)
		if got := b.State().NextProbe; time.Until(got).Round(time.Minute) != 4*time.Minute {
			t.Errorf("next probe at %s, want 4 minutes after the first", got)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	for _, text := range []string{
		"", "{}",
		`{"v":1,"open":true,"since":"2026-04-01T00:00:00Z","trips":-3,"pause_s":60}`,
		`{"v":1,"pause_s":9223372036854775807}`,
		`{"v":1,"open":true,"size":-1}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord(data)
		if err != nil {
			return
		}

		mem := vfstest.NewMem()
		write(t, mem, string(data))
		b, err := New(newFake(), Options{FS: mem, StateFile: stateFile, Log: zap.NewNop()})
		if err != nil {
			t.Fatalf("new: %v", err)
		}

		s := b.State()
		if (s.Phase != Closed) != r.Open || s.Trips < 0 || s.Since.After(time.Now()) {
			t.Errorf("from %s: got %+v", data, s)
		}
		if wait := b.wait(); r.Open && wait > time.Second {
			t.Errorf("from %s: next probe in %s, want at once", data, wait)
		}
	})
}
