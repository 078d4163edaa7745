// Package heartbeat calls one function on a cron schedule, by robfig/cron, and nothing else.
//
// A beat proves that work was done: Last moves only after the function returned nil. All ticks that were missed become
// one beat, whether the daemon was down, the machine asleep, the clock put forward or the beat before still running.
// Elapsed time is the larger of monotonic and wall difference, so a clock that is set back delays nothing. A beat that
// fails or panics is logged, and the next tick comes as usual.
//
// cron parses the schedule, works out its ticks, waits, and runs the beat in its chain, which lets no beat run beside
// another and survives a panic. The timer that waits is cron's. What it waits for is ours (capped): the next tick, but
// at most Options.Check from now, as a monotonic time. Alone, cron would wait for the tick's wall time: too long when
// the clock is set back, and with a timer that stops while the machine sleeps. So each time cron wakes, tick compares
// both clocks and decides whether a beat is due.
//
// The package does not repeat a failed beat before its next tick, and it stores nothing: the caller keeps Last and
// hands it in.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/zap"
)

// DefaultSpec is the schedule when none is set.
const DefaultSpec = "@every 30m"

// ErrSpec: the schedule cannot be read, or names no moment that ever comes.
var ErrSpec = errors.New("bad heartbeat schedule")

// DefaultCheck is how often the clocks are compared while no tick is due. After a sleep of the machine an overdue beat
// comes at most this late.
const DefaultCheck = 5 * time.Minute

// Options of New. The zero value is usable.
type Options struct {
	// Last is the time of the last beat, as the caller stored it. If it is zero (none yet) or in the future (the clock
	// was set), the first beat comes at the start.
	Last  time.Time
	Check time.Duration // longest time between two looks at the clocks; 0 is DefaultCheck
	Log   *zap.Logger
}

// Heart beats while Run runs.
type Heart struct {
	schedule cron.Schedule
	beat     func(context.Context) error
	check    time.Duration
	log      *zap.Logger

	mu struct {
		sync.Mutex
		last time.Time // beat that did its work
		mark time.Time // where the wait for the next one began, with its monotonic reading; zero: due at once
	}
}

// New checks the schedule: a cron expression of five fields, a descriptor (@hourly, @daily, ...) or @every with a
// duration of a second or more; TZ=Area/City may stand in front. An empty spec is DefaultSpec. beat gets a context that
// ends with Run's.
func New(spec string, beat func(ctx context.Context) error, opt Options) (*Heart, error) {
	if spec = strings.TrimSpace(spec); spec == "" {
		spec = DefaultSpec
	}

	schedule, err := parse(spec)
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrSpec, spec, err)
	}
	if opt.Check <= 0 {
		opt.Check = DefaultCheck
	}
	if opt.Log == nil {
		opt.Log = zap.NewNop()
	}

	h := &Heart{schedule: schedule, beat: beat, check: opt.Check, log: opt.Log}
	h.mu.last = opt.Last
	return h, nil
}

// Check says what is wrong with a schedule, for settings; an empty one is DefaultSpec.
func Check(spec string) error {
	if spec = strings.TrimSpace(spec); spec == "" {
		return nil
	}
	if _, err := parse(spec); err != nil {
		return fmt.Errorf("is no schedule: %w", err)
	}
	return nil
}

// parse is cron's parser without its surprises: it takes an @every of -5m for one of a second, panics when a time zone
// is not followed by a space, and accepts dates that never come.
func parse(spec string) (cron.Schedule, error) {
	zone, rest, found := strings.Cut(spec, " ")
	if strings.HasPrefix(zone, "TZ=") || strings.HasPrefix(zone, "CRON_TZ=") {
		if rest = strings.TrimSpace(rest); !found || rest == "" {
			return nil, errors.New("a time zone and no schedule after it")
		}
	} else {
		rest = spec
	}

	if every, ok := strings.CutPrefix(rest, "@every "); ok {
		d, err := time.ParseDuration(every)
		if err != nil {
			return nil, err
		}
		if d < time.Second {
			return nil, fmt.Errorf("%s is less than a second", d)
		}
	}

	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, err
	}
	if schedule.Next(time.Now()).IsZero() {
		return nil, errors.New("no such date in the next five years")
	}

	return schedule, nil
}

// Last is the time of the last beat that did its work; before the first one it is what was handed in. Store it.
func (h *Heart) Last() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.last
}

// Run beats until ctx is done, waits for a beat that is under way, and returns nil. Only one Run may be under way.
func (h *Heart) Run(ctx context.Context) error {
	h.mu.Lock()
	h.mu.mark = resume(h.mu.last, time.Now())
	h.mu.Unlock()

	log := cronLog{h.log}

	// Recover stands inside: outside, a panic would leave SkipIfStillRunning believing for ever that the beat still
	// runs.
	c := cron.New(cron.WithLogger(log), cron.WithChain(cron.SkipIfStillRunning(log), cron.Recover(log)))
	id := c.Schedule(capped{h}, cron.FuncJob(func() { h.tick(ctx) }))
	c.Entry(id).WrappedJob.Run() // an overdue beat comes now, not at the first tick
	c.Start()

	<-ctx.Done()
	<-c.Stop().Done()
	return nil
}

// tick beats if a beat is due. Cron calls it more often than that.
func (h *Heart) tick(ctx context.Context) {
	now := time.Now()
	h.mu.Lock()
	due := ctx.Err() == nil && due(h.schedule, h.mu.mark, now)
	if due {
		// Before the beat: one that fails or panics waits for the next tick like any other.
		h.mu.mark = now
	}

	h.mu.Unlock()
	if !due {
		return
	}

	if err := h.beat(ctx); err != nil {
		if ctx.Err() == nil {
			h.log.Warn("heartbeat failed", zap.Error(err))
		}
		return
	}

	h.mu.Lock()
	h.mu.last = now.Round(0)
	h.mu.Unlock()
}

// resume turns a stored time into a mark that a clock set back later cannot move.
func resume(last, now time.Time) time.Time {
	if last.IsZero() || last.After(now) {
		return time.Time{}
	}
	return now.Add(-elapsed(last, now))
}

// due says whether a tick lies between mark and now.
func due(s cron.Schedule, mark, now time.Time) bool {
	return mark.IsZero() || !next(s, mark, now).After(now)
}

// next is the first tick after mark. It counts back from now, because mark's own wall time means nothing after the
// clock was set.
func next(s cron.Schedule, mark, now time.Time) time.Time {
	return after(s, now.Add(-elapsed(mark, now)))
}

// after is the first tick after t. Cron gives up after five years and says so with the zero time, which is long ago.
func after(s cron.Schedule, t time.Time) time.Time {
	if at := s.Next(t); !at.IsZero() {
		return at
	}
	return t.AddDate(5, 0, 0)
}

// elapsed is the larger of monotonic and wall difference.
func elapsed(from, now time.Time) time.Duration {
	return max(0, now.Sub(from), now.Round(0).Sub(from.Round(0)))
}

// capped is the schedule that cron sees: the next tick, but at the latest the next look at the clocks. All its times
// carry a monotonic reading; with wall times alone, a clock set back by an hour would stop cron for an hour.
type capped struct{ h *Heart }

// Next is called by cron only.
func (c capped) Next(now time.Time) time.Time {
	c.h.mu.Lock()
	mark := c.h.mu.mark
	c.h.mu.Unlock()

	return now.Add(pause(c.h.schedule, mark, now, c.h.check))
}

// pause is how long cron waits.
func pause(s cron.Schedule, mark, now time.Time, check time.Duration) time.Duration {
	wait := time.Duration(0)
	if !mark.IsZero() {
		wait = next(s, mark, now).Sub(now)
	}
	if wait <= 0 { // that tick is being served
		wait = after(s, now).Sub(now)
	}

	return min(max(wait, time.Millisecond), check)
}

// cronLog gives zap what cron has to say when it matters: panics.
type cronLog struct{ *zap.Logger }

func (cronLog) Info(string, ...any) {} // every wake-up

func (l cronLog) Error(err error, msg string, rest ...any) {
	l.Logger.Error("heartbeat: "+msg, zap.Error(err), zap.Any("details", rest))
}
