package daemon

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/gitstat"
	"belay/internal/mirror"
	"belay/recovery"
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
func (s *session) advance(ctx context.Context) {
	b := s.due
	if b == nil || b.busy {
		return
	}
	if s.state.Transcript != "" && s.agent != nil {
		if !b.read {
			b.read = true
			s.read(ctx)
		}
		if s.reading {
			return
		}
		if b.last != 0 && s.lateText() == b.last && time.Since(b.since) < lateText {
			return // the watch or the timer comes back
		}
	}
	b.busy = true
	s.write(ctx, b)
}

// changed is called when the transcript may have changed.
func (s *session) changed(ctx context.Context) {
	if s.reading {
		s.again = true
		return
	}
	s.read(ctx)
}

// read starts a reader goroutine unless one runs: whole lines from the cursor on, then the mirror.
func (s *session) read(ctx context.Context) {
	if s.reading {
		s.again = true
		return
	}
	if s.agent == nil || s.state.Transcript == "" {
		return
	}
	s.reopen()
	s.reading, s.again = true, false
	source, path, cursor := s.source, s.opened, s.state.Cursor
	m, flush := s.mirror, s.due != nil || time.Since(s.flushed) > flushEvery
	if flush {
		s.flushed = time.Now()
	}
	ctx = s.d.life // not the context of the connection whose event started it: that one may be gone before the answer is here
	s.d.wait.Go(func() {
		batch, err := source.Read(ctx, cursor, checkpoint.ReadOptions{})
		var p mirror.Progress
		var merr error
		if m != nil && err == nil {
			if p, merr = m.Sync(ctx, path); merr == nil && flush {
				merr = m.Flush()
			}
		}
		s.do(ctx, func() { s.took(ctx, path, batch, err, p, merr) })
	})
}

// reopen follows the path that the hooks name.
func (s *session) reopen() {
	if s.opened == s.state.Transcript && s.source != nil {
		return
	}
	s.closeSource()
	s.opened = s.state.Transcript
	s.source = s.agent.Open(agent.Source{Path: s.opened, Session: s.key.Session, Child: s.key.Child})
	s.d.watch.Add(s.opened)
	s.d.watch.Active(s.opened, true)
	s.d.bind(s.opened, s.key)
	if !s.d.opt.Mirror {
		return
	}
	m, err := mirror.Open(s.d.opt.FS, s.d.dir.Session(s.key), mirror.Options{Codec: s.d.codec})
	if err != nil {
		s.behind.Err = err.Error() // the mirror is an extra: its failure stops nothing
		return
	}
	s.mirror = m
}

func (s *session) closeSource() {
	if s.source == nil {
		return
	}
	s.d.unbind(s.opened, s.key)
	if err := s.source.Close(); err != nil {
		s.d.log.Debug("close transcript", zap.Stringer("session", s.key), zap.Error(err))
	}
	if s.mirror != nil {
		if err := s.mirror.Close(); err != nil {
			s.behind.Err = err.Error()
		}
	}
	s.source, s.mirror, s.opened = nil, nil, ""
}

// took folds in what a reader goroutine brought.
func (s *session) took(ctx context.Context, path string, b checkpoint.Batch, err error, p mirror.Progress, merr error) {
	s.reading = false
	s.lag(p, merr)
	if path != s.opened {
		s.read(ctx) // the hooks named another file meanwhile
		return
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // not there yet, or not any more: the events and the mirror stand
	}
	if err != nil {
		s.d.log.Warn("read transcript", zap.Stringer("session", s.key), zap.Error(err))
	} else {
		s.entries(ctx, b)
	}
	if b.More || s.again || s.mirror != nil && !p.Done && merr == nil && err == nil {
		s.read(ctx)
	}
}

func (s *session) lag(p mirror.Progress, err error) {
	if s.mirror == nil {
		return
	}
	s.behind.Err = ""
	if err != nil {
		s.behind.Err = err.Error()
	}
	s.behind.Gens = p.Generations
	if p.Done && err == nil {
		s.behind.Since = time.Time{}
	} else if s.behind.Since.IsZero() {
		s.behind.Since = time.Now()
	}
	s.behind.Bytes = p.Behind
}

// entries journals a batch in records of bounded size. The cursor moves with the last of them; the fold knows entries that
// come again after a crash in between.
func (s *session) entries(ctx context.Context, b checkpoint.Batch) {
	if len(b.Entries) == 0 && b.Cursor == s.state.Cursor && b.Losses.BadLines == 0 && b.Losses.Torn == s.state.Losses.Torn {
		return
	}
	own := b.Entries[:0:0]
	foreign := map[string][]checkpoint.Entry{}
	for _, e := range b.Entries {
		if e.Session != "" && e.Session != s.key.Session {
			foreign[e.Session] = append(foreign[e.Session], e)
			continue
		}
		own = append(own, e)
	}
	b.Entries = own
	const part = 48 << 10
	for len(b.Entries) > 0 {
		n, size := 0, 0
		for n < len(b.Entries) && (n == 0 || size < part) {
			e := &b.Entries[n]
			size += 200 + len(e.Text) + len(e.Input) + len(e.Output)
			n++
		}
		if n == len(b.Entries) {
			break
		}
		s.event(ctx, checkpoint.Event{Kind: checkpoint.EventEntries, Entries: b.Entries[:n:n], First: b.First})
		b.Entries = b.Entries[n:]
	}
	s.event(ctx, recovery.Event(s.key, b, time.Now().UTC()))
	for id, list := range foreign { // a record belongs to the session that it names, whatever file it is in
		key := s.key
		key.Session = id
		s.d.deliver(ctx, key, checkpoint.Event{Kind: checkpoint.EventEntries, Entries: list, First: b.First, Workspace: s.state.Workspace})
	}
}

// write snapshots the state and stores the checkpoint in a goroutine of its own.
func (s *session) write(ctx context.Context, b *build) {
	now := time.Now().UTC()
	snapshot := s.state.Clone()
	snapshot.OwedFull, snapshot.OwedSparse = "", false
	number := s.state.LastNumber + 1
	ctx = s.d.life // as in read
	s.d.wait.Go(func() {
		c := checkpoint.New(snapshot, number, b.decision, now)
		err := s.store(ctx, c)
		s.do(ctx, func() { s.wrote(ctx, b, c, err) })
	})
}

// store encodes and puts one checkpoint, then prunes the older ones.
func (s *session) store(ctx context.Context, c *checkpoint.Checkpoint) error {
	if err := s.d.journal.Wait(ctx, c.State.Seq); err != nil {
		c.State.Seq = 0 // its number may be given to another event after a crash: replay everything then
	}
	if c.Level == checkpoint.Full && s.d.opt.WorkTree && c.State.Workspace != "" {
		c.WorkTree = gitstat.Status(ctx, c.State.Workspace)
	}
	for try := 0; ; try++ {
		data, err := c.Encode()
		if err != nil {
			return err
		}
		m := c.Meta()
		m.Bytes = int64(len(data))
		s.prune(ctx, m.Bytes)
		err = s.d.store.Put(ctx, s.key, m, data)
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
	list, err := s.d.store.List(ctx, s.key)
	if err != nil {
		s.d.log.Warn("list for pruning", zap.Stringer("session", s.key), zap.Error(err))
		return
	}
	for _, n := range checkpoint.Prune(list, s.d.opt.Retention.Room(room), time.Now()) {
		if err := s.d.store.Delete(ctx, s.key, n); err != nil {
			s.d.log.Warn("prune", zap.Stringer("session", s.key), zap.Uint64("number", n), zap.Error(err))
			return
		}
	}
}

// wrote folds in how a build ended.
func (s *session) wrote(ctx context.Context, b *build, c *checkpoint.Checkpoint, err error) {
	s.due = nil
	t := c.Taken(b.decision.Both)
	if err != nil {
		t.Failed = err.Error()
	}
	s.note(ctx, checkpoint.Event{Kind: checkpoint.EventCheckpoint, Taken: &t})
	if err != nil {
		s.failed(ctx, b, err)
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
	if err := s.save(ctx); err != nil {
		s.d.log.Warn("save state", zap.Stringer("session", s.key), zap.Error(err))
	}
}

// failed owes what could not be written, with a growing pause; the breaker counts.
func (s *session) failed(ctx context.Context, b *build, err error) {
	if ctx.Err() == nil {
		s.failures++
		s.retryAt = time.Now().Add(min(retryFirst<<min(s.failures-1, 10), retryLongest))
		s.d.log.Warn("checkpoint", zap.Stringer("session", s.key), zap.String("kind", string(b.decision.Level)), zap.Error(err))
	}
	d := b.decision
	d.Take, d.Owed = false, true
	s.state.Owe(d)
	for _, w := range s.waiters {
		w.reply <- result{decision: d, err: err}
	}
	s.waiters = nil
}
