package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"belay/internal/state/check/checktest"
	"belay/internal/wire"
)

// realPrograms is a folder with the two programs as users have them.
var realPrograms = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(bin, "real")
	if out, err := exec.Command("go", "build", "-o", dir+"/", ".", "../belay").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return dir, nil
})

// world is a state folder with the real programs around it, and no daemon yet.
type world struct {
	dir, state string
	env        []string
}

const realSession = "11111111-2222-4333-8444-555555555555"

func newWorld(t *testing.T) *world {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}

	dir, err := realPrograms()
	if err != nil {
		t.Fatal(err)
	}

	home := tempState(t)
	w := &world{dir: dir, state: filepath.Join(home, "s")}
	w.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "BELAY_STATE_DIR=" + w.state}
	t.Cleanup(func() {
		until(t, "the end of what this test started", func() bool {
			left := w.procs()
			for _, p := range left { // ours, by the folder that was made for this test
				_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended
			}
			return len(left) == 0
		})

		// in some tests something else stands in its place
		if info, err := os.Stat(w.state); err == nil && info.IsDir() {
			checktest.Whole(t, w.state)
		}

		places := wire.SocketPlaces(w.state) // where the folder cannot be, locks lie beside the other place
		names, _ := filepath.Glob(strings.TrimSuffix(places[len(places)-1], "sock") + "*")
		for _, name := range names {
			_ = os.Remove(name)
		}
	})

	return w
}

// process is one that works in the world's state folder.
type process struct {
	pid      int
	cmd, env string // with NULs
}

// procs lists what runs in this world, intakes and daemons. Hooks are awaited, and so never among them at a test's end.
func (w *world) procs() (list []process) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		env, err := os.ReadFile(name)
		if err != nil || !strings.Contains("\x00"+string(env), "\x00BELAY_STATE_DIR="+w.state+"\x00") {
			continue
		}

		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		cmd, rerr := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err == nil && rerr == nil && len(cmd) > 0 {
			list = append(list, process{pid, string(cmd), string(env)})
		}
	}

	return list
}

func (w *world) count(command string) (n int) {
	for _, p := range w.procs() {
		if strings.Contains(p.cmd, "\x00"+command+"\x00") {
			n++
		}
	}
	return n
}

// quiet waits until all intakes are done.
func (w *world) quiet(t *testing.T) {
	t.Helper()
	until(t, "the last intake's end", func() bool { return w.count("intake") == 0 })
}

func (w *world) hook(t *testing.T, payload string, args ...string) run {
	t.Helper()
	stdin := stdinFile(t, payload)
	defer stdin.Close()
	cmd := exec.Command(filepath.Join(w.dir, "belay-hook"), args...)
	cmd.Env, cmd.Stdin = w.env, stdin
	return runHook(t, cmd)
}

// prompt sends one prompt of a session by Claude's hook.
func (w *world) prompt(t *testing.T, session, text string) run {
	t.Helper()
	return w.hook(t, fmt.Sprintf(`{"session_id":%q,"hook_event_name":"UserPromptSubmit","cwd":%q,"prompt":%q}`,
		session, w.state, text), "claude-code", "UserPromptSubmit")
}

func (w *world) belay(t *testing.T, v any, args ...string) error {
	t.Helper()
	cmd := exec.Command(filepath.Join(w.dir, "belay"), args...)
	cmd.Env = w.env
	out, err := cmd.Output()
	if v == nil || len(out) == 0 {
		return err
	}

	return errors.Join(err, json.Unmarshal(out, v))
}

// daemon gives the daemon's pid, 0 when none answers.
func (w *world) daemon(t *testing.T) int {
	t.Helper()
	var st struct{ PID int }
	if w.belay(t, &st, "status", "--json") != nil {
		return 0
	}
	return st.PID
}

func (w *world) start(t *testing.T) int {
	t.Helper()
	_ = w.belay(t, nil, "intake") // with an empty stdin it only starts a daemon
	pid := 0
	until(t, "a daemon", func() bool { pid = w.daemon(t); return pid != 0 })
	return pid
}

func (w *world) kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the daemon's end", func() bool { return w.count("daemon") == 0 })
}

// rounds is a session's count of rounds; each prompt but the first ends one.
func (w *world) rounds(t *testing.T, session string) int {
	t.Helper()
	var st struct {
		SessionID    string
		MessageCount int
	}

	if w.belay(t, &st, "status", "--json", "--session", session) != nil || st.SessionID != session {
		return -1
	}

	return st.MessageCount
}

// wantRounds waits for a number of rounds, and for the end of all that could still add one.
func (w *world) wantRounds(t *testing.T, session string, want int) {
	t.Helper()
	until(t, fmt.Sprintf("%d rounds", want), func() bool { return w.rounds(t, session) >= want })
	w.quiet(t)
	_ = w.belay(t, nil, "intake") // takes up what still lies in the spool
	if got := w.rounds(t, session); got != want {
		t.Errorf("got %d rounds, want %d: each prompt once", got, want)
	}
}

// TestRealManyPrompts: 20 prompts at once without a daemon: one daemon, each prompt once.
func TestRealManyPrompts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prompts(t, 20)
	w.wantRounds(t, realSession, 19)
	w.wantOneDaemon(t)
}

// wantOneDaemon waits for those to end that found the lock taken: on a busy machine one more may have been started.
func (w *world) wantOneDaemon(t *testing.T) {
	t.Helper()
	pid := w.daemon(t)
	until(t, "one daemon alone", func() bool { return w.count("daemon") == 1 })
	if got := w.daemon(t); got != pid || pid == 0 {
		t.Errorf("daemon %d became %d, want the first left alone", pid, got)
	}
}

// prompts sends n prompts at once.
func (w *world) prompts(t *testing.T, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { w.prompt(t, realSession, fmt.Sprint("prompt ", i)).quiet(t) })
	}
	wg.Wait()
}

// TestD17RealFiftyAtOnce: each of 50 sessions begins at the same moment.
func TestD17RealFiftyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { w.prompt(t, fmt.Sprintf("11111111-2222-4333-8444-%012d", i), "one of many").quiet(t) })
	}

	wg.Wait()
	var list struct {
		Sessions []struct{ SessionID string }
	}
	until(t, "50 sessions", func() bool {
		return w.belay(t, &list, "list", "--json") == nil && len(list.Sessions) >= 50
	})
	w.quiet(t)
	if len(list.Sessions) != 50 {
		t.Errorf("got %d sessions, want 50", len(list.Sessions))
	}

	w.wantOneDaemon(t)
}

// TestRealStoppedDaemon: a daemon that hangs costs the agent little, and nothing is lost or counted twice.
func TestRealStoppedDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pid := w.start(t)
	w.prompt(t, realSession, "before").quiet(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	runs := 1
	for range 10 {
		within(t, 250*time.Millisecond, func() run {
			runs++
			r := w.prompt(t, realSession, fmt.Sprint("while it hangs ", runs))
			r.quiet(t)
			return r
		})
	}

	w.quiet(t) // all of them spooled
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	w.wantRounds(t, realSession, runs-1)
	if got := w.daemon(t); got != pid {
		t.Errorf("daemon %d became %d, want it left alone", pid, got)
	}
}

// TestRealKilledDaemon: kill -9 between events, and among them.
func TestRealKilledDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := 0
	for range 3 {
		pid := w.start(t)
		for range 3 {
			w.prompt(t, realSession, fmt.Sprint("prompt ", n)).quiet(t)
			n++
		}

		var wg sync.WaitGroup
		for range 5 {
			text := fmt.Sprint("prompt ", n)
			n++
			wg.Go(func() { w.prompt(t, realSession, text).quiet(t) })
		}

		w.kill(t, pid)
		wg.Wait()
	}

	w.wantRounds(t, realSession, n-1)
}

// TestRealStateFolderCannotBe: a file stands in the state folder's place. No hook shows it.
func TestRealStateFolderCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := os.WriteFile(w.state, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	for range 3 {
		w.prompt(t, realSession, "prompt").quiet(t)
	}

	w.quiet(t)
	if data, err := os.ReadFile(w.state); string(data) != "x" {
		t.Errorf("the file in the way holds %q, %v, want x", data, err)
	}
}

// TestD08RealShell: a shell that captures the hook's output ends, and the daemon goes on. D07: nobody else has its
// socket.
func TestD08RealShell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := exec.Command("sh", "-c", `out=$("$1" claude-code SessionStart </dev/null 2>&1); printf %s "$out"`, "sh",
		filepath.Join(w.dir, "belay-hook"))
	cmd.Env = w.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal of its own, which ends with it
	began := time.Now()
	out, err := cmd.Output()
	if took := time.Since(began); err != nil || len(out) != 0 || took > 10*time.Second {
		t.Errorf("got %q, %v after %v, want nothing after a second", out, err, took)
	}

	var pid int
	until(t, "the daemon", func() bool { pid = w.daemon(t); return pid != 0 })
	w.quiet(t)
	holders, err := socketHolders(filepath.Join(w.state, "belay.sock"))
	if err != nil || len(holders) != 1 || holders[0] != pid {
		t.Errorf("the socket is held by %v, %v, want the daemon %d alone", holders, err, pid)
	}

	for fd := range 3 {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); to != "/dev/null" {
			t.Errorf("the daemon's descriptor %d is %q, %v, want /dev/null", fd, to, err)
		}
	}

	w.kill(t, pid)
	w.prompt(t, realSession, "after kill -9").quiet(t) // connect is refused, so a new daemon comes
	until(t, "a new daemon", func() bool { p := w.daemon(t); return p != 0 && p != pid })
}

// socketHolders gives the processes that have a listening socket open.
func socketHolders(path string) (pids []int, err error) {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil, err
	}

	var inode string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) == 8 && f[7] == path && f[5] == "01" { // 01: listens
			inode = "socket:[" + f[6] + "]"
		}
	}

	if inode == "" {
		return nil, fs.ErrNotExist
	}

	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, name := range fds {
		if to, err := os.Readlink(name); err == nil && to == inode {
			pid, err := strconv.Atoi(strings.Split(name, "/")[2])
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}

	return pids, nil
}

// TestX04RealModes: whatever the umask, nothing in the state folder is open to others, and no content is in a command
// line or environment at any moment.
func TestX04RealModes(t *testing.T) {
	for _, umask := range []string{"000", "077"} {
		t.Run(umask, func(t *testing.T) { realModes(t, umask) })
	}
}

func realModes(t *testing.T, umask string) {
	t.Parallel()
	w := newWorld(t)
	const content = "never-in-a-command-line"
	stop, seen := make(chan struct{}), make(chan string, 1)
	go func() {
		for bad := ""; ; {
			for _, p := range w.procs() {
				if strings.Contains(p.cmd+p.env, content) {
					bad = p.cmd
				}
			}
			select {
			case <-stop:
				seen <- bad
				return
			default:
			}
		}
	}()

	for i := range 4 {
		stdin := stdinFile(
			t,
			fmt.Sprintf(
				`{"session_id":%q,"hook_event_name":"UserPromptSubmit","prompt":"%s %d"}`, realSession, content,
				i,
			),
		)

		cmd := exec.Command(
			"sh", "-c", `umask "$2"; exec "$1" claude-code UserPromptSubmit`, "sh",
			filepath.Join(w.dir, "belay-hook"), umask,
		)

		cmd.Env, cmd.Stdin = w.env, stdin
		runHook(t, cmd).quiet(t)
		_ = stdin.Close()
	}

	w.wantRounds(t, realSession, 3)
	if err := w.belay(t, nil, "checkpoint", "--agent", "claude-code", "--session", realSession); err != nil {
		t.Errorf("checkpoint: %v", err)
	}

	close(stop)
	if bad := <-seen; bad != "" {
		t.Errorf("content was seen in %q or its environment", bad)
	}

	files := 0
	err := filepath.WalkDir(w.state, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // a temporary file that is gone
		}

		files++
		if fi, err := d.Info(); err == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf(
				"%s has mode %o, want nothing for group and others", strings.TrimPrefix(p, w.state),
				fi.Mode().Perm(),
			)
		}

		return nil
	})

	if err != nil || files < 5 {
		t.Errorf("got %d files, %v, want the whole state folder", files, err)
	}
}

// TestRealBriefWithoutDaemon: a session dies inside a turn, the daemon dies too, and a new session begins: its hook
// prints one document with what was going on, or nothing and the next prompt does.
func TestRealBriefWithoutDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kill(t, w.deadSession(t))
	r := w.hook(t, w.startPayload(), "claude-code", "SessionStart")
	w.quiet(t)
	for i := 0; r.stdout == "" && i < 5; i++ { // a prompt has 100 ms, which a busy machine may not have
		t.Logf("no answer within %v: the next prompt carries the brief", r.took)
		r = w.prompt(t, newSession, "go on")
	}

	w.wantBrief(t, r)
}

// TestRealBriefAfterASlowStart: the start came too late for its hook. Its brief is not lost.
func TestRealBriefAfterASlowStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deadSession(t)
	payload := w.startPayload()
	stdin, writer := slowStdin(t, payload[:20])
	cmd := exec.Command(filepath.Join(w.dir, "belay-hook"), "claude-code", "SessionStart")
	cmd.Env, cmd.Stdin = w.env, stdin
	runHook(t, cmd).quiet(t)
	if _, err := writer.WriteString(payload[20:]); err != nil {
		t.Error(err)
	}

	_ = writer.Close()
	w.quiet(t)
	var r run

	// a client that gave up on a busy machine is owed the brief with its next event
	until(t, "an answer in time", func() bool {
		r = w.prompt(t, newSession, "go on")
		return r.stdout != "" || r.took < wire.EventDeadline
	})

	w.wantBrief(t, r)
}

const newSession = "99999999-2222-4333-8444-555555555555"

func (w *world) startPayload() string {
	return fmt.Sprintf(
		`{"session_id":%q,"hook_event_name":"SessionStart","source":"startup","cwd":%q}`, newSession, w.state,
	)
}

// deadSession leaves behind a session that died inside a turn, and gives the daemon that knows of it.
func (w *world) deadSession(t *testing.T) (daemon int) {
	t.Helper()
	daemon = w.start(t)
	agent := exec.Command("sleep", "60")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}

	plain := w.env
	w.env = append(w.env, "CLAUDE_PID="+strconv.Itoa(agent.Process.Pid))
	w.prompt(t, realSession, "paint the boat green before the rain comes").quiet(t)
	w.env = plain
	_ = agent.Process.Kill()
	_ = agent.Wait() // it was killed
	return daemon
}

// wantBrief looks for the dead session's words in one document, which is given once.
func (w *world) wantBrief(t *testing.T, r run) {
	t.Helper()
	var doc struct {
		HookSpecificOutput struct{ AdditionalContext string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || r.stderr != "" {
		t.Fatalf("stdout %q, stderr %q, %v, want one document", r.stdout, r.stderr, err)
	}
	if !strings.Contains(doc.HookSpecificOutput.AdditionalContext, "paint the boat green") {
		t.Errorf("got %q, want what the dead session was asked", doc.HookSpecificOutput.AdditionalContext)
	}
	if r := w.prompt(t, newSession, "and now"); r.stdout != "" {
		t.Errorf("got %q once more, want it given once", r.stdout)
	}
}
