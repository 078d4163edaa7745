//go:build linux

package lab

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"belay/checkpoint"
	"belay/internal/state/query"
)

// newCodexTerminal is a home for Codex's terminal program, which would ask about hooks of the user's own.
func newCodexTerminal(t *testing.T) *home {
	t.Helper()
	h := newCodex(t)
	h.write(".codex/hooks.json", "{}\n")
	if _, err := h.belay("install", "codex"); err != nil {
		t.Fatal(err)
	}

	h.codexTrust()
	return h
}

// codexAtPrompt runs Codex's terminal program up to its prompt.
func (h *home) codexAtPrompt(args ...string) *terminal {
	h.t.Helper()
	a := h.terminal(args...)
	h.until("the prompt is drawn", func() bool { return strings.Contains(a.printed(), "Ask Codex to do anything") })
	return a
}

// codexRound is a whole round at the screen: the prompt, the model's one answer, and the state at rest, with so many
// rounds.
func (a *terminal) codexRound(prompt, answer string, sessions, rounds int) (session string, asked Request) {
	a.h.t.Helper()
	a.h.model.Script(Turn{Text: answer})
	from := len(a.h.model.Main())
	a.say(prompt, func() bool { return len(a.h.model.Main()) > from })
	a.h.until("the round "+prompt+" is counted", func() bool { return a.h.rounds(sessions) == rounds })
	session = a.h.newest()
	a.h.until(
		"the session rests",
		func() bool { return a.h.status(session).State == "idle" && a.h.transcripts(answer) },
	)

	return session, a.h.model.Main()[from]
}

// TestCodexTerminal: the terminal program is only a view. The session's process is the server behind it: closing the
// terminal ends nothing, the server's death ends the session.
func TestCodexTerminal(t *testing.T) {
	h := newCodexTerminal(t)
	h.model.Script(
		Turn{Text: "Now a long command.", Calls: []Call{codexExec(slow)}},
		Turn{Text: "The long command is over."},
	)

	h.terminal("please start the work")
	h.until("the long command starts", func() bool { return exists(h.proj + "/started.flag") })
	session := h.newest()
	h.kill("\x00please start the work\x00")
	if st := h.status(session); st.State != "at work" || len(st.OpenCalls) != 1 {
		t.Errorf(
			"after the terminal program's death: got %s, open %v, want at work with the long command", st.State,
			st.OpenCalls,
		)
	}

	h.kill("\x00app-server\x00--listen\x00")
	h.died(session)
	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt", got)
	}

	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	toldInDoubt(t, h.run("please go on"))
}

// kill ends the native program whose command line holds a text.
func (h *home) kill(text string) {
	h.t.Helper()
	for _, pid := range h.processes() {
		cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || bytes.HasPrefix(cmd, []byte("node")) || !bytes.Contains(cmd, []byte(text)) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			h.t.Fatal(err)
		}

		h.until("it is gone", func() bool { return !slices.Contains(h.processes(), pid) })
		return
	}

	h.t.Fatalf("no process with %q", text)
}

// TestCodexBrokenOff: Esc breaks an answer off, and a turn whose command has just begun: the rounds count as
// interrupted, and nobody is told. Such a command Codex may end without a word, so that how it ended is never known.
func TestCodexBrokenOff(t *testing.T) {
	h := newCodexTerminal(t)
	a := h.codexAtPrompt()
	h.model.Script(Turn{Text: strings.Repeat("a long answer ", 50), Hold: true})
	a.say("please start the work", func() bool { return h.model.Holding() == 1 })
	h.until("the answer is broken off", func() bool {
		a.press("\x1b")
		return h.model.Holding() == 0
	})

	h.until("its round is counted", func() bool { return h.rounds(1) == 1 })
	session := h.newest()
	h.model.Script(
		Turn{Text: "Now a long command.", Calls: []Call{codexExec(slow)}},
		Turn{Text: "The long command is over."},
	)

	a.say("and a long command", func() bool { return exists(h.proj + "/started.flag") })
	a.press("\x1b")
	h.until(
		"its round is counted, and its result told",
		func() bool { return h.rounds(1) == 2 && h.transcripts("aborted by user") },
	)

	if got := h.outcomes(session); got != "interrupted,interrupted" {
		t.Errorf("outcomes: got %q, want both interrupted", got)
	}

	h.until("the command is no part of a turn any more", func() bool {
		st := h.status(session)
		return !st.PendingToolChain && len(st.OpenCalls) == 1 && st.OpenCalls[0].Background
	})

	if _, r := a.codexRound("another prompt", "It is done.", 1, 3); r.Count(record) != 0 {
		t.Errorf("after two interrupts: got %d records, want none\n%s", r.Count(record), said(r))
	}

	if got := h.recover(
		session,
	); len(got.InDoubt) != 1 ||
		!strings.Contains(got.Text, "in the background. Result unknown.") {
		t.Errorf("after the interrupts: got %+v in doubt, want the command\n%s", got.InDoubt, got.Text)
	}
}

// codexCommandBrokenOff is a session whose person pressed Esc while a command ran. The command goes on.
func codexCommandBrokenOff(t *testing.T) (a *terminal, session string) {
	t.Helper()
	h := newCodexTerminal(t)
	a = h.codexAtPrompt()
	h.model.Script(
		Turn{Text: "Now a long command.", Calls: []Call{codexExec(slow)}},
		Turn{Text: "The long command is over."},
	)

	a.say("please start the work", func() bool { return exists(h.proj + "/started.flag") })
	session = h.newest()
	h.until("its processes are noted", func() bool {
		open := h.status(session).OpenCalls
		return len(open) == 1 && len(open[0].Procs) > 0
	})

	a.press("\x1b")
	h.until(
		"its round is counted, and its result told",
		func() bool { return h.rounds(1) == 1 && h.transcripts("aborted by user") },
	)

	if got := h.outcomes(session); got != "interrupted" {
		t.Errorf("outcomes: got %q, want interrupted", got)
	}

	h.until("the command is known to go on", func() bool {
		open := h.status(session).OpenCalls
		return len(open) == 1 && open[0].Background && len(open[0].Procs) > 0
	})

	return a, session
}

// TestCodexCommandOutlivesEsc: a command that Esc left alone is in doubt while it runs, and holds nothing open; how it
// ended is known when it did.
func TestCodexCommandOutlivesEsc(t *testing.T) {
	a, session := codexCommandBrokenOff(t)
	h := a.h
	if got := h.recover(
		session,
	); len(got.InDoubt) != 1 ||
		!strings.Contains(got.Text, "its process is still running; it went on in the background. Result unknown.") {
		t.Errorf("while it runs: got %+v in doubt, want the long command, which goes on\n%s", got.InDoubt, got.Text)
	}

	if st := h.status(session); st.PendingToolChain || st.State != "idle" {
		t.Errorf("while it runs: got %s, chain %v, want idle and no chain", st.State, st.PendingToolChain)
	}

	if _, r := a.codexRound("another prompt", "It is done.", 1, 2); r.Count(record) != 0 {
		t.Errorf(
			"while it runs: got %d records, want none: Codex itself tells that it may run\n%s", r.Count(record),
			said(r),
		)
	}

	h.kill("sleep\x0060\x00") // and the command goes on to its end
	h.until("the command ends", func() bool { return exists(h.proj + "/finished.flag") })
	h.until("its end is known", func() bool { return h.calls(session)["touch"] == checkpoint.CallDone })
}

// TestCodexKilledAfterEsc: the command that Esc left alone outlives Codex as well. Who resumes the session is told,
// once.
func TestCodexKilledAfterEsc(t *testing.T) {
	a, session := codexCommandBrokenOff(t)
	h := a.h
	h.kill("\x00app-server\x00--listen\x00")
	h.died(session)
	h.model.Script(Turn{Text: "I look at what was done."})
	first := h.run("resume", session, "please go on")
	h.killTools()
	if n := first.Count(
		record,
	); n != 1 ||
		!strings.Contains(doubts(first), "its process is still running; it went on in the background") {
		t.Errorf(
			"resumed: got %d records, in doubt %q, want one with the long command, which goes on\n%s", n,
			doubts(first), said(first),
		)
	}

	if n := h.run("resume", session, "and on").Count(record); n != 1 {
		t.Errorf("resumed again: got %d records, want the one of before", n)
	}
	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt: nobody knows how it ended", got)
	}
}

// TestCodexNewAndClear: a new session at the screen is given nothing of the one before.
func TestCodexNewAndClear(t *testing.T) {
	h := newCodexTerminal(t)
	a := h.codexAtPrompt()
	first, _ := a.codexRound("please start the work", "The first round is done.", 1, 1)
	for i, command := range []string{"/new", "/clear"} {
		a.press(command, "\r", "") // the screen is drawn anew
		session, r := a.codexRound("subject "+command[1:], "Another subject it is.", i+2, 1)
		if n := r.Count(record) + r.Count("please start the work"); n != 0 || session == first {
			t.Errorf("after %s: got %d pieces of what was before, want none\n%s", command, n, said(r))
		}
		if got := h.recover(session); strings.Contains(got.Text, "please start the work") {
			t.Errorf("after %s: recover tells of what was before:\n%s", command, got.Text)
		}
	}
}

// TestCodexCompactedByHand: a checkpoint is taken before, and the person's words are given after, once.
func TestCodexCompactedByHand(t *testing.T) {
	h := newCodexTerminal(t)
	a := h.codexAtPrompt()
	session, _ := a.codexRound("please start the work", "The first round is done.", 1, 1)
	a.say("/compact", func() bool { return h.transcripts(`"type":"compacted"`) })
	h.until("a checkpoint is taken for it", func() bool {
		shown, err := ask[query.Shown](h, "show", "--session", session)
		full := shown.State.LastFull
		return err == nil && full != nil && full.Cause == checkpoint.CauseCompaction
	})

	_, r := a.codexRound("second round please", "The second round is done.", 1, 2)
	if n := r.Count(record); n != 1 || !strings.Contains(said(r), "please start the work") {
		t.Errorf("after the compaction: got %d records, want one with the person's words\n%s", n, said(r))
	}
	if _, r = a.codexRound("third round please", "The third round is done.", 1, 3); r.Count(record) != 1 {
		t.Errorf("one round later: got %d records, want the one of before\n%s", r.Count(record), said(r))
	}

	for _, m := range h.recover(session).Messages {
		if m.Role == string(checkpoint.RoleAssistant) && strings.Contains(m.Text, "Lab session") {
			t.Error("the summary of the compaction is taken for an answer")
		}
	}
}

// TestCodexWentBack: Esc, Esc goes back in the conversation, and the thread goes on in another rollout. What was taken
// back is told to nobody any more, what still stands is told once.
func TestCodexWentBack(t *testing.T) {
	h := newCodexTerminal(t)
	a := h.codexAtPrompt()
	session, _ := a.codexRound("please start the work", "The first round is done.", 1, 1)
	a.codexRound("the wrong way", "The wrong answer.", 1, 2)
	h.until("the screen goes back", func() bool {
		a.press("\x1b", "\x1b")
		return strings.Contains(a.printed(), "rewind")
	})

	a.enter("the conversation is back", func() bool { return len(h.readTranscripts()) == 2 })

	// The words that were taken back stand in the prompt, to be changed.
	h.model.Script(
		Turn{Text: "Now a long command.", Calls: []Call{codexExec(slow)}},
		Turn{Text: "The long command is over."},
	)

	from := len(h.model.Main())
	a.say(" is now right", func() bool { return exists(h.proj + "/started.flag") })
	if r := h.model.Main()[from]; r.Count(record) != 0 || r.Count("The wrong answer.") != 0 {
		t.Errorf(
			"after going back: got %d records, want none, and no word of what was taken back\n%s",
			r.Count(record), said(r),
		)
	}

	h.until(
		"what was taken back is gone",
		func() bool { return !strings.Contains(h.recover(session).Text, "The wrong answer.") },
	)

	h.kill("\x00app-server\x00--listen\x00")
	h.died(session)
	h.killTools()
	r := h.run("please go on")
	toldInDoubt(t, r)
	if n := r.Count("The first round is done."); n != 1 || r.Count("The wrong answer.") != 0 {
		t.Errorf(
			"new session: the first answer stands %d times in the request, want once, and what was taken back not at all\n%s",
			n, said(r),
		)
	}

	if n := h.status(session).MessageCount; n != 2 {
		t.Errorf("got %d rounds, want 2: what was taken back was one, and the last never ended", n)
	}
}

// TestCodexForked: a fork is a session of its own. What it goes on from is its parent's, counted there and told by
// Codex.
func TestCodexForked(t *testing.T) {
	h := newCodexTerminal(t)
	a := h.codexAtPrompt()
	parent, _ := a.codexRound("please start the work", "The first round is done.", 1, 1)
	a.say("/fork", func() bool { return len(h.readTranscripts()) == 2 })
	fork, r := a.codexRound("in the fork", "The fork's answer.", 2, 1)
	if n := r.Count(record); n != 0 || r.Count("please start the work") != 1 || fork == parent {
		t.Errorf(
			"in the fork: got %d records and the parent's prompt %d times, want none, and once by Codex itself\n%s",
			n, r.Count("please start the work"), said(r),
		)
	}

	if st := h.status(parent); st.MessageCount != 1 {
		t.Errorf("the parent: got %d rounds, want still 1", st.MessageCount)
	}

	again := h.codexAtPrompt("fork", parent)
	second, r := again.codexRound("in another fork", "Another answer.", 3, 1)
	if n := r.Count(
		record,
	); n != 0 || r.Count("please start the work") != 1 || r.Count("in the fork") != 0 ||
		second == fork {
		t.Errorf("codex fork: got %d records, the parent's prompt %d times, the fork's %d, want none, once, none\n%s",
			n, r.Count("please start the work"), r.Count("in the fork"), said(r))
	}
}
