//go:build linux

package lab

import (
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/state/query"
)

// piAtPrompt runs pi in a terminal up to its prompt.
func (h *home) piAtPrompt() *terminal {
	h.t.Helper()
	a := h.terminal("--provider", "lab", "--model", "lab-model")
	h.until("the prompt is drawn", func() bool { return strings.Contains(a.printed(), "lab-model") })
	return a
}

// rounds says how many rounds the newest of so many sessions has; -1 while there is no daemon, or another number of
// them.
func (h *home) rounds(sessions int) int {
	if _, err := h.belay("status"); err != nil {
		return -1 // the first event starts the daemon
	}

	list := h.sessions()
	if len(list) != sessions {
		return -1
	}

	return list[0].MessageCount
}

// TestPiTerminal: a person's day at pi's screen: a turn, a command and an answer broken off by Esc, a compaction, a new
// session, the end.
func TestPiTerminal(t *testing.T) {
	h := newPi(t)
	h.write(
		".pi/agent/settings.json",
		`{"defaultProvider":"lab","defaultModel":"lab-model","compaction":{"keepRecentTokens":10}}`,
	)

	a := h.piAtPrompt()
	h.model.Script(Turn{Text: "A quick command.", Calls: []Call{piBash(quick)}}, Turn{Text: "The first round is done."})
	a.say("please start the work", func() bool { return h.rounds(1) == 1 })
	session := h.newest()
	h.model.Script(
		Turn{Text: "Now a long command.", Calls: []Call{piBash(slow)}}, Turn{Text: "The long command is over."},
	)

	a.say("and a long one", func() bool { return exists(h.proj + "/started.flag") })
	h.until("the long command is broken off", func() bool {
		a.press("\x1b")
		return h.rounds(1) == 2 && len(h.status(session).OpenCalls) == 0
	})

	h.model.Script(Turn{Text: strings.Repeat("half of an answer ", 50), Hold: true})
	a.say("and an answer", func() bool { return h.model.Holding() == 1 })
	h.until("the answer is broken off", func() bool {
		a.press("\x1b")
		return h.rounds(1) == 3
	})

	if got := h.calls(session); got["echo"] != checkpoint.CallDone || got["touch"] != checkpoint.CallFailed {
		t.Errorf("the commands: got %v, want the first done and the one that was broken off failed", got)
	}
	if got := h.outcomes(session); got != ",interrupted,interrupted" {
		t.Errorf("outcomes: got %q, want the second and third interrupted", got)
	}

	a.say("/compact", func() bool { return h.transcripts(`"type":"compaction"`) })
	h.until("the checkpoint before the compaction is there", func() bool {
		shown, err := ask[query.Shown](h, "show", "--session", session)
		if err != nil {
			t.Fatal(err)
		}
		return shown.State.LastFull != nil && shown.State.LastFull.Cause == checkpoint.CauseCompaction
	})

	a.say("/new", func() bool { return h.status(session).State == "ended" })
	h.model.Script(Turn{Text: "Another subject it is."})
	a.say("another subject", func() bool { return h.rounds(2) == 1 })
	list := h.model.Main()
	if r := list[len(list)-1]; r.Count(record) != 0 || r.Count("please start the work") != 0 {
		t.Errorf("after /new: got %d records, want nothing of before\n%s", r.Count(record), said(r))
	}

	a.quit()
	h.until("the end is seen", func() bool { return h.status(h.newest()).State == "ended" })
}

// piTwoRounds is a pi in a terminal after two rounds.
func (h *home) piTwoRounds() (a *terminal, session string) {
	h.t.Helper()
	a = h.piAtPrompt()
	for i, prompt := range []string{"the first question", "the second question"} {
		h.model.Script(Turn{Text: "The answer to " + prompt + "."})
		a.say(prompt, func() bool { return h.rounds(1) == i+1 })
	}
	return a, h.newest()
}

// choose opens one of pi's lists by its command and takes what keys lead to, until something has come of it.
func (a *terminal) choose(command string, taken func() bool, keys ...string) {
	a.h.t.Helper()
	a.press(command, "\r")
	for _, k := range keys {
		a.press(k)
	}
	a.enter("pi takes the choice of "+command, taken)
}

// TestPiTerminalTree: a person goes back in the tree of the session and asks again. What is off the branch is no longer
// told.
func TestPiTerminalTree(t *testing.T) {
	h := newPi(t)
	a, session := h.piTwoRounds()
	h.model.Script(Turn{Text: "The answer to another question."})
	from := len(h.model.Main())

	// The list stands at the newest entry, the answer; above it is the question, which comes back into the editor.
	a.choose("/tree", func() bool { return len(h.model.Main()) > from }, "\x1b[A")
	h.until("the third round is counted", func() bool { return h.rounds(1) == 3 })
	r := h.model.Main()[from]
	if r.Count("The answer to the first question.") != 1 || r.Count("The answer to the second question.") != 0 {
		t.Fatalf("pi did not go back\n%s", said(r))
	}

	h.until("the branch that was left is taken back", func() bool {
		text := h.recover(session).Text
		return strings.Contains(text, "The answer to another question.") &&
			!strings.Contains(text, "The answer to the second question.")
	})

	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions, want the one", len(list))
	}

	a.quit()
}

// TestPiTerminalFork: a person forks the session before the second question. The copied history is no round of the new
// session, and it is told nothing that its file holds.
func TestPiTerminalFork(t *testing.T) {
	h := newPi(t)
	a, session := h.piTwoRounds()
	h.model.Script(Turn{Text: "The answer in the fork."})
	from := len(h.model.Main())
	a.choose("/fork", func() bool { return len(h.model.Main()) > from })
	h.until(
		"the fork's round is counted",
		func() bool { return h.rounds(2) >= 1 && h.transcripts("The answer in the fork.") },
	)

	r := h.model.Main()[from]
	if n := r.Count(
		record,
	); n != 0 || r.Count("The answer to the first question.") != 1 ||
		r.Count("The answer to the second question.") != 0 {
		t.Errorf("the fork: got %d records, want none, and the first round alone\n%s", n, said(r))
	}

	a.quit() // by then all of the file is read
	shown, err := ask[query.Shown](h, "show", "--session", h.newest())
	if err != nil {
		t.Fatal(err)
	}
	if n := h.rounds(2); n != 1 {
		t.Errorf("the fork: got %d rounds, want its own alone: %+v", n, shown.State.Turns)
	}
	if st := h.status(session); st.MessageCount != 2 || st.State != "ended" {
		t.Errorf("the session that was forked: got %d rounds, %s, want 2, ended", st.MessageCount, st.State)
	}
}
