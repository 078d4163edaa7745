package breaker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"
)

// Run probes the store while the breaker is open, and stores trips. It blocks until ctx is done and then returns nil.
// Only one Run may be under way.
func (b *Breaker) Run(ctx context.Context) error {
	var stored record
	for {
		wait, waits := b.wait()
		if waits && wait == 0 && ctx.Err() == nil {
			if err := b.probe(ctx); err != nil {
				b.opt.Log.Debug("probe failed", zap.Error(err))
			}
			continue
		}
		stored = b.keep(stored)
		if ctx.Err() != nil {
			return nil
		}
		b.sleep(ctx, wait, waits)
	}
}

func (b *Breaker) wait() (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.core.next(time.Now())
}

// sleep waits for something to do.
func (b *Breaker) sleep(ctx context.Context, wait time.Duration, waits bool) {
	var over <-chan time.Time // never, where no probe is planned
	if waits {
		// In steps: timers stand still while a machine sleeps, the wall clock does not.
		t := time.NewTimer(min(wait, b.opt.Pause))
		defer t.Stop()
		over = t.C
	}
	select {
	case <-ctx.Done():
	case <-b.kick:
	case <-over:
	}
}

// keep stores the trips if they are not what was stored last, and gives what is stored now.
func (b *Breaker) keep(last record) record {
	if b.opt.FS == nil {
		return last
	}
	b.mu.Lock()
	r := b.mu.core.record()
	b.mu.Unlock()
	if r == last || !save(b.opt.FS, b.opt.StateFile, r, b.opt.Log) {
		return last
	}
	return r
}

// Reset probes the store at once, whatever the settings say. If the probe works the breaker is closed, failures are
// forgotten and sessions that were set aside are taken back; else nothing is, and the error says why.
func (b *Breaker) Reset(ctx context.Context) error {
	if err := b.probe(ctx); err != nil {
		return fmt.Errorf("reset breaker: %w", err)
	}
	b.update(func(time.Time) {
		b.mu.core.pause = b.opt.Pause
		clear(b.mu.core.sessions)
	})
	return nil
}

// probe asks the store, through gobreaker, which closes or opens again by it. One probe at a time.
func (b *Breaker) probe(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.slot:
	}
	defer func() { b.slot <- struct{}{} }()
	b.update(func(time.Time) { b.mu.core.probing = true })
	// gobreaker turns half-open when its pause, one nanosecond, is strictly over: a coarse clock may not have moved since.
	time.Sleep(time.Millisecond)
	_, err := b.cb.Execute(func() (struct{}, error) {
		check, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		err := b.store.Probe(check)
		switch {
		case err == nil:
			return struct{}{}, nil
		case ctx.Err() != nil:
			return struct{}{}, &verdict{byNobody, err}
		}
		return struct{}{}, &verdict{byStore, err}
	})
	b.update(func(now time.Time) {
		c := &b.mu.core
		c.probing = false
		switch {
		case err == nil:
			c.failures = 0
		case errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests):
			c.again(now) // a write that came late was in the way for a moment
		case blame(err) == byNobody:
		default:
			c.failed(cut(err.Error()))
			if c.open {
				c.await(now)
			}
		}
	})
	b.wake()
	if v, ok := err.(*verdict); ok {
		return v.error
	}
	return err
}
