package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/heartbeat"
	"belay/internal/daemon/brief"
	"belay/internal/daemon/session"
	"belay/internal/state"
	"belay/internal/state/mirror"
)

// open brings up everything behind the socket. starting bounds that alone; ctx is the life's.
func (l *life) open(starting, ctx context.Context, store checkpoint.Store) (rep state.Report, err error) {
	if err := l.dir.Sweep(); err != nil {
		l.log.Warn("sweep left-over files", zap.Error(err))
	}
	if l.journal, err = l.openJournal(); err != nil {
		return rep, err
	}
	if l.store, err = l.openBreaker(store); err != nil {
		return rep, err
	}

	mirrors, err := l.openMirrors()
	if err != nil {
		return rep, err
	}

	l.wire(ctx, mirrors)
	loaded, rep, err := l.replay(starting)
	if err != nil {
		return rep, err
	}

	last := heartbeat.Options{Last: l.dir.LastBeat(), Log: l.log}
	if l.beats, err = heartbeat.New(l.opt.Heartbeat, l.beat, last); err != nil {
		return rep, err
	}

	for what, run := range map[string]func(context.Context) error{
		"journal": l.journal.Run, "breaker": l.store.Run, "watch": l.watchers.watch.Run, "heartbeat": l.beats.Run,
	} {
		l.wait.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				l.log.Error(what+" ended", zap.Error(err))
			}
		})
	}

	for _, s := range loaded {
		if _, err := l.sessions.start(starting, s, true); err != nil {
			return rep, err
		}
	}

	l.follow(ctx)
	return rep, nil
}

// wire makes the parts that know each other.
func (l *life) wire(ctx context.Context, mirrors session.Mirrors) {
	spawn := func(f func(ctx context.Context)) { l.wait.Go(func() { f(ctx) }) }
	services := &session.Services{Journal: l.journal, Store: l.store, Mirrors: mirrors, Dir: l.dir, Log: l.log,
		Counts: &l.counts.Counts, Times: l.times.session, Settings: l.sessionSettings, Spawn: spawn,
		Builds: make(chan struct{}, session.MaxBuilds)}
	l.sessions = newSessions(services, l.opt, l.load)
	l.drain = &drain{dir: l.dir, log: l.log, retry: l.times.spoolRetry, take: l.takeSpooled, sessions: l.sessions,
		dropped: &l.counts.dropped, wake: make(chan struct{}, 1)}
	l.watchers = newWatchers(l.opt, l.sessions, l.drain)
	l.budget = newBudget(l.dir, l.store, l.sessions, l.settings, l.times.room, l.log)
	services.Watch, services.Room = l.watchers, l.budget
	services.Others, services.Draining = l.sessions, l.drain.on.Load

	l.teller = brief.New(brief.Options{Sessions: l.sessions, Dir: l.dir, Folder: l.folder(), Settings: l.briefSettings,
		Budget: l.times.brief, Log: l.log})
}

// errNoKeyDir says that the key of exact mirrors has no place of its own.
var errNoKeyDir = errors.New("the key's folder would lie in the state folder, or there is no home folder")

// openMirrors opens the codec and, for exact mirrors, the key. Without a safe key the mirrors are kept as usual,
// without secrets: a copy less is worse than another copy.
func (l *life) openMirrors() (m session.Mirrors, err error) {
	m.Off = l.opt.Mirror == MirrorOff
	if m.Codec, err = mirror.NewCodec(); err != nil || l.opt.Mirror != MirrorExact {
		return m, err
	}

	err = errNoKeyDir
	rel, rerr := filepath.Rel(l.opt.StateDir, l.opt.KeyDir)
	if l.opt.KeyDir != "" && (rerr != nil || rel == ".." || strings.HasPrefix(rel, "../")) {
		m.Key, err = mirror.MakeKey(l.opt.FS, l.opt.KeyDir)
	}

	if err != nil {
		m.NoKey = "no exact mirror, but one without secrets: " + err.Error()
		l.log.Error("mirror: exact is refused, mirrors are kept without secrets",
			zap.Error(err), zap.String("do", "belay doctor says what to do"))
	}

	return m, nil
}
