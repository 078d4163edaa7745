//go:build linux

package lab

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/state/query"
	"belay/recovery"
)

// The longest that anything in the lab may take. What is waited for comes in a second or two on a quiet machine.
const (
	longRun  = 90 * time.Second // a whole run of the agent
	longWait = 30 * time.Second // for a file, a request, a state
)

// program is an agent under proof: what the cases of all agents need to know of it.
type program struct {
	name    string                 // belay's word for it
	env     string                 // the variable that names its program
	dir     string                 // its own folder in the home
	files   string                 // where its transcripts lie in the home: a pattern
	setup   func(h *home)          // writes what a user of it has, before belay is installed
	vars    func(h *home) []string // its environment, beside what every program here gets
	args    []string               // before those of a run
	slow    time.Duration          // how much longer than others its start may take
	shell   func(string) Call      // a call of its shell tool, with a command
	blind   bool                   // its calls are known from its file alone, which does not say when one starts
	forgets bool                   // a brief is no part of the conversation that is resumed later
	again   string                 // the flag with which it goes on with a session; --session when empty
	pid     func(a *agent) int     // its own process when that is not the one started; 0 for that one
}

// home is one case's world: a home folder, a project, a model, and belay wired in by its own install command.
type home struct {
	t     *testing.T
	prog  program
	dir   string
	proj  string
	model *Model
	url   string
	by    []string // what starts the agent, when it is not started by itself
}

func newHomeOf(t *testing.T, prog program) *home {
	t.Helper()
	if os.Getenv(prog.env) == "" {
		t.Skipf("the real %s is not here: run scripts/lab %s, or set %s to its program", prog.name, prog.name, prog.env)
	}
	if os.Getenv(reportVar) != "" {
		report(t, prog.name, programVersion(t, os.Getenv(prog.env)), caseWords(t.Name()))
	}

	dir, err := os.MkdirTemp("", "lab-") // short: a socket's path has a bound
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}

	h := &home{t: t, prog: prog, dir: dir, proj: filepath.Join(dir, "proj"), model: new(Model)}
	server := httptest.NewServer(h.model)
	h.url = server.URL
	t.Cleanup(func() {
		if t.Failed() {
			h.tellLog()
		}

		h.killAll()
		server.CloseClientConnections()
		server.Close()
		if os.Getenv("BELAY_LAB_KEEP") != "" {
			t.Logf("kept: %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})

	for _, d := range []string{h.proj, h.path(prog.dir), h.path("tmp")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	prog.setup(h)
	if out, err := h.belay("install", prog.name); err != nil {
		t.Fatalf("belay install: %v\n%s", err, out)
	}

	return h
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }
func (h *home) state() string           { return h.path(".local/state/belay") }

// write puts a file of the user's into the home.
func (h *home) write(name, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// env is the whole environment of every program here: nothing of the caller's gets in.
func (h *home) env() []string {
	return append(
		[]string{
			"HOME=" + h.dir,
			"TMPDIR=" + h.path("tmp"),
			"PATH=" + os.Getenv(binVar) + ":" + os.Getenv("PATH"),
			"LANG=C.UTF-8",
			"TERM=dumb",
			"TZ=UTC",
			"USER=lab",
			"SHELL=/bin/bash",
			"BELAY_LOG_LEVEL=debug",
		},
		h.prog.vars(h)...)
}

// belay runs a command of belay's in the project folder and gives its stdout.
func (h *home) belay(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), longWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(binVar), "belay"), args...)
	cmd.Dir, cmd.Env = h.proj, h.env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("belay %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}

	return out, err
}

// ask runs a command that prints JSON.
func ask[T any](h *home, args ...string) (T, error) {
	var v T
	out, err := h.belay(append(args, "--json")...)
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	return v, err
}

func (h *home) status(session string) query.SessionStatus {
	h.t.Helper()
	st, err := ask[query.SessionStatus](h, "status", "--session", session)
	if err != nil {
		h.t.Fatal(err)
	}
	return st
}

// recover is what belay would tell of a session now.
func (h *home) recover(session string) recovery.Result {
	h.t.Helper()
	r, err := ask[recovery.Result](h, "recover", "--session", session)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// calls are the shell calls of a session in the ledger, by what their command begins with.
func (h *home) calls(session string) map[string]checkpoint.CallState {
	h.t.Helper()
	shown, err := ask[query.Shown](h, "show", "--session", session)
	if err != nil {
		h.t.Fatal(err)
	}

	calls := map[string]checkpoint.CallState{}
	for _, c := range shown.State.Calls {
		word, _, _ := strings.Cut(c.Digest, " ")
		calls[word] = c.State
	}

	return calls
}

// sessions are all that belay knows, as it tells them, children left out; the newest first.
func (h *home) sessions() []query.SessionStatus {
	h.t.Helper()
	v, err := ask[struct{ Sessions []query.SessionStatus }](h, "status")
	if err != nil {
		h.t.Fatal(err)
	}
	return slices.DeleteFunc(v.Sessions, func(s query.SessionStatus) bool { return s.Child != "" })
}

// newest is the session that had the last event.
func (h *home) newest() string {
	h.t.Helper()
	list := h.sessions()
	if len(list) == 0 {
		h.t.Fatal("belay status: no session, want the one that ran")
	}
	return list[0].SessionID
}

// daemonPID is the running daemon's process.
func (h *home) daemonPID() int {
	h.t.Helper()
	v, err := ask[struct{ PID int }](h, "status")
	if err != nil {
		h.t.Fatal(err)
	}
	return v.PID
}

// until waits for something to become true.
func (h *home) until(what string, ok func() bool) {
	h.t.Helper()
	patience := longWait + h.prog.slow
	for end := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// transcripts says whether one of the agent's transcripts holds a text.
func (h *home) transcripts(text string) bool {
	for _, data := range h.readTranscripts() {
		if bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}

func (h *home) readTranscripts() [][]byte {
	names, err := filepath.Glob(h.path(h.prog.files))
	if err != nil {
		h.t.Fatal(err)
	}

	var list [][]byte
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			h.t.Fatal(err)
		}
		list = append(list, data)
	}

	return list
}

// agentFiles are the agent's files, each with a hash of its text, its mode and its time.
func (h *home) agentFiles() map[string]string {
	h.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(h.path(h.prog.dir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 { // it may lead to a folder, or out of here
			files[path], err = os.Readlink(path)
			return err
		}

		data, err := os.ReadFile(path)
		files[path] = fmt.Sprintf("%x %v %v", sha256.Sum256(data), info.Mode(), info.ModTime())
		return err
	})

	if err != nil {
		h.t.Fatal(err)
	}

	return files
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// agent is one run of the real program.
type agent struct {
	h    *home
	cmd  *exec.Cmd
	out  string
	done chan struct{} // closed when it has ended
	from int           // main requests before it
}

// start runs the agent with one prompt, without a terminal.
func (h *home) start(args ...string) *agent {
	h.t.Helper()
	return h.startOn(nil, slices.Concat(h.prog.args, args)...)
}

// resume runs the agent once more in a session.
func (h *home) resume(session, prompt string) Request {
	h.t.Helper()
	return h.run(cmp.Or(h.prog.again, "--session"), session, prompt)
}

// startOn runs the agent with these arguments alone and a stdin, or none.
func (h *home) startOn(in *os.File, args ...string) *agent {
	h.t.Helper()
	a := &agent{
		h:    h,
		out:  h.path(fmt.Sprintf("run-%d.out", time.Now().UnixNano())),
		done: make(chan struct{}),
		from: len(h.model.Main()),
	}

	out, err := os.Create(a.out) // a file: an orphaned tool that holds a pipe would keep us waiting
	if err != nil {
		h.t.Fatal(err)
	}

	defer out.Close()
	words := slices.Concat(h.by, []string{os.Getenv(h.prog.env)}, args)
	a.cmd = exec.Command(words[0], words[1:]...)
	a.cmd.Dir, a.cmd.Env, a.cmd.Stdout, a.cmd.Stderr = h.proj, h.env(), out, out
	if in != nil {
		a.cmd.Stdin = in
	}

	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := a.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}

	go func() {
		_ = a.cmd.Wait() // the exit code is in ProcessState
		close(a.done)
	}()

	h.t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // it has ended already, except in a case that failed
		<-a.done
	})

	return a
}

// wait gives the exit code: -1 when a signal ended it.
func (a *agent) wait() int {
	a.h.t.Helper()
	select {
	case <-a.done:
	case <-time.After(longRun + a.h.prog.slow):
		a.h.t.Fatalf("%s still runs after %v; it printed:\n%s", a.h.prog.name, longRun+a.h.prog.slow, a.printed())
	}
	return a.cmd.ProcessState.ExitCode()
}

func (a *agent) printed() string {
	data, err := os.ReadFile(a.out)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// run is a whole run that must end well; it gives the first main request that it made.
func (h *home) run(args ...string) Request {
	h.t.Helper()
	a := h.start(args...)
	if code := a.wait(); code != 0 {
		h.t.Fatalf("%s %q: exit %d, want 0\n%s", h.prog.name, args, code, a.printed())
	}

	list := h.model.Main()
	if len(list) == a.from {
		h.t.Fatalf("%s %q asked the model nothing; it printed:\n%s", h.prog.name, args, a.printed())
	}

	return list[a.from]
}

// pid is the agent's own process: the program may have been started by a launcher.
func (a *agent) pid() int {
	if a.h.prog.pid != nil {
		if pid := a.h.prog.pid(a); pid != 0 {
			return pid
		}
	}
	return a.cmd.Process.Pid
}

// signal hits the agent's own process, no other, and waits for its end.
func (a *agent) signal(sig syscall.Signal) int {
	a.h.t.Helper()
	if err := syscall.Kill(a.pid(), sig); err != nil {
		a.h.t.Fatalf("kill %d: %v", a.pid(), err)
	}
	return a.wait()
}

// processes are the living ones of this home, known by the home in their environment.
func (h *home) processes() []int {
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		h.t.Error(err)
	}

	var pids []int
	for _, n := range names {
		env, err := os.ReadFile(n)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00HOME="+h.dir+"\x00")) {
			continue // gone meanwhile, a zombie, or another's
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(n))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}

	return pids
}

// killAll ends what is left of a case: its daemon, and tools that lost their agent.
func (h *home) killAll() {
	for end := time.Now().Add(longWait); ; time.Sleep(20 * time.Millisecond) {
		pids := h.processes()
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			h.t.Errorf("processes %v outlive the case", pids)
			return
		}

		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				h.t.Errorf("kill %d: %v", pid, err)
			}
		}
	}
}

// killTools ends the tool processes that a killed agent left behind.
func (h *home) killTools() {
	for _, pid := range h.processes() {
		if cmd, err := os.ReadFile(
			fmt.Sprintf("/proc/%d/cmdline", pid),
		); err == nil &&
			bytes.Contains(cmd, []byte("sleep")) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
	}
}

// tellLog shows the end of the daemon's log beside a failure.
func (h *home) tellLog() {
	data, err := os.ReadFile(filepath.Join(h.state(), "belay.log"))
	if err != nil {
		h.t.Logf("no log of the daemon: %v", err)
		return
	}
	h.t.Logf("the daemon's log ends:\n%s", data[max(0, len(data)-4000):])
}
