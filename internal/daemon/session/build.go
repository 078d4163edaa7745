package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/host/git"
)

// build is a checkpoint on its way: decided, then brought up to date with the transcript, then written. It never delays
// the session's events.
type build struct {
	decision checkpoint.Decision
	since    time.Time
	last     uint64 // hash of a last answer that only a hook told of; the build waits a little for the file to hold it
	read     bool   // the transcript was read since the decision
	busy     bool   // it is being written
}

// lateText is the hash of the last answer while the transcript lags behind the hook that told of it.
func (s *Session) lateText() uint64 {
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
func (s *Session) advance(ctx context.Context) {
	b := s.due
	if b == nil || b.busy || s.trimming {
		return
	}

	if s.state.Transcript != "" && s.agent != nil {
		if !b.read {
			b.read = true
			s.read(ctx)
		}
		if s.file.reading {
			return
		}
		if b.last != 0 && s.lateText() == b.last && time.Since(b.since) < s.Times.LateText {
			return // the watch or the timer comes back
		}
	}

	b.busy = true
	s.write(b)
}

// write copies the state and stores the checkpoint in a goroutine that may outlive the session: a store that hangs must
// not hold up anything of it.
func (s *Session) write(b *build) {
	copied := s.state.Clone()
	copied.OwedFull, copied.OwedSparse = "", false
	c := checkpoint.New(copied, s.state.LastNumber+1, b.decision, time.Now().UTC())

	s.Spawn(func(ctx context.Context) {
		err := errPanic
		s.Safely("checkpoint of "+s.Key.String(), func() { err = s.put(ctx, c) })
		s.do(ctx, func(ctx context.Context) { s.wrote(ctx, b, c, err) })
	})
}

// put encodes and stores one checkpoint, after making room for it.
func (s *Session) put(ctx context.Context, c *checkpoint.Checkpoint) error {
	select {
	case s.Builds <- struct{}{}:
		defer func() { <-s.Builds }()
	case <-ctx.Done():
		return ctx.Err()
	}

	// A checkpoint is worth having while the journal's disk fails; a load knows of such numbers.
	_ = s.Journal.Wait(ctx, c.State.Seq)
	full := c.Level == checkpoint.Full && c.Cause != checkpoint.CauseStopping
	if full && s.Settings().WorkTree && c.State.Workspace != "" {
		c.WorkTree = git.Status(ctx, c.State.Workspace)
	}

	for try := 0; ; try++ {
		data, err := c.Encode()
		if err != nil {
			return err
		}

		m := c.Meta()
		m.Bytes = int64(len(data))
		s.Room.Make(ctx, s.Key, m.Bytes)
		err = s.Store.Put(ctx, s.Key, m, data)
		s.Room.Landed(m.Bytes, err)
		if !errors.Is(err, checkpoint.ErrExists) || try == 3 {
			return err
		}

		list, lerr := s.Store.List(ctx, s.Key)
		if lerr != nil || len(list) == 0 {
			return err
		}

		c.Number = list[0].Number + 1 // a crash lost the journal's memory of these
	}
}

// wrote folds in how a build ended.
func (s *Session) wrote(ctx context.Context, b *build, c *checkpoint.Checkpoint, err error) {
	s.due = nil
	t := c.Taken()
	if err != nil {
		t.Failed = err.Error()
	}

	full, sparse := s.state.OwedFull, s.state.OwedSparse
	s.note(ctx, checkpoint.Event{Kind: checkpoint.EventCheckpoint, Taken: &t})
	if s.state.News > t.News { // what came to be owed while it was written is not in it
		s.state.OwedFull, s.state.OwedSparse = full, sparse
	}
	if err != nil {
		s.failed(ctx, b, err)
		return
	}

	s.failures, s.retryAt = 0, time.Time{}
	s.Log.Info("checkpoint", zap.Stringer("session", s.Key), zap.Uint64("number", c.Number),
		zap.String("kind", string(c.Level)), zap.String("cause", string(c.Cause)))
	s.Counts.Taken.Add(1)
	s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool {
		if w.after > t.News {
			return false
		}
		w.reply <- Result{Decision: b.decision, Number: c.Number}
		return true
	})

	s.saveState(ctx, nil)
}

// failed owes what could not be written, with a growing pause; the breaker counts.
func (s *Session) failed(ctx context.Context, b *build, err error) {
	if ctx.Err() == nil {
		if s.failures++; s.failures == 1 { // what follows is told by the breaker, once
			s.Log.Warn("checkpoint", zap.Stringer("session", s.Key), zap.String("kind", string(b.decision.Level)),
				zap.Error(err))
		}
		s.retryAt = time.Now().Add(min(s.Times.RetryFirst<<min(s.failures-1, 10), s.Times.RetryLongest))
	}

	d := b.decision
	d.Take, d.Owed = false, true
	s.state.Owe(d)
	if errors.Is(err, breaker.ErrOpen) || s.Degraded() {
		s.noteGap(ctx)
	}

	s.answer(Result{Decision: d, Err: err})
}

// adopt folds in the checkpoints that reached the store while the journal did not hear of it any more: the last daemon
// ended between the two. What they hold is not taken again.
func (s *Session) adopt(ctx context.Context) {
	list, err := s.Store.List(ctx, s.Key)
	if err != nil {
		return // the store's fault is told by the next write; a number that is taken is passed then
	}

	for _, m := range slices.Backward(list) { // oldest first
		if m.Number <= s.state.LastNumber {
			continue
		}

		data, err := s.Store.Get(ctx, s.Key, m.Number)
		var c *checkpoint.Checkpoint
		if err == nil {
			c, err = checkpoint.DecodeIn(s.Key.Dir(), data)
		}

		if err != nil {
			s.Log.Warn("a checkpoint that the journal does not know",
				zap.Stringer("session", s.Key), zap.Uint64("number", m.Number), zap.Error(err))
			continue
		}

		t := c.Taken()
		s.note(ctx, checkpoint.Event{Kind: checkpoint.EventCheckpoint, Taken: &t})
	}
}

// Trim has the session leave its last good FULL in the store, and waits for it. One that writes a checkpoint made its
// room before it began.
func (s *Session) Trim(ctx context.Context) error {
	done := make(chan struct{})
	if !s.do(ctx, func(ctx context.Context) { s.trim(ctx, done) }) {
		return ctx.Err()
	}

	select {
	case <-done:
	case <-s.done:
	case <-ctx.Done():
	}

	return ctx.Err()
}

// trim leaves the last good FULL in the store, unless a checkpoint is being written; a new one waits meanwhile. It
// closes done when that is so.
func (s *Session) trim(ctx context.Context, done chan<- struct{}) {
	if s.trimming || s.due != nil && s.due.busy {
		close(done)
		return
	}

	s.trimming = true
	s.work.Go(func() {
		defer close(done)
		err := s.Room.Trim(ctx, s.Key)
		s.do(ctx, func(context.Context) {
			s.trimming = false
			if err != nil {
				s.Log.Warn("prune", zap.Stringer("session", s.Key), zap.Error(err))
			}
		})
	})
}
