package daemon

import (
	"slices"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
)

// older is the transcript that a session had before hooks named another. An agent may go on in both for a while (a compaction
// that runs beside the turn, a resume that writes on in the old file), so it is followed until the session rests or moves
// again. Its cursor is kept here alone: the durable one is the newer file's.
type older struct {
	path    string
	source  checkpoint.Transcript
	cursor  checkpoint.Cursor
	ready   bool // the newer file was read
	reading bool
	again   bool
}

// keepOlder is called when the session moves on from the file that was open, while nobody reads it.
func (s *session) keepOlder(path string) {
	s.dropOlder()
	s.older = &older{path: path, cursor: s.state.Cursor,
		source: agent.OpenTranscript(s.agent, agent.Source{Path: path, Session: s.key.Session, Child: s.key.Child})}
	s.d.bind(path, s.key)
}

// readOlder starts a reader of the older file unless one runs. It waits until the newer file's first read is done: what was
// copied there is known by then.
func (s *session) readOlder() {
	o := s.older
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
		b, _, err := s.fetch(o.source, o.path, cursor, workspace)
		s.do(s.d.life, func() { s.tookOlder(o, b, err) })
	})
}

// tookOlder folds in what the older file brought. A file that is gone or cannot be read is passed over: the newer one counts.
func (s *session) tookOlder(o *older, b checkpoint.Batch, err error) {
	o.reading = false
	if o != s.older {
		s.closeOlder(o)
		return
	}
	if err != nil {
		return
	}
	takesBack := func(e checkpoint.Entry) bool { return e.Op != checkpoint.Upsert }
	if b.First || slices.ContainsFunc(b.Entries, takesBack) {
		s.dropOlder() // it was replaced, or takes words back: the newer file says what stands
		return
	}
	o.cursor = b.Cursor
	if len(b.Entries) > 0 || b.Losses.BadLines > 0 {
		b.Cursor, b.Losses.Torn = "", s.state.Losses.Torn // these are the newer file's
		s.entries(b)
	}
	if b.More || o.again {
		s.readOlder()
	}
}

// dropOlder follows the older file no longer.
func (s *session) dropOlder() {
	o := s.older
	if o == nil {
		return
	}
	s.older = nil
	s.d.unbind(o.path, s.key)
	if !o.reading || s.d.life.Err() != nil { // its reader hands it back, unless all ends
		s.closeOlder(o)
	}
}

func (o *older) busy() bool { return o != nil && o.reading }

func (s *session) closeOlder(o *older) {
	if err := o.source.Close(); err != nil {
		s.d.log.Debug("close the older transcript", zap.Stringer("session", s.key), zap.Error(err))
	}
}
