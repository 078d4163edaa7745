package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/state/mirror"
	"belay/recovery"
)

// transcript is what a session has open of its agent's own record. At most one goroutine reads it and one copies it
// into the mirror; both hand what they found back through the inbox.
type transcript struct {
	opened  string   // path
	watched []string // it, or the files that it consists of
	source  checkpoint.Transcript
	reading bool
	again   bool // it may have changed since the reader began
	readErr string
	ours    bool // a record of the agent's was found in it
	copies
}

// Changed says that the transcript may have changed.
func (s *Session) Changed(ctx context.Context) {
	s.do(ctx, func(ctx context.Context) {
		s.lastSeen = time.Now()
		s.read(ctx)
		s.readPrevious(ctx)
	})
}

// read starts a reader unless one runs: whole lines from the cursor on.
func (s *Session) read(ctx context.Context) {
	if s.agent == nil || s.state.Transcript == "" {
		return
	}

	f := &s.file
	moved := f.source == nil || f.opened != s.state.Transcript
	if f.reading || moved && f.copying {
		f.again = true
		return
	}
	if moved {
		s.openFile(ctx)
	}

	f.reading, f.again = true, false
	source, path, cursor, workspace := f.source, f.opened, s.state.Cursor, s.state.Workspace
	s.work.Go(func() {
		b, ours, err := s.fetch(ctx, source, path, cursor, workspace)
		s.do(ctx, func(ctx context.Context) { s.readBatch(ctx, path, b, ours, err) })
	})
}

// fetch reads on in one of the session's files, outside its goroutine. What the file tells of other sessions goes to
// those; ours says that records of the agent's were found, whichever session they are of.
func (s *Session) fetch(
	ctx context.Context, source checkpoint.Transcript, path string, cursor checkpoint.Cursor, workspace string,
) (b checkpoint.Batch, ours bool, err error) {
	err = errPanic
	s.Safely("read "+path, func() {
		b, err = source.Read(ctx, cursor, checkpoint.ReadOptions{})
	})
	ours = err == nil && len(b.Entries) > 0
	if err == nil {
		err = s.handOver(ctx, &b, workspace)
	}
	if err == nil {
		err = s.tellChildren(ctx, b, workspace)
	}

	return b, ours, err
}

// handOver gives the records of other sessions to those: a record belongs to the session that it names, whatever file
// it is in. They are in the journal before this session's cursor moves past them.
func (s *Session) handOver(ctx context.Context, b *checkpoint.Batch, workspace string) error {
	own := b.Entries[:0:0]
	others := map[string][]checkpoint.Entry{}
	for _, e := range b.Entries {
		if e.Session != "" && e.Session != s.Key.Session {
			others[e.Session] = append(others[e.Session], e)
		} else {
			own = append(own, e)
		}
	}

	b.Entries = own

	for id, list := range others {
		key := s.Key
		key.Session = id
		for _, part := range parts(list) {
			e := checkpoint.Event{Kind: checkpoint.EventEntries, Entries: part, First: b.First, Workspace: workspace}
			if r := s.Others.Apply(ctx, key, e); r.Err != nil {
				return fmt.Errorf("pass records on to %s: %w", key, r.Err)
			}
		}
	}

	return nil
}

// tellChildren opens the sessions of the sub-agents that have files of their own, and closes them, as the session's
// file tells.
func (s *Session) tellChildren(ctx context.Context, b checkpoint.Batch, workspace string) error {
	for _, n := range b.Entries {
		key := s.Key
		key.Child = n.Child
		e := checkpoint.Event{Parent: s.Key.Session, ChildName: n.Name, Transcript: n.Transcript, Workspace: workspace}
		switch {
		case n.Kind == checkpoint.EntryChildStart && n.Transcript != "" && !s.Others.Known(key):
			e.Kind = checkpoint.EventStart
		case n.Kind == checkpoint.EntryChildEnd && s.Others.Known(key):
			e.Kind = checkpoint.EventEnd
		default:
			continue
		}

		if r := s.Others.Apply(ctx, key, e); r.Err != nil {
			return fmt.Errorf("tell sub-agent %s: %w", key, r.Err)
		}
	}
	return nil
}

// parts cuts entries into records of bounded size.
func parts(list []checkpoint.Entry) [][]checkpoint.Entry {
	const most = 48 << 10
	var all [][]checkpoint.Entry
	for begin, size, i := 0, 0, 0; i < len(list); i++ {
		size += 200 + len(list[i].Text) + len(list[i].Input) + len(list[i].Output)
		if size >= most || i == len(list)-1 {
			all = append(all, list[begin:i+1:i+1])
			begin, size = i+1, 0
		}
	}

	return all
}

// readBatch folds in what a reader brought.
func (s *Session) readBatch(ctx context.Context, path string, b checkpoint.Batch, ours bool, err error) {
	s.file.reading = false
	if path != s.state.Transcript {
		s.read(ctx) // the hooks named another file meanwhile
		return
	}

	s.file.ours = s.file.ours || ours
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // not there yet, or not any more: the events and the mirror stand
	}

	text := ""
	if err != nil {
		text = err.Error()
		if text != s.file.readErr && ctx.Err() == nil {
			s.Log.Warn("read transcript", zap.Stringer("session", s.Key), zap.Error(err))
		}
	} else {
		s.entries(ctx, b)
	}

	s.file.readErr = text
	s.copyToMirror(ctx)

	if b.More || s.file.again {
		s.read(ctx)
		return
	}
	if s.previous != nil {
		s.previous.ready = true
		s.readPrevious(ctx)
	}
}

// entries journals a batch. The cursor moves with the last record of it; the fold knows entries that come again after a
// crash in between.
func (s *Session) entries(ctx context.Context, b checkpoint.Batch) {
	st := s.state
	if len(b.Entries) == 0 && b.Cursor == st.Cursor && b.Losses.BadLines == 0 && b.Losses.Torn == st.Losses.Torn {
		return
	}

	all := b.Entries
	list := parts(all)
	for i := 0; i+1 < len(list); i++ {
		s.note(ctx, checkpoint.Event{Kind: checkpoint.EventEntries, Entries: list[i], First: b.First})
		b.Entries = list[i+1]
	}

	s.note(ctx, recovery.Event(s.Key, b, time.Now().UTC()))

	compacted := func(e checkpoint.Entry) bool { return e.Kind == checkpoint.EntryCompaction }
	if s.agent.Limits().QuietCompaction && !b.First && slices.ContainsFunc(all, compacted) {
		s.note(ctx, checkpoint.Event{Kind: checkpoint.EventOwed, Source: recovery.StartCompact})
	}
}

// openFile follows the path that the hooks name.
func (s *Session) openFile(ctx context.Context) {
	before := s.file
	s.closeFile()
	path := s.state.Transcript
	files := s.filesOf(path)
	if before.source != nil && len(before.watched) == 1 && len(files) == 0 { // a database is one for all its sessions
		s.keepPrevious(ctx, before.opened)
	}

	s.file = transcript{opened: path, source: s.open(path), watched: files, copies: copies{compacted: true}}
	if len(files) == 0 {
		s.file.watched = []string{path}
	}

	for _, file := range s.file.watched {
		s.Watch.Bind(file, s.Key)
	}

	if s.Mirrors.Off || len(files) > 0 { // a database is no file of lines
		return
	}

	m, err := mirror.Open(s.Dir.FS, s.Folder, mirror.Options{Codec: s.Mirrors.Codec, Key: s.Mirrors.Key})
	if err != nil {
		s.file.mirrorErr = err.Error()
		return
	}

	s.file.mirror, s.file.size = m, s.Dir.Copies(s.Key)
	s.file.ours = before.source == nil && s.file.size > 0 // it was before the daemon's start
}

func (s *Session) open(path string) checkpoint.Transcript {
	return agent.OpenTranscript(s.agent, agent.Source{Path: path, Session: s.Key.Session, Child: s.Key.Child})
}

// filesOf names the files of a transcript that is more than one.
func (s *Session) filesOf(path string) []string {
	if w, ok := s.agent.(agent.Watched); ok {
		return w.Watch(path)
	}
	return nil
}

// closeFile is called when neither reader nor copier runs.
func (s *Session) closeFile() {
	f := &s.file
	if f.source == nil {
		return
	}

	for _, part := range f.watched {
		s.Watch.Unbind(part, s.Key)
	}

	if err := f.source.Close(); err != nil {
		s.Log.Debug("close transcript", zap.Stringer("session", s.Key), zap.Error(err))
	}

	if f.mirror != nil {
		if err := f.mirror.Close(); err != nil {
			s.Log.Warn("close mirror", zap.Stringer("session", s.Key), zap.Error(err))
		}
	}

	s.file = transcript{}
}
