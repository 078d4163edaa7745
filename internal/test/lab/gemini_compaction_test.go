//go:build linux

package lab

import (
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/state/query"
)

// geminiSummary are the model's words when the program asks for a summary, which it does twice: it thinks aloud first.
// There are enough of them for a program that compacts before each call.
func geminiSummary(turns ...Turn) []Turn {
	one := Turn{
		Side: true,
		When: "state_snapshot",
		Text: "<scratchpad>What was it?</scratchpad>\n<state_snapshot>\nSUMMARY of the work\n</state_snapshot>",
	}
	return append(turns, slices.Repeat([]Turn{one}, 12)...)
}

// geminiWork are two rounds at the screen.
func (a *terminal) geminiWork() (session string) {
	a.h.t.Helper()
	a.h.model.Script(
		geminiSummary(
			Turn{Text: "A quick command.", Calls: []Call{geminiShell(quick)}},
			Turn{Text: "The first round is done."}, Turn{Text: "The second round is done."},
		)...)

	a.say("please start the work", func() bool { return a.h.rounds(1) == 1 })
	a.say("second round please", func() bool { return a.h.rounds(1) == 2 })
	return a.h.newest()
}

// geminiCompacted waits for the boundary of a compaction and for the checkpoint that it forces, and looks that it is no
// round.
func (h *home) geminiCompacted(session string, rounds int) {
	h.t.Helper()
	h.until("the boundary is seen, and a checkpoint taken", func() bool {
		shown, err := ask[query.Shown](h, "show", "--session", session)
		if err != nil || shown.State.LastFull == nil {
			return false
		}

		return shown.State.LastFull.Cause == checkpoint.CauseCompaction &&
			slices.ContainsFunc(shown.State.Messages, func(m checkpoint.Message) bool {
				return m.Role == checkpoint.RoleSummary && strings.HasPrefix(m.Text, "<state_snapshot>")
			})
	})

	if st := h.status(session); st.MessageCount != rounds || len(st.OpenCalls) != 0 {
		h.t.Errorf(
			"after the compaction: got %d rounds, open %v, want %d and none", st.MessageCount, st.OpenCalls,
			rounds,
		)
	}
}

// TestGeminiCompactedByHand: the person's own /compress. The next prompt carries the person's words, and no later one.
func TestGeminiCompactedByHand(t *testing.T) {
	h := newGemini(t)
	a := h.geminiAtPrompt(1)
	session := a.geminiWork()
	a.say("/compress", func() bool { return h.transcripts("SUMMARY of the work") })
	h.geminiCompacted(session, 2)
	for i, prompt := range []string{"go on please", "and on"} {
		h.model.Script(Turn{Text: "I go on."})
		from := len(h.model.Main())
		a.say(prompt, func() bool { return len(h.model.Main()) > from })
		if r := h.model.Main()[from]; r.Count(record) != 1 || !strings.Contains(said(r), "please start the work") {
			t.Errorf(
				"prompt %d after the compaction: got %d records, want the one with the person's words\n%s", i+1,
				r.Count(record), said(r),
			)
		}

		h.until("its round is counted", func() bool { return h.status(session).MessageCount == 3+i })
	}

	a.quit()
}

// TestGeminiCompactedByItself: the window is so small that the program compacts whenever it can. No hook says so.
func TestGeminiCompactedByItself(t *testing.T) {
	h := newGemini(t)
	h.write(
		".gemini/settings.json",
		strings.Replace(geminiSettings, `"privacy"`, `"model": {"compressionThreshold": 0.005}, "privacy"`, 1),
	)

	if _, err := h.belay("install", "gemini"); err != nil {
		t.Fatal(err)
	}

	a := h.geminiAtPrompt(1)
	session := a.geminiWork()
	h.model.Script(geminiSummary(Turn{Text: "The third round is done."})...)
	a.say("third round please", func() bool { return h.rounds(1) == 3 })
	h.geminiCompacted(session, 3)
	h.model.Script(geminiSummary(Turn{Text: "I go on."})...)
	from := len(h.model.Main())
	a.say("go on please", func() bool { return len(h.model.Main()) > from })
	if r := h.model.Main()[from]; r.Count(record) == 0 || !strings.Contains(said(r), "please start the work") {
		t.Errorf("after the compactions: got %d records, want the person's words\n%s", r.Count(record), said(r))
	}

	h.until("its round is counted", func() bool { return h.status(session).MessageCount == 4 })
	a.quit()
}
