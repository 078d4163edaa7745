package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/state/check"
	"belay/internal/wire"
)

// agentProcess is a process that stands for an agent; end kills it and waits until it is gone.
func agentProcess(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
	})

	t.Cleanup(end)
	return cmd.Process.Pid, end
}

func startOf(session, source, cwd string) payload {
	p := payload{"hook_event_name": "SessionStart", "session_id": session, "cwd": cwd}
	if source != "absent" {
		p["source"] = source
	}
	return p
}

func promptOf(session, text, cwd string) payload {
	return payload{"hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": cwd, "prompt": text}
}

func stopOf(session, text, cwd string) payload {
	return payload{"hook_event_name": "Stop", "session_id": session, "cwd": cwd, "last_assistant_message": text}
}

func toolOf(session, call, cwd string) payload {
	return payload{
		"hook_event_name": "PreToolUse",
		"session_id":      session,
		"cwd":             cwd,
		"tool_use_id":     call,
		"tool_name":       "Bash",
		"tool_input":      map[string]string{"command": "make deploy"},
	}
}

// crashed plays a session that dies inside a turn, with a call open.
func (r *running) crashed(session, cwd string) {
	r.t.Helper()
	end := r.atWork(session, cwd)
	end()
	until(r.t, "the death is noticed", func() bool { return r.session("claude-code", session).State == "died" })
}

// atWork plays a session that is inside a turn, with a call open.
func (r *running) atWork(session, cwd string) (end func()) {
	r.t.Helper()
	pid, end := agentProcess(r.t)
	r.hook(pid, startOf(session, "startup", cwd))
	r.hook(pid, promptOf(session, "first wish of "+session, cwd))
	r.hook(pid, stopOf(session, "first answer of "+session, cwd))
	r.hook(pid, promptOf(session, "deploy the thing for "+session, cwd))
	r.hook(pid, toolOf(session, "call-"+session, cwd))
	return end
}

// home keeps Claude Code's own folder out of the tests.
func home(t *testing.T) string {
	t.Helper()
	dir := tempDir(t)
	t.Setenv("HOME", dir)
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	return dir
}

func TestH01BothTurnsAfterKillWithoutAnyEndHook(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	pid, end := agentProcess(t)
	r.hook(pid, startOf(sessionA, "startup", cwd))
	for i := range 2 {
		r.hook(pid, promptOf(sessionA, fmt.Sprintf("wish %d", i), cwd))
		r.hook(pid, stopOf(sessionA, fmt.Sprintf("answer %d", i), cwd))
	}

	end()
	until(
		t, "S11: a dead owner ends an idle session with a FULL",
		func() bool { return len(r.checkpoints("claude-code", sessionA)) == 1 },
	)

	res := r.recover("claude-code", sessionA)
	for _, words := range []string{"wish 0", "answer 0", "wish 1", "answer 1"} {
		if !said(res, words) {
			t.Errorf("%q is not in the recovery", words)
		}
	}
}

func TestBriefOfTheSameSessionIsGivenOnce(t *testing.T) {
	home(t)
	dir, cwd := tempDir(t), tempDir(t)
	r := start(t, dir)
	r.crashed(sessionA, cwd)
	_, text := r.hook(os.Getpid(), startOf(sessionA, "startup", cwd))
	for _, words := range []string{"deploy the thing for", "make deploy", "first answer of"} {
		if !strings.Contains(text, words) {
			t.Errorf("the brief does not hold %q:\n%s", words, text)
		}
	}

	if _, again := r.hook(os.Getpid(), startOf(sessionA, "startup", cwd)); again != "" {
		t.Errorf("given twice:\n%s", again)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	r = start(t, dir)
	if _, again := r.hook(os.Getpid(), startOf(sessionA, "startup", cwd)); again != "" {
		t.Errorf("given again after a restart of the daemon:\n%s", again)
	}
}

func TestPredecessorIsProven(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	r.crashed(sessionA, cwd)
	elsewhere := tempDir(t)
	if _, text := r.hook(os.Getpid(), startOf(sessionC, "startup", elsewhere)); text != "" {
		t.Errorf("another workspace was told:\n%s", text)
	}

	// Two new sessions at once: only one is told.
	texts := make([]string, 2)
	var both sync.WaitGroup
	for i, session := range []string{sessionB, "dddddddd-dddd-4ddd-8ddd-dddddddddddd"} {
		both.Go(func() {
			data, err := json.Marshal(startOf(session, "startup", cwd))
			if err != nil {
				t.Error(err)
				return
			}

			c, err := wire.Dial(t.Context(), r.dir, "")
			if err != nil {
				t.Error(err)
				return
			}

			defer c.Close()

			// Dead at once: a session that lives in the workspace would keep the other from being told at all.
			_, body, err := tryDo(c, wire.Request{Op: "hook", Agent: "claude-code", Event: "SessionStart"}, data)
			if err != nil {
				t.Error(err)
				return
			}

			texts[i] = injected(t, body)
		})
	}

	both.Wait()
	told := 0
	for _, text := range texts {
		if strings.Contains(text, "deploy the thing for "+sessionA) {
			told++
		}
	}

	if told != 1 {
		t.Errorf("%d of two new sessions were told, want 1:\n%s\n---\n%s", told, texts[0], texts[1])
	}

	if _, text := r.hook(
		0, startOf("eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee", "startup", cwd),
	); strings.Contains(
		text, "deploy the thing",
	) {
		t.Errorf("a third session was told of the same death:\n%s", text)
	}
}

// TestNothingIsProvenBesideTheLivingOfAnyAgent: the one that goes on may be another agent's.
func TestNothingIsProvenBesideTheLivingOfAnyAgent(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	codex := func(session string) {
		t.Helper()
		hook := wire.Request{Op: "hook", Agent: "codex", Event: "SessionStart", PID: os.Getpid()}
		if reply, _ := r.do(hook, mustJSON(t, startOf(session, "startup", cwd))); !reply.OK {
			t.Fatalf("another agent's start: %+v", reply)
		}
	}

	codex(sessionC)
	r.crashed(sessionA, cwd)
	_, text := r.hook(os.Getpid(), startOf(sessionB, "startup", cwd))
	if !strings.Contains(text, sessionA) || strings.Contains(text, "deploy the thing") {
		t.Errorf(
			"beside a living session of another agent, got\n%s\nwant a list that names %s, without its content",
			text, sessionA,
		)
	}
}

// TestACheckpointOfNothingMakesASessionNoOlder: an agent that beats for itself has checkpoints before its person says a
// word.
func TestACheckpointOfNothingMakesASessionNoOlder(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	r.hook(os.Getpid(), startOf(sessionB, "startup", cwd))
	for _, body := range []string{
		`{"kind":"prompt","text":"beat","aside":true}`, `{"kind":"tool-start","call":"c1","name":"Read"}`,
		`{"kind":"tool-end","call":"c1"}`, `{"kind":"stop","aside":true}`,
	} {
		if reply, _ := r.do(
			wire.Request{Op: "event", Agent: "claude-code", Session: sessionB, Body: []byte(body)}, nil,
		); !reply.OK {
			t.Fatalf("%s: got %+v", body, reply)
		}
	}

	until(t, "a checkpoint of it is there", func() bool { return len(r.checkpoints("claude-code", sessionB)) == 1 })
	r.crashed(sessionA, cwd)
	if _, text := r.hook(
		os.Getpid(), startOf(sessionB, "startup", cwd),
	); !strings.Contains(
		text, "deploy the thing for "+sessionA,
	) {
		t.Errorf("the session in which nothing was said was not told of the one that died:\n%s", text)
	}
}

func TestO08TwoDeadSessionsAreListedWithoutContent(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	for _, end := range []func(){r.atWork(sessionA, cwd), r.atWork(sessionB, cwd)} {
		end()
	}

	until(t, "both deaths are noticed", func() bool {
		return r.session("claude-code", sessionA).State == "died" && r.session("claude-code", sessionB).State == "died"
	})
	_, text := r.hook(os.Getpid(), startOf(sessionC, "startup", cwd))
	if !strings.Contains(text, sessionA) || !strings.Contains(text, sessionB) {
		t.Errorf("the list does not name both sessions:\n%s", text)
	}

	for _, words := range []string{"make deploy", "deploy the thing", "first answer"} {
		if strings.Contains(text, words) {
			t.Errorf("%q of another session is in the text:\n%s", words, text)
		}
	}

	if _, again := r.hook(os.Getpid(), startOf(sessionC, "startup", cwd)); again != "" {
		t.Errorf("the list came twice:\n%s", again)
	}
}

func TestIdlePredecessorIsOneLine(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	pid, end := agentProcess(t)
	r.hook(pid, startOf(sessionA, "startup", cwd))
	r.hook(pid, promptOf(sessionA, "a secret wish", cwd))
	r.hook(pid, stopOf(sessionA, "a secret answer", cwd))
	end()
	until(t, "the death is noticed", func() bool { return r.session("claude-code", sessionA).State == "died" })
	_, text := r.hook(os.Getpid(), startOf(sessionB, "startup", cwd))
	if !strings.Contains(text, "belay recover") || strings.Contains(text, "secret") {
		t.Errorf("want one line with the command and no content:\n%s", text)
	}
}

// A client that hung up before it could read leaves the brief to the next prompt.
func TestOwedBriefGoesWithTheNextPrompt(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	r.crashed(sessionA, cwd)
	data, err := json.Marshal(startOf(sessionA, "startup", cwd))
	if err != nil {
		t.Fatal(err)
	}

	// Its event waited in the spool while no daemon answered: nobody is there to read the brief.
	reply, body := r.do(
		wire.Request{
			Op:      "hook",
			Agent:   "claude-code",
			Event:   "SessionStart",
			ID:      "late",
			Spooled: time.Now().UnixMilli(),
		},
		data,
	)

	if !reply.OK || len(body) != 0 {
		t.Fatalf("a spooled start: %+v with %q", reply, body)
	}

	_, text := r.hook(os.Getpid(), promptOf(sessionA, "and now?", cwd))
	if !strings.Contains(text, "deploy the thing") {
		t.Errorf("the next prompt does not carry the brief:\n%s", text)
	}
	if _, again := r.hook(os.Getpid(), promptOf(sessionA, "and then?", cwd)); again != "" {
		t.Errorf("carried twice:\n%s", again)
	}
}

// hangUp closes the connection before the brief can be written.
func TestHangUpOwesTheBrief(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	r.crashed(sessionA, cwd)
	s := r.active(findKey(t, r, sessionA))
	held, hold := make(chan struct{}), make(chan struct{})

	// the brief cannot be ready before the client is gone
	go session.Ask(t.Context(), s, func(*checkpoint.State) bool { close(held); <-hold; return true })
	<-held
	data, err := json.Marshal(startOf(sessionA, "startup", cwd))
	if err != nil {
		t.Fatal(err)
	}

	c := r.dial()
	if err := c.Send(wire.Request{Op: "hook", Agent: "claude-code", Event: "SessionStart"}, data); err != nil {
		t.Fatal(err)
	}

	until(t, "the request is read", func() bool { return s.HasMail() })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}

	close(hold)
	until(t, "the brief is owed", func() bool {
		owed, _ := session.Ask(t.Context(), s, func(st *checkpoint.State) bool { return st.OwedTo })
		return owed
	})

	if _, text := r.hook(
		os.Getpid(), promptOf(sessionA, "and now?", cwd),
	); !strings.Contains(
		text, "deploy the thing",
	) {
		t.Errorf("the next prompt does not carry the brief:\n%s", text)
	}
}

func TestH13EverySourceHasItsAnswer(t *testing.T) {
	for source, want := range map[string]string{"startup": "make deploy", "resume": "make deploy", "fork": "make deploy", "clear": "",
		"some_future_source": "make deploy", "absent": "make deploy", "compact": "deploy the thing"} {
		t.Run(source, func(t *testing.T) {
			home(t)
			r, cwd := start(t, tempDir(t)), tempDir(t)
			if source == "compact" { // it comes while the session lives
				r.hook(os.Getpid(), startOf(sessionA, "startup", cwd))
				r.hook(os.Getpid(), promptOf(sessionA, "deploy the thing", cwd))
				r.hook(
					os.Getpid(),
					payload{"hook_event_name": "PreCompact", "session_id": sessionA, "cwd": cwd, "trigger": "auto"},
				)
			} else {
				r.crashed(sessionA, cwd)
			}

			_, text := r.hook(os.Getpid(), startOf(sessionA, source, cwd))
			if want == "" && text != "" || !strings.Contains(text, want) {
				t.Errorf("source %s was given %q, want %q in it", source, text, want)
			}
		})
	}
}

// The captured payloads of the row go through without an error.
func TestH13CapturedPayloads(t *testing.T) {
	home(t)
	r := start(t, tempDir(t))
	for i, line := range readLines(t, "H13-sources.jsonl") {
		reply, _ := r.do(
			wire.Request{Op: "hook", Agent: "claude-code", Event: "SessionStart", PID: os.Getpid()},
			[]byte(line),
		)
		if !reply.OK {
			t.Errorf("payload %d: %+v", i, reply)
		}
	}
}

func readLines(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func TestO05CheckpointsOfOthersAreIgnored(t *testing.T) {
	home(t)
	dir, cwd := tempDir(t), tempDir(t)
	r := start(t, dir)
	r.excused = []check.Rule{check.Private, check.Aside} // another user planted them
	r.crashed(sessionA, cwd)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	// A well-formed one in the work tree: of a folder that looks just like a state folder.
	if err := os.CopyFS(filepath.Join(cwd, ".belay"), os.DirFS(filepath.Join(dir, "sessions"))); err != nil {
		t.Fatal(err)
	}

	empty := start(t, tempDir(t))
	if _, text := empty.hook(os.Getpid(), startOf(sessionB, "startup", cwd)); text != "" {
		t.Errorf("a checkpoint from the work tree was given:\n%s", text)
	}
	if os.Getuid() != 0 {
		t.Log("not root: the part with another owner is left out")
		return
	}

	session := filepath.Join(dir, "sessions", "claude-code", sessionA)
	if err := os.Chown(filepath.Join(session, "state.json"), 12345, 12345); err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(
		os.Chown(filepath.Join(session, "checkpoints"), 12345, 12345),
		os.RemoveAll(filepath.Join(dir, "journal")),
	); err != nil {
		t.Fatal(err)
	}

	r = start(t, dir)
	r.excused = []check.Rule{check.Private, check.Aside} // another user planted them
	if _, text := r.hook(os.Getpid(), startOf(sessionA, "startup", cwd)); text != "" {
		t.Errorf("another user's state was given:\n%s", text)
	}
	if r.logs.FilterMessage("load state").Len() == 0 {
		t.Error("no warning about it")
	}
}

func TestInDoubtIsToldOnceForEachDeath(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	r.crashed(sessionA, cwd)
	if _, text := r.hook(os.Getpid(), startOf(sessionA, "resume", cwd)); !strings.Contains(text, "make deploy") {
		t.Fatalf("resume does not name the call in doubt:\n%s", text)
	}

	r.hook(os.Getpid(), promptOf(sessionA, "go on then", cwd))
	r.hook(os.Getpid(), stopOf(sessionA, "done", cwd))
	if _, text := r.hook(os.Getpid(), startOf(sessionA, "resume", cwd)); strings.Contains(text, "make deploy") {
		t.Errorf("the same call is told again:\n%s", text)
	}
}

// findKey gives the key of an active session.
func findKey(t *testing.T, r *running, session string) checkpoint.Key {
	t.Helper()
	for _, s := range r.l.sessions.Active() {
		if s.Key.Session == session && s.Key.Child == "" {
			return s.Key
		}
	}

	t.Fatalf("session %s is not active", session)
	return checkpoint.Key{}
}
