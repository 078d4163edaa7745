package daemon

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint/journal"
	"belay/heartbeat"
	"belay/internal/daemon/brief"
	"belay/internal/daemon/session"
	"belay/internal/daemon/socket"
	"belay/internal/state"
	"belay/internal/state/query"
)

// life is one life of a daemon, from the lock to the end of its last goroutine. Up to server it is made by newLife, the
// rest by open; requests wait until that is done.
type life struct {
	opt      Options
	settings *atomic.Pointer[Options] // with what Reload changed
	times    times
	log      *zap.Logger
	dir      state.Dir
	began    time.Time
	site     *site
	counts   counters
	wait     sync.WaitGroup // every goroutine below the life's context
	feed     socket.Feed
	notices  brief.Notices
	ready    chan struct{} // closed when all is open
	server   *socket.Server

	journal  *journal.Journal
	store    *breaker.Breaker
	beats    *heartbeat.Heart
	sessions *sessions
	watchers *watchers
	budget   *budget
	drain    *drain
	teller   *brief.Teller
}

type counters struct {
	session.Counts
	events, dropped, lost atomic.Int64
}

func newLife(opt Options, settings *atomic.Pointer[Options], t times) *life {
	l := &life{opt: opt, settings: settings, times: t, log: opt.Log, dir: state.Dir{Root: opt.StateDir, FS: opt.FS},
		began: time.Now(), ready: make(chan struct{})}
	l.site = &site{dir: l.dir, gone: make(chan struct{}, 1)}
	l.server = socket.New(l, socket.Options{Ready: l.ready, Connections: opt.Connections, Times: t.socket, Log: l.log})
	return l
}

func (l *life) sessionSettings() session.Settings {
	set := l.settings.Load()
	return session.Settings{Gates: set.Gates, WorkTree: set.WorkTree}
}

func (l *life) briefSettings() brief.Settings {
	set := l.settings.Load()
	return brief.Settings{Adopt: set.Adopt, Window: set.AdoptWindow, Bytes: set.BriefBytes}
}

func (l *life) folder() query.Folder { return query.Folder{Dir: l.dir, Agents: l.opt.Agents} }
