package daemon

import (
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/agent"
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
	// Ready is called when clients are answered from now on, again after the daemon had to begin anew; it does not block.
	// nil: nobody is told.
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

// Reload takes over the settings of opt that can change while the daemon runs: gates, retention, recovery and work tree.
// It may be called at any time, from any goroutine; what is under way ends by the old ones.
func (d *Daemon) Reload(opt Options) {
	next := *d.set.Load()
	next.Gates, next.Retention, next.TotalBytes = opt.Gates, opt.Retention, opt.TotalBytes
	next.Adopt, next.AdoptWindow, next.BriefBytes, next.WorkTree = opt.Adopt, opt.AdoptWindow, opt.BriefBytes, opt.WorkTree
	d.set.Store(&next)
}

// times are no settings, because users have no reason to change them; tests have.
type times struct {
	idleAfter    time.Duration // a session without events and without a live process goes to disk
	lateText     time.Duration // how long a build waits for the last answer to reach the transcript
	stopBudget   time.Duration
	flushEvery   time.Duration
	procsAfter   time.Duration // a call open for so long has its processes noted
	quietChain   time.Duration
	briefBudget  time.Duration // of the client's second
	readyBudget  time.Duration
	frameBudget  time.Duration // for one request, once it has begun
	writeBudget  time.Duration // for one reply to a slow client
	retryFirst   time.Duration // after a failed checkpoint
	retryLongest time.Duration
	roomBudget   time.Duration // for making room in the total before a checkpoint
	spoolRetry   time.Duration // after a drain that left events because the journal's disk fails
}

func usualTimes() times {
	return times{
		idleAfter: 10 * time.Minute, lateText: 2 * time.Second, stopBudget: 1500 * time.Millisecond, flushEvery: time.Second,
		procsAfter: time.Second, quietChain: 2 * time.Minute, briefBudget: 800 * time.Millisecond, readyBudget: 30 * time.Second,
		frameBudget: 30 * time.Second, writeBudget: 10 * time.Second, retryFirst: time.Second, retryLongest: 30 * time.Second,
		spoolRetry: 30 * time.Second, roomBudget: 30 * time.Second,
	}
}

// maxBuilds bounds the checkpoints that are written at the same time, each with its git. A store that hangs for one session
// leaves room for the others.
const maxBuilds = 16
