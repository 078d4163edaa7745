package breaker

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"
)

// gate is the gobreaker that requests go through.
type gate = gobreaker.CircuitBreaker[struct{}]

// circuit is a gate whose pause grows. A gobreaker cannot change its Timeout. When the pause is over, and before the
// probe goes through, a gobreaker with the next longer Timeout takes over.
type circuit struct {
	*gate
	settings gobreaker.Settings
	first    time.Duration // the first pause
	longest  time.Duration

	timeout time.Duration // Timeout of the gate that takes the next probe; of this gate while it is closed
	open    bool          // from a trip until the gate closes
	since   time.Time     // when it opened or closed
	waiting bool          // the gate lets nothing through yet: its pause began at from
	from    time.Time
	pause   time.Duration
}

// forever is the pause of a breaker that only a person closes.
const forever = 100 * 365 * 24 * time.Hour

// slack is how much longer than expected a gate may stay open before the clocks are blamed. It is also the time between
// two looks at a gate while another request is its probe.
const slack = time.Second

func newCircuit(settings gobreaker.Settings, first, longest time.Duration, now time.Time) *circuit {
	c := &circuit{settings: settings, first: first, longest: longest, since: now}
	c.settings.MaxRequests = 1
	c.restart(first)
	return c
}

// restart begins with a closed gate.
func (c *circuit) restart(timeout time.Duration) {
	c.timeout = timeout
	c.settings.Timeout = timeout
	c.gate = gobreaker.NewCircuitBreaker[struct{}](c.settings)
}

// takeOver gives a gate with the next Timeout that begins in a state.
func (c *circuit) takeOver(state gobreaker.State) {
	c.settings.Timeout = c.timeout
	c.gate = gateIn(state, c.settings)
}

// resume is the circuit of a run that ended with an open gate: its probe is due.
func (c *circuit) resume(timeout time.Duration, since, now time.Time) {
	c.timeout = timeout
	c.takeOver(gobreaker.StateOpen)
	c.open, c.since = true, since
	c.waiting, c.from, c.pause = true, now, 0
}

// look follows what has become of the gate, and says whether it opened or closed since the last look.
func (c *circuit) look(now time.Time) (changed bool) {
	state := c.State()
	switch {
	case c.waiting && (state == gobreaker.StateHalfOpen || elapsed(c.from, now) > c.pause+slack):
		// If the gate is still open, the machine slept, which stops gobreaker's clock, or the clock was set.
		c.takeOver(gobreaker.StateHalfOpen)
		c.waiting = false
		return false

	case state == gobreaker.StateOpen && !c.waiting:
		c.waiting, c.from, c.pause = true, now, c.timeout
		c.timeout = min(2*c.timeout, c.longest)
		changed = !c.open

	case state == gobreaker.StateClosed && c.open:
		c.waiting = false
		changed = true
	}

	if changed {
		c.open, c.since = !c.open, now
	}

	return changed
}

// left is how long the gate lets nothing through yet. gobreaker turns half-open after its pause and not at its end.
func (c *circuit) left(now time.Time) time.Duration {
	if left := c.pause + time.Millisecond - elapsed(c.from, now); left > 0 {
		return left
	}
	return slack
}

// probeAt is when the pause is over, for people; zero where that is never, and while the gate is closed.
func (c *circuit) probeAt() time.Time {
	if !c.open || c.pause >= forever {
		return time.Time{}
	}
	return c.from.Add(c.pause).Round(0)
}

// do sends a request through a gate.
func do(g *gate, request func() error) error {
	_, err := g.Execute(func() (struct{}, error) { return struct{}{}, request() })
	return err
}

// refused says whether it was the gate that answered.
func refused(err error) bool {
	return errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
}

// elapsed is the larger of monotonic and wall difference: a clock that is set back holds nothing shut, and time that a
// machine slept counts.
func elapsed(from, now time.Time) time.Duration {
	return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))
}

// gateIn gives a gate that begins in a state, by gobreaker's shared store. The pause of an open one is over.
//
// Requests then go to the CircuitBreaker inside. Execute of the DistributedCircuitBreaker reads the shared state before
// it locks the store, and holds the lock until the request is done: sessions that write at the same time would either
// wait for each other, or lose each other's failures and all be let through in half-open.
func gateIn(state gobreaker.State, settings gobreaker.Settings) *gate {
	shared, err := json.Marshal(gobreaker.SharedState{
		State: state, Expiry: time.Now(), Buckets: make([]gobreaker.Counts, 1), // gobreaker counts in the bucket
	})

	var distributed *gobreaker.DistributedCircuitBreaker[struct{}]
	if err == nil {
		distributed, err = gobreaker.NewDistributedCircuitBreaker[struct{}]((*sharedStore)(&shared), settings)
	}
	if err == nil {
		_, err = distributed.State() // reads the shared state
	}
	if err != nil {
		panic(fmt.Sprintf("hand a breaker's state over: %v", err)) // gobreaker's own JSON, and a store that never fails
	}

	return distributed.CircuitBreaker
}

// sharedStore is a gobreaker.SharedDataStore for one breaker, which needs no lock. Lock never fails: gobreaker sleeps
// after a failure.
type sharedStore []byte

func (*sharedStore) Lock(string) error                { return nil }
func (*sharedStore) Unlock(string) error              { return nil }
func (s *sharedStore) GetData(string) ([]byte, error) { return *s, nil }

func (s *sharedStore) SetData(_ string, data []byte) error {
	*s = data
	return nil
}
