package session

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/checkpoint/journal"
)

// saving is how the state's file stands to the state.
type saving struct {
	seq       uint64        // the state's in the file
	never     bool          // there is no file yet
	busy      bool          // it is being written
	waiting   []func(error) // for the save after this one
	notBefore time.Time     // no idle save before: the last one failed
}

// SaveThrough saves a state with events up to a number that its file does not hold, and waits for it.
func (s *Session) SaveThrough(ctx context.Context, last uint64) error {
	saved := make(chan error, 1)
	if !s.do(ctx, func(ctx context.Context) {
		if s.save.seq > last {
			saved <- nil
			return
		}
		s.saveState(ctx, func(err error) { saved <- err })
	}) {
		return nil // it has left memory, and saved itself
	}

	select {
	case err := <-saved:
		return err
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ForgetDisk has the session write again what a removed state folder held of it.
func (s *Session) ForgetDisk(ctx context.Context) {
	s.do(ctx, func(context.Context) {
		s.save.never = true
		s.state.LastFull, s.state.LastSparse = nil, nil
	})
}

// saveState puts the state on disk, once the journal holds what is in it, in a goroutine of its own: a slow disk delays
// no event. done, if not nil, hears of a state that is at least as new as this moment's.
func (s *Session) saveState(ctx context.Context, done func(error)) {
	if done == nil {
		done = func(error) {}
	}

	switch {
	case s.save.busy:
		s.save.waiting = append(s.save.waiting, done)
		return
	case s.state.Seq == s.save.seq && !s.save.never:
		done(nil)
		return
	}

	s.save.busy = true
	copied := s.state.Clone()
	s.work.Go(func() {
		err := s.writeState(ctx, copied)
		if !s.do(ctx, func(ctx context.Context) { s.saved(ctx, copied.Seq, err, done) }) {
			done(err) // stopping: nobody else will say so
		}
	})
}

func (s *Session) writeState(ctx context.Context, st *checkpoint.State) error {
	// A record that was dropped from memory will never be on disk: then the state is all that holds it.
	if err := s.Journal.Wait(ctx, st.Seq); err != nil && !errors.Is(err, journal.ErrDropped) {
		return err
	}

	had := s.Dir.StateBytes(st.Key)
	err := s.Dir.SaveState(st)
	s.Room.Grown(s.Dir.StateBytes(st.Key) - had)
	return err
}

func (s *Session) saved(ctx context.Context, seq uint64, err error, done func(error)) {
	s.save.busy = false
	if err == nil {
		s.save.seq, s.save.never = seq, false
	} else {
		s.save.notBefore = time.Now().Add(s.Times.RetryLongest)
		// The journal holds it, and says how its disk is.
		s.Log.Debug("save state", zap.Stringer("session", s.Key), zap.Error(err))
	}

	done(err)

	if list := s.save.waiting; len(list) > 0 {
		s.save.waiting = nil
		s.saveState(ctx, func(err error) {
			for _, done := range list {
				done(err)
			}
		})
	}
}
