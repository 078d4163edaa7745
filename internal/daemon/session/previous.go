package session

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"belay/checkpoint"
)

// previous is the transcript that a session had before hooks named another. An agent may go on in both for a while (a
// compaction that runs beside the turn, a resume that writes on in the old file), so it is followed until the session
// rests or moves again. Its cursor is kept here alone: the durable one is the newer file's.
type previous struct {
	path    string
	source  checkpoint.Transcript
	cursor  checkpoint.Cursor
	ready   bool // the newer file was read
	reading bool
	again   bool
}

// keepPrevious is called when the session moves on from the file that was open, while nobody reads it.
func (s *Session) keepPrevious(ctx context.Context, path string) {
	s.dropPrevious(ctx)
	s.previous = &previous{path: path, cursor: s.state.Cursor, source: s.open(path)}
	s.Watch.Bind(path, s.Key)
}

// readPrevious starts a reader of the previous file unless one runs. It waits until the newer file's first read is
// done: what was copied there is known by then.
func (s *Session) readPrevious(ctx context.Context) {
	o := s.previous
	if o == nil || !o.ready {
		return
	}
	if o.reading {
		o.again = true
		return
	}

	o.reading, o.again = true, false
	cursor, workspace := o.cursor, s.state.Workspace
	s.work.Go(func() {
		b, _, err := s.fetch(ctx, o.source, o.path, cursor, workspace)
		s.do(ctx, func(ctx context.Context) { s.readPreviousBatch(ctx, o, b, err) })
	})
}

// readPreviousBatch folds in what the previous file brought. A file that is gone or cannot be read is passed over: the
// newer one counts.
func (s *Session) readPreviousBatch(ctx context.Context, o *previous, b checkpoint.Batch, err error) {
	o.reading = false
	if o != s.previous {
		s.closePrevious(o)
		return
	}
	if err != nil {
		return
	}

	takesBack := func(e checkpoint.Entry) bool { return e.Op != checkpoint.Upsert }
	if b.First || slices.ContainsFunc(b.Entries, takesBack) {
		s.dropPrevious(ctx) // it was replaced, or takes words back: the newer file says what stands
		return
	}

	o.cursor = b.Cursor
	if len(b.Entries) > 0 || b.Losses.BadLines > 0 {
		b.Cursor, b.Losses.Torn = "", s.state.Losses.Torn // these are the newer file's
		s.entries(ctx, b)
	}
	if b.More || o.again {
		s.readPrevious(ctx)
	}
}

// dropPrevious follows the previous file no longer.
func (s *Session) dropPrevious(ctx context.Context) {
	o := s.previous
	if o == nil {
		return
	}

	s.previous = nil
	s.Watch.Unbind(o.path, s.Key)
	if !o.reading || ctx.Err() != nil { // its reader hands it back, unless all ends
		s.closePrevious(o)
	}
}

func (o *previous) busy() bool { return o != nil && o.reading }

func (s *Session) closePrevious(o *previous) {
	if err := o.source.Close(); err != nil {
		s.Log.Debug("close the older transcript", zap.Stringer("session", s.Key), zap.Error(err))
	}
}
