//go:build linux

package lab

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"belay/checkpoint"
	"belay/internal/state/query"
)

// geminiHelper is a call of a sub-agent, whose prompt says SUBTASK.
func geminiHelper() Call {
	return Call{"invoke_agent", map[string]any{"agent_name": "generalist", "prompt": "SUBTASK please"}}
}

// geminiChildren are a session's sub-agents, with the state of each one's shell calls.
func (h *home) geminiChildren(session string) (children []checkpoint.Child, calls []string) {
	h.t.Helper()
	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil {
		h.t.Fatal(err)
	}

	for _, c := range shown.Children {
		own, err := ask[query.Shown](h, "show", "--agent", "gemini", "--session", session, "--child", c.ID)
		if err != nil {
			h.t.Fatal(err)
		}

		for _, call := range own.State.Calls {
			word, _, _ := strings.Cut(call.Digest, " ")
			calls = append(calls, call.Name+" "+word+" "+string(call.State))
		}
	}

	return shown.Children, calls
}

// TestGeminiSubAgent: a sub-agent is found by its file and is a session of its own: what it does is no round of its
// session's, and its calls are not there.
func TestGeminiSubAgent(t *testing.T) {
	h := newGemini(t)
	h.model.Script(
		Turn{When: "SUBTASK", Text: "The helper works.", Calls: []Call{geminiShell("echo in-helper")}},
		Turn{
			When:  "SUBTASK",
			Text:  "The helper is done.",
			Calls: []Call{{"complete_task", map[string]any{"result": map[string]any{"response": "it is done"}}}},
		},
		Turn{
			Text:  "I start a helper.",
			Calls: []Call{geminiHelper()},
		},
		Turn{Text: "All is done.", Calls: []Call{geminiShell("echo after")}},
	)

	h.run("please start the work")
	session := h.newest()
	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	if st := h.status(session); st.MessageCount != 1 || st.PendingToolChain {
		t.Errorf("got %d rounds, chain %v, want 1 round, no chain", st.MessageCount, st.PendingToolChain)
	}

	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil {
		t.Fatal(err)
	}

	var own []string
	for _, c := range shown.State.Calls {
		own = append(own, c.Name+" "+string(c.State))
	}

	if got, want := strings.Join(own, ", "), "invoke_agent done, run_shell_command done"; got != want {
		t.Errorf("the session's calls: got %s, want %s", got, want)
	}

	children, calls := h.geminiChildren(session)
	if len(children) != 1 || children[0].Name != "generalist" || children[0].Running {
		t.Errorf("got sub-agents %+v, want one, generalist, that has ended", children)
	}
	if !slices.Contains(calls, "run_shell_command echo done") || len(calls) > 2 {
		t.Errorf("the sub-agent's calls: got %v, want its command, done, and no more than its last word", calls)
	}
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions, want 1: a sub-agent's is none of these", len(list))
	}
}

// geminiKilledInHelper is a session that died while its sub-agent worked; the next one is told so.
func geminiKilledInHelper(t *testing.T, helper Turn, working func(h *home) bool) {
	t.Helper()
	h := newGemini(t)
	helper.When = "SUBTASK"
	h.model.Script(helper, Turn{Text: "I start a helper.", Calls: []Call{geminiHelper()}}, Turn{Text: "All is done."})
	a := h.start("please start the work")
	h.until("the helper works", func() bool { return working(h) })
	session := h.newest()
	a.signal(syscall.SIGKILL)
	h.died(session)
	h.killTools()
	children, _ := h.geminiChildren(session)
	if len(children) != 1 || !children[0].Running {
		t.Fatalf("got sub-agents %+v, want one that was running", children)
	}

	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("please go on")
	if n := r.Count(
		record,
	); n != 1 || !strings.Contains(said(r), children[0].ID) ||
		!strings.Contains(doubts(r), "invoke_agent") {
		t.Errorf(
			"new session: got %d records, want one that names the sub-agent %s and has its call in doubt\n%s",
			n, children[0].ID, said(r),
		)
	}
}

func TestGeminiKilledInSubAgentsTool(t *testing.T) {
	geminiKilledInHelper(
		t, Turn{Text: "The helper works.", Calls: []Call{geminiShell(slow)}},
		func(h *home) bool { return exists(h.proj + "/started.flag") },
	)
}

// TestGeminiKilledInSubAgentsAnswer: no hook has told of the sub-agent yet.
func TestGeminiKilledInSubAgentsAnswer(t *testing.T) {
	geminiKilledInHelper(
		t, Turn{Text: strings.Repeat("a long answer ", 50), Hold: true},
		func(h *home) bool { return h.model.Holding() == 1 },
	)
}
