//go:build linux

package lab

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"belay/checkpoint"
	"belay/internal/state/query"
)

const (
	record = "<belay-record"
	quick  = "echo step-one > step1.txt"
	slow   = "touch started.flag; sleep 60; touch finished.flag"
)

const claudeVar = "BELAY_LAB_CLAUDE"

// userSettings are a user's own, in a form that no program would write, so that a restored file is known to be the
// same.
const userSettings = "{\n   \"permissions\":  {\"allow\": [ \"Bash\",\"Read\" , \"Agent\" ]},\n\t\"includeCoAuthoredBy\": false }  \n\n"

func newHome(t *testing.T) *home {
	t.Helper()
	return newHomeOf(
		t,
		program{name: "claude-code", env: claudeVar, dir: ".claude", files: ".claude/projects/*/*.jsonl",
			setup: func(h *home) { h.write(".claude/settings.json", userSettings) },
			vars: func(h *home) []string {
				return []string{
					"ANTHROPIC_BASE_URL=" + h.url,
					"ANTHROPIC_API_KEY=test",
					"DISABLE_AUTOUPDATER=1",
					"DISABLE_TELEMETRY=1",
					"DISABLE_ERROR_REPORTING=1",
					"DISABLE_BUG_COMMAND=1",
					"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
				}
			},
			args: []string{"-p", "--model", "claude-sonnet-4-5"},
			pid:  claudePID,
		},
	)
}

// claudePID tells the process by the file that Claude Code names by it.
func claudePID(a *agent) int {
	names, err := filepath.Glob(a.h.path(".claude/sessions/*.json"))
	if err != nil {
		a.h.t.Fatal(err)
	}

	for _, n := range names {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(n), ".json"))
		if err == nil && slices.Contains(a.h.processes(), pid) {
			return pid
		}
	}

	return 0
}

func (h *home) settings() string { return h.path(".claude/settings.json") }

var hookTime = regexp.MustCompile(`belay-hook claude-code Stop","durationMs":([0-9]+)`)

// hookTimes are what the agent measured of its Stop hooks, in milliseconds.
func (h *home) hookTimes() []string {
	var list []string
	for _, data := range h.readTranscripts() {
		for _, m := range hookTime.FindAllSubmatch(data, -1) {
			list = append(list, string(m[1]))
		}
	}
	return list
}

// TestClaudeTwoRounds is an ordinary day: two prompts with a kill of the daemon between them, and a new session after a
// clean end. Nobody needs to be told anything.
func TestClaudeTwoRounds(t *testing.T) {
	h := newHome(t)
	if _, err := h.belay("status"); err == nil {
		t.Fatal("belay status: a daemon answers before the first hook, want none")
	}

	h.model.Script(Turn{Text: "A quick command.", Calls: []Call{Bash(quick)}}, Turn{Text: "The first round is done."})
	if n := h.run("please start the work").Count(record); n != 0 {
		t.Errorf("first session: got %d records, want none: nothing was before it", n)
	}

	session := h.newest()
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	h.model.Script(Turn{Text: "The second round is done."})
	if n := h.run("--continue", "second round please").Count(record); n != 0 {
		t.Errorf("resumed after a clean end: got %d records, want none", n)
	}

	st := h.status(session)
	if st.MessageCount != 2 || st.State != "ended" || st.PendingToolChain || st.LastFullCheckpoint == nil ||
		len(st.OpenCalls) != 0 {
		t.Errorf("got %d rounds, %s, chain %v, full %v, open %v, want 2 rounds, ended, no chain, a FULL, nothing open",
			st.MessageCount, st.State, st.PendingToolChain, st.LastFullCheckpoint, st.OpenCalls)
	}

	if got := h.calls(session)["echo"]; got != checkpoint.CallDone {
		t.Errorf("the command: got %q, want done", got)
	}
	if n := h.run("another subject").Count(record); n != 0 {
		t.Errorf("new session after a clean end: got %d records, want none", n)
	}
	if list := h.sessions(); len(list) != 2 {
		t.Errorf("got %d sessions, want 2", len(list))
	}

	t.Logf("Claude Code's own count of the Stop hook: %v ms", h.hookTimes())
}

// inTool starts an agent and gives it back while its second command runs.
func (h *home) inTool() *agent {
	h.t.Helper()
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{Bash(quick)}},
		Turn{Text: "Now a long command.", Calls: []Call{Bash(slow)}}, Turn{Text: "The long command is over."},
	)

	a := h.start("please start the work")
	h.until("the long command starts", func() bool { return exists(h.proj + "/started.flag") })
	return a
}

// killedInTool leaves a session whose agent was hit while its second command ran.
func killedInTool(t *testing.T, sig syscall.Signal, code int) (*home, string) {
	t.Helper()
	h := newHome(t)
	a := h.inTool()
	if got := a.signal(sig); got != code {
		t.Errorf("exit after %v: got %d, want %d", sig, got, code)
	}
	return h, h.newest()
}

// died waits until the daemon has seen the agent's death and kept it.
func (h *home) died(session string) {
	h.t.Helper()
	h.until("the agent's death is noticed and kept", func() bool {
		st := h.status(session)
		return st.State == "died" && st.LastFullCheckpoint != nil && st.AtRisk.Seconds == 0
	})
}

// TestClaudeKilledInToolThenNew: the next session in the folder is told, once, and the one after it nothing.
func TestClaudeKilledInToolThenNew(t *testing.T) {
	h := newHome(t)
	a := h.inTool()
	session := h.newest()
	h.until("the long command's processes are noted", func() bool {
		open := h.status(session).OpenCalls
		return len(open) == 1 && len(open[0].Procs) > 0
	})

	if got := a.signal(syscall.SIGKILL); got != -1 {
		t.Errorf("exit after kill -9: got %d, want -1", got)
	}

	h.died(session)
	h.model.Script(Turn{Text: "I look at what was done."})
	first := h.run("please go on")
	h.killTools()
	toldInDoubt(t, first)
	if !strings.Contains(doubts(first), "its process is still running") {
		t.Errorf("new session: the command that lost its agent still ran: got %q", doubts(first))
	}

	next := h.run("and again")
	if n := next.Count(record); n != 0 {
		t.Errorf("second new session: got %d records, want none: it was told\n%s", n, said(next))
	}
}

// toldInDoubt checks the brief of a session that died in its long command.
func toldInDoubt(t *testing.T, r Request) {
	t.Helper()
	if n := r.Count(record); n != 1 {
		t.Errorf("new session: got %d records in the request, want 1\n%s", n, said(r))
	}
	if got := doubts(r); !strings.Contains(got, "Bash `touch started.flag") || strings.Contains(got, "step-one") {
		t.Errorf("new session: in doubt is %q, want the long command alone", got)
	}
	if r.Count("please start the work") == 0 {
		t.Errorf("new session: the user's prompt is not in the request\n%s", said(r))
	}
}

// TestClaudeAndDaemonKilled: both die at once, as when the machine does. The first hook of the next session finds
// nobody.
func TestClaudeAndDaemonKilled(t *testing.T) {
	h := newHome(t)
	a := h.inTool()
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	a.signal(syscall.SIGKILL)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	toldInDoubt(t, h.run("please go on"))
	if n := h.run("and again").Count(record); n != 0 {
		t.Errorf("second new session: got %d records, want none: it was told", n)
	}
}

// said is the part of a request that belay or a person had a hand in, for a message.
func said(r Request) string {
	text := r.Text()
	if i := strings.Index(text, record); i >= 0 {
		return text[i:min(len(text), i+3000)]
	}
	return text[max(0, len(text)-1500):]
}

// doubts is the part of the record that lists what is in doubt.
func doubts(r Request) string {
	_, text, _ := strings.Cut(r.Text(), "## In doubt")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// TestClaudeKilledInToolThenResumed: the conversation itself comes from Claude Code; belay adds the call in doubt,
// once.
func TestClaudeKilledInToolThenResumed(t *testing.T) {
	h, session := killedInTool(t, syscall.SIGKILL, -1)
	h.died(session)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	first := h.run("--resume", session, "please go on")
	if n := first.Count(
		record,
	); n != 1 || !strings.Contains(doubts(first), "touch started.flag") ||
		strings.Contains(doubts(first), "step-one") {
		t.Errorf(
			"resumed: got %d records, in doubt %q, want one, with the long command alone\n%s", n, doubts(first),
			said(first),
		)
	}

	second := h.run("--resume", session, "and on")
	if n := second.Count(record); n != 1 {
		t.Errorf("resumed again: got %d records, want the one of before\n%s", n, said(second))
	}
	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt: the agent made its result up", got)
	}
}

// killedInStream leaves a session whose agent was killed while the model answered.
func killedInStream(t *testing.T) (*home, string) {
	t.Helper()
	h := newHome(t)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{Bash(quick)}},
		Turn{Text: strings.Repeat("a long answer ", 50), Hold: true},
	)

	a := h.start("please start the work")
	h.until("the model answers", func() bool { return h.model.Holding() == 1 })

	// Claude Code writes its file a little later than it goes on; without this line it would itself call the command
	// cut off.
	h.until(
		"the first command's result is in the transcript",
		func() bool { return h.transcripts(`"type":"tool_result"`) },
	)

	if got := a.signal(syscall.SIGKILL); got != -1 {
		t.Errorf("exit after kill -9: got %d, want -1", got)
	}

	session := h.newest()
	h.died(session)
	return h, session
}

func TestClaudeKilledInStreamThenNew(t *testing.T) {
	h, _ := killedInStream(t)
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("please go on")
	if n := r.Count(record); n != 1 || r.Count("please start the work") == 0 {
		t.Errorf("new session: got %d records, want one with the user's prompt\n%s", n, said(r))
	}
	if n := r.Count("## In doubt"); n != 0 {
		t.Errorf("new session: a call is in doubt, want none: all had ended\n%s", said(r))
	}
}

func TestClaudeKilledInStreamThenResumed(t *testing.T) {
	h, session := killedInStream(t)
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("--resume", session, "please go on")
	if n := r.Count(record); n != 0 {
		t.Errorf("resumed: got %d records, want none: Claude Code's own file holds it all\n%s", n, said(r))
	}
	if n := r.Count("please start the work"); n != 1 {
		t.Errorf("resumed: the prompt stands %d times in the request, want once\n%s", n, said(r))
	}
}

// TestClaudeTerminatedInTool: SIGTERM lets the agent write down how the command ended; that outcome counts.
func TestClaudeTerminatedInTool(t *testing.T) {
	h, session := killedInTool(t, syscall.SIGTERM, 143)
	h.until("the command's end is known", func() bool { return h.calls(session)["touch"] == checkpoint.CallFailed })
	if st := h.status(session); st.State != "died" && st.State != "ended" {
		t.Errorf("got state %q, want its end seen", st.State)
	}
	if r := h.recover(session); len(r.InDoubt) != 0 {
		t.Errorf("got %v in doubt, want nothing: the result is known", r.InDoubt)
	}
}

// TestClaudeSubAgent: what a sub-agent does is no round of the parent, and its calls are its own.
func TestClaudeSubAgent(t *testing.T) {
	h := newHome(t)
	h.model.Script(
		Turn{
			When:  "SUBTASK",
			Text:  "The helper works.",
			Calls: []Call{Bash("echo in-helper")},
		},
		Turn{When: "SUBTASK", Text: "The helper is done."},
		Turn{
			Text: "I start a helper.",
			Calls: []Call{
				{
					"Agent",
					map[string]any{
						"description":   "a helper",
						"prompt":        "SUBTASK please",
						"subagent_type": "general-purpose",
					},
				},
			},
		},
		Turn{Text: "All is done."},
		Turn{Text: "The helper's end is noted."},
	) // its end may come as a turn of its own

	h.run("please start the work")
	session := h.newest()
	if st := h.status(session); st.MessageCount != 1 || st.State != "ended" || st.PendingToolChain {
		t.Errorf(
			"got %d rounds, %s, chain %v, want 1 round, ended, no chain", st.MessageCount, st.State,
			st.PendingToolChain,
		)
	}

	if got := h.calls(session); got["echo"] != "" {
		t.Errorf("the helper's command is in the parent's ledger: %v", got)
	}

	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil {
		t.Fatal(err)
	}
	if c := shown.Children; len(c) != 1 || c[0].Name != "general-purpose" || c[0].Running {
		t.Errorf("got sub-agents %+v, want one, general-purpose, that has ended", c)
	}
}

// TestClaudeUninstall: the user's settings are back, byte for byte, after sessions ran with belay in them.
func TestClaudeUninstall(t *testing.T) {
	h := newHome(t)
	if data, err := os.ReadFile(h.settings()); err != nil || !strings.Contains(string(data), "belay-hook") {
		t.Fatalf("settings after install: %s, %v, want belay's hooks", data, err)
	}

	h.run("please start the work")
	if st := h.sessions(); len(st) != 1 {
		t.Fatalf("got %d sessions, want 1: the hooks work", len(st))
	}

	session, before := h.newest(), h.agentFiles()
	for _, args := range [][]string{{"status"}, {"recover", "--session", session}, {"checkpoint", "--agent", "claude-code", "--session", session}, {"list"}, {"doctor"}} {
		if out, err := h.belay(args...); err != nil {
			t.Logf("%v\n%s", err, out) // doctor may find fault with the lab; what counts is below
		}
	}

	if after := h.agentFiles(); !maps.Equal(after, before) {
		t.Errorf("belay's commands changed files of the agent: got %v, want %v", after, before)
	}
	if out, err := h.belay("uninstall", "claude-code"); err != nil {
		t.Fatalf("belay uninstall: %v\n%s", err, out)
	}
	if data, err := os.ReadFile(h.settings()); err != nil || string(data) != userSettings {
		t.Errorf("settings after uninstall: got %q, %v, want %q", data, err, userSettings)
	}

	after := h.agentFiles()
	delete(after, h.settings())
	delete(before, h.settings())
	if !maps.Equal(after, before) {
		t.Errorf("uninstall changed other files of the agent: got %v, want %v", after, before)
	}

	h.run("without belay")
	if st := h.sessions(); len(st) != 1 {
		t.Errorf("got %d sessions after uninstall, want still 1", len(st))
	}
}
