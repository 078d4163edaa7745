package breaker

import (
	"time"

	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"
)

// Phase is the breaker's state.
type Phase string

// The phases, in gobreaker's words. HalfOpen lets one request through, the probe, and refuses the others.
const (
	Closed   Phase = "closed"
	Open     Phase = "open"
	HalfOpen Phase = "half-open"
)

// State is what status shows.
type State struct {
	Phase     Phase     `json:"phase"`
	Since     time.Time `json:"since"`
	Failures  int       `json:"failures"` // of the store, in a row
	Trips     int       `json:"trips"`    // in all, restarts included
	NextProbe time.Time `json:"next_probe,omitzero"`
	Reason    string    `json:"reason,omitempty"` // the store's last failure; empty after the breaker closed
	Manual    bool      `json:"manual,omitempty"`
	Aside     []Aside   `json:"aside,omitempty"` // by session
}

// Aside is a session that was set aside.
type Aside struct {
	Session  string    `json:"session"` // Key.Dir
	Failures int       `json:"failures"`
	Since    time.Time `json:"since"` // its first failure
	Reason   string    `json:"reason"`
	NextTry  time.Time `json:"next_try,omitzero"` // its next write from then on is tried
}

// Change says that the breaker opened or closed.
type Change struct {
	Open   bool
	At     time.Time
	Since  time.Time // when it opened; for both
	Reason string    // why it opened; for both
	Trips  int
}

// State is the breaker's state now.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()

	c := b.mu.circuit
	return State{
		Phase: Phase(c.State().String()), Since: c.since.Round(0), Failures: b.mu.failures, Trips: b.mu.trips,
		NextProbe: c.probeAt(), Reason: b.mu.reason, Manual: b.opt.Manual, Aside: b.aside(),
	}
}

// Changes gives the newest change; older ones that were not read are left out. It is never closed.
func (b *Breaker) Changes() <-chan Change { return b.changes }

// update changes what the breaker knows and follows gobreaker. It gives the gate for the next request.
func (b *Breaker) update(f func(now time.Time)) *gate {
	b.mu.Lock()
	now := time.Now()
	f(now)
	ch, changed := b.look(now)
	next, gate := b.mu.circuit.probeAt(), b.mu.circuit.gate
	b.mu.Unlock()

	if changed {
		b.wake()
	}

	switch {
	case changed && ch.Open:
		b.opt.Log.Warn("degraded: the store's breaker opened, no checkpoint is written",
			zap.String("reason", ch.Reason), zap.Int("trips", ch.Trips), zap.Time("next_probe", next))
	case changed:
		b.opt.Log.Info("the store's breaker closed, checkpoints are written again",
			zap.Duration("open_for", elapsed(ch.Since, ch.At)))
	}

	return gate
}

// look follows what has become of the store's gate. It is called under the lock, like emit, wrote, failed, resume and
// record.
func (b *Breaker) look(now time.Time) (ch Change, changed bool) {
	c := b.mu.circuit
	opened := c.since
	if !c.look(now) {
		return Change{}, false
	}

	if c.open {
		opened = now
		b.mu.trips++
	}

	ch = Change{Open: c.open, At: now, Since: opened, Reason: b.mu.reason, Trips: b.mu.trips}
	if !c.open {
		b.mu.failures, b.mu.reason, b.mu.size = 0, "", 0
	}

	b.emit(ch)
	return ch, true
}

// emit has one sender at a time: a change that nobody has read gives way to the newer one.
func (b *Breaker) emit(ch Change) {
	select {
	case <-b.changes:
	default:
	}
	b.changes <- ch
}

// wake tells Run that there is something to do. It never waits.
func (b *Breaker) wake() {
	select {
	case b.kick <- struct{}{}:
	default: // Run is told already
	}
}

// wrote books a write that worked. Only such a write sets the pause back: a disk with room for a probe and for nothing
// else must not open and close the breaker every 30 s.
func (b *Breaker) wrote() {
	c := b.mu.circuit
	if c.State() != gobreaker.StateClosed {
		return // it began before the trip, and the trip stands
	}

	b.mu.failures, b.mu.lastAway = 0, ""
	b.second.Store(false)
	if c.timeout != c.first {
		c.restart(c.first)
	}
}

// failed books a failure of the store.
func (b *Breaker) failed(err error) {
	b.mu.failures++
	b.mu.reason = cut(err.Error())
}

// resume goes on with what the last run stored: an open breaker is open and its probe is due.
func (b *Breaker) resume(r record, now time.Time) {
	if r.Version == 0 {
		return
	}

	c := b.mu.circuit
	b.mu.trips = max(r.Trips, 0)
	timeout := min(max(time.Duration(r.PauseSeconds)*time.Second, c.first), c.longest)
	if !r.Open {
		c.restart(timeout)
		return
	}

	since := now
	if r.Since.Before(now) {
		since = r.Since
	}

	c.resume(timeout, since, now)
	b.mu.failures, b.mu.reason, b.mu.size = b.opt.Failures, r.Reason, r.Size
	b.opt.Log.Warn("degraded since before the restart: the store is probed at once", zap.String("reason", r.Reason))
	b.emit(Change{Open: true, At: now, Since: since, Reason: r.Reason, Trips: b.mu.trips})
}

// record is what the next run must know.
func (b *Breaker) record() record {
	c := b.mu.circuit
	return record{
		Version: recordVersion, Open: c.open, Since: c.since.UTC().Truncate(time.Millisecond), Trips: b.mu.trips,
		Reason: b.mu.reason, NextProbe: c.probeAt().UTC().Truncate(time.Millisecond),
		PauseSeconds: int64(c.timeout / time.Second), Size: b.mu.size,
	}
}
