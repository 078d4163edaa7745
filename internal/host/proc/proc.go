// Package proc knows processes by more than their number: pid, start time and boot id together name one process for
// ever. A pid alone is used again, in containers within seconds.
//
// Promised: Alive never takes another process for the one that is meant, and says so when it cannot know; a zombie is
// dead; Wait costs nothing while the process lives (Linux with pidfd, macOS with kqueue; elsewhere a look each second).
// Not promised: anything about processes that this user may not see.
package proc

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"belay/checkpoint"
)

// ErrGone is returned for a process that is not there or is a zombie.
var ErrGone = errors.New("no such process")

// pollEvery is the pace of Wait where the system cannot tell by itself.
const pollEvery = time.Second

// seen is what the system says about the process that has a pid now.
type seen struct {
	name   string
	parent int    // known on Linux only
	start  uint64 // 0 unknown
	zombie bool
}

// Self gives the identity of the process that has this pid now.
func Self(pid int) (checkpoint.Proc, error) {
	s, err := look(pid)
	if err == nil && s.zombie {
		err = ErrGone
	}
	if err != nil {
		return checkpoint.Proc{}, fmt.Errorf("identify process %d: %w", pid, err)
	}

	return checkpoint.Proc{PID: pid, Start: s.start, Boot: bootID(), Name: s.name}, nil
}

// Alive says whether p lives. When known is false something has its pid (or may have), and nothing tells whether that
// is p: then alive is the guess.
func Alive(p checkpoint.Proc) (alive, known bool) {
	if p.PID <= 0 {
		return false, false
	}
	s, err := look(p.PID)
	return judge(p, s, err, bootID())
}

func judge(p checkpoint.Proc, s seen, err error, boot string) (alive, known bool) {
	sameBoot := p.Boot != "" && p.Boot == boot
	switch {
	case p.Boot != "" && boot != "" && !sameBoot:
		return false, true // no process outlives its system
	case errors.Is(err, ErrGone), err == nil && s.zombie:
		return false, true
	case err != nil || p.Start == 0 || s.start == 0:
		return true, false
	case p.Start != s.start:
		return false, true // the number was used again
	}

	return true, sameBoot
}

// Wait returns nil when p is gone (or has no pid), and ctx's error when that ends first. For a process that cannot be
// known for sure it waits for the one that has the pid now.
func Wait(ctx context.Context, p checkpoint.Proc) error { return wait(ctx, p, waitExit) }

func wait(ctx context.Context, p checkpoint.Proc, exit func(context.Context, checkpoint.Proc) error) error {
	for {
		if alive, known := Alive(p); !alive && (known || p.PID <= 0) {
			return nil
		}

		err := exit(ctx, p)
		if err == nil || ctx.Err() != nil {
			return err
		}

		// The system has no better way, or not now (out of descriptors).
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// exists is the last word where details cannot be read: they may be hidden from us.
func exists(pid int) error {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return ErrGone
	}
	return errors.ErrUnsupported
}
