package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// installed is an agent's hooks as `belay install` wrote them.
type installed struct {
	agent  string
	events map[string][]string // what each event starts
	start  string              // the event that waits for a brief
}

// starts installs the hooks of every agent that has hook commands. Agents into which belay goes as a plugin have none.
func (w *world) starts(t *testing.T) (list []installed) {
	t.Helper()
	w.env = append(w.env, "PATH="+w.dir+":"+os.Getenv("PATH")) // where install finds belay-hook
	complete := exec.Command(filepath.Join(w.dir, "belay"), "__complete", "install", "")
	complete.Env = w.env
	names, err := complete.Output()
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range strings.Fields(string(names)) {
		var done struct{ Changes []struct{ Path string } }
		if strings.HasPrefix(name, ":") || w.belay(t, &done, "install", name, "--json") != nil {
			continue // no agent's name; or a program that has to be there
		}

		for _, c := range done.Changes {
			if in, ok := hooksIn(t, name, c.Path); ok {
				list = append(list, in)
			}
		}
	}

	if len(list) < 5 {
		t.Fatalf("%d agents have hook commands, want 5 at least: %+v", len(list), list)
	}

	return list
}

// hooksIn reads the hooks of a settings file, nested or flat.
func hooksIn(t *testing.T, name, path string) (in installed, ok bool) {
	t.Helper()
	type hook struct {
		Command, Bash string
		Args          []string
		Hooks         []hook
	}

	var file struct{ Hooks map[string][]hook }
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &file) != nil || len(file.Hooks) == 0 {
		return in, false
	}

	in = installed{agent: name, events: map[string][]string{}}
	for event, list := range file.Hooks {
		h := list[0]
		if len(h.Hooks) > 0 {
			h = h.Hooks[0]
		}

		argv := append([]string{h.Command}, h.Args...)
		if len(h.Args) == 0 {
			argv = []string{"sh", "-c", h.Command + h.Bash}
		}

		in.events[event] = argv
		if strings.Contains(strings.Join(argv, " "), " --wait ") {
			in.start += event
		}
	}

	if in.events[in.start] == nil {
		t.Errorf("%s: events that wait: %q, want the session's start alone", name, in.start)
	}

	return in, true
}

// fire runs the hook of an event as the agent would, which is the process with a pid. The payload has what any agent
// says.
func (w *world) fire(t *testing.T, in installed, event, session string, pid int) run {
	t.Helper()
	stdin := stdinFile(t, fmt.Sprintf(`{"session_id":%[1]q,"conversation_id":%[1]q,"sessionId":%[1]q,
"hook_event_name":%[2]q,"source":"startup","cwd":%[3]q,"workspace_roots":[%[3]q],"prompt":"paint the boat green before the rain comes"}`, session, event, w.state))
	defer stdin.Close()
	argv := in.events[event]
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdin = append(w.env, "CLAUDE_PID="+strconv.Itoa(pid)), stdin
	return runHook(t, cmd)
}

// TestInstalledStartWaits: the start hook of every agent, just as installed, prints the brief of a daemon that takes
// 300 ms.
func TestInstalledStartWaits(t *testing.T) {
	w := newWorld(t)
	list := w.starts(t)
	if err := os.MkdirAll(w.state, 0o700); err != nil {
		t.Fatal(err)
	}

	serve(t, sock(w.state), func(c net.Conn, r request) {
		<-time.After(300 * time.Millisecond) // it is a slow daemon
		reply(briefReply)(c, r)
	})

	for _, in := range list {
		r := within(t, briefTime, func() run { return w.fire(t, in, in.start, realSession, os.Getpid()) })
		if r.stdout != "brief" || r.stderr != "" {
			t.Errorf(
				"%s: %q printed %q, %q in %v, want the brief", in.agent, in.events[in.start], r.stdout,
				r.stderr, r.took,
			)
		}
	}
}

// TestInstalledStartFromCold: the start hook of every agent, just as installed, starts the real daemon and prints the
// brief of a session that died.
func TestInstalledStartFromCold(t *testing.T) {
	w := newWorld(t)
	for _, in := range w.starts(t) {
		agent := exec.Command("sleep", "60")
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}

		daemon := w.start(t)
		w.fire(t, in, in.start, realSession, agent.Process.Pid)
		for event := range in.events {
			if strings.Contains(strings.ToLower(event), "prompt") || event == "BeforeAgent" {
				w.fire(t, in, event, realSession, agent.Process.Pid)
			}
		}

		_ = agent.Process.Kill()
		_ = agent.Wait() // it was killed
		w.quiet(t)
		w.kill(t, daemon)

		var r run
		for try := range 20 { // a busy machine may not start a daemon in a second
			session := fmt.Sprintf("%d%s", try%10, newSession[1:])
			if r = w.fire(t, in, in.start, session, os.Getpid()); r.stdout != "" || r.took < briefTime {
				break
			}
			w.quiet(t)
			w.kill(t, w.daemon(t))
		}

		if !strings.Contains(r.stdout, "paint the boat green") || r.stderr != "" {
			t.Errorf(
				"%s: %q printed %q, %q in %v, want the brief", in.agent, in.events[in.start], r.stdout,
				r.stderr, r.took,
			)
		}

		w.quiet(t)
		w.kill(t, w.daemon(t))
	}
}
