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

	Gates     checkpoint.Gates
	Heartbeat string // cron expression
	Breaker   breaker.Options
	Retention checkpoint.Policy

	Adopt       recovery.Adopt
	AdoptWindow time.Duration
	BriefBytes  int

	SegmentBytes int64
	MemoryBytes  int
	SpoolBytes   int64
	SpoolAge     time.Duration
	Mirror       bool
	WorkTree     bool
	Notify       bool // fsnotify beside polling
	Poll         time.Duration
	PollMax      time.Duration

	Connections       int
	SessionsPerMinute int
	// IdleExit ends a daemon that a hook started after so long without a live agent; 0: never.
	IdleExit time.Duration
}

// Times of the daemon that are no settings: users have no reason to change them.
const (
	idleAfter    = 10 * time.Minute // a session without events and without a live process goes to disk
	lateText     = 2 * time.Second  // how long a build waits for the last answer to reach the transcript
	stopBudget   = 1500 * time.Millisecond
	flushEvery   = time.Second
	procsAfter   = time.Second // a call open for so long has its processes noted
	quietChain   = 2 * time.Minute
	briefBudget  = 800 * time.Millisecond // of the client's second
	readyBudget  = 30 * time.Second
	frameBudget  = 30 * time.Second // for one request, once it has begun
	writeBudget  = 10 * time.Second // for one reply to a slow client
	retryFirst   = time.Second      // after a failed checkpoint
	retryLongest = 30 * time.Second
)
