// Package run runs an agent for `belay run`: in the terminal as if belay were not there, and with a witness of its end.
//
// Promised: the agent has our stdin, stdout, stderr and terminal themselves, in our process group, so that Ctrl-C,
// Ctrl-Z, the window's size and job control reach it from the kernel; a signal that was sent to belay alone is handed
// on; when the agent stops, belay stops with it; how it ended is known, and told to the daemon for the sessions of that
// process and of its descendants. Not promised: a way back for a terminal program that a kill left half drawn; only the
// terminal's modes are put back.
package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"belay/checkpoint"
	"belay/internal/host/proc"
)

// End is how an agent ended.
type End struct {
	Code   int            // exit code; only when no signal ended it
	Signal syscall.Signal // that ended it; 0 for none
	OOM    proc.OOM       // what the kernel says about memory, after SIGKILL
}

// ExitCode is what a shell would say.
func (e End) ExitCode() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// Clean says that the agent ended by itself and well.
func (e End) Clean() bool { return e.Signal == 0 && e.Code == 0 }

// String is the reason, for a record and for a person.
func (e End) String() string {
	if e.Signal == 0 {
		return fmt.Sprintf("exit code %d", e.Code)
	}

	text := "killed by " + unix.SignalName(e.Signal)
	switch e.OOM {
	case proc.OOMOwn:
		return text + ": out of memory"
	case proc.OOMElsewhere:
		return text + ", perhaps out of memory: the kernel killed for that meanwhile"
	}

	return text
}

// Agent is an agent that was started.
type Agent struct {
	Proc  checkpoint.Proc // its identity; without a start time when that cannot be told
	Began time.Time

	process *os.Process
	signals chan os.Signal
	tty     *os.File // the controlling terminal; nil when there is none
	modes   *term.State
	memory  proc.OOMCount
}

// passed are the signals that are handed on. The kernel's own (SIGWINCH, SIGTSTP and the like) reach the whole group.
var passed = []os.Signal{
	syscall.SIGINT,
	syscall.SIGQUIT,
	syscall.SIGTERM,
	syscall.SIGHUP,
	syscall.SIGUSR1,
	syscall.SIGUSR2,
}

// Start starts the program with what we have: files, terminal, process group, working directory. env is its
// environment.
func Start(args, env []string) (*Agent, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	a := &Agent{Began: time.Now().UTC(), signals: make(chan os.Signal, 16), memory: proc.CountOOM()}
	for _, sig := range passed {
		if !signal.Ignored(sig) { // else the agent would not inherit that it is ignored (nohup)
			signal.Notify(a.signals, sig)
		}
	}

	signal.Notify(a.signals, syscall.SIGCONT)
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0); err == nil {
		a.tty = tty
		if a.modes, err = term.GetState(int(tty.Fd())); err != nil {
			a.modes = nil // nothing to put back
		}
	}

	if err := cmd.Start(); err != nil {
		a.close()
		return nil, fmt.Errorf("run %s: %w", args[0], err)
	}

	a.process = cmd.Process
	a.Proc = checkpoint.Proc{PID: cmd.Process.Pid}
	if p, err := proc.Self(cmd.Process.Pid); err == nil {
		a.Proc = p
	}

	return a, nil
}

func (a *Agent) close() {
	signal.Stop(a.signals)
	if a.tty != nil {
		_ = a.tty.Close() // nothing was written
	}
}

// Wait passes signals until the agent has ended.
func (a *Agent) Wait() (End, error) {
	defer a.close()
	resumed, ended, done := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		a.pass(ended, resumed)
	}()

	ws, err := a.wait(resumed)
	close(ended)
	<-done
	if err != nil {
		return End{}, fmt.Errorf("wait for process %d: %w", a.process.Pid, err)
	}
	if !ws.Signaled() {
		return End{Code: ws.ExitStatus()}, nil
	}

	end := End{Signal: ws.Signal()}
	if end.Signal == syscall.SIGKILL {
		end.OOM = a.memory.Since()
	}
	if a.modes != nil && a.inFront() {
		_ = term.Restore(int(a.tty.Fd()), a.modes) // a shell does so only for a child of its own that was killed
	}

	return end, nil
}

// inFront says whether the terminal's keys go to our process group, and so to the agent without our help.
func (a *Agent) inFront() bool {
	if a.tty == nil {
		return false
	}
	group, err := unix.IoctlGetInt(int(a.tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// pass hands on what was sent to belay. What the keys of the terminal send, the agent has got already; twice would be
// "quit at once" to some.
func (a *Agent) pass(ended <-chan struct{}, resumed chan<- struct{}) {
	for {
		select {
		case <-ended:
			return
		case sig := <-a.signals:
			switch {
			case sig == syscall.SIGCONT:
				select {
				case resumed <- struct{}{}:
				default: // one is enough
				}

			case (sig == syscall.SIGINT || sig == syscall.SIGQUIT) && a.inFront():
			default:
				_ = a.process.Signal(sig) // it may have ended
			}
		}
	}
}

// settle is how long a stop must last before it is taken for one of the agent alone: a Ctrl-Z reaches us a moment
// later.
const settle = 50 * time.Millisecond

// wait gives the status with which the agent ended.
func (a *Agent) wait(resumed <-chan struct{}) (unix.WaitStatus, error) {
	for {
		ws, _, err := a.look(0)
		switch {
		case err != nil:
			return ws, err
		case ws.Exited(), ws.Signaled():
			return ws, nil
		case !ws.Stopped():
			continue
		}

		if ended, ws, err := a.stopped(resumed); ended || err != nil {
			return ws, err
		}
	}
}

// look asks for a change of the agent's state; with WNOHANG there may be none.
func (a *Agent) look(options int) (ws unix.WaitStatus, changed bool, err error) {
	for {
		pid, err := unix.Wait4(a.process.Pid, &ws, options|unix.WUNTRACED|unix.WCONTINUED, nil)
		if !errors.Is(err, unix.EINTR) {
			return ws, pid != 0, err
		}
	}
}

// stopped follows an agent that was stopped: who waits for us, a shell with job control, must see us stop as well. It
// returns when the agent runs again, or has ended.
func (a *Agent) stopped(resumed <-chan struct{}) (ended bool, ws unix.WaitStatus, err error) {
	select {
	case <-resumed: // of an earlier stop
	default:
	}
	for quiet := 0; ; { // looks in a row at which it was stopped
		ws, changed, err := a.look(unix.WNOHANG)
		if err != nil || changed && !ws.Stopped() {
			return ws.Exited() || ws.Signaled(), ws, err
		}

		if quiet == 2 && a.inFront() {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // cannot fail: it is us
			quiet++                                        // once for each stop of the agent's
			continue
		}

		select {
		case <-resumed: // somebody wants us to go on: so the agent
			_ = a.process.Signal(syscall.SIGCONT) // it may have ended
			quiet = 0
		case <-time.After(settle << min(max(quiet-2, 0), 5)):
			// also in a stop of ours, which ends in the middle of this
			quiet++
		}
	}
}
