//go:build linux

package lab

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"belay/checkpoint"
	"belay/internal/state/query"
)

const piVar = "BELAY_LAB_PI"

// piBash is a call of pi's shell tool.
func piBash(command string) Call { return Call{"bash", map[string]any{"command": command}} }

func newPi(t *testing.T) *home {
	t.Helper()
	return newHomeOf(t, program{name: "pi", env: piVar, dir: ".pi", files: ".pi/agent/sessions/*/*.jsonl",
		setup: func(h *home) {
			h.write(
				".pi/agent/models.json",
				`{ "providers": {"lab": {"baseUrl": "`+h.url+`/v1", "api": "openai-completions", "apiKey": "test",
  "models": [{"id": "lab-model", "contextWindow": 200000, "maxTokens": 8000}]}} }`,
			)
			h.write(".pi/agent/settings.json", `{ "defaultProvider":"lab",  "defaultModel":"lab-model" }`)
		},
		vars: func(*home) []string {
			// A node that lies beside pi goes first.
			bin := filepath.Dir(os.Getenv(piVar))
			return []string{"PI_OFFLINE=1", "PI_TELEMETRY=0", "PI_SKIP_VERSION_CHECK=1",
				"PATH=" + bin + ":" + os.Getenv(binVar) + ":" + os.Getenv("PATH")}
		},
		shell: piBash,
		args:  []string{"-p", "--provider", "lab", "--model", "lab-model"},
	})
}

// TestPiTwoRounds is an ordinary day: two prompts with a kill of the daemon between them, and a new session after a
// clean end. Nobody needs to be told anything.
func TestPiTwoRounds(t *testing.T) { twoRounds(t, newPi(t), "--continue") }

func twoRounds(t *testing.T, h *home, goOn ...string) {
	t.Helper()
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{h.prog.shell(quick)}},
		Turn{Text: "The first round is done."},
	)

	if n := h.run("please start the work").Count(record); n != 0 {
		t.Errorf("first session: got %d records, want none: nothing was before it", n)
	}

	session := h.newest()
	if len(goOn) == 0 {
		goOn = []string{h.prog.again, session}
	}
	if err := syscall.Kill(h.daemonPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	h.model.Script(Turn{Text: "The second round is done."})
	if n := h.run(append(goOn, "second round please")...).Count(record); n != 0 {
		t.Errorf("resumed after a clean end: got %d records, want none", n)
	}

	h.until("the end is seen", func() bool { return h.status(session).State == "ended" })
	st := h.status(session)
	if st.MessageCount != 2 || st.PendingToolChain || st.LastFullCheckpoint == nil || len(st.OpenCalls) != 0 {
		t.Errorf("got %d rounds, chain %v, full %v, open %v, want 2 rounds, no chain, a FULL, nothing open",
			st.MessageCount, st.PendingToolChain, st.LastFullCheckpoint, st.OpenCalls)
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
}

func TestPiKilledInToolThenNew(t *testing.T) {
	h := newPi(t)
	killedInToolThenNew(t, h)
	if !h.transcripts(record) {
		t.Error("the brief is in no transcript, want it in the told session's")
	}
}

func TestPiAndDaemonKilled(t *testing.T) { killedWithDaemon(t, newPi(t)) }

func TestPiKilledInToolThenResumed(t *testing.T) { killedInToolThenResumed(t, newPi(t)) }

func TestPiKilledInStreamThenNew(t *testing.T) { killedInStreamThenNew(t, newPi(t)) }

// TestPiKilledInFirstAnswer: before 0.99 pi has no file yet, and the prompt is in belay's events alone.
func TestPiKilledInFirstAnswer(t *testing.T) { killedInFirstAnswer(t, newPi(t)) }

func killedInFirstAnswer(t *testing.T, h *home) {
	t.Helper()
	session := streamKilled(t, h)
	t.Logf("the prompt is in its own file: %v", h.transcripts("please start the work"))
	if st := h.status(session); st.MessageCount != 0 && st.MessageCount != 1 {
		t.Errorf("got %d rounds, want the one that was cut off", st.MessageCount)
	}

	h.model.Script(Turn{Text: "I look at what was done."})
	if r := h.run("please go on"); r.Count(record) != 1 || r.Count("please start the work") == 0 {
		t.Errorf("new session: got %d records, want one with the prompt that was lost\n%s", r.Count(record), said(r))
	}
}

func TestPiKilledInStreamThenResumed(t *testing.T) { killedInStreamThenResumed(t, newPi(t)) }

// TestPiTerminatedInTool: pi says good-bye and kills its command. Since version 1 it writes down that the command was
// aborted; before that nobody knows how it ended.
func TestPiTerminatedInTool(t *testing.T) { terminatedInTool(t, newPi(t)) }

func terminatedInTool(t *testing.T, h *home) {
	t.Helper()
	a := h.inCommand()
	if got := a.signal(syscall.SIGTERM); got != 143 {
		t.Errorf("exit after SIGTERM: got %d, want 143", got)
	}

	session := h.newest()
	h.until("its end is seen", func() bool { st := h.status(session).State; return st == "died" || st == "ended" })
	want := checkpoint.CallDoubt
	if h.transcripts("Command aborted") {
		want = checkpoint.CallFailed
	}

	h.until("the command's outcome is known", func() bool { return h.calls(session)["touch"] == want })
	if r := h.recover(session); (len(r.InDoubt) == 1) != (want == checkpoint.CallDoubt) {
		t.Errorf("got %v in doubt, with the command %s", r.InDoubt, want)
	}
}

// TestPiInterruptedInTool: Ctrl-C with a terminal's SIGINT; before version 1 pi ends by it without a word.
func TestPiInterruptedInTool(t *testing.T) {
	h := newPi(t)
	a := h.inCommand()
	code := a.signal(syscall.SIGINT)
	session := h.newest()
	h.until("its end is seen", func() bool { st := h.status(session).State; return st == "died" || st == "ended" })
	t.Logf("exit %d, %s, the command %s", code, h.status(session).State, h.calls(session)["touch"])
	if got := h.calls(session)["touch"]; got != checkpoint.CallDoubt && got != checkpoint.CallFailed {
		t.Errorf("the command: got %q, want in doubt, or failed when pi wrote that down", got)
	}
}

// piLong is a pi, or its kin, that a program drives (rpc): it lives through several prompts, as one at a terminal does.
type piLong struct {
	*agent
	in *os.File
}

func (h *home) piLong() piLong {
	h.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		h.t.Fatal(err)
	}

	a := h.startOn(r, append([]string{"--mode", "rpc"}, h.prog.args[1:]...)...) // but for -p
	if err := r.Close(); err != nil {
		h.t.Fatal(err)
	}

	h.t.Cleanup(func() { _ = w.Close() }) // its end may be closed already
	return piLong{a, w}
}

func (p piLong) say(command string) {
	p.h.t.Helper()
	if _, err := p.in.WriteString(command + "\n"); err != nil {
		p.h.t.Fatal(err)
	}
}

// TestPiLives: a pi that stays open: rounds, an interrupt, a compaction, a new session, and its end.
func TestPiLives(t *testing.T) {
	h := newPi(t)
	h.write(
		".pi/agent/settings.json",
		`{"defaultProvider":"lab","defaultModel":"lab-model","compaction":{"keepRecentTokens":10}}`,
	)
	piLives(t, h)
}

func piLives(t *testing.T, h *home) {
	t.Helper()
	p := h.piLong()
	h.model.Script(
		Turn{Text: "A quick command.", Calls: []Call{h.prog.shell(quick)}},
		Turn{Text: "The first round is done."}, Turn{Text: "half of an answer", Hold: true},
		Turn{Text: "The third round is done."},
	)

	p.say(`{"id":"1","type":"prompt","message":"please start the work"}`)
	h.until("the first round is in the file", func() bool { return h.transcripts("The first round is done.") })
	h.until(
		"the first round is counted",
		func() bool { list := h.sessions(); return len(list) == 1 && list[0].MessageCount == 1 },
	)

	session := h.newest()
	p.say(`{"id":"2","type":"prompt","message":"the second"}`)
	h.until("the model answers", func() bool { return h.model.Holding() == 1 })
	p.say(`{"id":"3","type":"abort"}`)
	h.until("the interrupted round is counted", func() bool { return h.status(session).MessageCount == 2 })
	p.say(`{"id":"4","type":"prompt","message":"the third"}`)
	h.until("the third round is counted", func() bool { return h.status(session).MessageCount == 3 })
	p.say(`{"id":"5","type":"compact"}`)
	h.until("the compaction is in the file", func() bool { return h.transcripts(`"type":"compaction"`) })
	h.until("the checkpoint before the compaction is there", func() bool {
		shown, err := ask[query.Shown](h, "show", "--session", session)
		if err != nil {
			t.Fatal(err)
		}
		return shown.State.LastFull != nil && shown.State.LastFull.Cause == checkpoint.CauseCompaction
	})

	p.say(`{"id":"6","type":"new_session"}`)
	h.until(
		"there is a new session",
		func() bool { return strings.Contains(p.printed(), `"command":"new_session","success":true`) },
	)

	h.until("the first session has ended", func() bool { return h.status(session).State == "ended" })
	before := len(h.model.Main())
	p.say(`{"id":"7","type":"prompt","message":"another subject"}`)
	h.until("the new session is in its file", func() bool { return h.transcripts("another subject") })
	h.until(
		"the new session's round is counted",
		func() bool { return len(h.sessions()) == 2 && h.sessions()[0].MessageCount == 1 },
	)

	if r := h.model.Main()[before]; r.Count(record) != 0 || r.Count("please start the work") != 0 {
		t.Errorf("the new session is told of the one before\n%s", said(r))
	}

	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil {
		t.Fatal(err)
	}

	var outcomes []string
	for _, turn := range shown.State.Turns {
		outcomes = append(outcomes, string(turn.Outcome))
	}

	if got := strings.Join(outcomes, ","); got != ",interrupted," {
		t.Errorf("got outcomes %q, want the second turn interrupted and the others done", got)
	}
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}

	p.wait()
	newest := h.newest()
	h.until(
		"the second session's end is seen",
		func() bool { st := h.status(newest).State; return st == "ended" || st == "died" },
	)

	if st := h.status(session); st.MessageCount != 3 || st.State != "ended" {
		t.Errorf("the first session: got %d rounds, %s, want 3, ended", st.MessageCount, st.State)
	}
}

func TestPiWithoutBelay(t *testing.T) { withoutBelay(t, newPi(t), ".pi/agent/extensions/belay.ts") }

// TestPiNotKept: of a session that pi itself does not keep belay keeps nothing.
func TestPiNotKept(t *testing.T) { notKept(t, newPi(t)) }

func notKept(t *testing.T, h *home) {
	t.Helper()
	h.run("--no-session", "please start the work")
	h.run("a kept one")
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions, want the kept one alone", len(list))
	}
}

// TestPiUninstall: pi's folder is as it was, byte for byte, after sessions ran with belay in it.
func TestPiUninstall(t *testing.T) { uninstalled(t, newPi(t), ".pi/agent/extensions/belay.ts") }

func uninstalled(t *testing.T, h *home, file string) {
	t.Helper()
	ext := h.path(file)
	if !exists(ext) {
		t.Fatalf("%s is not there after install", ext)
	}

	h.run("please start the work")
	session, before := h.newest(), h.agentFiles()
	for _, args := range [][]string{{"status"}, {"recover", "--session", session}, {"checkpoint", "--agent", h.prog.name, "--session", session}, {"list"}, {"doctor"}} {
		if out, err := h.belay(args...); err != nil {
			t.Logf("%v\n%s", err, out) // doctor may find fault with the lab; what counts is below
		}
	}

	if after := h.agentFiles(); !maps.Equal(after, before) {
		t.Errorf("belay's commands changed files of the agent: got %v, want %v", after, before)
	}
	if out, err := h.belay("uninstall", h.prog.name); err != nil {
		t.Fatalf("belay uninstall: %v\n%s", err, out)
	}
	if exists(filepath.Dir(ext)) {
		t.Errorf("%s is there after uninstall, and install had made it", filepath.Dir(ext))
	}

	delete(before, ext)
	if after := h.agentFiles(); !maps.Equal(after, before) {
		t.Errorf("uninstall changed other files of the agent: got %v, want %v", after, before)
	}

	h.run("without belay")
	if st := h.sessions(); len(st) != 1 {
		t.Errorf("got %d sessions after uninstall, want still 1", len(st))
	}
}
