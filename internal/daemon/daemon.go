// Package daemon wires belay together: the socket, one goroutine for each active session, the journal, the store behind
// its breaker, the watch over transcripts, the heartbeat, and stopping. Deciding lies in package checkpoint, writing
// the brief in package recovery; here things are only carried from one to the other.
//
// A Daemon is a handle that lives as long as its process. It lives one life after the other: when somebody removes the
// state folder or the socket, what is in memory is saved, that life ends, and the next one listens, replays and serves.
package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
	"belay/internal/redact"
	"belay/internal/state"
	"belay/internal/vfs"
)

// Daemon is one belay daemon. Make it with New, run it with Run.
type Daemon struct {
	opt       Options
	settings  *atomic.Pointer[Options] // with what Reload changed
	times     times
	openStore func(state.Dir) (checkpoint.Store, error)
	ready     func(*life) // clients are answered from now on
}

// New checks the options; nothing is opened before Run.
func New(opt Options) *Daemon {
	opt.FS = vfs.Within(opt.FS, opt.StateDir)
	d := &Daemon{opt: opt, settings: new(atomic.Pointer[Options]), times: usualTimes(), openStore: state.Dir.OpenStore}
	d.settings.Store(&opt)
	d.ready = func(*life) {
		if opt.Ready != nil {
			opt.Ready()
		}
	}

	return d
}

// errGone: the socket or the state folder was removed under the daemon.
var errGone = errors.New("the socket is gone")

// Run listens, replays, serves until ctx ends, and then takes the last checkpoints. It returns socket.ErrRunning when
// another daemon holds the lock.
func (d *Daemon) Run(ctx context.Context) error {
	for {
		err := d.live(ctx)
		switch {
		case !errors.Is(err, errGone):
			return err
		case ctx.Err() != nil:
			return nil // told to stop when the next life was about to begin
		}
	}
}

// live is one life. Its context outlives ctx by what a stop still has to do.
func (d *Daemon) live(ctx context.Context) error {
	l := newLife(d.opt, d.settings, d.times)
	if err := l.site.enter(l.log); err != nil {
		return err
	}

	defer l.site.place.Unlock() //nolint:errcheck // the kernel does it in any case

	l.wait.Go(redact.Warm) // beside the start: the first event needs the rules
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	talk, hangUp := context.WithCancel(life)
	served := make(chan struct{})
	defer l.awaitEnd(served)
	defer end()
	go func() { // first of all: clients wait for ready, not for a socket
		defer close(served)
		l.server.Serve(life, talk, l.site.place)
	}()

	store, err := d.openStore(l.dir)
	var rep state.Report
	if err == nil {
		rep, err = l.open(ctx, life, store)
	}
	if err != nil {
		hangUp()
		return errors.Join(err, l.site.leave())
	}

	close(l.ready)
	d.ready(l)
	tellReplay(l.log, rep, len(l.sessions.Active()))
	l.log.Info("ready", zap.String("socket", l.site.path()), zap.Duration("after", time.Since(l.began)))
	l.settleIn(life)

	select {
	case <-ctx.Done():
	case <-served:
	case <-l.site.gone:
		l.log.Warn(
			"the socket was removed: saving what is in memory and starting again",
			zap.String("socket", l.site.path()),
		)

		for _, s := range l.sessions.Active() {
			s.ForgetDisk(life)
		}

		err = errGone

	case <-l.idleExit(life):
		l.log.Info("no live agent for long; the next hook starts belay again")
	}

	return errors.Join(err, l.stop(life, hangUp, served))
}
