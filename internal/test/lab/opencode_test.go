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
	"belay/internal/state/query"
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
	return newHomeOf(
		t,
		program{name: "opencode", env: opencodeVar, dir: ".config/opencode", files: opencodeData + "/opencode.db*",
			setup: func(h *home) {
				h.write(
					".config/opencode/opencode.json",
					`{ "autoupdate":false, "share":"disabled",  "model":"lab/lab-model", "small_model":"lab/lab-model", "permission":{"edit":"allow","bash":"allow"},
  "provider":{"lab":{"npm":"@ai-sdk/openai-compatible","name":"lab","options":{"baseURL":"`+h.url+`/v1","apiKey":"test"},"models":{"lab-model":{"name":"Lab","limit":{"context":200000,"output":8000}}}}} }
`,
				)
				h.opencodeDependency()
			},
			vars: func(*home) []string {
				return []string{
					"OPENCODE_DISABLE_AUTOUPDATE=1",
					"OPENCODE_DISABLE_MODELS_FETCH=1",
					"OPENCODE_DISABLE_LSP_DOWNLOAD=1",
					"OPENCODE_DISABLE_SHARE=1",
				}
			},
			shell: opencodeBash,
			args:  []string{"run", "--format", "json", "-m", "lab/lab-model"},
			pid:   opencodePID,
			slow:  time.Minute, // it is one program of 180 MB
		},
	)
}

// opencodeDependency makes the home one in which opencode has fetched what its plugins may need: at its first start it
// asks the registry for that, and where there is no network plugins wait for minutes. belay's plugin needs nothing of
// it.
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

// TestOpencodeTwoRounds is an ordinary day: two prompts with a kill of the daemon between them, and a new session after
// a clean end. Nobody needs to be told anything.
func TestOpencodeTwoRounds(t *testing.T) {
	h := newOpencode(t)
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{opencodeBash(quick)}},
		Turn{Text: "And one that fails.", Calls: []Call{opencodeBash("false")}},
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
	if n := h.run("--session", session, "second round please").Count(record); n != 0 {
		t.Errorf("resumed after a clean end: got %d records, want none", n)
	}

	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	st := h.status(session)
	if st.MessageCount != 2 || st.PendingToolChain || st.LastFullCheckpoint == nil || len(st.OpenCalls) != 0 {
		t.Errorf("got %d rounds, chain %v, full %v, open %v, want 2 rounds, no chain, a FULL, nothing open",
			st.MessageCount, st.PendingToolChain, st.LastFullCheckpoint, st.OpenCalls)
	}

	if got := h.calls(
		session,
	); len(got) != 2 || got["echo"] != checkpoint.CallDone ||
		got["false"] != checkpoint.CallFailed {
		t.Errorf("the commands: got %v, want two, one done and one failed", got)
	}

	if n := h.run("another subject").Count(record); n != 0 {
		t.Errorf("new session after a clean end: got %d records, want none", n)
	}
	if list := h.sessions(); len(list) != 2 {
		t.Errorf("got %d sessions, want 2", len(list))
	}
}

func TestOpencodeKilledInToolThenNew(t *testing.T) {
	h := newOpencode(t)
	told := killedInToolThenNew(t, h)
	if r := h.run("--session", told, "and on here"); r.Count(record) != 1 {
		t.Errorf("the told session, resumed: got %d records, want the one of before\n%s", r.Count(record), said(r))
	}
}

func TestOpencodeAndDaemonKilled(t *testing.T) { killedWithDaemon(t, newOpencode(t)) }

// TestOpencodeKilledInToolThenResumed: opencode itself calls the command interrupted.
func TestOpencodeKilledInToolThenResumed(t *testing.T) {
	if first := killedInToolThenResumed(t, newOpencode(t)); first.Count("[Tool execution was interrupted]") != 1 {
		t.Errorf("opencode's own word for the command is not in the request:\n%s", said(first))
	}
}

func TestOpencodeKilledInStreamThenNew(t *testing.T) { killedInStreamThenNew(t, newOpencode(t)) }

func TestOpencodeKilledInStreamThenResumed(t *testing.T) {
	killedInStreamThenResumed(t, newOpencode(t))
}

// TestOpencodeSignalled: on SIGTERM and SIGINT opencode ends at once and writes nothing down: nobody knows how its
// command ended.
func TestOpencodeSignalled(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		t.Run(sig.String(), func(t *testing.T) {
			h := newOpencode(t)
			a := h.inCommand()
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
		Turn{
			When:  "SUBTASK",
			Text:  "The helper works.",
			Calls: []Call{opencodeBash("echo in-helper")},
		},
		Turn{When: "SUBTASK", Text: "The helper is done."},
		Turn{
			Text: "I start a helper.",
			Calls: []Call{
				{
					"task",
					map[string]any{"description": "a helper", "prompt": "SUBTASK please", "subagent_type": "general"},
				},
			},
		},
		Turn{Text: "All is done."},
	)

	h.run("please start the work")
	session := h.newest()
	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	if st := h.status(session); st.MessageCount != 1 || st.PendingToolChain {
		t.Errorf("got %d rounds, chain %v, want 1 round, no chain", st.MessageCount, st.PendingToolChain)
	}
	if got := h.calls(session); got["echo"] != "" {
		t.Errorf("the helper's command is in the parent's ledger: %v", got)
	}

	shown, err := ask[query.Shown](h, "show", "--session", session)
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

// TestOpencodeProjectMoved: the folder of a session is another project now, and opencode itself would not list the
// session (opencode#8661). It is found by its id, by belay's state and without it.
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

func TestOpencodeWithoutBelay(t *testing.T) {
	withoutBelay(t, newOpencode(t), ".config/opencode/plugin/belay.js")
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
