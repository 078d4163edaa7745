package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/host/git"
)

// build is a checkpoint on its way: decided, then brought up to date with the transcript, then written. It never holds up
// the session's events.
type build struct {
	decision checkpoint.Decision
	since    time.Time
	last     uint64 // hash of a last answer that only a hook told of; the build waits a little for the file to hold it
	read     bool   // the transcript was read since the decision
	busy     bool   // it is being written
}

// lateText is the hash of the last answer while the transcript lags behind the hook that told of it.
func (s *session) lateText() uint64 {
	if s.agent == nil || !s.agent.Limits().LateText || s.state.Transcript == "" {
		return 0
	}
	for i := len(s.state.Messages) - 1; i >= 0; i-- {
		m := s.state.Messages[i]
		if m.Role == checkpoint.RoleAssistant {
			if m.InFile {
				return 0
			}
			return m.Hash
		}
	}
	return 0
}

// advance brings what is due one step further. It runs after everything that happened to the session.
func (s *session) advance() {
	b := s.due
	if b == nil || b.busy || s.trimming {
		return
	}
	if s.state.Transcript != "" && s.agent != nil {
		if !b.read {
			b.read = true
			s.read()
		}
		if s.file.reading {
			return
		}
		if b.last != 0 && s.lateText() == b.last && time.Since(b.since) < s.d.times.lateText {
			return // the watch or the timer comes back
		}
	}
	b.busy = true
	s.write(b)
}

// write snapshots the state and stores the checkpoint in a goroutine of its own.
func (s *session) write(b *build) {
	now := time.Now().UTC()
	snapshot := s.state.Clone()
	snapshot.OwedFull, snapshot.OwedSparse = "", false
	c := checkpoint.New(snapshot, s.state.LastNumber+1, b.decision, now)
	s.d.wait.Go(func() { // not below work: a store that hangs must not hold up anything of the session
		err := errPanic
		s.d.safely("checkpoint of "+s.key.String(), func() { err = s.store(s.d.life, c) })
		s.do(s.d.life, func() { s.wrote(b, c, err) })
	})
}

// store encodes and puts one checkpoint, after pruning the older ones.
func (s *session) store(ctx context.Context, c *checkpoint.Checkpoint) error {
	select {
	case s.d.builds <- struct{}{}:
		defer func() { <-s.d.builds }()
	case <-ctx.Done():
		return ctx.Err()
	}
	_ = s.d.journal.Wait(ctx, c.State.Seq) // a checkpoint is worth having while the journal's disk fails; load knows of such numbers
	if c.Level == checkpoint.Full && s.d.set.Load().WorkTree && c.State.Workspace != "" && c.Cause != checkpoint.CauseStopping {
		c.WorkTree = git.Status(ctx, c.State.Workspace)
	}
	for try := 0; ; try++ {
		data, err := c.Encode()
		if err != nil {
			return err
		}
		m := c.Meta()
		m.Bytes = int64(len(data))
		s.prune(ctx, m.Bytes)
		s.d.makeRoom(ctx, m.Bytes)
		err = s.d.store.Put(ctx, s.key, m, data)
		s.d.landed(m.Bytes, err)
		if !errors.Is(err, checkpoint.ErrExists) || try == 3 {
			return err
		}
		list, lerr := s.d.store.List(ctx, s.key)
		if lerr != nil || len(list) == 0 {
			return err
		}
		c.Number = list[0].Number + 1 // a crash lost the journal's memory of these
	}
}

// prune applies the retention before a checkpoint of some bytes is added, so that the budget holds at every moment. Its
// failure is told, and is no failure of the checkpoint.
func (s *session) prune(ctx context.Context, room int64) {
	policy := s.d.set.Load().Retention
	if s.d.budget.tight.Load() {
		policy.Bytes = 1 // all sessions together hold too much: the last good FULL stays
	}
	if err := s.d.pruneTo(ctx, s.key, policy.Room(room)); err != nil {
		s.d.log.Warn("prune", zap.Stringer("session", s.key), zap.Error(err))
	}
}

func (d *Daemon) pruneTo(ctx context.Context, key checkpoint.Key, p checkpoint.Policy) error {
	list, err := d.store.List(ctx, key)
	if err != nil {
		return err
	}
	for _, n := range checkpoint.Prune(list, p, time.Now()) {
		if err := d.store.Delete(ctx, key, n); err != nil {
			return fmt.Errorf("checkpoint %d: %w", n, err)
		}
		i := slices.IndexFunc(list, func(m checkpoint.Meta) bool { return m.Number == n }) // Prune gives numbers of the list
		d.budget.kept.Add(-list[i].Bytes)
	}
	return nil
}

// adopt folds in the checkpoints that reached the store while the journal did not hear of it any more: the last daemon ended
// between the two. What they hold is not taken again.
func (s *session) adopt() {
	list, err := s.d.store.List(s.d.life, s.key)
	if err != nil {
		return // the store's fault is told by the next write; a number that is taken is passed then
	}
	for _, m := range slices.Backward(list) { // oldest first
		if m.Number <= s.state.LastNumber {
			continue
		}
		data, err := s.d.store.Get(s.d.life, s.key, m.Number)
		var c *checkpoint.Checkpoint
		if err == nil {
			c, err = checkpoint.DecodeIn(s.key.Dir(), data)
		}
		if err != nil {
			s.d.log.Warn("a checkpoint of which the journal does not know", zap.Stringer("session", s.key), zap.Uint64("number", m.Number), zap.Error(err))
			continue
		}
		t := c.Taken()
		s.note(checkpoint.Event{Kind: checkpoint.EventCheckpoint, Taken: &t})
	}
}

// wrote folds in how a build ended.
func (s *session) wrote(b *build, c *checkpoint.Checkpoint, err error) {
	s.due = nil
	t := c.Taken()
	if err != nil {
		t.Failed = err.Error()
	}
	full, sparse := s.state.OwedFull, s.state.OwedSparse
	s.note(checkpoint.Event{Kind: checkpoint.EventCheckpoint, Taken: &t})
	if s.state.News > t.News { // what came to be owed while it was written is not in it
		s.state.OwedFull, s.state.OwedSparse = full, sparse
	}
	if err != nil {
		s.failed(b, err)
		return
	}
	s.failures, s.retryAt = 0, time.Time{}
	s.d.log.Info("checkpoint", zap.Stringer("session", s.key), zap.Uint64("number", c.Number), zap.String("kind", string(c.Level)),
		zap.String("cause", string(c.Cause)))
	s.d.counts.taken.Add(1)
	rest := s.waiters[:0]
	for _, w := range s.waiters {
		if w.after <= t.News {
			w.reply <- result{decision: b.decision, number: c.Number}
			continue
		}
		rest = append(rest, w)
	}
	s.waiters = rest
	s.save(nil)
}

// failed owes what could not be written, with a growing pause; the breaker counts.
func (s *session) failed(b *build, err error) {
	if s.d.life.Err() == nil {
		if s.failures++; s.failures == 1 { // what follows is told by the breaker, once
			s.d.log.Warn("checkpoint", zap.Stringer("session", s.key), zap.String("kind", string(b.decision.Level)), zap.Error(err))
		}
		s.retryAt = time.Now().Add(min(s.d.times.retryFirst<<min(s.failures-1, 10), s.d.times.retryLongest))
	}
	d := b.decision
	d.Take, d.Owed = false, true
	s.state.Owe(d)
	if errors.Is(err, breaker.ErrOpen) || s.d.degraded() {
		s.noteGap()
	}
	s.answer(result{decision: d, err: err})
}
