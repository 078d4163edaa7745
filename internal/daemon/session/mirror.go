package session

import (
	"context"
	"errors"
	"time"

	"belay/internal/state/mirror"
)

// copies is what is kept of a transcript, in a mirror.
type copies struct {
	mirror    *mirror.Mirror // nil: none is kept
	copying   bool
	stale     bool // there may be more to copy than the copier saw
	unflushed bool
	compacted bool
	flushed   time.Time // when the mirror was last put on stable storage
	behind    int64     // bytes that the mirror does not hold
	size      int64     // bytes of all copies on disk, as they were last counted
	gens      int       // older copies
	mirrorErr string
}

// ErrFull says that there is no room for a mirror.
var ErrFull = errors.New("no room in retention.total_bytes")

// copyToMirror brings the mirror of a file in which a record of the agent's was found up to date, one step at a time,
// and puts it on stable storage at most once a second.
func (s *Session) copyToMirror(ctx context.Context) {
	f := &s.file
	if f.mirror == nil || !f.ours { // what a hook names may be any file of the user's
		return
	}
	if f.copying {
		f.stale = true
		return
	}
	if s.Room.Full() {
		f.mirrorErr, f.unflushed, f.flushed = ErrFull.Error(), true, time.Now().Add(s.Times.RetryLongest) // then again
		return
	}

	f.copying, f.stale, f.unflushed = true, false, true
	m, path, flush := f.mirror, f.opened, s.due != nil || time.Since(f.flushed) >= s.Times.FlushEvery
	s.work.Go(func() {
		var p mirror.Progress
		err := errPanic
		s.Safely("mirror "+path, func() {
			if p, err = m.Sync(ctx, path); err == nil && flush {
				err = m.Flush()
			}
		})

		size := s.Dir.Copies(s.Key)
		s.do(ctx, func(ctx context.Context) {
			s.copied(ctx, p, err, flush)
			s.measured(size)
		})
	})
}

// copied notes how a step of the copier ended.
func (s *Session) copied(ctx context.Context, p mirror.Progress, err error, flush bool) {
	f := &s.file
	f.copying, f.behind, f.gens, f.mirrorErr = false, p.Behind, p.Generations, ""
	if flush || err != nil {
		f.flushed = time.Now()
		f.unflushed = err == nil && p.Copied > 0 && !flush
	}

	if p.Copied > 0 {
		f.compacted = false
	} else if err == nil {
		f.unflushed = f.unflushed && !flush
	}

	if err != nil {
		f.mirrorErr = err.Error() // an extra: its failure stops nothing, and the next change tries again
	} else if !p.Done && p.Copied > 0 || f.stale {
		s.copyToMirror(ctx)
	}

	if f.again {
		s.read(ctx)
	}
}

// measured counts what the copies have grown by.
func (s *Session) measured(size int64) {
	s.Room.Grown(size - s.file.size)
	s.file.size = size
}

// compactMirror puts the mirror of an idle session in order, once; it says whether that is under way.
func (s *Session) compactMirror(ctx context.Context) bool {
	f := &s.file
	if f.mirror == nil || f.compacted {
		return false
	}

	f.compacted, f.copying = true, true
	m := f.mirror
	s.work.Go(func() {
		err := errPanic
		s.Safely("compact mirror", func() { err = m.Compact(ctx) })
		size := s.Dir.Copies(s.Key)
		s.do(ctx, func(ctx context.Context) {
			f.copying = false
			s.measured(size)
			if err != nil {
				f.mirrorErr = err.Error()
			}
			if f.again || f.stale {
				s.read(ctx)
			}
		})
	})

	return true
}
