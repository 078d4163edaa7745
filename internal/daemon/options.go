package daemon

import (
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/daemon/session"
	"belay/internal/daemon/socket"
	"belay/internal/vfs"
	"belay/recovery"
)

// Options are the daemon's settings, already checked. The zero value of a number is not a default: the settings package
// has those.
type Options struct {
	StateDir string
	FS       vfs.FS
	Log      *zap.Logger
	Version  string
	Agents   []agent.Agent

	Gates     checkpoint.Gates // as far as WorkTree: Reload can change it
	Retention checkpoint.Policy
	// TotalBytes bounds the checkpoints of all sessions together; 0: no bound.
	TotalBytes  int64
	Adopt       recovery.Adopt
	AdoptWindow time.Duration
	BriefBytes  int
	WorkTree    bool

	Heartbeat string // cron expression
	Breaker   breaker.Options

	SegmentBytes int64
	MemoryBytes  int
	Mirror       Mirror
	KeyDir       string // of the key of exact mirrors; made when it is first needed
	Notify       bool   // fsnotify beside polling
	Poll         time.Duration
	PollMax      time.Duration

	Connections       int
	SessionsPerMinute int
	// Ready is called when clients are answered from now on, again after the daemon had to start over; it does not
	// block. nil: nobody is told.
	Ready func()

	// IdleExit ends a daemon that a hook started after so long without a live agent; 0: never.
	IdleExit time.Duration
}

// Mirror says what copy of a transcript is kept.
type Mirror string

const (
	MirrorRedacted Mirror = "redacted"
	MirrorExact    Mirror = "exact" // encrypted; falls back to redacted when the key cannot be kept safe
	MirrorOff      Mirror = "off"
)

// Reload takes over the settings of opt that can change while the daemon runs: gates, retention, recovery and work
// tree. It may be called at any time, from any goroutine; what is under way ends by the old ones.
func (d *Daemon) Reload(opt Options) {
	next := *d.settings.Load()
	next.Gates, next.Retention, next.TotalBytes = opt.Gates, opt.Retention, opt.TotalBytes
	next.Adopt, next.AdoptWindow = opt.Adopt, opt.AdoptWindow
	next.BriefBytes, next.WorkTree = opt.BriefBytes, opt.WorkTree
	d.settings.Store(&next)
}

// times are no settings, because users have no reason to change them; tests have.
type times struct {
	session    session.Times
	socket     socket.Times
	brief      time.Duration // of the client's second
	stop       time.Duration
	room       time.Duration // for making room in the total before a checkpoint
	spoolRetry time.Duration // after a drain that left events because the journal's disk fails
}

func usualTimes() times {
	return times{
		session:    session.UsualTimes(),
		socket:     socket.Times{Ready: 30 * time.Second, Frame: 30 * time.Second, Write: 10 * time.Second},
		brief:      800 * time.Millisecond,
		stop:       1500 * time.Millisecond,
		room:       30 * time.Second,
		spoolRetry: 30 * time.Second,
	}
}
