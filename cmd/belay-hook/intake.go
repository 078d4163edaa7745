package main

import "syscall"

// pipeGrace is how long the pipe form of an intake's stdin may take beyond the deadline.
const pipeGrace = 100 * millisecond

// startIntake starts `belay intake` on its own: new session, nothing inherited but the message as its stdin and, with
// rest, our stdin as descriptor 3 (intake.RestFD). Content is never in its arguments or environment, which other
// processes can read. It is not waited for.
func (c *client) startIntake(msg []byte, rest bool) (started bool) {
	null, err := syscall.Open("/dev/null", syscall.O_RDWR, 0)
	if err != nil {
		c.say("open /dev/null: " + err.Error())
		return false
	}

	stdin, feed, err := stdinOf(msg)
	if err != nil {
		c.say("make a pipe: " + err.Error())
		return false
	}

	if !closeOnExecAll() {
		for fd := 3; fd < 1024; fd++ {
			syscall.CloseOnExec(fd)
		}
	}

	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   intakeEnv(c.env, c.state),
		Files: []uintptr{uintptr(stdin), uintptr(null), uintptr(null)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}

	if rest {
		attr.Files = append(attr.Files, 0)
	}

	args := []string{"belay", "intake"}
	if c.socket != "" {
		args = append(args, "--socket", c.socket)
	}

	err = c.startBelay(args, attr)
	_ = syscall.Close(stdin) // with the intake's copy alone left, our writes fail when it dies
	if err != nil {
		c.say("start belay intake: " + err.Error())
		return false
	}
	if feed >= 0 {
		fill(feed, msg, after(c.end.left()+pipeGrace))
	}

	return true
}

// startBelay starts the belay program beside this one, else the first on PATH.
func (c *client) startBelay(args []string, attr *syscall.ProcAttr) error {
	self := c.self
	buf := make([]byte, 1024)
	if n, err := syscall.Readlink("/proc/self/exe", buf); err == nil {
		self = string(buf[:n])
	} else if !isAbs(self) && indexByte([]byte(self), '/') >= 0 {
		self = c.from.cwd + "/" + self
	}

	err := startIn(dirOf(self), args, attr)
	for rest := c.env.get("PATH"); err != nil && rest != ""; {
		dir := rest
		if i := indexByte([]byte(rest), ':'); i >= 0 {
			dir, rest = rest[:i], rest[i+1:]
		} else {
			rest = ""
		}
		err = startIn(dir, args, attr)
	}

	return err
}

// startIn starts the belay in a folder. Relative folders are passed over: they would run a file of the workspace.
func startIn(dir string, args []string, attr *syscall.ProcAttr) error {
	if !isAbs(dir) {
		return syscall.ENOENT
	}

	path := dir + "/belay"
	if err := syscall.Access(path, 1); err != nil { // 1: may be executed; cheaper than a fork that finds nothing
		return err
	}

	_, err := syscall.ForkExec(path, args, attr)
	return err
}

// stdinOf gives a descriptor to read the message from, and one to fill it through where the first does not hold it all.
func stdinOf(msg []byte) (stdin, feed int, err error) {
	if fd, ok := memfd(msg); ok {
		return fd, -1, nil
	}
	return pipeOf()
}

func pipeOf() (r, w int, err error) {
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		return -1, -1, err
	}
	syscall.CloseOnExec(p[0])
	syscall.CloseOnExec(p[1])
	return p[0], p[1], nil
}

// fill writes the message into the pipe. Small ones fit at once; what an intake does not read in time is lost, and it
// sees that by the length in the header.
func fill(fd int, msg []byte, end deadline) {
	if syscall.SetNonblock(fd, true) != nil {
		return
	}

	for len(msg) > 0 && end.left() > 0 {
		n, err := syscall.Write(fd, msg)
		switch {
		case err == syscall.EAGAIN:
			sleep(2 * millisecond)
		case err == syscall.EINTR:
		case err != nil:
			return
		}

		msg = msg[max(n, 0):]
	}

	_ = syscall.Close(fd) // the exit would do it
}

// intakeEnv is what a daemon needs of the agent's environment: where things are, and belay's own settings. Everything
// else stays out, because a daemon lives long and an agent's environment holds keys. internal/wire/intake has the same
// rule.
func intakeEnv(vars environ, state string) []string {
	keep := []string{"BELAY_INTERNAL=1"}
	if state != "" {
		keep = append(keep, "BELAY_STATE_DIR="+state)
	}

	for _, kv := range vars {
		i := indexByte([]byte(kv), '=')
		if i > 0 && keepEnv(kv[:i]) {
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
		return false // set by us, or meant for the caller alone
	}

	b := []byte(name)
	return hasPrefix(b, "BELAY_") || hasPrefix(b, "XDG_") || hasPrefix(b, "LC_") ||
		hasSuffix(b, "_DIR") || hasSuffix(b, "_HOME") || hasSuffix(b, "_PATH")
}
