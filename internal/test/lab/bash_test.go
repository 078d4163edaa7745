//go:build linux

package lab

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"belay/checkpoint"
)

// The cases of the agents whose shell tool is called bash and whose one prompt comes on the command line.

// inCommand starts the agent and gives it back while its second command runs.
func (h *home) inCommand() *agent {
	h.t.Helper()
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{h.prog.shell(quick)}},
		Turn{Text: "Now a long command.", Calls: []Call{h.prog.shell(slow)}},
		Turn{Text: "The long command is over."},
	)

	a := h.start("please start the work")
	h.until("the long command starts", func() bool { return exists(h.proj + "/started.flag") })
	return a
}

// toldOfBash checks the brief of a session that died in its long command.
func toldOfBash(t *testing.T, h *home, r Request) {
	t.Helper()
	if n := r.Count(record); n != 1 {
		t.Errorf("new session: got %d records in the request, want 1\n%s", n, said(r))
	}

	if got := doubts(
		r,
	); !strings.Contains(got, h.prog.shell("").Name+" `touch started.flag") ||
		strings.Contains(got, "step-one") {
		t.Errorf("new session: in doubt is %q, want the long command alone", got)
	}

	if r.Count("please start the work") == 0 {
		t.Errorf("new session: the user's prompt is not in the request\n%s", said(r))
	}
}

// killedInToolThenNew: the next session in the folder is told, once, and the one after it nothing. The session that was
// told never takes the brief for words of the conversation. It gives that session.
func killedInToolThenNew(t *testing.T, h *home) (told string) {
	t.Helper()
	a := h.inCommand()
	session := h.newest()
	h.until("the long command's processes are noted", func() bool {
		open := h.status(session).OpenCalls
		return len(open) == 1 && (h.prog.blind || len(open[0].Procs) > 0)
	})

	if got := a.signal(syscall.SIGKILL); got != -1 {
		t.Errorf("exit after kill -9: got %d, want -1", got)
	}

	h.died(session)
	h.model.Script(Turn{Text: "I look at what was done."})
	first := h.run("please go on")
	h.killTools()
	toldOfBash(t, h, first)
	if !h.prog.blind && !strings.Contains(doubts(first), "its process is still running") {
		t.Errorf("new session: the command that lost its agent still ran: got %q", doubts(first))
	}

	told = h.newest()
	if r := h.run("and again"); r.Count(record) != 0 {
		t.Errorf("second new session: got %d records, want none: it was told\n%s", r.Count(record), said(r))
	}

	for _, m := range h.recover(told).Messages {
		if strings.Contains(m.Text, record) || strings.Contains(m.Text, "touch started.flag") {
			t.Errorf("the told session holds belay's own words: %q", m.Text)
		}
	}

	return told
}

// killedWithDaemon: both die at once, as when the machine does. The next session's plugin finds nobody.
func killedWithDaemon(t *testing.T, h *home) {
	t.Helper()
	a := h.inCommand()
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	a.signal(syscall.SIGKILL)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	toldOfBash(t, h, h.run("please go on"))
	if n := h.run("and again").Count(record); n != 0 {
		t.Errorf("second new session: got %d records, want none: it was told", n)
	}
}

// killedInToolThenResumed: the conversation itself comes from the agent; belay adds the call in doubt, once. It gives
// the first request of the resumed session.
func killedInToolThenResumed(t *testing.T, h *home) (first Request) {
	t.Helper()
	a := h.inCommand()
	a.signal(syscall.SIGKILL)
	session := h.newest()
	h.died(session)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	if h.prog.again != "" {
		first = h.resume(session, "please go on")
	} else {
		first = h.run("--continue", "please go on")
	}

	if n := first.Count(
		record,
	); n != 1 || !strings.Contains(doubts(first), "touch started.flag") ||
		strings.Contains(doubts(first), "step-one") {
		t.Errorf(
			"resumed: got %d records, in doubt %q, want one, with the long command alone\n%s", n, doubts(first),
			said(first),
		)
	}

	second := h.resume(session, "and on")
	want := 1
	if h.prog.forgets {
		want = 0
	}
	if n := second.Count(record); n != want {
		t.Errorf("resumed again: got %d records, want %d: the one of before, if it is kept\n%s", n, want, said(second))
	}
	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt: nobody knows how it ended", got)
	}
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions, want the one that was resumed", len(list))
	}

	return first
}

// streamKilled leaves a session whose agent was killed while the model answered.
func streamKilled(t *testing.T, h *home, turns ...Turn) (session string) {
	t.Helper()
	h.model.Script(append(turns, Turn{Text: strings.Repeat("a long answer ", 50), Hold: true})...)
	a := h.start("please start the work")
	h.until("the model answers", func() bool { return h.model.Holding() == 1 })
	if got := a.signal(syscall.SIGKILL); got != -1 {
		t.Errorf("exit after kill -9: got %d, want -1", got)
	}

	session = h.newest()
	h.died(session)
	return session
}

// killedInStreamThenNew: a new session is told of the prompt, and of no call.
func killedInStreamThenNew(t *testing.T, h *home) {
	t.Helper()
	streamKilled(t, h, Turn{Text: "A quick command.", Calls: []Call{h.prog.shell(quick)}})
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("please go on")
	if n := r.Count(record); n != 1 || r.Count("please start the work") == 0 {
		t.Errorf("new session: got %d records, want one with the user's prompt\n%s", n, said(r))
	}
	if n := r.Count("## In doubt"); n != 0 {
		t.Errorf("new session: a call is in doubt, want none: all had ended\n%s", said(r))
	}
}

// killedInStreamThenResumed: a resumed session is told nothing: the agent's own record holds it all.
func killedInStreamThenResumed(t *testing.T, h *home) {
	t.Helper()
	session := streamKilled(t, h, Turn{Text: "A quick command.", Calls: []Call{h.prog.shell(quick)}})
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.resume(session, "please go on")
	if n := r.Count(record); n != 0 {
		t.Errorf("resumed: got %d records, want none: the agent's own record holds it all\n%s", n, said(r))
	}
	if n := r.Count("please start the work"); n != 1 {
		t.Errorf("resumed: the prompt stands %d times in the request, want once\n%s", n, said(r))
	}
}

// withoutBelay: an agent whose belay is gone goes on as if it had never been there. File is belay's in the agent's
// folder.
func withoutBelay(t *testing.T, h *home, file string) {
	t.Helper()
	data, err := os.ReadFile(h.path(file))
	if err != nil {
		t.Fatal(err)
	}

	gone := strings.ReplaceAll(string(data), os.Getenv(binVar), "/nowhere")
	if gone == string(data) {
		t.Fatalf("%s does not name belay-hook's place", file)
	}

	h.write(file, gone)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{h.prog.shell(quick)}},
		Turn{Text: "The first round is done."},
	)

	a := h.start("please start the work")
	if code := a.wait(); code != 0 || !strings.Contains(a.printed(), "The first round is done.") ||
		strings.Contains(a.printed(), "rror") {
		t.Errorf("got exit %d and %q, want the answer and nothing else", code, a.printed())
	}
}
