//go:build linux

package lab

import (
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"belay/checkpoint"
	"belay/internal/state/query"
)

const geminiVar = "BELAY_LAB_GEMINI"

// geminiSettings are a user's own, in a form that no program would write, with comments.
const geminiSettings = `// my settings
{
   "security":  {"auth": { "selectedType": "gemini-api-key" }, "folderTrust": {"enabled": false}},  // keys, "quoted" {
	"privacy": {"usageStatisticsEnabled": false}, /* not
	now */ "telemetry": {"enabled": false},
   "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "checkpointing": {"enabled": false}} }  // end

`

// geminiShell is a call of Gemini CLI's shell tool.
func geminiShell(command string) Call {
	return Call{"run_shell_command", map[string]any{"command": command, "description": "a command of the lab"}}
}

func newGemini(t *testing.T) *home {
	t.Helper()
	return newHomeOf(t, program{name: "gemini", env: geminiVar, dir: ".gemini", files: ".gemini/tmp/*/chats/*.jsonl",
		setup: func(h *home) { h.write(".gemini/settings.json", geminiSettings) },
		vars: func(h *home) []string {
			return []string{"GEMINI_API_KEY=test", "GOOGLE_GEMINI_BASE_URL=" + h.url, "GEMINI_CLI_TRUST_WORKSPACE=true",
				"GEMINI_TELEMETRY_ENABLED=false", "GEMINI_CLI_NO_RELAUNCH=true", "NO_COLOR=1"}
		},
		args: []string{"-m", "gemini-2.5-pro", "--approval-mode", "yolo", "-p"},
	})
}

// TestGeminiTwoRounds is an ordinary day: two prompts with a kill of the daemon between them, and a new session after a
// clean end. Nobody needs to be told anything, and nothing is put before anybody's words.
func TestGeminiTwoRounds(t *testing.T) {
	h := newGemini(t)
	h.model.Script(
		Turn{
			Text: "Two commands.",
			Calls: []Call{
				geminiShell(quick),
				geminiShell("false"),
				{"list_directory", map[string]any{"dir_path": "."}},
			},
		},
		Turn{Text: "The first round is done."},
	)

	first := h.run("please start the work")
	if n := first.Count(record); n != 0 {
		t.Errorf("first session: got %d records, want none: nothing was before it", n)
	}

	session := h.newest()
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	h.model.Script(Turn{Text: "The second round is done."})
	second := h.run("second round please", "--resume", "latest")
	if n := second.Count(record); n != 0 {
		t.Errorf("resumed after a clean end: got %d records, want none", n)
	}
	if h.transcripts("<hook_context>") {
		t.Error("a hook put something before the person's words, want nothing at all")
	}

	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	st := h.status(session)
	if st.MessageCount != 2 || st.PendingToolChain || st.LastFullCheckpoint == nil || len(st.OpenCalls) != 0 {
		t.Errorf("got %d rounds, chain %v, full %v, open %v, want 2 rounds, no chain, a FULL, nothing open",
			st.MessageCount, st.PendingToolChain, st.LastFullCheckpoint, st.OpenCalls)
	}

	h.oneOfEach(
		session,
		map[string]checkpoint.CallState{
			"echo":             checkpoint.CallDone,
			"false":            checkpoint.CallFailed,
			`{"dir_path":"."}`: checkpoint.CallDone,
		},
	)

	var texts []string
	for _, m := range h.recover(session).Messages {
		texts = append(texts, m.Text)
	}

	if got := strings.Join(
		texts, "|",
	); strings.Count(got, "The first round is done.") != 1 || strings.Count(got, "The second round is done.") != 1 ||
		strings.Count(got, "please start the work") != 1 {
		t.Errorf("recover: got %q, want each message once", got)
	}

	if n := h.run("another subject").Count(record); n != 0 {
		t.Errorf("new session after a clean end: got %d records, want none", n)
	}
	if list := h.sessions(); len(list) != 2 {
		t.Errorf("got %d sessions, want 2", len(list))
	}
}

// oneOfEach checks that the ledger holds just these calls, each once: hooks and transcript tell of the same ones.
func (h *home) oneOfEach(session string, want map[string]checkpoint.CallState) {
	h.t.Helper()
	if got := h.calls(session); !maps.Equal(got, want) {
		h.t.Errorf("calls: got %v, want %v", got, want)
	}

	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil || len(shown.State.Calls) != len(want) {
		h.t.Errorf("ledger: got %+v, %v, want %d calls", shown.State, err, len(want))
	}
}

// TestGeminiToolsAreOneCallEach: whatever tool it is, hooks and transcript name one call; equal calls of one answer are
// two.
func TestGeminiToolsAreOneCallEach(t *testing.T) {
	h := newGemini(t)
	h.write("proj/notes.txt", "first line\nsecond line\n")
	call := func(name string, input map[string]any) Call { return Call{name, input} }
	h.model.Script(Turn{Text: "Some tools.", Calls: []Call{
		call("read_file", map[string]any{"file_path": "notes.txt"}),
		call("write_file", map[string]any{"file_path": h.proj + "/out.txt", "content": "made by the lab\n"}),
		call(
			"replace",
			map[string]any{
				"file_path":         h.proj + "/notes.txt",
				"old_string":        "first",
				"new_string":        "1st",
				"instruction":       "make it short",
				"wait_for_previous": true,
			},
		),
		call("glob", map[string]any{"pattern": "*.txt"}),
		call("read_file", map[string]any{"file_path": "absent.txt"}),
		geminiShell("echo twice"),
		geminiShell("echo twice"),
	}}, Turn{Text: "All is done."})

	h.run("please start the work")
	session := h.newest()
	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, c := range shown.State.Calls {
		got = append(got, c.Name+" "+string(c.State))
	}

	slices.Sort(got)
	want := "glob done, read_file done, read_file failed, replace done, run_shell_command done, run_shell_command done, write_file done"
	if g := strings.Join(got, ", "); g != want {
		t.Errorf("got %s, want %s\n%+v", g, want, shown.State.Calls)
	}
}

// geminiInTool starts Gemini CLI and gives it back while its second command runs.
func (h *home) geminiInTool() *agent {
	h.t.Helper()
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{geminiShell(quick)}},
		Turn{Text: "Now a long command.", Calls: []Call{geminiShell(slow)}},
		Turn{Text: "The long command is over."},
	)

	a := h.start("please start the work")
	h.until("the long command starts", func() bool { return exists(h.proj + "/started.flag") })
	return a
}

// geminiToldInDoubt checks the brief of a session that died in its long command.
func geminiToldInDoubt(t *testing.T, r Request) {
	t.Helper()
	if n := r.Count(record); n != 1 {
		t.Errorf("new session: got %d records in the request, want 1\n%s", n, said(r))
	}

	if got := doubts(
		r,
	); !strings.Contains(got, "run_shell_command `touch started.flag") ||
		strings.Contains(got, "step-one") {
		t.Errorf("new session: in doubt is %q, want the long command alone", got)
	}

	if r.Count("please start the work") == 0 {
		t.Errorf("new session: the user's prompt is not in the request\n%s", said(r))
	}
}

// TestGeminiKilledInToolThenNew: the call that is in no file is known, the next session in the folder is told of it,
// once, and the one after it nothing.
func TestGeminiKilledInToolThenNew(t *testing.T) {
	h := newGemini(t)
	a := h.geminiInTool()
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
	geminiToldInDoubt(t, first)
	if !strings.Contains(doubts(first), "its process is still running") {
		t.Errorf("new session: the command that lost its agent still ran: got %q", doubts(first))
	}

	told := h.newest()
	if r := h.run("and again"); r.Count(record) != 0 {
		t.Errorf("second new session: got %d records, want none: it was told\n%s", r.Count(record), said(r))
	}

	h.oneOfEach(session, map[string]checkpoint.CallState{"echo": checkpoint.CallDone, "touch": checkpoint.CallDoubt})
	for _, m := range h.recover(told).Messages { // the brief is in its file, and is nobody's words
		if strings.Contains(m.Text, "belay-record") || strings.Contains(m.Text, "touch started.flag") {
			t.Errorf("the told session holds belay's own words: %q", m.Text)
		}
	}
}

// TestGeminiAndDaemonKilled: both die at once, as when the machine does. The first hook of the next session finds
// nobody.
func TestGeminiAndDaemonKilled(t *testing.T) {
	h := newGemini(t)
	a := h.geminiInTool()
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	a.signal(syscall.SIGKILL)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	geminiToldInDoubt(t, h.run("please go on"))
	if n := h.run("and again").Count(record); n != 0 {
		t.Errorf("second new session: got %d records, want none: it was told", n)
	}
}

// TestGeminiDaemonKilledInTool: the hook of the call's end reaches another daemon than that of its start.
func TestGeminiDaemonKilledInTool(t *testing.T) {
	h := newGemini(t)
	waits := func(flag string) Call { return geminiShell("while [ ! -e " + flag + " ]; do sleep 0.1; done") }
	h.model.Script(
		Turn{
			Text: "A command that waits.",
			Calls: []Call{
				{
					"run_shell_command",
					map[string]any{"command": "touch started.flag; until [ -e go.flag ]; do sleep 0.1; done"},
				},
			},
		},
		Turn{Text: "Another one.", Calls: []Call{waits("end.flag")}},
		Turn{Text: "It is over."},
	)

	a := h.start("please start the work")
	h.until("the command starts", func() bool { return exists(h.proj + "/started.flag") })
	session := h.newest()
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	h.write("proj/go.flag", "")
	h.until(
		"the next daemon knows how the command ended",
		func() bool { return h.calls(session)["touch"] == checkpoint.CallDone },
	)

	h.write("proj/end.flag", "")
	if code := a.wait(); code != 0 {
		t.Fatalf("exit %d, want 0\n%s", code, a.printed())
	}

	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	h.oneOfEach(session, map[string]checkpoint.CallState{"touch": checkpoint.CallDone, "while": checkpoint.CallDone})
}

// TestGeminiKilledInToolThenResumed: the conversation itself comes from Gemini CLI; belay adds the call in doubt, once.
func TestGeminiKilledInToolThenResumed(t *testing.T) {
	h := newGemini(t)
	a := h.geminiInTool()
	a.signal(syscall.SIGKILL)
	session := h.newest()
	h.died(session)
	h.killTools()
	h.model.Script(
		Turn{Text: "I look at what was done.", Calls: []Call{geminiShell("ls")}}, Turn{Text: "I have looked."},
	)

	first := h.run("please go on", "--resume", session)
	if n := first.Count(
		record,
	); n != 1 || !strings.Contains(doubts(first), "touch started.flag") ||
		strings.Contains(doubts(first), "step-one") {
		t.Errorf(
			"resumed: got %d records, in doubt %q, want one, with the long command alone\n%s", n, doubts(first),
			said(first),
		)
	}

	second := h.run("and on", "--resume", session)
	if n := second.Count(record); n > 1 {
		t.Errorf("resumed again: got %d records, want no new one\n%s", n, said(second))
	}

	h.oneOfEach(
		session,
		map[string]checkpoint.CallState{
			"echo":  checkpoint.CallDone,
			"touch": checkpoint.CallDoubt,
			"ls":    checkpoint.CallDone,
		},
	)

	h.until("the rounds are counted", func() bool { return h.status(session).MessageCount == 3 })
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions, want the one that was resumed", len(list))
	}
}

// geminiKilledInStream leaves a session whose agent was killed while the model answered.
func geminiKilledInStream(t *testing.T, turns ...Turn) (*home, string) {
	t.Helper()
	h := newGemini(t)
	h.model.Script(append(turns, Turn{Text: strings.Repeat("a long answer ", 50), Hold: true})...)
	a := h.start("please start the work")
	h.until("the model answers", func() bool { return h.model.Holding() == 1 })
	if got := a.signal(syscall.SIGKILL); got != -1 {
		t.Errorf("exit after kill -9: got %d, want -1", got)
	}

	session := h.newest()
	h.died(session)
	return h, session
}

func TestGeminiKilledInStreamThenNew(t *testing.T) {
	h, _ := geminiKilledInStream(t, Turn{Text: "A quick command.", Calls: []Call{geminiShell(quick)}})
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("please go on")
	if n := r.Count(record); n != 1 || r.Count("please start the work") == 0 {
		t.Errorf("new session: got %d records, want one with the user's prompt\n%s", n, said(r))
	}
	if n := r.Count("## In doubt"); n != 0 {
		t.Errorf("new session: a call is in doubt, want none: all had ended\n%s", said(r))
	}
}

func TestGeminiKilledInStreamThenResumed(t *testing.T) {
	h, session := geminiKilledInStream(t, Turn{Text: "A quick command.", Calls: []Call{geminiShell(quick)}})
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("please go on", "--resume", session)
	if n := r.Count(record); n != 0 {
		t.Errorf("resumed: got %d records, want none: the agent's own file holds it all\n%s", n, said(r))
	}
	if n := r.Count("please start the work"); n != 1 {
		t.Errorf("resumed: the prompt stands %d times in the request, want once\n%s", n, said(r))
	}
}

// TestGeminiKilledInFirstAnswer: the event has the prompt, whatever the program does with its file.
func TestGeminiKilledInFirstAnswer(t *testing.T) {
	h, _ := geminiKilledInStream(t)
	h.model.Script(Turn{Text: "I look at what was done."})
	if r := h.run("please go on"); r.Count(record) != 1 || r.Count("please start the work") == 0 {
		t.Errorf("new session: got %d records, want one with the user's prompt\n%s", r.Count(record), said(r))
	}
}

// geminiStoppedInTool: the agent says good-bye and never tells how the command ended: it goes on without its agent.
func geminiStoppedInTool(t *testing.T, sig syscall.Signal) {
	t.Helper()
	h := newGemini(t)
	a := h.geminiInTool()
	session := h.newest()
	if got := a.signal(sig); got != 0 {
		t.Errorf("exit after %v: got %d, want 0", sig, got)
	}

	h.until("the end is seen", func() bool { s := h.status(session).State; return s == "died" || s == "ended" })
	h.killTools()
	h.oneOfEach(session, map[string]checkpoint.CallState{"echo": checkpoint.CallDone, "touch": checkpoint.CallDoubt})
	if r := h.recover(session); len(r.InDoubt) != 1 {
		t.Errorf("got %v in doubt, want the long command", r.InDoubt)
	}

	h.model.Script(Turn{Text: "I look at what was done."})
	geminiToldInDoubt(t, h.run("please go on"))
}

func TestGeminiTerminatedInTool(t *testing.T)  { geminiStoppedInTool(t, syscall.SIGTERM) }
func TestGeminiInterruptedInTool(t *testing.T) { geminiStoppedInTool(t, syscall.SIGINT) }

// TestGeminiInterruptedInStream: the program says good-bye in the middle of an answer, of which nothing is in any file,
// and then, in most runs, that its turn is over: a round, or a turn that was broken off. The next session is told where
// it is found.
func TestGeminiInterruptedInStream(t *testing.T) {
	h := newGemini(t)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{geminiShell(quick)}},
		Turn{Text: "Half of an answer that never ends.", Hold: true},
	)

	a := h.start("please start the work")
	h.until("the model answers", func() bool { return h.model.Holding() == 1 })
	t.Logf("exit after SIGINT: %d", a.signal(syscall.SIGINT))
	session := h.newest()
	h.until("the end is seen", func() bool { s := h.status(session).State; return s == "died" || s == "ended" })
	h.until("the agent is gone", func() bool { return h.status(session).AtRisk.Seconds == 0 })
	h.oneOfEach(session, map[string]checkpoint.CallState{"echo": checkpoint.CallDone})
	if n := h.status(session).MessageCount; n > 1 {
		t.Errorf("got %d rounds, want the one that was broken off, or none", n)
	}

	h.model.Script(Turn{Text: "I look at what was done."})
	if r := h.run("please go on"); r.Count(record) != 1 || r.Count(session) == 0 || r.Count("## In doubt") != 0 {
		t.Errorf(
			"new session: got %d records, want one that names the session and has nothing in doubt\n%s",
			r.Count(record), said(r),
		)
	}
}

// TestGeminiUninstall: the user's settings are back, byte for byte, comments too, after sessions ran with belay in
// them.
func TestGeminiUninstall(t *testing.T) {
	h := newGemini(t)
	settings := h.path(".gemini/settings.json")
	if data, err := os.ReadFile(
		settings,
	); err != nil || !strings.Contains(string(data), "belay-hook") ||
		!strings.Contains(string(data), "// my settings") {
		t.Fatalf("settings after install: %s, %v, want belay's hooks and the user's comments", data, err)
	}

	h.run("please start the work")
	if st := h.sessions(); len(st) != 1 {
		t.Fatalf("got %d sessions, want 1: the hooks work", len(st))
	}

	session, before := h.newest(), h.agentFiles()
	for _, args := range [][]string{{"status"}, {"recover", "--session", session}, {"checkpoint", "--agent", "gemini", "--session", session}, {"list"}, {"doctor"}} {
		if out, err := h.belay(args...); err != nil {
			t.Logf("%v\n%s", err, out) // doctor may find fault with the lab; what counts is below
		}
	}

	if after := h.agentFiles(); !maps.Equal(after, before) {
		t.Errorf("belay's commands changed files of the agent: got %v, want %v", after, before)
	}
	if out, err := h.belay("uninstall", "gemini"); err != nil {
		t.Fatalf("belay uninstall: %v\n%s", err, out)
	}
	if data, err := os.ReadFile(settings); err != nil || string(data) != geminiSettings {
		t.Errorf("settings after uninstall: got %q, %v, want %q", data, err, geminiSettings)
	}

	after := h.agentFiles()
	delete(after, settings)
	delete(before, settings)
	if !maps.Equal(after, before) {
		t.Errorf("uninstall changed other files of the agent: got %v, want %v", after, before)
	}

	h.run("without belay")
	if st := h.sessions(); len(st) != 1 {
		t.Errorf("got %d sessions after uninstall, want still 1", len(st))
	}
}
