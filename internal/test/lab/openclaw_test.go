//go:build linux

package lab

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
)

const openclawVar = "BELAY_LAB_OPENCLAW"

// openclawSettings are a user's own, JSON5 with comments, so that a restored file is known to be the same.
const openclawSettings = `// the lab's
{
  agents: { defaults: { workspace: "%PROJ%", skipBootstrap: true, model: { primary: "lab/lab-model" }, models: { "lab/lab-model": {} }, compaction: { mode: "default" }, } },
  models: { mode: 'merge', providers: { lab: { baseUrl: "%URL%/v1", apiKey: "test", api: "openai-completions",
    models: [{ id: "lab-model", name: "Lab", reasoning: false, input: ["text"], cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }, contextWindow: 200000, maxTokens: 8000 }] } } },
  tools: { exec: { security: "full", ask: "off", host: "gateway" } }, // nobody is asked here
  gateway: { mode: "local", port: 18789, bind: "loopback", auth: { mode: "token", token: "test" },
    http: { endpoints: { chatCompletions: { enabled: true } } } },
  update: { checkOnStart: false },
}
`

// openclawExec is a call of OpenClaw's shell tool.
func openclawExec(command string) Call { return Call{"exec", map[string]any{"command": command}} }

func newOpenClaw(t *testing.T) *home {
	t.Helper()
	return newHomeOf(
		t,
		program{name: "openclaw", env: openclawVar, dir: ".openclaw", files: ".openclaw/agents/*/agent/*",
			setup: func(h *home) {
				h.write(
					".openclaw/openclaw.json",
					strings.NewReplacer("%PROJ%", h.proj, "%URL%", h.url).Replace(openclawSettings),
				)
			},
			vars: func(*home) []string {
				// A node that lies beside openclaw goes first.
				bin := filepath.Dir(os.Getenv(openclawVar))
				return []string{
					"DO_NOT_TRACK=1",
					"OPENCLAW_SKIP_UPDATE_CHECK=1",
					"CI=1",
					"PATH=" + bin + ":" + os.Getenv(binVar) + ":" + os.Getenv("PATH"),
				}
			},
			slow: 5 * time.Minute, // seconds on a quiet machine, minutes on a busy one
			pid:  openclawPID,
		},
	)
}

// openclawSet changes the user's settings, in which belay stands.
func (h *home) openclawSet(was, now string) {
	h.t.Helper()
	name := ".openclaw/openclaw.json"
	data, err := os.ReadFile(h.path(name))
	if err != nil || !strings.Contains(string(data), was) {
		h.t.Fatalf("%s: no %q in it (%v)", name, was, err)
	}
	h.write(name, strings.Replace(string(data), was, now, 1))
}

// openclawPID is the process in which the agent and its plugins run: it calls itself so. A client of the gateway's does
// too.
func openclawPID(a *agent) int {
	own := "openclaw-agent"
	if slices.Contains(a.cmd.Args, "gateway") {
		own = "openclaw-gateway"
	}

	for _, pid := range a.h.processes() {
		cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && bytes.HasPrefix(cmd, []byte(own)) {
			return pid
		}
	}

	return 0
}

// local are the arguments of one turn without a gateway.
func local(session, prompt string) []string {
	return []string{"agent", "--local", "--agent", "main", "--json", "--session-id", session, "-m", prompt}
}

// TestOpenClawTwoRounds is an ordinary day: two prompts with a kill of the daemon between them, and a new session after
// a clean end. Nobody needs to be told anything.
func TestOpenClawTwoRounds(t *testing.T) {
	h := newOpenClaw(t)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{openclawExec(quick)}},
		Turn{Text: "The first round is done."},
	)

	if n := h.run(local("lab1", "please start the work")...).Count(record); n != 0 {
		t.Errorf("first session: got %d records, want none: nothing was before it", n)
	}

	h.until("the end is seen", func() bool { return h.status("lab1").State == "ended" })
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	h.model.Script(Turn{Text: "The second round is done."})
	if r := h.run(local("lab1", "second round please")...); r.Count(record) != 0 {
		t.Errorf("resumed after a clean end: got %d records, want none\n%s", r.Count(record), said(r))
	}

	h.until("the end is seen", func() bool { return h.status("lab1").State == "ended" })
	st := h.status("lab1")
	if st.MessageCount != 2 || st.PendingToolChain || st.LastFullCheckpoint == nil || len(st.OpenCalls) != 0 {
		t.Errorf("got %d rounds, chain %v, full %v, open %v, want 2 rounds, no chain, a FULL, nothing open",
			st.MessageCount, st.PendingToolChain, st.LastFullCheckpoint, st.OpenCalls)
	}
	if got := h.calls("lab1")["echo"]; got != checkpoint.CallDone {
		t.Errorf("the command: got %q, want done", got)
	}
	if n := h.run(local("lab2", "another subject")...).Count(record); n != 0 {
		t.Errorf("new session after a clean end: got %d records, want none", n)
	}
	if list := h.sessions(); len(list) != 2 {
		t.Errorf("got %d sessions, want 2", len(list))
	}
}

// openclawInTool starts a turn and gives it back while its second command runs.
func (h *home) openclawInTool(args ...string) *agent {
	h.t.Helper()
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{openclawExec(quick)}},
		Turn{Text: "Now a long command.", Calls: []Call{openclawExec(slow)}},
		Turn{Text: "The long command is over."},
	)

	a := h.start(args...)
	h.until("the long command starts", func() bool { return exists(h.proj + "/started.flag") })
	return a
}

// openclawInDoubt checks that a request tells of the long command, once.
func openclawInDoubt(t *testing.T, r Request) {
	t.Helper()
	if n := r.Count(record); n != 1 {
		t.Errorf("got %d records in the request, want 1\n%s", n, said(r))
	}
	if got := doubts(r); !strings.Contains(got, "exec `touch started.flag") || strings.Contains(got, "step-one") {
		t.Errorf("in doubt is %q, want the long command alone", got)
	}
}

// TestOpenClawKilledInToolThenNew: the next session of the owner is told, once, and the one after it nothing.
func TestOpenClawKilledInToolThenNew(t *testing.T) {
	h := newOpenClaw(t)
	a := h.openclawInTool(local("lab1", "please start the work")...)
	h.until("the call is known", func() bool { return len(h.status("lab1").OpenCalls) == 1 })
	a.signal(syscall.SIGKILL)
	h.died("lab1")
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	first := h.run(local("lab2", "please go on")...)
	openclawInDoubt(t, first)
	if first.Count("please start the work") == 0 {
		t.Errorf("new session: the user's prompt is not in the request\n%s", said(first))
	}
	if r := h.run(local("lab3", "and again")...); r.Count(record) != 0 {
		t.Errorf("second new session: got %d records, want none: it was told\n%s", r.Count(record), said(r))
	}
	if h.transcripts(record) {
		t.Error("the brief is in OpenClaw's database, want it in the request alone")
	}
}

// TestOpenClawAndDaemonKilled: both die at once, as when the machine does. The plugin of the next session finds nobody.
func TestOpenClawAndDaemonKilled(t *testing.T) {
	h := newOpenClaw(t)
	a := h.openclawInTool(local("lab1", "please start the work")...)
	h.until("the call is known", func() bool { return len(h.status("lab1").OpenCalls) == 1 })
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	a.signal(syscall.SIGKILL)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	openclawInDoubt(t, h.run(local("lab2", "please go on")...))
	if n := h.run(local("lab3", "and again")...).Count(record); n != 0 {
		t.Errorf("second new session: got %d records, want none: it was told", n)
	}
}

// TestOpenClawKilledInToolThenResumed: the conversation itself comes from OpenClaw; belay adds the call in doubt, once.
func TestOpenClawKilledInToolThenResumed(t *testing.T) {
	h := newOpenClaw(t)
	a := h.openclawInTool(local("lab1", "please start the work")...)
	h.until("the call is known", func() bool { return len(h.status("lab1").OpenCalls) == 1 })
	a.signal(syscall.SIGKILL)
	h.died("lab1")
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	openclawInDoubt(t, h.run(local("lab1", "please go on")...))
	if r := h.run(local("lab1", "and on")...); r.Count(record) != 0 {
		t.Errorf("resumed again: got %d records, want none: the first was for one turn\n%s", r.Count(record), said(r))
	}
	if got := h.calls("lab1")["touch"]; got != checkpoint.CallDoubt {
		t.Errorf("the long command: got %q, want in doubt", got)
	}
}

// openclawKilledInStream leaves a session whose agent was killed while the model answered.
func openclawKilledInStream(t *testing.T) *home {
	t.Helper()
	h := newOpenClaw(t)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{openclawExec(quick)}},
		Turn{Text: strings.Repeat("a long answer ", 50), Hold: true},
	)

	a := h.start(local("lab1", "please start the work")...)
	h.until("the model answers", func() bool { return h.model.Holding() == 1 })
	h.until("the command is done", func() bool { return h.calls("lab1")["echo"] == checkpoint.CallDone })
	a.signal(syscall.SIGKILL)
	h.died("lab1")
	return h
}

func TestOpenClawKilledInStreamThenNew(t *testing.T) {
	h := openclawKilledInStream(t)
	h.model.Script(Turn{Text: "I look at what was done."})
	r := h.run(local("lab2", "please go on")...)
	if n := r.Count(record); n != 1 || r.Count("please start the work") == 0 {
		t.Errorf("new session: got %d records, want one with the user's prompt\n%s", n, said(r))
	}
	if n := r.Count("## In doubt"); n != 0 {
		t.Errorf("new session: a call is in doubt, want none: all had ended\n%s", said(r))
	}
}

func TestOpenClawKilledInStreamThenResumed(t *testing.T) {
	h := openclawKilledInStream(t)
	h.model.Script(Turn{Text: "I look at what was done."})
	if r := h.run(local("lab1", "please go on")...); r.Count(record) != 0 {
		t.Errorf("resumed: got %d records, want none: OpenClaw's own rows hold it all\n%s", r.Count(record), said(r))
	}
}

// TestOpenClawTerminatedInTool: SIGTERM lets the plugin tell how the command ended; that outcome counts.
func TestOpenClawTerminatedInTool(t *testing.T) {
	h := newOpenClaw(t)
	a := h.openclawInTool(local("lab1", "please start the work")...)
	h.until("the call is known", func() bool { return len(h.status("lab1").OpenCalls) == 1 })
	a.signal(syscall.SIGTERM)
	h.until("the command's end is known", func() bool { return h.calls("lab1")["touch"] == checkpoint.CallFailed })
	h.until("the end is seen", func() bool { st := h.status("lab1").State; return st == "died" || st == "ended" })
	if r := h.recover("lab1"); len(r.InDoubt) != 0 {
		t.Errorf("got %v in doubt, want nothing: the result is known", r.InDoubt)
	}
}

// TestOpenClawInterruptedInTool: Ctrl-C, like SIGTERM, lets the plugin tell how the command ended. Nobody needs to be
// told.
func TestOpenClawInterruptedInTool(t *testing.T) {
	h := newOpenClaw(t)
	a := h.openclawInTool(local("lab1", "please start the work")...)
	h.until("the call is known", func() bool { return len(h.status("lab1").OpenCalls) == 1 })
	if code := a.signal(syscall.SIGINT); code != 130 {
		t.Errorf("after SIGINT: exit %d, want 130", code)
	}

	h.until("the end is seen", func() bool { return h.status("lab1").State == "ended" })
	st := h.status("lab1")
	if calls := h.calls(
		"lab1",
	); st.MessageCount != 1 || calls["touch"] != checkpoint.CallFailed ||
		len(h.recover("lab1").InDoubt) != 0 {
		t.Errorf(
			"got %d rounds, calls %v, in doubt %v, want 1 round, a failed command and nothing in doubt",
			st.MessageCount, calls, h.recover("lab1").InDoubt,
		)
	}

	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	if r := h.run(local("lab1", "please go on")...); r.Count(record) != 0 {
		t.Errorf("resumed: got %d records, want none: OpenClaw's own rows hold it all\n%s", r.Count(record), said(r))
	}
}

// TestOpenClawUninstall: the user's settings are back, byte for byte, after sessions ran with belay in them, and no
// command of belay's changes a file of OpenClaw's.
func TestOpenClawUninstall(t *testing.T) {
	h := newOpenClaw(t)
	want := strings.NewReplacer("%PROJ%", h.proj, "%URL%", h.url).Replace(openclawSettings)
	h.run(local("lab1", "please start the work")...)
	h.until("the end is seen", func() bool { return h.status("lab1").State == "ended" })
	before := h.agentFiles()
	for _, args := range [][]string{{"status"}, {"recover", "--session", "lab1"}, {"checkpoint", "--agent", "openclaw", "--session", "lab1"}, {"list"}, {"doctor"}} {
		if out, err := h.belay(args...); err != nil {
			t.Logf("%v\n%s", err, out) // doctor may find fault with the lab; what counts is below
		}
	}

	if after := h.agentFiles(); !maps.Equal(after, before) {
		t.Errorf("belay's commands changed files of the agent: got %v, want %v", after, before)
	}
	if out, err := h.belay("uninstall", "openclaw"); err != nil {
		t.Fatalf("belay uninstall: %v\n%s", err, out)
	}

	settings := h.path(".openclaw/openclaw.json")
	if data, err := os.ReadFile(settings); err != nil || string(data) != want {
		t.Errorf("settings after uninstall: got %q, %v, want %q", data, err, want)
	}

	after := h.agentFiles()
	for path := range before {
		if path == settings || strings.HasPrefix(path, h.path(".openclaw/belay-plugin/")) {
			delete(before, path)
		}
	}

	delete(after, settings)
	if !maps.Equal(after, before) {
		t.Errorf("uninstall changed other files of the agent: got %v, want %v", after, before)
	}

	h.run(local("lab2", "without belay")...)
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions after uninstall, want still 1", len(list))
	}
}
