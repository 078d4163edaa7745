package daemon

import (
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
	cursor := o.cursor
	s.work.Go(func() {
		b, err := checkpoint.Batch{}, errPanic
		s.d.safely("read "+o.path, func() {
			b, err = o.source.Read(s.d.life, cursor, checkpoint.ReadOptions{})
		})
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
	if !b.First { // a file that was replaced meanwhile is another one's business
		for _, list := range parts(b.Entries) {
			s.note(checkpoint.Event{Kind: checkpoint.EventEntries, Entries: list})
		}
	}
	o.cursor = b.Cursor
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
