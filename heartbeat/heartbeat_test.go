package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is what a beat leaves: the moments at which it came.
type log struct {
	mu struct {
		sync.Mutex
		at []time.Time
	}
}

func (l *log) beat(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.at = append(l.mu.at, time.Now())
	return nil
}

// since gives the beats, in whole seconds after start.
func (l *log) since(start time.Time) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []time.Duration
	for _, at := range l.mu.at {
		out = append(out, at.Sub(start).Round(time.Second))
	}
	return out
}

func (l *log) want(t *testing.T, start time.Time, want ...time.Duration) {
	t.Helper()
	if got := l.since(start); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("beats after %v, want %v", got, want)
	}
}

func newHeart(t *testing.T, spec string, beat func(context.Context) error, opt Options) *Heart {
	t.Helper()
	h, err := New(spec, beat, opt)
	if err != nil {
		t.Fatalf("new heart: %v", err)
	}
	return h
}

// run starts a heart; stop ends it and waits.
func run(t *testing.T, h *Heart) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

const minute, hour = time.Minute, time.Hour

func TestBeats(t *testing.T) {
	tests := []struct {
		name string
		spec string
		ago  time.Duration // of the stored beat; 0: none
		want []time.Duration
	}{
		{"default, never before", "", 0, []time.Duration{0, 30 * minute, 60 * minute, 90 * minute, 120 * minute}},
		{
			"default, ten minutes ago",
			"",
			10 * minute,
			[]time.Duration{20 * minute, 50 * minute, 80 * minute, 110 * minute},
		},
		{
			"not a multiple of the checks",
			"@every 42m",
			2 * minute,
			[]time.Duration{40 * minute, 82 * minute, 124 * minute},
		},
		{"spaces around", "  @every 1h  ", minute, []time.Duration{59 * minute, 119 * minute}},
		{"expression", "10,40 * * * *", minute, []time.Duration{10 * minute, 40 * minute, 70 * minute, 100 * minute}},
		{"expression, overdue", "10 * * * *", hour, []time.Duration{0, 10 * minute, 70 * minute}},
		{"descriptor", "@hourly", minute, []time.Duration{0, hour, 2 * hour}}, // the bubble's clock begins at midnight
		{"time zone", "TZ=UTC 30 1 * * *", minute, []time.Duration{90 * minute}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, l, opt := time.Now(), &log{}, Options{}
				if tt.ago > 0 {
					opt.Last = start.Add(-tt.ago).Round(0)
				}

				h := newHeart(t, tt.spec, l.beat, opt)
				stop := run(t, h)
				time.Sleep(125 * minute)
				l.want(t, start, tt.want...)
				if got, want := h.Last(), start.Add(tt.want[len(tt.want)-1]); !got.Equal(want) {
					t.Errorf("last: got %s, want %s", got, want)
				}

				stop()
			})
		})
	}
}

func TestC01MissedTicksAreOneBeat(t *testing.T) {
	t.Run("beat runs for an hour", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start, l := time.Now(), &log{}
			h := newHeart(t, "@every 5s", func(ctx context.Context) error {
				_ = l.beat(ctx)
				if len(l.since(start)) == 2 {
					time.Sleep(hour + 2*time.Second)
				}
				return nil
			}, Options{})

			stop := run(t, h)
			time.Sleep(hour + 17*time.Second)
			l.want(t, start, 0, 5*time.Second, hour+10*time.Second, hour+15*time.Second)
			stop()
		})
	})

	t.Run("wall clock jumps an hour", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start, l := time.Now(), &log{}
			h := newHeart(t, "@every 5s", l.beat, Options{})
			stop := run(t, h)
			time.Sleep(7 * time.Second)
			h.mu.Lock() // as after a sleep: the last mark is an hour ago by the wall clock alone
			h.mu.mark = h.mu.mark.Round(0).Add(-hour)
			h.mu.Unlock()
			time.Sleep(10 * time.Second)
			l.want(t, start, 0, 5*time.Second, 10*time.Second, 15*time.Second)
			stop()
		})
	})

	t.Run("sleep is noticed between ticks", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start, l := time.Now(), &log{}
			h := newHeart(t, "@every 30m", l.beat, Options{Check: minute})
			stop := run(t, h)
			time.Sleep(10*minute + 30*time.Second)
			h.mu.Lock()
			h.mu.mark = h.mu.mark.Round(0).Add(-10 * hour)
			h.mu.Unlock()
			time.Sleep(hour)
			l.want(t, start, 0, 11*minute, 41*minute)
			stop()
		})
	})
}

func TestC02StoredTimes(t *testing.T) {
	for name, offset := range map[string]time.Duration{
		"11 hours ago": -11 * hour, "in five years": 5 * 365 * 24 * hour, "in a second": time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, l := time.Now(), &log{}
				stored := start.Add(offset).Round(0)
				h := newHeart(t, "", l.beat, Options{Last: stored})
				if got := h.Last(); !got.Equal(stored) {
					t.Errorf("last before the first beat: got %s, want %s as handed in", got, stored)
				}

				stop := run(t, h)
				time.Sleep(40 * minute)
				l.want(t, start, 0, 30*minute)
				stop()
			})
		})
	}
}

func TestC05PanicAndErrorDoNotStopTheNext(t *testing.T) {
	for name, bad := range map[string]func() error{
		"panic": func() error { panic("checkpoint went wrong") },
		"error": func() error { return errors.New("disk full") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, l := time.Now(), &log{}
				h := newHeart(t, "@every 1m", func(ctx context.Context) error {
					_ = l.beat(ctx)
					if n := len(l.since(start)); n == 1 || n == 3 {
						return bad()
					}
					return nil
				}, Options{})

				stop := run(t, h)
				time.Sleep(30 * time.Second)
				if got := h.Last(); !got.IsZero() {
					t.Errorf("last after a beat that did not do its work: got %s, want none", got)
				}

				time.Sleep(2 * minute)
				if got, want := h.Last(), start.Add(minute); !got.Equal(want) {
					t.Errorf("last: got %s, want %s, the only good one", got, want)
				}

				time.Sleep(minute)
				l.want(t, start, 0, minute, 2*minute, 3*minute)
				stop()
			})
		})
	}
}

func TestStopWaitsForTheBeat(t *testing.T) {
	for name, first := range map[string]bool{"at start": true, "at a tick": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, ended := false, false
				opt := Options{}
				if !first {
					opt.Last = time.Now().Add(-minute)
				}

				h := newHeart(t, "", func(ctx context.Context) error {
					begun = true
					<-ctx.Done()
					time.Sleep(10 * time.Second) // clean-up
					ended = true
					return ctx.Err()
				}, opt)

				stop := run(t, h)
				time.Sleep(hour)
				stop()
				if !begun || !ended {
					t.Errorf("run came back with begun %v, ended %v; want both", begun, ended)
				}
				if got := h.Last(); !got.Equal(opt.Last) {
					t.Errorf("last after a beat that was cut off: got %s, want %s", got, opt.Last)
				}
			})
		})
	}
}

func TestStoppedBeforeItBegan(t *testing.T) {
	l := &log{}
	h := newHeart(t, "", l.beat, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Run(ctx); err != nil {
		t.Errorf("run: %v", err)
	}
	if got := l.since(time.Now()); len(got) != 0 {
		t.Errorf("%d beats, want none", len(got))
	}
}

func TestBadSpecs(t *testing.T) {
	for _, spec := range []string{
		"30m", "@every", "@every soon", "@every 0s", "@every -5m", "@every 999ms", "@every 30m extra", "@sometimes",
		"* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", ", * * * *", "*/0 * * * *",
		"TZ=", "TZ=UTC", "TZ=UTC ", "TZ= @every -1h", "CRON_TZ=Nowhere/None @hourly",
	} {
		_, err := New(spec, nil, Options{})
		if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), fmt.Sprintf("%q", strings.TrimSpace(spec))) {
			t.Errorf("%q: got %v, want ErrSpec that quotes it", spec, err)
		}
	}
}

// With wall times alone, cron stops for an hour when the clock is set back by an hour.
func TestCronSeesMonotonicTimesOnly(t *testing.T) {
	for _, spec := range []string{"@every 30m", "0 3 * * *"} {
		h := newHeart(t, spec, nil, Options{})
		now := time.Now()
		h.mu.mark = now.Round(0).Add(hour) // set before the clock went back by an hour
		got := capped{h}.Next(now)
		if !strings.Contains(got.String(), " m=") || got.Sub(now) > DefaultCheck || !got.After(now) {
			t.Errorf("%s: next look at %s, now %s; want a monotonic time within %s", spec, got, now, DefaultCheck)
		}
	}
	if got := resume(time.Now().Round(0).Add(-minute), time.Now()); !strings.Contains(got.String(), " m=") {
		t.Errorf("a stored time becomes %s, which has no monotonic reading", got)
	}
}

func FuzzSpec(f *testing.F) {
	for _, spec := range []string{
		"@every 30m", "@every 2562047h", "*/5 0-23/2 1,15 jan-mar ?", "0 0 29 2 *", "* * * * 7", "TZ=", "TZ=UTC @daily",
	} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		h, err := New(spec, nil, Options{})
		if err != nil {
			return
		}

		now := time.Now()
		for _, mark := range []time.Time{{}, now, now.Add(-hour), now.AddDate(-200, 0, 0), now.AddDate(200, 0, 0)} {
			if got := pause(h.schedule, mark, now, h.check); got <= 0 || got > h.check {
				t.Errorf("%q from %s: a pause of %s", spec, mark, got)
			}
		}

		if due(h.schedule, now, now) {
			t.Errorf("%q: due again in the moment of its beat", spec)
		}
	})
}
