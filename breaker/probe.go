package breaker

import (
	"context"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"
)

// Run probes the store when the pause of an open breaker is over, and stores trips. It blocks until ctx is done and
// then returns nil. Only one Run may be under way.
func (b *Breaker) Run(ctx context.Context) error {
	var stored record
	for ctx.Err() == nil {
		if b.due() {
			if err := b.probe(ctx); err != nil && !refused(err) {
				b.opt.Log.Debug("probe failed", zap.Error(err))
			}
		}
		stored = b.keep(stored)
		b.sleep(ctx)
	}

	b.keep(stored)
	return nil
}

// due says whether a probe may go through. gobreaker tells only who asks.
func (b *Breaker) due() bool {
	return b.update(nothing).State() == gobreaker.StateHalfOpen
}

// sleep waits for something to do.
func (b *Breaker) sleep(ctx context.Context) {
	t := time.NewTimer(b.wait())
	defer t.Stop()

	select {
	case <-ctx.Done():
	case <-b.kick:
	case <-t.C:
	}
}

// wait is how long nothing is to be done, if nothing happens.
func (b *Breaker) wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()

	c := b.mu.circuit
	switch {
	case !c.open:
		return forever
	case !c.waiting:
		return slack // another request is the probe
	}

	// In steps: timers stand still while a machine sleeps, the wall clock does not.
	return min(c.left(time.Now()), b.opt.Pause)
}

// keep stores the trips if they are not what was stored last, and gives what is stored now.
func (b *Breaker) keep(last record) record {
	if b.opt.FS == nil {
		return last
	}

	b.mu.Lock()
	r := b.record()
	b.mu.Unlock()

	if r == last || !save(b.opt.FS, b.opt.StateFile, r, b.opt.Log) {
		return last
	}

	return r
}

// probe asks the store through the gate, which closes or opens again by the answer.
func (b *Breaker) probe(ctx context.Context) error {
	err := do(b.update(nothing), func() error {
		err := b.ask(ctx)
		if blames(err, byStore) {
			b.update(func(time.Time) { b.failed(err) })
		}
		return err
	})

	b.update(nothing)
	return err
}

func nothing(time.Time) {}

// ask is the request of a probe. It writes as much as the write that failed.
func (b *Breaker) ask(ctx context.Context) error {
	b.mu.Lock()
	size := b.mu.size
	b.mu.Unlock()

	check, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()

	err := b.store.Probe(check, size)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &verdict{byNobody, err}
	}

	return &verdict{byStore, err}
}

// Reset probes the store at once, whatever the settings say. If the probe works the breaker is closed, failures are
// forgotten and sessions that were set aside are taken back; else nothing changes, and the error says why.
func (b *Breaker) Reset(ctx context.Context) error {
	// In a gate of its own no other request is in the way, and a failure leaves the pause as it is.
	c := newCircuit(b.settings(), b.opt.Pause, b.opt.MaxPause, time.Now())
	c.takeOver(gobreaker.StateHalfOpen)
	if err := do(c.gate, func() error { return b.ask(ctx) }); err != nil {
		return fmt.Errorf("reset breaker: %w", err)
	}

	b.update(func(time.Time) {
		old := b.mu.circuit
		c.open, c.since = old.open, old.since
		b.mu.circuit = c
		b.wrote()
		clear(b.mu.sessions)
	})

	return nil
}
