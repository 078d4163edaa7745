package intake

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartDetached starts a program, in practice `belay daemon --from-hook`, that outlives us and holds nothing of ours: a
// session of its own, stdio to /dev/null, working directory /, no descriptors, and of the environment only what Environ
// keeps. It returns when the program was started, not when it is ready. The program stays our child until we end: a
// caller that lives on sees it as a zombie after its death.
func StartDetached(exe string, args []string, stateDir string) error {
	cmd := exec.Command(exe, args...) // stdio is /dev/null when not set
	cmd.Dir = "/"
	cmd.Env = Environ(os.Environ(), stateDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	restore := hideDescriptors()
	err := cmd.Start()
	restore()
	if err != nil {
		return fmt.Errorf("start %s detached: %w", exe, err)
	}
	if err := cmd.Process.Release(); err != nil {
		return fmt.Errorf("start %s detached: %w", exe, err)
	}

	return nil
}

// hideDescriptors keeps what we inherited from going on to a child, and gives a function that undoes it: the caller may
// still want to pass some to another program. An agent's pipe kept open by a daemon would make the agent wait for ever.
func hideDescriptors() (restore func()) {
	var hidden []int
	entries, _ := os.ReadDir("/dev/fd") // without it nothing can be hidden
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}

		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue // the folder's own descriptor, closed by now, or one of Go's
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags|unix.FD_CLOEXEC); err == nil {
			hidden = append(hidden, fd)
		}
	}

	return func() {
		for _, fd := range hidden {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
			if err != nil && !errors.Is(err, unix.EBADF) {
				return // cannot be: it was settable a moment ago
			}
		}
	}
}

// Environ is what a daemon needs of an agent's environment: where things are, and belay's own settings. Everything else
// stays out, because a daemon lives long and an agent's environment holds keys. cmd/belay-hook has the same rule; a
// test there holds both equal.
func Environ(environ []string, stateDir string) []string {
	keep := []string{"BELAY_INTERNAL=1"}
	if stateDir != "" {
		keep = append(keep, "BELAY_STATE_DIR="+stateDir)
	}

	for _, kv := range environ {
		if name, _, ok := strings.Cut(kv, "="); ok && keepEnv(name) {
			keep = append(keep, kv)
		}
	}

	return keep
}

func keepEnv(name string) bool {
	switch name {
	case "HOME", "PATH", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR":
		return true
	case "BELAY_INTERNAL", "BELAY_STATE_DIR", "BELAY_SESSION", "BELAY_DEBUG":
		return false // set here, or meant for the caller alone
	}

	for _, p := range []string{"BELAY_", "XDG_", "LC_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}

	for _, s := range []string{"_DIR", "_HOME", "_PATH"} {
		if strings.HasSuffix(name, s) {
			return true
		}
	}

	return false
}
