//go:build linux

package lab

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/lookup"
)

const (
	opencodeVar  = "BELAY_LAB_OPENCODE"
	opencodeData = ".local/share/opencode"
)

// opencodeBash is a call of opencode's shell tool.
func opencodeBash(command string) Call {
	return Call{"bash", map[string]any{"command": command, "description": "a command of the lab"}}
}

func newOpencode(t *testing.T) *home {
	t.Helper()
	return newHomeOf(t, program{name: "opencode", env: opencodeVar, dir: ".config/opencode", files: opencodeData + "/opencode.db*",
		setup: func(h *home) {
			h.write(".config/opencode/opencode.json", `{ "autoupdate":false, "share":"disabled",  "model":"lab/lab-model", "small_model":"lab/lab-model", "permission":{"edit":"allow","bash":"allow"},
  "provider":{"lab":{"npm":"@ai-sdk/openai-compatible","name":"lab","options":{"baseURL":"`+h.url+`/v1","apiKey":"test"},"models":{"lab-model":{"name":"Lab","limit":{"context":200000,"output":8000}}}}} }
`)
			h.opencodeDependency()
		},
		vars: func(*home) []string {
			return []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_SHARE=1"}
		},
		args: []string{"run", "--format", "json", "-m", "lab/lab-model"},
		pid:  opencodePID,
		slow: time.Minute, // it is one program of 180 MB
	})
}

// opencodeDependency makes the home one in which opencode has fetched what its plugins may need: at its first start it asks the
// registry for that, and where there is no network plugins wait for minutes. belay's plugin needs nothing of it.
func (h *home) opencodeDependency() {
	want := `{"dependencies":{"@opencode-ai/plugin":"` + programVersion(h.t, os.Getenv(opencodeVar)) + `"}}`
	h.write(".config/opencode/package.json", want+"\n")
	h.write(".config/opencode/package-lock.json", `{"lockfileVersion":3,"requires":true,"packages":{"":`+want+"}}\n")
	h.write(".config/opencode/node_modules/.keep", "")
}

// opencodePID is the native program behind npm's launcher.
func opencodePID(a *agent) int {
	for _, pid := range a.h.processes() {
		exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		if err == nil && strings.HasPrefix(filepath.Base(exe), "opencode") {
			return pid
		}
	}
	return 0
}

// TestOpencodeTwoRounds is an ordinary day: two prompts with a kill of the daemon between them, and a new session after a
// clean end. Nobody needs to be told anything.
func TestOpencodeTwoRounds(t *testing.T) {
	h := newOpencode(t)
	h.model.Script(Turn{Text: "A quick command.", Calls: []Call{opencodeBash(quick)}}, Turn{Text: "And one that fails.", Calls: []Call{opencodeBash("false")}},
		Turn{Text: "The first round is done."})
	if n := h.run("please start the work").Count(record); n != 0 {
		t.Errorf("first session: got %d records, want none: nothing was before it", n)
	}
	session := h.newest()
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.model.Script(Turn{Text: "The second round is done."})
	if n := h.run("--session", session, "second round please").Count(record); n != 0 {
		t.Errorf("resumed after a clean end: got %d records, want none", n)
	}
	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	st := h.status(session)
	if st.MessageCount != 2 || st.PendingToolChain || st.LastFullCheckpoint == nil || len(st.OpenCalls) != 0 {
		t.Errorf("got %d rounds, chain %v, full %v, open %v, want 2 rounds, no chain, a FULL, nothing open",
			st.MessageCount, st.PendingToolChain, st.LastFullCheckpoint, st.OpenCalls)
	}
	if got := h.calls(session); len(got) != 2 || got["echo"] != checkpoint.CallDone || got["false"] != checkpoint.CallFailed {
		t.Errorf("the commands: got %v, want two, one done and one failed", got)
	}
	if n := h.run("another subject").Count(record); n != 0 {
		t.Errorf("new session after a clean end: got %d records, want none", n)
	}
	if list := h.sessions(); len(list) != 2 {
		t.Errorf("got %d sessions, want 2", len(list))
	}
}

// opencodeInTool starts opencode and gives it back while its second command runs.
func (h *home) opencodeInTool() *agent {
	h.t.Helper()
	h.model.Script(Turn{Text: "A quick command.", Calls: []Call{opencodeBash(quick)}}, Turn{Text: "Now a long command.", Calls: []Call{opencodeBash(slow)}},
		Turn{Text: "The long command is over."})
	a := h.start("please start the work")
	h.until("the long command starts", func() bool { return exists(h.proj + "/started.flag") })
	return a
}

// opencodeToldInDoubt checks the brief of a session that died in its long command.
func opencodeToldInDoubt(t *testing.T, r Request) {
	t.Helper()
	if n := r.Count(record); n != 1 {
		t.Errorf("new session: got %d records in the request, want 1\n%s", n, said(r))
	}
	if got := doubts(r); !strings.Contains(got, "bash `touch started.flag") || strings.Contains(got, "step-one") {
		t.Errorf("new session: in doubt is %q, want the long command alone", got)
	}
	if r.Count("please start the work") == 0 {
		t.Errorf("new session: the user's prompt is not in the request\n%s", said(r))
	}
}

// TestOpencodeKilledInToolThenNew: the next session in the folder is told, once, and the one after it nothing.
func TestOpencodeKilledInToolThenNew(t *testing.T) {
	h := newOpencode(t)
	a := h.opencodeInTool()
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
	opencodeToldInDoubt(t, first)
	if !strings.Contains(doubts(first), "its process is still running") {
		t.Errorf("new session: the command that lost its agent still ran: got %q", doubts(first))
	}
	told := h.newest()
	if r := h.run("and again"); r.Count(record) != 0 {
		t.Errorf("second new session: got %d records, want none: it was told\n%s", r.Count(record), said(r))
	}
	// The brief stays in the session that was told, and is never taken for words of the conversation.
	if r := h.run("--session", told, "and on here"); r.Count(record) != 1 {
		t.Errorf("the told session, resumed: got %d records, want the one of before\n%s", r.Count(record), said(r))
	}
	for _, m := range h.recover(told).Messages {
		if strings.Contains(m.Text, record) || strings.Contains(m.Text, "touch started.flag") {
			t.Errorf("the told session holds belay's own words: %q", m.Text)
		}
	}
}

// TestOpencodeAndDaemonKilled: both die at once, as when the machine does. The plugin of the next session finds nobody.
func TestOpencodeAndDaemonKilled(t *testing.T) {
	h := newOpencode(t)
	a := h.opencodeInTool()
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.signal(syscall.SIGKILL)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	opencodeToldInDoubt(t, h.run("please go on"))
	if n := h.run("and again").Count(record); n != 0 {
		t.Errorf("second new session: got %d records, want none: it was told", n)
	}
}

// TestOpencodeKilledInToolThenResumed: the conversation itself comes from opencode, which calls the command interrupted; belay
// adds the call in doubt, once.
func TestOpencodeKilledInToolThenResumed(t *testing.T) {
	h := newOpencode(t)
	a := h.opencodeInTool()
	a.signal(syscall.SIGKILL)
	session := h.newest()
	h.died(session)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	first := h.run("--continue", "please go on")
	if n := first.Count(record); n != 1 || !strings.Contains(doubts(first), "touch started.flag") || strings.Contains(doubts(first), "step-one") {
		t.Errorf("resumed: got %d records, in doubt %q, want one, with the long command alone\n%s", n, doubts(first), said(first))
	}
	if first.Count("[Tool execution was interrupted]") != 1 {
		t.Errorf("opencode's own word for the command is not in the request:\n%s", said(first))
	}
	second := h.run("--session", session, "and on")
	if n := second.Count(record); n != 1 {
		t.Errorf("resumed again: got %d records, want the one of before\n%s", n, said(second))
	}
	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt: nobody knows how it ended", got)
	}
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions, want the one that was resumed", len(list))
	}
}

// opencodeKilledInStream leaves a session whose agent was killed while the model answered.
func opencodeKilledInStream(t *testing.T, turns ...Turn) (*home, string) {
	t.Helper()
	h := newOpencode(t)
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

func TestOpencodeKilledInStreamThenNew(t *testing.T) {
	h, _ := opencodeKilledInStream(t, Turn{Text: "A quick command.", Calls: []Call{opencodeBash(quick)}})
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("please go on")
	if n := r.Count(record); n != 1 || r.Count("please start the work") == 0 {
		t.Errorf("new session: got %d records, want one with the user's prompt\n%s", n, said(r))
	}
	if n := r.Count("## In doubt"); n != 0 {
		t.Errorf("new session: a call is in doubt, want none: all had ended\n%s", said(r))
	}
}

func TestOpencodeKilledInStreamThenResumed(t *testing.T) {
	h, session := opencodeKilledInStream(t, Turn{Text: "A quick command.", Calls: []Call{opencodeBash(quick)}})
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run("--session", session, "please go on")
	if n := r.Count(record); n != 0 {
		t.Errorf("resumed: got %d records, want none: opencode's own database holds it all\n%s", n, said(r))
	}
	if n := r.Count("please start the work"); n != 1 {
		t.Errorf("resumed: the prompt stands %d times in the request, want once\n%s", n, said(r))
	}
}

// TestOpencodeSignalled: on SIGTERM and SIGINT opencode ends at once and writes nothing down: nobody knows how its command
// ended.
func TestOpencodeSignalled(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		t.Run(sig.String(), func(t *testing.T) {
			h := newOpencode(t)
			a := h.opencodeInTool()
			session := h.newest()
			if got := a.signal(sig); got != -1 && got != code { // -1: by the signal itself
				t.Errorf("exit after %v: got %d, want -1 or %d", sig, got, code)
			}
			h.killTools()
			h.died(session)
			if r := h.recover(session); len(r.InDoubt) != 1 || r.InDoubt[0].Name != "bash" {
				t.Errorf("got %v in doubt, want the long command", r.InDoubt)
			}
		})
	}
}

// TestOpencodeSubAgent: what a sub-agent does is no round of the parent, and its calls are its own.
func TestOpencodeSubAgent(t *testing.T) {
	h := newOpencode(t)
	h.model.Script(
		Turn{When: "SUBTASK", Text: "The helper works.", Calls: []Call{opencodeBash("echo in-helper")}}, Turn{When: "SUBTASK", Text: "The helper is done."},
		Turn{Text: "I start a helper.", Calls: []Call{{"task", map[string]any{"description": "a helper", "prompt": "SUBTASK please", "subagent_type": "general"}}}},
		Turn{Text: "All is done."})
	h.run("please start the work")
	session := h.newest()
	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	if st := h.status(session); st.MessageCount != 1 || st.PendingToolChain {
		t.Errorf("got %d rounds, chain %v, want 1 round, no chain", st.MessageCount, st.PendingToolChain)
	}
	if got := h.calls(session); got["echo"] != "" {
		t.Errorf("the helper's command is in the parent's ledger: %v", got)
	}
	shown, err := ask[lookup.Shown](h, "show", "--session", session)
	if err != nil {
		t.Fatal(err)
	}
	if c := shown.Children; len(c) != 1 || c[0].Name != "general" || c[0].Running {
		t.Errorf("got sub-agents %+v, want one, general, that has ended", c)
	}
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions, want the parent alone", len(list))
	}
}

// TestOpencodeProjectMoved: the folder of a session is another project now, and opencode itself would not list the session
// (opencode#8661). It is found by its id, by belay's state and without it.
func TestOpencodeProjectMoved(t *testing.T) {
	h := newOpencode(t)
	h.run("please start the work")
	session := h.newest()
	if err := os.Mkdir(filepath.Join(h.proj, ".git"), 0o700); err != nil { // the folder is another project from now on
		t.Fatal(err)
	}
	if r := h.recover(session); !strings.Contains(r.Text, "please start the work") {
		t.Errorf("by belay's state: got %q, want the prompt", r.Text)
	}
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(h.state()); err != nil {
		t.Fatal(err)
	}
	if r := h.recover(session); !strings.Contains(r.Text, "please start the work") {
		t.Errorf("by opencode's database: got %q, want the prompt", r.Text)
	}
}

// TestOpencodeWithoutBelay: an opencode whose belay is gone goes on as if it had never been there.
func TestOpencodeWithoutBelay(t *testing.T) {
	h := newOpencode(t)
	const plugin = ".config/opencode/plugin/belay.js"
	data, err := os.ReadFile(h.path(plugin))
	if err != nil {
		t.Fatal(err)
	}
	gone := strings.ReplaceAll(string(data), os.Getenv(binVar), "/nowhere")
	if gone == string(data) {
		t.Fatal("the plugin does not name belay-hook's place")
	}
	h.write(plugin, gone)
	h.model.Script(Turn{Text: "A quick command.", Calls: []Call{opencodeBash(quick)}}, Turn{Text: "The first round is done."})
	a := h.start("please start the work")
	if code := a.wait(); code != 0 || !strings.Contains(a.printed(), "The first round is done.") || strings.Contains(a.printed(), "rror") {
		t.Errorf("got exit %d and %q, want the answer and nothing else", code, a.printed())
	}
}

// TestOpencodeUninstall: opencode's folders are as they were, byte for byte, after sessions ran with belay in them.
func TestOpencodeUninstall(t *testing.T) {
	h := newOpencode(t)
	plugin := h.path(".config/opencode/plugin/belay.js")
	if !exists(plugin) {
		t.Fatalf("%s is not there after install", plugin)
	}
	h.run("please start the work")
	session, before := h.newest(), h.opencodeFiles()
	for _, args := range [][]string{{"status"}, {"recover", "--session", session}, {"checkpoint", "--agent", "opencode", "--session", session}, {"list"}, {"doctor"}} {
		if out, err := h.belay(args...); err != nil {
			t.Logf("%v\n%s", err, out) // doctor may find fault with the lab; what counts is below
		}
	}
	if after := h.opencodeFiles(); !maps.Equal(after, before) {
		t.Errorf("belay's commands changed files of the agent: got %v, want %v", after, before)
	}
	if out, err := h.belay("uninstall", "opencode"); err != nil {
		t.Fatalf("belay uninstall: %v\n%s", err, out)
	}
	if exists(filepath.Dir(plugin)) {
		t.Errorf("%s is there after uninstall, and install had made it", filepath.Dir(plugin))
	}
	delete(before, plugin)
	if after := h.opencodeFiles(); !maps.Equal(after, before) {
		t.Errorf("uninstall changed other files of the agent: got %v, want %v", after, before)
	}
	h.run("without belay")
	if st := h.sessions(); len(st) != 1 {
		t.Errorf("got %d sessions after uninstall, want still 1", len(st))
	}
}

// opencodeFiles are those of both of its folders.
func (h *home) opencodeFiles() map[string]string {
	h.t.Helper()
	files := h.agentFiles()
	data := *h
	data.prog.dir = opencodeData
	maps.Copy(files, data.agentFiles())
	return files
}
