//go:build linux

package lab

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"belay/checkpoint"
	wired "belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/agent/codex"
	"belay/internal/state/query"
)

const codexVar = "BELAY_LAB_CODEX"

// Files of a user's own, in a form that no program would write, so that a restored file is known to be the same.
const (
	codexHooks  = "{ \"hooks\":  {\"Stop\": [ {\"hooks\":[{\"type\":\"command\",\"command\":\"true\"}]} ]}  }\n\n"
	codexConfig = `model = "lab-model"   # mine
model_provider = "lab"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.lab]
name = "lab"
base_url = "%s/v1"
env_key = "LAB_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
supports_websockets = false

[analytics]
enabled = false
[feedback]
enabled = false

[projects."%s"]
trust_level = "trusted"
`
)

// codexExec is a call of Codex's shell tool that waits for its end.
func codexExec(command string) Call {
	return Call{"exec_command", map[string]any{"cmd": command, "yield_time_ms": 60000}}
}

// newCodex is a home with Codex, belay's hooks in it, and a person's trust in them as the installer writes it.
func newCodex(t *testing.T) *home {
	t.Helper()
	h := newHomeOf(t, program{name: "codex", env: codexVar, dir: ".codex", files: ".codex/sessions/*/*/*/*.jsonl",
		setup: func(h *home) {
			h.write(".codex/config.toml", h.codexConfig())
			h.write(".codex/hooks.json", codexHooks)
		},
		vars: func(h *home) []string { return []string{"LAB_KEY=test", "CODEX_HOME=" + h.path(".codex")} },
		args: []string{"exec", "--json", "--skip-git-repo-check"},
		pid:  codexPID,
	})

	h.codexTrust()
	return h
}

func (h *home) codexConfig() string { return fmt.Sprintf(codexConfig, h.url, h.proj) }

// codexTrust says what a person says in /hooks.
func (h *home) codexTrust() {
	h.t.Helper()
	host := agenttest.Host(h.dir, "CODEX_HOME="+h.path(".codex"))
	host.State = h.state()
	if _, err := codex.New(
		host,
	).Trust(
		wired.Paths{Hook: filepath.Join(os.Getenv(binVar), "belay-hook")}, false,
	); err != nil {
		h.t.Fatal(err)
	}
}

// codexPID is the native program behind npm's launcher.
func codexPID(a *agent) int {
	for _, pid := range a.h.processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !strings.HasPrefix(filepath.Base(exe), "codex") {
			continue // gone meanwhile, or another program
		}

		if cmd, err := os.ReadFile(
			fmt.Sprintf("/proc/%d/cmdline", pid),
		); err == nil &&
			bytes.Contains(cmd, []byte("\x00exec\x00")) {
			return pid
		}
	}
	return 0
}

// TestCodexTwoRounds is an ordinary day: two prompts with a kill of the daemon between them, and a new session after a
// clean end. Nobody needs to be told anything.
func TestCodexTwoRounds(t *testing.T) {
	h := newCodex(t)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{codexExec(quick)}},
		Turn{Text: "And one that fails.", Calls: []Call{codexExec("false")}},
		Turn{Text: "The first round is done."},
	)

	if n := h.run("please start the work").Count(record); n != 0 {
		t.Errorf("first session: got %d records, want none: nothing was before it", n)
	}

	session := h.newest()
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	h.model.Script(Turn{Text: "The second round is done."})
	if n := h.run("resume", "--last", "second round please").Count(record); n != 0 {
		t.Errorf("resumed after a clean end: got %d records, want none", n)
	}

	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	st := h.status(session)
	if st.MessageCount != 2 || st.PendingToolChain || st.LastFullCheckpoint == nil || len(st.OpenCalls) != 0 {
		t.Errorf("got %d rounds, chain %v, full %v, open %v, want 2 rounds, no chain, a FULL, nothing open",
			st.MessageCount, st.PendingToolChain, st.LastFullCheckpoint, st.OpenCalls)
	}

	if calls := h.calls(
		session,
	); len(calls) != 2 || calls["echo"] != checkpoint.CallDone ||
		calls["false"] != checkpoint.CallFailed {
		t.Errorf("the commands: got %v, want the first done and the second failed", calls)
	}

	if n := h.run("another subject").Count(record); n != 0 {
		t.Errorf("new session after a clean end: got %d records, want none", n)
	}
	if list := h.sessions(); len(list) != 2 {
		t.Errorf("got %d sessions, want 2", len(list))
	}
}

// codexInTool starts Codex and gives it back while its second command runs.
func (h *home) codexInTool() *agent {
	h.t.Helper()
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{codexExec(quick)}},
		Turn{Text: "Now a long command.", Calls: []Call{codexExec(slow)}},
		Turn{Text: "The long command is over."},
	)

	a := h.start("please start the work")
	h.until("the long command starts", func() bool { return exists(h.proj + "/started.flag") })
	return a
}

// TestCodexKilledInToolThenNew: the next session in the folder is told, once, and the one after it nothing.
func TestCodexKilledInToolThenNew(t *testing.T) {
	h := newCodex(t)
	a := h.codexInTool()
	session := h.newest()
	h.until("the long command's processes are noted", func() bool {
		open := h.status(session).OpenCalls
		return len(open) == 1 && len(open[0].Procs) > 0
	})

	a.signal(syscall.SIGKILL)
	h.died(session)
	h.model.Script(Turn{Text: "I look at what was done."})
	first := h.run("please go on")
	h.killTools()
	toldInDoubt(t, first)
	if !strings.Contains(doubts(first), "its process is still running") {
		t.Errorf("new session: the command that lost its agent still ran: got %q", doubts(first))
	}

	told := h.newest()
	if r := h.run("and again"); r.Count(record) != 0 {
		t.Errorf("second new session: got %d records, want none: it was told\n%s", r.Count(record), said(r))
	}

	// The brief stays in the file of the session that was told, and is never taken for words of the conversation.
	if !h.transcripts("belay-record") {
		t.Error("the brief is in no rollout, want it in the told session's")
	}

	for _, m := range h.recover(told).Messages {
		if strings.Contains(m.Text, "belay-record") || strings.Contains(m.Text, "touch started.flag") {
			t.Errorf("the told session holds belay's own words: %q", m.Text)
		}
	}
}

// TestCodexAndDaemonKilled: both die at once, as when the machine does. The first hook of the next session finds
// nobody.
func TestCodexAndDaemonKilled(t *testing.T) {
	h := newCodex(t)
	a := h.codexInTool()
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

// TestCodexKilledInToolThenResumed: the conversation itself comes from Codex; belay adds the call in doubt, once. Codex
// tells the model "aborted", which it makes up.
func TestCodexKilledInToolThenResumed(t *testing.T) {
	h := newCodex(t)
	a := h.codexInTool()
	a.signal(syscall.SIGKILL)
	session := h.newest()
	h.died(session)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	first := h.run("resume", session, "please go on")
	if n := first.Count(
		record,
	); n != 1 || !strings.Contains(doubts(first), "touch started.flag") ||
		strings.Contains(doubts(first), "step-one") {
		t.Errorf(
			"resumed: got %d records, in doubt %q, want one, with the long command alone\n%s", n, doubts(first),
			said(first),
		)
	}

	t.Logf("Codex makes a result up: %v", strings.Contains(first.Text(), "tool: aborted"))
	second := h.run("resume", session, "and on")
	if n := second.Count(record); n != 1 {
		t.Errorf("resumed again: got %d records, want the one of before\n%s", n, said(second))
	}
	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt: nobody knows how it ended", got)
	}
	if st := h.status(session); st.MessageCount != 3 || len(h.sessions()) != 1 {
		t.Errorf("got %d rounds in %d sessions, want 3 in the one that was resumed", st.MessageCount, len(h.sessions()))
	}
}

// codexKilledInStream leaves a session whose agent was killed while the model answered.
func codexKilledInStream(t *testing.T, turns ...Turn) (*home, string) {
	t.Helper()
	h := newCodex(t)
	h.model.Script(append(turns, Turn{Text: strings.Repeat("a long answer ", 50), Hold: true})...)
	a := h.start("please start the work")
	h.until("the model answers", func() bool { return h.model.Holding() == 1 })
	a.signal(syscall.SIGKILL)
	session := h.newest()
	h.died(session)
	return h, session
}

func TestCodexKilledInStreamThenNew(t *testing.T) {
	h, _ := codexKilledInStream(t, Turn{Text: "A quick command.", Calls: []Call{codexExec(quick)}})
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("please go on")
	if n := r.Count(record); n != 1 || r.Count("please start the work") == 0 {
		t.Errorf("new session: got %d records, want one with the user's prompt\n%s", n, said(r))
	}
	if n := r.Count("## In doubt"); n != 0 {
		t.Errorf("new session: a call is in doubt, want none: all had ended\n%s", said(r))
	}
}

func TestCodexKilledInStreamThenResumed(t *testing.T) {
	h, session := codexKilledInStream(t)
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("resume", session, "please go on")
	if n := r.Count(record); n != 0 {
		t.Errorf("resumed: got %d records, want none: Codex's own file holds it all\n%s", n, said(r))
	}
	if n := r.Count("please start the work"); n != 1 {
		t.Errorf("resumed: the prompt stands %d times in the request, want once\n%s", n, said(r))
	}
}

// TestCodexTerminatedInTool: SIGTERM says no good-bye: no hook, no record, and the command goes on. The death is seen
// all the same.
func TestCodexTerminatedInTool(t *testing.T) {
	h := newCodex(t)
	a := h.codexInTool()
	session := h.newest()
	t.Logf("exit after SIGTERM: %d", a.signal(syscall.SIGTERM))
	h.died(session)
	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt", got)
	}

	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	toldInDoubt(t, h.run("please go on"))
}

// TestCodexInterruptedInTool: SIGINT is an interrupt and an end: the command was stopped, and nothing is in doubt.
func TestCodexInterruptedInTool(t *testing.T) {
	h := newCodex(t)
	a := h.codexInTool()
	session := h.newest()
	t.Logf("exit after SIGINT: %d", a.signal(syscall.SIGINT))
	h.until("its end is seen", func() bool { return h.status(session).State == "ended" })
	h.until("the command's outcome is known", func() bool { return h.calls(session)["touch"] == checkpoint.CallFailed })
	if st := h.status(session); st.MessageCount != 1 || st.PendingToolChain {
		t.Errorf("got %d rounds, chain %v, want the interrupted one and no chain", st.MessageCount, st.PendingToolChain)
	}
	if r := h.recover(session); len(r.InDoubt) != 0 {
		t.Errorf("got %v in doubt, want nothing: the result is known", r.InDoubt)
	}
	if n := h.run("another subject").Count(record); n != 0 {
		t.Errorf("new session after an interrupt: got %d records, want none: the person stopped it", n)
	}
}

// TestCodexInterruptedInStream: the words that had come are in no file; the round counts as interrupted, and nobody is
// told anything.
func TestCodexInterruptedInStream(t *testing.T) {
	h := newCodex(t)
	h.model.Script(Turn{Text: strings.Repeat("a long answer ", 50), Hold: true})
	a := h.start("please start the work")
	h.until("the model answers", func() bool { return h.model.Holding() == 1 })
	t.Logf("exit after SIGINT: %d", a.signal(syscall.SIGINT))
	session := h.newest()
	h.until("its end is seen", func() bool { return h.status(session).State == "ended" })
	if st := h.status(session); st.MessageCount != 1 {
		t.Errorf("got %d rounds, want the interrupted one", st.MessageCount)
	}
	if n := h.run("another subject").Count(record); n != 0 {
		t.Errorf("new session after an interrupt: got %d records, want none", n)
	}
}

// TestCodexBackgroundCommand: a command that outlives its call stays in the ledger and holds no chain; its end is told
// by the rollout.
func TestCodexBackgroundCommand(t *testing.T) {
	h := newCodex(t)
	h.model.Script(
		Turn{
			Text: "A server.",
			Calls: []Call{
				{"exec_command", map[string]any{"cmd": "touch started.flag; sleep 60", "yield_time_ms": 500}},
			},
		},
		Turn{Text: "It runs."},
	)

	h.run("please start the work")
	session := h.newest()
	st := h.status(session)
	if st.MessageCount != 1 || st.PendingToolChain {
		t.Errorf("got %d rounds, chain %v, want 1 round and no chain", st.MessageCount, st.PendingToolChain)
	}

	h.until(
		"the command's end is known: Codex stopped it at its own",
		func() bool { return h.calls(session)["touch"] == checkpoint.CallFailed },
	)
}

// TestCodexSubAgent: what a sub-agent does is no round of the parent, and its calls are its own.
func TestCodexSubAgent(t *testing.T) {
	h := newCodex(t)
	h.model.Script(
		Turn{
			When:  "SUBTASK",
			Text:  "The helper works.",
			Calls: []Call{codexExec("echo in-helper")},
		},
		Turn{When: "SUBTASK", Text: "The helper is done."},
		Turn{
			Text:  "I start a helper.",
			Calls: []Call{{"multi_agent_v1/spawn_agent", map[string]any{"message": "SUBTASK please"}}},
		},
		Turn{Text: "I wait.", Calls: []Call{codexExec("sleep 4; echo waited")}},
		Turn{Text: "All is done."},
	)

	h.run("please start the work")
	session := h.newest()
	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil {
		t.Fatal(err)
	}
	if st := h.status(session); st.MessageCount != 1 || st.PendingToolChain {
		t.Errorf("got %d rounds, %s, chain %v, want 1 round, no chain", st.MessageCount, st.State, st.PendingToolChain)
	}

	for _, c := range shown.State.Calls {
		if strings.Contains(c.Digest, "in-helper") {
			t.Errorf("the helper's command is in the parent's ledger: %+v", c)
		}
	}

	if c := shown.Children; len(c) != 1 || c[0].Name != "default" {
		t.Errorf("got sub-agents %+v, want one, default", c)
	}
}

// TestCodexUntrusted: without a person's trust no hook runs, and doctor says so.
func TestCodexUntrusted(t *testing.T) {
	h := newCodex(t)
	h.write(".codex/config.toml", h.codexConfig())
	h.run("please start the work")
	if _, err := h.belay("status"); err == nil {
		t.Error("belay status: a daemon answers, so a hook ran without trust")
	}
	if out, _ := h.belay("doctor"); !strings.Contains(string(out), "not trusted") {
		t.Errorf("belay doctor says nothing of trust:\n%s", out)
	}
}

// TestCodexUninstall: the user's files are back, byte for byte, after sessions ran with belay in them.
func TestCodexUninstall(t *testing.T) {
	h := newCodex(t)
	h.run("please start the work")
	if st := h.sessions(); len(st) != 1 {
		t.Fatalf("got %d sessions, want 1: the hooks work", len(st))
	}

	session, before := h.newest(), h.codexFiles()
	for _, args := range [][]string{{"status"}, {"recover", "--session", session}, {"checkpoint", "--agent", "codex", "--session", session}, {"list"}, {"doctor"}} {
		if out, err := h.belay(args...); err != nil {
			t.Logf("%v\n%s", err, out) // doctor may find fault with the lab; what counts is below
		}
	}

	if after := h.codexFiles(); !maps.Equal(after, before) {
		t.Errorf("belay's commands changed files of the agent: got %v, want %v", after, before)
	}
	if out, err := h.belay("uninstall", "codex"); err != nil {
		t.Fatalf("belay uninstall: %v\n%s", err, out)
	}

	for name, want := range map[string]string{"hooks.json": codexHooks, "config.toml": h.codexConfig()} {
		if data, err := os.ReadFile(h.path(".codex/" + name)); err != nil || string(data) != want {
			t.Errorf("%s after uninstall: got %q, %v, want %q", name, data, err, want)
		}
	}

	after := h.codexFiles()
	for _, name := range []string{"hooks.json", "config.toml"} {
		delete(after, h.path(".codex/"+name))
		delete(before, h.path(".codex/"+name))
	}

	if !maps.Equal(after, before) {
		t.Errorf("uninstall changed other files of the agent: got %v, want %v", after, before)
	}

	h.run("without belay")
	if st := h.sessions(); len(st) != 1 {
		t.Errorf("got %d sessions after uninstall, want still 1", len(st))
	}
}

// codexFiles are the agent's files, without what Codex itself may still be writing.
func (h *home) codexFiles() map[string]string {
	files := h.agentFiles()
	maps.DeleteFunc(files, func(name, _ string) bool {
		return strings.Contains(name, ".sqlite") || strings.Contains(name, "/log/") || strings.Contains(name, "/tmp/")
	})
	return files
}

// TestCodexCompaction: Codex compacts by itself in the middle of a turn; a checkpoint is taken before, the model is
// told after what the person had said, and the summary is no answer.
func TestCodexCompaction(t *testing.T) {
	h := newCodex(t)
	h.write(".codex/config.toml", "model_auto_compact_token_limit = 1000\n"+h.codexConfig())
	h.codexTrust()
	h.model.Script(
		Turn{When: "please start", Text: "A quick command.", Calls: []Call{codexExec(quick)}},
		Turn{Text: "SUMMARY of the work."}, Turn{Text: "All is done."},
	)

	h.run("please start the work")
	session := h.newest()
	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil {
		t.Fatal(err)
	}
	if full := shown.State.LastFull; full == nil ||
		full.Cause != checkpoint.CauseCompaction && full.Cause != checkpoint.CauseEnd {
		t.Errorf("last full checkpoint: got %+v, want one before the compaction", full)
	}

	list := h.model.Main()
	if last := list[len(list)-1]; last.Count(record) != 1 || last.Count("please start the work") == 0 {
		t.Errorf(
			"after the compaction: got %d records, want one with the person's words\n%s", last.Count(record),
			said(last),
		)
	}

	for _, m := range shown.State.Messages {
		if m.Role == checkpoint.RoleAssistant && m.Text == "Lab session" {
			t.Error("the summary of the compaction is taken for an answer")
		}
	}

	if st := h.status(session); st.MessageCount != 1 {
		t.Errorf("got %d rounds, want 1", st.MessageCount)
	}
}

// TestCodexCompressedAfterAWeek (F08): the rollout is compressed while nobody uses it. Nothing is lost, nothing is an
// error, and Codex goes on with it.
func TestCodexCompressedAfterAWeek(t *testing.T) {
	h := newCodex(t)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{codexExec(quick)}}, Turn{Text: "The first round is done."},
	)

	h.run("please start the work")
	session := h.newest()
	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	names, err := filepath.Glob(h.path(h.prog.files))
	if err != nil || len(names) != 1 {
		t.Fatalf("got rollouts %v, %v, want one", names, err)
	}

	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}

	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(names[0]+".zst", z.EncodeAll(data, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}

	before := h.recover(session)
	if st := h.status(session); st.MessageCount != 1 || len(before.Messages) == 0 {
		t.Errorf(
			"compressed: got %d rounds, %d messages, want 1 round and its messages", st.MessageCount,
			len(before.Messages),
		)
	}

	h.model.Script(Turn{Text: "The second round is done."})
	if n := h.run("resume", session, "second round please").Count("please start the work"); n != 1 {
		t.Errorf("resumed: the first prompt stands %d times in the request, want once", n)
	}

	h.until("the second round is counted", func() bool { return h.status(session).MessageCount == 2 })
	if len(h.sessions()) != 1 {
		t.Errorf("got %d sessions, want one", len(h.sessions()))
	}

	t.Logf("Codex made the plain file again: %v", exists(names[0]))
}
