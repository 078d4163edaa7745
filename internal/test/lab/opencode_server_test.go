//go:build linux

package lab

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"belay/checkpoint"
	"belay/internal/state/query"
)

// opencodeServer starts opencode's server, in which all happens that its clients ask for, and gives its address.
func (h *home) opencodeServer() string {
	h.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}

	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil {
		h.t.Fatal(err)
	}

	a := h.startOn(nil, "serve", "--port", port)
	url := "http://127.0.0.1:" + port
	h.until("the server listens", func() bool { return strings.Contains(a.printed(), url) })
	return url
}

// killServer ends the native program that serves, and no client.
func (h *home) killServer() {
	h.t.Helper()
	for _, pid := range h.processes() {
		cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || bytes.HasPrefix(cmd, []byte("node")) || !bytes.Contains(cmd, []byte("\x00serve\x00")) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			h.t.Fatal(err)
		}

		h.until("the server is gone", func() bool { return !slices.Contains(h.processes(), pid) })
		return
	}

	h.t.Fatal("no server to kill")
}

func (h *home) outcomes(session string) string {
	h.t.Helper()
	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil {
		h.t.Fatal(err)
	}

	var list []string
	for _, turn := range shown.State.Turns {
		list = append(list, string(turn.Outcome))
	}

	return strings.Join(list, ",")
}

// TestOpencodeServer: clients come and go, the server is the session's process. Rounds and tools are counted as ever; a
// client that is killed ends nothing.
func TestOpencodeServer(t *testing.T) {
	h := newOpencode(t)
	attach := []string{"--attach", h.opencodeServer()}
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{opencodeBash(quick)}},
		Turn{Text: "And one that fails.", Calls: []Call{opencodeBash("false")}},
		Turn{Text: "The first round is done."},
	)

	if n := h.run(append(attach, "please start the work")...).Count(record); n != 0 {
		t.Errorf("first session: got %d records, want none: nothing was before it", n)
	}

	session := h.newest()
	h.until("the first round is counted", func() bool { return h.status(session).MessageCount == 1 })
	h.model.Script(Turn{Text: "The second round is done."})
	if n := h.run(append(attach, "--session", session, "second round please")...).Count(record); n != 0 {
		t.Errorf("second round: got %d records, want none", n)
	}

	h.until("the second round is counted", func() bool { return h.status(session).MessageCount == 2 })
	if st := h.status(session); st.State != "idle" || st.PendingToolChain || len(st.OpenCalls) != 0 {
		t.Errorf(
			"got %s, chain %v, open %v, want idle and nothing open: the server lives", st.State,
			st.PendingToolChain, st.OpenCalls,
		)
	}

	if got := h.calls(
		session,
	); len(got) != 2 || got["echo"] != checkpoint.CallDone ||
		got["false"] != checkpoint.CallFailed {
		t.Errorf("the commands: got %v, want two, one done and one failed", got)
	}

	if n := h.run(append(attach, "another subject")...).Count(record); n != 0 {
		t.Errorf("a second session beside the first: got %d records, want none", n)
	}
	if list := h.sessions(); len(list) != 2 {
		t.Errorf("got %d sessions, want 2", len(list))
	}
}

// opencodeServerInTool leaves a session whose server was killed while its second command ran.
func opencodeServerInTool(t *testing.T) (h *home, session string) {
	t.Helper()
	h = newOpencode(t)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{opencodeBash(quick)}},
		Turn{Text: "Now a long command.", Calls: []Call{opencodeBash(slow)}},
		Turn{Text: "The long command is over."},
	)

	a := h.start("--attach", h.opencodeServer(), "please start the work")
	h.until("the long command starts", func() bool { return exists(h.proj + "/started.flag") })
	session = h.newest()
	h.until("the long command is open", func() bool { return len(h.status(session).OpenCalls) == 1 })
	h.killServer()
	h.died(session)
	_ = syscall.Kill(a.pid(), syscall.SIGKILL) // the client may wait for a server for ever, or has ended with it
	a.wait()
	h.killTools()
	return h, session
}

// TestOpencodeServerKilledInToolThenNew: a new session on the next server is told, once.
func TestOpencodeServerKilledInToolThenNew(t *testing.T) {
	h, _ := opencodeServerInTool(t)
	attach := []string{"--attach", h.opencodeServer()}
	h.model.Script(Turn{Text: "I look at what was done."})
	toldOfBash(t, h, h.run(append(attach, "please go on")...))
	if n := h.run(append(attach, "and again")...).Count(record); n != 0 {
		t.Errorf("second new session: got %d records, want none: it was told", n)
	}
}

// TestOpencodeServerKilledInToolThenResumed: the conversation comes from opencode; belay adds the call in doubt, once.
func TestOpencodeServerKilledInToolThenResumed(t *testing.T) {
	h, session := opencodeServerInTool(t)
	attach := []string{"--attach", h.opencodeServer(), "--session", session}
	for _, prompt := range []string{"please go on", "and on"} {
		h.model.Script(Turn{Text: "I look at what was done."})
		r := h.run(append(attach, prompt)...)
		if n := r.Count(
			record,
		); n != 1 || !strings.Contains(doubts(r), "touch started.flag") ||
			strings.Contains(doubts(r), "step-one") {
			t.Errorf(
				"%s: got %d records, in doubt %q, want one, with the long command alone\n%s", prompt, n,
				doubts(r), said(r),
			)
		}
	}

	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt: nobody knows how it ended", got)
	}
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions, want the one that was resumed", len(list))
	}
}

// TestOpencodeTerminal: a person's day at opencode's screen: a turn, a command broken off by Esc, the end.
func TestOpencodeTerminal(t *testing.T) {
	h := newOpencode(t)
	opencodeDay(t, h, h.terminal("-m", "lab/lab-model"))
}

// TestOpencodeAttachedTerminal: the same at a screen that only shows a server's session. Its end ends nothing.
func TestOpencodeAttachedTerminal(t *testing.T) {
	h := newOpencode(t)
	session := opencodeDay(t, h, h.terminal("attach", h.opencodeServer()))
	if st := h.status(session); st.State != "idle" {
		t.Errorf("after the screen is gone: got %s, want idle: the server lives", st.State)
	}
}

func opencodeDay(t *testing.T, h *home, a *terminal) (session string) {
	t.Helper()
	h.until("the prompt is drawn", func() bool { return strings.Contains(a.printed(), "Ask anything") })
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{opencodeBash(quick)}},
		Turn{Text: "The first round is done."},
	)

	a.say("please start the work", func() bool {
		if _, err := h.belay("status"); err != nil {
			return false // the first event starts the daemon
		}
		list := h.sessions()
		return len(list) == 1 && list[0].MessageCount == 1
	})

	session = h.newest()
	h.model.Script(
		Turn{Text: "Now a long command.", Calls: []Call{opencodeBash(slow)}},
		Turn{Text: "The long command is over."},
	)

	a.say("and a long one", func() bool { return exists(h.proj + "/started.flag") })
	h.until("the long command is broken off", func() bool {
		a.press("\x1b") // opencode wants it twice within a few seconds
		st := h.status(session)
		return st.MessageCount == 2 && len(st.OpenCalls) == 0
	})

	if got := h.calls(session); got["echo"] != checkpoint.CallDone || got["touch"] != checkpoint.CallFailed {
		t.Errorf("the commands: got %v, want the first done and the one that was broken off failed", got)
	}
	if got := h.outcomes(session); got != ",interrupted" {
		t.Errorf("outcomes: got %q, want the second interrupted", got)
	}

	a.press("\x03")
	a.wait()
	return session
}
