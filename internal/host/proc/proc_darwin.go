package proc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"belay/checkpoint"

	"golang.org/x/sys/unix"
)

// zombie is SZOMB of sys/proc.h.
const zombie = 5

func look(pid int) (seen, error) {
	if pid <= 0 {
		return seen{}, ErrGone
	}

	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return seen{}, exists(pid)
	}

	start := k.Proc.P_starttime
	name, _, _ := strings.Cut(string(k.Proc.P_comm[:]), "\x00")
	return seen{
		name:   strings.ToValidUTF8(name, "?"),
		start:  uint64(start.Sec)*1e6 + uint64(start.Usec),
		zombie: k.Proc.P_stat == zombie,
	}, nil
}

// bootID is new with each boot; empty when it cannot be read.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// waitExit waits for the exit of p in kevent. It holds one thread, which is fine for the few agents of one machine; ctx
// wakes it by a user event. An error other than ctx's means that this way is not open.
func waitExit(ctx context.Context, p checkpoint.Proc) error {
	kq, err := unix.Kqueue()
	if err != nil {
		return fmt.Errorf("watch process %d: %w", p.PID, err)
	}

	defer unix.Close(kq) // nothing was written
	unix.CloseOnExec(kq)
	exit := unix.Kevent_t{
		Ident:  uint64(p.PID),
		Filter: unix.EVFILT_PROC,
		Flags:  unix.EV_ADD | unix.EV_ONESHOT,
		Fflags: unix.NOTE_EXIT,
	}

	wake := unix.Kevent_t{Ident: 1, Filter: unix.EVFILT_USER, Flags: unix.EV_ADD | unix.EV_CLEAR}
	if _, err := unix.Kevent(kq, []unix.Kevent_t{exit, wake}, nil, nil); err != nil {
		return fmt.Errorf("watch process %d: %w", p.PID, err)
	}

	// Only now: the event may have been set on a later process with the same number.
	if alive, known := Alive(p); !alive && known {
		return nil
	}

	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		trigger := wake
		trigger.Flags, trigger.Fflags = 0, unix.NOTE_TRIGGER
		_, _ = unix.Kevent(kq, []unix.Kevent_t{trigger}, nil, nil) // kq is open until woken is closed
	})

	defer func() {
		if !stop() {
			<-woken // else kq might be closed, and its number used again, under the trigger
		}
	}()

	for {
		events := make([]unix.Kevent_t, 2)
		n, err := unix.Kevent(kq, nil, events, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("watch process %d: %w", p.PID, err)
		case n > 0:
			return nil
		}
	}
}

// Descendants is not known here.
func Descendants(pid, most int) []checkpoint.Proc { return nil }
