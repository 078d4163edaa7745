package breaker

import (
	"cmp"
	"slices"
	"time"
)

// core is what the breaker knows and decides. It touches no clock, disk or lock: Breaker guards it and does what it
// says. Open and closed follow the transitions that gobreaker reports; all waiting is decided here, because gobreaker
// knows one fixed pause only.
type core struct {
	failuresToTrip  int
	first, maxPause time.Duration
	manual          bool

	open     bool
	probing  bool
	since    time.Time
	failures int // in a row: writes, then probes
	trips    int
	reason   string

	// The next pause. It grows with each trip and each failed probe, and only a write that worked sets it back: a disk
	// with room for a probe and for nothing else must not open and close the breaker every 30 s.
	pause time.Duration
	probe timer

	sessions map[string]*fault
}

// timer is a wait that began at from (with its monotonic reading).
type timer struct {
	from  time.Time
	wait  time.Duration
	never bool
}

// left is how long to wait still; 0 when it is over.
func (t timer) left(now time.Time) time.Duration { return max(0, t.wait-elapsed(t.from, now)) }

// at is the moment for people.
func (t timer) at() time.Time {
	if t.never {
		return time.Time{}
	}
	return t.from.Add(t.wait).Round(0)
}

// elapsed is the larger of monotonic and wall difference: a clock that is set back holds nothing shut, and time that a
// machine slept counts.
func elapsed(from, now time.Time) time.Duration {
	return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))
}

func newCore(failures int, pause, maxPause time.Duration, manual bool, now time.Time) core {
	return core{
		failuresToTrip: failures, first: pause, maxPause: maxPause, manual: manual,
		since: now, pause: pause, sessions: make(map[string]*fault),
	}
}

// wrote books a write that worked.
func (c *core) wrote() {
	if !c.open { // else it began before the trip, and the trip stands
		c.failures, c.pause = 0, c.first
	}
}

// failed books a failure of the store.
func (c *core) failed(reason string) {
	c.failures++
	c.reason = reason
}

// trip opens the breaker.
func (c *core) trip(now time.Time) {
	c.open, c.since = true, now
	c.trips++
	c.await(now)
}

// close closes it.
func (c *core) close(now time.Time) {
	c.open, c.since, c.failures, c.reason, c.probe = false, now, 0, "", timer{}
}

// await sets the next probe and lets the pause after it grow.
func (c *core) await(now time.Time) {
	c.probe = timer{from: now, wait: c.pause, never: c.manual}
	c.pause = min(2*c.pause, c.maxPause)
}

// again sets the next probe as before: the last one said nothing.
func (c *core) again(now time.Time) {
	c.probe.from, c.probe.wait = now, max(c.probe.wait, c.first)
	c.probe.never = c.manual
}

// next is how long to wait for the next probe; ok is false when none will come.
func (c *core) next(now time.Time) (wait time.Duration, ok bool) {
	if !c.open || c.probe.never {
		return 0, false
	}
	return c.probe.left(now), true
}

// resume is the restart with what was stored: an open breaker is open, and due for a probe at once.
func (c *core) resume(r record, now time.Time) {
	c.trips = max(r.Trips, 0)
	c.pause = min(max(time.Duration(r.PauseSeconds)*time.Second, c.first), c.maxPause)
	if !r.Open {
		return
	}
	c.open, c.reason, c.failures = true, r.Reason, c.failuresToTrip
	c.since = now
	if r.Since.Before(now) {
		c.since = r.Since
	}
	c.probe = timer{from: now}
}

// fault is what one session's own failures are booked in.
type fault struct {
	fails  int
	since  time.Time
	last   time.Time
	reason string
	retry  timer
}

// maxFaults bounds core.sessions. The session whose failure is oldest is forgotten first.
const maxFaults = 1000

// sessionFailed books a failure of one session; aside is true when it is set aside by this one.
func (c *core) sessionFailed(dir, reason string, now time.Time) (aside bool) {
	f := c.sessions[dir]
	if f == nil {
		c.forgetOldest()
		f = &fault{since: now}
		c.sessions[dir] = f
	}
	f.fails++
	f.last, f.reason = now, reason
	over := f.fails - c.failuresToTrip
	if over < 0 {
		return false
	}
	wait := c.first
	for range over {
		if wait *= 2; wait >= c.maxPause {
			wait = c.maxPause
			break
		}
	}
	f.retry = timer{from: now, wait: wait, never: c.manual}
	return over == 0
}

func (c *core) forgetOldest() {
	if len(c.sessions) < maxFaults {
		return
	}
	oldest := ""
	for dir, f := range c.sessions {
		if oldest == "" || f.last.Before(c.sessions[oldest].last) {
			oldest = dir
		}
	}
	delete(c.sessions, oldest)
}

// aside says whether a session must wait, and why it was set aside.
func (c *core) aside(dir string, now time.Time) (reason string, yes bool) {
	f := c.sessions[dir]
	if f == nil || f.fails < c.failuresToTrip || !f.retry.never && f.retry.left(now) == 0 {
		return "", false
	}
	return f.reason, true
}

func (c *core) state() State {
	s := State{
		Phase: Closed, Since: c.since.Round(0), Failures: c.failures, Trips: c.trips, Reason: c.reason, Manual: c.manual,
	}
	if c.open {
		s.Phase, s.NextProbe = Open, c.probe.at()
		if c.probing {
			s.Phase = HalfOpen
		}
	}
	for dir, f := range c.sessions {
		if f.fails >= c.failuresToTrip {
			s.Aside = append(s.Aside, Aside{
				Session: dir, Failures: f.fails, Since: f.since.Round(0), Reason: f.reason, NextTry: f.retry.at(),
			})
		}
	}
	slices.SortFunc(s.Aside, func(a, b Aside) int { return cmp.Compare(a.Session, b.Session) })
	return s
}
