// Go's runtime need not read the limits of our container for a program that is over in 2 ms, nor name its memory.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
//go:debug decoratemappings=0

// Command belay-hook is the client that an agent's hook starts. It forwards what the hook got on stdin to the daemon,
// unparsed, and prints what the daemon answers for the agent.
//
//	belay-hook [--socket PATH] [--wait] AGENT EVENT  < payload
//	belay-hook verb VERB [--session S] [--agent A] [--name N] [--id CALL] [--heartbeat] [--failed] [--text T]
//
// It promises: exit code 0 whatever happens; one whole document on stdout or nothing; nothing on stderr unless
// BELAY_DEBUG=1; an end within 100 ms for an event, 1 s where the agent waits for a brief (--wait) or a verb was
// called, 3 s for verbs that ask something. An event that the daemon did not take goes to a detached `belay intake`,
// under the same id, so that the daemon can drop doubles. So does one whose payload is not all there in time, with
// the open stdin: the intake waits for the rest, and the writer's pipe stays open.
//
// It does not parse payloads, keep files, start agents or retry in the background. It links package syscall and nothing
// larger, because what is linked is paid for at each tool call: os, net, fmt and encoding/json would triple its time.
package main

import "syscall"

// Deadlines, the same as in internal/wire.
const (
	millisecond   = int64(1e6)
	eventDeadline = 100 * millisecond
	briefDeadline = 1000 * millisecond
	askDeadline   = 3000 * millisecond
	retryPause    = 20 * millisecond
)

const usage = `belay-hook forwards an agent's hook to the belay daemon.

  belay-hook [--socket PATH] [--wait] AGENT EVENT     the hook's payload comes on stdin
  belay-hook verb increment|tool-start|tool-end|check-sparse|check-full|status|recover
             [--session S] [--agent A] [--name N] [--id CALL] [--heartbeat] [--failed] [--text T]

It exits 0 whatever happens. BELAY_DEBUG=1 makes it say on stderr what went wrong.
`

// client is one run of the program.
type client struct {
	args   []string // without the program's name
	self   string   // argv[0]
	env    environ
	debug  bool
	state  string   // state folder; empty when only the settings know it
	socket string   // --socket
	places []string // where the daemon may listen
	end    deadline
	from   caller
	// scratch is for our folder's name and then for the answer: each size of buffer costs page faults of its own.
	scratch []byte
}

func main() {
	defer func() {
		_ = recover() // a bug here must not show in the agent
		syscall.Exit(0)
	}()

	vars := environ(runtimeEnvs())
	if vars.get("BELAY_INTERNAL") == "1" {
		return
	}

	argv := runtimeArgs()
	if len(argv) == 0 {
		return
	}

	c := &client{self: argv[0], args: argv[1:], env: vars, debug: vars.get("BELAY_DEBUG") == "1"}
	c.from.pid = agentPID(vars.get("CLAUDE_PID"), syscall.Getppid())
	c.scratch = make([]byte, firstLine)
	c.from.cwd = workFolder(c.scratch) // a folder that is gone has no name: the event goes without it
	if len(c.args) > 0 && c.args[0] == "verb" {
		c.verb(parseVerb(c.args[1:], vars.get("BELAY_SESSION")))
		return
	}

	c.hook(parseHook(c.args))
}

// hookCall is the command line of the hook form.
type hookCall struct {
	agent, event string
	socket       string
	wait         bool // the agent waits for a brief
	help         bool
}

// parseHook reads the hook form. Flags it does not know are passed over: a newer installer may have written them.
func parseHook(args []string) hookCall {
	var h hookCall
	var words []string
	for i := 0; i < len(args); i++ {
		name, value, has := cutFlag(args[i])
		switch {
		case name == "":
			words = append(words, args[i])
		case name == "socket" && has:
			h.socket = value
		case name == "socket" && i+1 < len(args):
			i++
			h.socket = args[i]
		case name == "wait":
			h.wait = true
		case name == "help":
			h.help = true
		}
	}

	if len(words) >= 2 {
		h.agent, h.event = words[0], words[1]
	}

	// Settings that an installer before --wait wrote stay as they are until install runs again: without this line,
	// their brief would be lost whenever the daemon is slow or not running, and nobody would know.
	h.wait = h.wait || h.event == "SessionStart"
	return h
}

func (c *client) hook(h hookCall) {
	if h.help {
		writeAll(2, []byte(usage)) // only a person asks for it
		return
	}

	limit := eventDeadline
	if h.wait {
		limit = briefDeadline
	}

	c.end = after(limit)

	// What stdin may take leaves the daemon a part: a stdin that never ends must not cost the event.
	in := readStdin(after(limit * 4 / 5))
	if h.agent == "" || !c.locate(h.socket) {
		c.say("no agent and event, or no state folder: nothing sent")
		return
	}

	if in.rest {
		if c.startIntake(in.message(hookHeader(h, in, c.from)), true) {
			return
		}
		in.rest, in.cut = false, true // nobody can read on: what came is better than nothing
	}

	msg := in.message(hookHeader(h, in, c.from))
	c.deliver(msg, msg, h.wait)
}

func (c *client) verb(v verbCall) {
	c.end = after(briefDeadline)
	if v.asks() {
		c.end = after(askDeadline)
	}
	if v.name == "" || !c.locate(v.socket) {
		c.say("no verb, or no state folder: nothing sent")
		return
	}

	msg := verbHeader(v, c.from)
	if v.asks() {
		c.deliver(msg, nil, true) // an old question is worth nothing: the intake only starts a daemon
		return
	}

	c.deliver(msg, msg, false)
}

// deliver gives the message to the daemon and prints what it answers. Without an answer keep goes to an intake, once;
// where the caller waits for something the socket is tried on, because the intake may be starting a daemon.
func (c *client) deliver(msg, keep []byte, wait bool) {
	for handed := false; ; {
		out, ok := c.ask(msg)
		if ok {
			writeAll(1, out)
			return
		}
		if !handed {
			handed = true
			c.startIntake(keep, false)
		}
		if !wait || c.end.left() <= retryPause {
			return
		}

		sleep(retryPause)
	}
}

// locate fills in where the daemon may listen; false when there is no way to know.
func (c *client) locate(socket string) bool {
	c.socket = socket
	if socket != "" {
		// The folder's name is told to the intake only where it is sure: else the settings know it.
		c.places, c.state = []string{socket}, stateDir(c.env.get("BELAY_STATE_DIR"), "", "")
		if hasSuffix([]byte(socket), "/belay.sock") {
			c.state = clean(dirOf(socket))
		}
		return true
	}

	c.state = stateDir(c.env.get("BELAY_STATE_DIR"), c.env.get("XDG_STATE_HOME"), c.env.get("HOME"))
	if c.state == "" {
		return false
	}

	c.places = socketPlaces(c.state, syscall.Getuid())
	return true
}

// say prints a line for whoever looks for the reason of a missing event.
func (c *client) say(what string) {
	if c.debug {
		writeAll(2, []byte("belay-hook: "+what+"\n"))
	}
}

// onePage is what a pipe takes without waiting when it says that it has room.
const onePage = 4 << 10

// writeAll writes to an inherited descriptor, 1 or 2. Nobody is left to tell when that fails, and who does not read
// is not waited for.
func writeAll(fd int, b []byte) {
	for end := after(briefDeadline); len(b) > 0 && writable(fd, end); {
		n, err := syscall.Write(fd, b[:min(len(b), onePage)])
		if err == syscall.EINTR || err == syscall.EAGAIN { // the agent made its end of the pipe non-blocking for us too
			continue
		}
		if err != nil || n <= 0 {
			return
		}

		b = b[n:]
	}
}
