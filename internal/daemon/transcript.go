package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/state/mirror"
	"belay/recovery"
)

// transcript is what a session has open of its agent's own record. At most one goroutine reads it and one copies it into
// the mirror; both hand what they found back through the inbox.
type transcript struct {
	opened  string   // path
	watched []string // it, or the files that it consists of
	source  checkpoint.Transcript
	reading bool
	again   bool // it may have changed since the reader began

	mirror    *mirror.Mirror
	copying   bool
	stale     bool // there may be more to copy than the copier saw
	unflushed bool
	compacted bool
	flushed   time.Time // when the mirror was last put on stable storage
	behind    int64     // bytes that the mirror does not hold
	size      int64     // bytes of all copies on disk, as they were last counted
	gens      int       // older copies
	mirrorErr string
	readErr   string
	ours      bool // a record of the agent's was found in it
}

// errNoKeyDir says that the key of exact mirrors has no place of its own.
var errNoKeyDir = errors.New("the key's folder would lie in the state folder, or there is no home folder")

// errFull says that there is no room for a mirror.
var errFull = errors.New("no room in retention.total_bytes")

// openKey opens the key of exact mirrors. Without a safe one the mirrors are kept as usual, without secrets: a copy less
// is worse than another copy.
func (d *Daemon) openKey() {
	if d.opt.Mirror != MirrorExact {
		return
	}
	err := errNoKeyDir
	if rel, rerr := filepath.Rel(d.opt.StateDir, d.opt.KeyDir); d.opt.KeyDir != "" && (rerr != nil || rel == ".." || strings.HasPrefix(rel, "../")) {
		d.key, err = mirror.MakeKey(d.opt.FS, d.opt.KeyDir)
	}
	if err != nil {
		d.keyless = "no exact mirror, but one without secrets: " + err.Error()
		d.log.Error("mirror: exact is refused, mirrors are kept without secrets", zap.Error(err), zap.String("do", "belay doctor says what to do"))
	}
}

// read starts a reader unless one runs: whole lines from the cursor on. The watch calls it when the file may have changed.
func (s *session) read() {
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
		s.openFile()
	}
	f.reading, f.again = true, false
	source, path, cursor, workspace := f.source, f.opened, s.state.Cursor, s.state.Workspace
	s.work.Go(func() {
		b, ours, err := s.fetch(source, path, cursor, workspace)
		s.do(s.d.life, func() { s.took(path, b, ours, err) })
	})
}

// fetch reads on in one of the session's files, outside its goroutine. What the file tells of other sessions goes to those; ours
// says that records of the agent's were found, whichever session they are of.
func (s *session) fetch(source checkpoint.Transcript, path string, cursor checkpoint.Cursor, workspace string) (b checkpoint.Batch, ours bool, err error) {
	err = errPanic
	s.d.safely("read "+path, func() {
		b, err = source.Read(s.d.life, cursor, checkpoint.ReadOptions{})
	})
	ours = err == nil && len(b.Entries) > 0
	if err == nil {
		err = s.passOn(&b, workspace)
	}
	if err == nil {
		err = s.passDown(b, workspace)
	}
	return b, ours, err
}

// passOn gives the records of other sessions to those: a record belongs to the session that it names, whatever file it is in.
// They are in the journal before this session's cursor moves past them.
func (s *session) passOn(b *checkpoint.Batch, workspace string) error {
	own := b.Entries[:0:0]
	foreign := map[string][]checkpoint.Entry{}
	for _, e := range b.Entries {
		if e.Session != "" && e.Session != s.key.Session {
			foreign[e.Session] = append(foreign[e.Session], e)
		} else {
			own = append(own, e)
		}
	}
	b.Entries = own
	for id, list := range foreign {
		key := s.key
		key.Session = id
		for _, part := range parts(list) {
			e := checkpoint.Event{Kind: checkpoint.EventEntries, Entries: part, First: b.First, Workspace: workspace}
			if r := s.d.apply(s.d.life, key, e); r.err != nil {
				return fmt.Errorf("pass records on to %s: %w", key, r.err)
			}
		}
	}
	return nil
}

// passDown opens the sessions of the sub-agents that have files of their own, and closes them, as the session's file tells.
func (s *session) passDown(b checkpoint.Batch, workspace string) error {
	for _, n := range b.Entries {
		key := s.key
		key.Child = n.Child
		e := checkpoint.Event{Parent: s.key.Session, ChildName: n.Name, Transcript: n.Transcript, Workspace: workspace}
		switch {
		case n.Kind == checkpoint.EntryChildStart && n.Transcript != "" && !s.d.known(key):
			e.Kind = checkpoint.EventStart
		case n.Kind == checkpoint.EntryChildEnd && s.d.known(key):
			e.Kind = checkpoint.EventEnd
		default:
			continue
		}
		if r := s.d.apply(s.d.life, key, e); r.err != nil {
			return fmt.Errorf("tell sub-agent %s: %w", key, r.err)
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

// took folds in what a reader brought.
func (s *session) took(path string, b checkpoint.Batch, ours bool, err error) {
	s.file.reading = false
	if path != s.state.Transcript {
		s.read() // the hooks named another file meanwhile
		return
	}
	s.file.ours = s.file.ours || ours
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // not there yet, or not any more: the events and the mirror stand
	}
	text := ""
	if err != nil {
		text = err.Error()
		if text != s.file.readErr && s.d.life.Err() == nil {
			s.d.log.Warn("read transcript", zap.Stringer("session", s.key), zap.Error(err))
		}
	} else {
		s.entries(b)
	}
	s.file.readErr = text
	s.copy()
	if b.More || s.file.again {
		s.read()
		return
	}
	if s.older != nil {
		s.older.ready = true
		s.readOlder()
	}
}

// entries journals a batch. The cursor moves with the last record of it; the fold knows entries that come again after a
// crash in between.
func (s *session) entries(b checkpoint.Batch) {
	if len(b.Entries) == 0 && b.Cursor == s.state.Cursor && b.Losses.BadLines == 0 && b.Losses.Torn == s.state.Losses.Torn {
		return
	}
	all := b.Entries
	list := parts(all)
	for i := 0; i+1 < len(list); i++ {
		s.note(checkpoint.Event{Kind: checkpoint.EventEntries, Entries: list[i], First: b.First})
		b.Entries = list[i+1]
	}
	s.note(recovery.Event(s.key, b, time.Now().UTC()))
	compacted := func(e checkpoint.Entry) bool { return e.Kind == checkpoint.EntryCompaction }
	if s.agent.Limits().QuietCompaction && !b.First && slices.ContainsFunc(all, compacted) {
		s.note(checkpoint.Event{Kind: checkpoint.EventOwed, Source: recovery.StartCompact})
	}
}

// copy brings the mirror of a file in which a record of the agent's was found up to date, one step at a time, and puts it on
// stable storage at most once a second.
func (s *session) copy() {
	f := &s.file
	if f.mirror == nil || !f.ours { // what a hook names may be any file of the user's
		return
	}
	if f.copying {
		f.stale = true
		return
	}
	if s.d.over(highShare) {
		f.mirrorErr, f.unflushed, f.flushed = errFull.Error(), true, time.Now().Add(s.d.times.retryLongest) // then again
		return
	}
	f.copying, f.stale, f.unflushed = true, false, true
	m, path, flush := f.mirror, f.opened, s.due != nil || time.Since(f.flushed) >= s.d.times.flushEvery
	s.work.Go(func() {
		var p mirror.Progress
		err := errPanic
		s.d.safely("mirror "+path, func() {
			if p, err = m.Sync(s.d.life, path); err == nil && flush {
				err = m.Flush()
			}
		})
		size := s.d.dir.Copies(s.key)
		s.do(s.d.life, func() { s.copied(p, err, flush); s.measured(size) })
	})
}

func (s *session) copied(p mirror.Progress, err error, flush bool) {
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
		s.copy()
	}
	if f.again {
		s.read()
	}
}

// measured counts what the copies have grown by.
func (s *session) measured(size int64) {
	s.d.grown(size - s.file.size)
	s.file.size = size
}

// compact puts the mirror of an idle session in order, once; it says whether that is under way.
func (s *session) compact() bool {
	f := &s.file
	if f.mirror == nil || f.compacted {
		return false
	}
	f.compacted, f.copying = true, true
	m := f.mirror
	s.work.Go(func() {
		err := errPanic
		s.d.safely("compact mirror", func() { err = m.Compact(s.d.life) })
		size := s.d.dir.Copies(s.key)
		s.do(s.d.life, func() {
			f.copying = false
			s.measured(size)
			if err != nil {
				f.mirrorErr = err.Error()
			}
			if f.again || f.stale {
				s.read()
			}
		})
	})
	return true
}

// openFile follows the path that the hooks name.
func (s *session) openFile() {
	before := s.file
	s.closeFile()
	path := s.state.Transcript
	if before.source != nil && len(before.watched) == 1 && len(s.partsOf(path)) == 0 { // a database is one for all its sessions
		s.keepOlder(before.opened)
	}
	s.file = transcript{opened: path, source: agent.OpenTranscript(s.agent, agent.Source{Path: path, Session: s.key.Session, Child: s.key.Child}), compacted: true}
	s.file.watched = []string{path}
	parts := s.partsOf(path)
	if len(parts) > 0 {
		s.file.watched = parts
	}
	for _, part := range s.file.watched {
		s.d.bind(part, s.key)
	}
	if s.d.opt.Mirror == MirrorOff || len(parts) > 0 { // a database is no file of lines
		return
	}
	m, err := mirror.Open(s.d.opt.FS, s.d.dir.Session(s.key), mirror.Options{Codec: s.d.codec, Key: s.d.key})
	if err != nil {
		s.file.mirrorErr = err.Error()
		return
	}
	s.file.mirror, s.file.size = m, s.d.dir.Copies(s.key)
	s.file.ours = before.source == nil && s.file.size > 0 // it was before the daemon's start
}

// partsOf names the files of a transcript that is more than one.
func (s *session) partsOf(path string) []string {
	if w, ok := s.agent.(agent.Watched); ok {
		return w.Watch(path)
	}
	return nil
}

// closeFile is called when neither reader nor copier runs.
func (s *session) closeFile() {
	f := &s.file
	if f.source == nil {
		return
	}
	for _, part := range f.watched {
		s.d.unbind(part, s.key)
	}
	if err := f.source.Close(); err != nil {
		s.d.log.Debug("close transcript", zap.Stringer("session", s.key), zap.Error(err))
	}
	if f.mirror != nil {
		if err := f.mirror.Close(); err != nil {
			s.d.log.Warn("close mirror", zap.Stringer("session", s.key), zap.Error(err))
		}
	}
	s.file = transcript{}
}
