//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"belay/checkpoint"
	"belay/internal/daemon"
	"belay/internal/state/check"
	"belay/internal/state/check/checktest"
	"belay/internal/state/query"
	"belay/internal/state/spool"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// bin is the folder of the programs as users have them.
var bin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "belay-faults")
	if err == nil {
		bin = filepath.Join(dir, "now")
		err = build(bin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir) // a temporary folder: nothing is lost if it stays
		os.Exit(code)
	}))
}

// build makes both programs in a folder.
func build(dir string, flags ...string) error {
	args := append(append([]string{"build"}, flags...), "-o", dir+"/", "belay/cmd/belay", "belay/cmd/belay-hook")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w: %s", err, out)
	}
	return nil
}

// long says whether the long forms are asked for.
func long() bool { return os.Getenv("BELAY_LONG") != "" }

// patience is how long a test waits for what must happen; only a failing test waits so long.
const patience = 40 * time.Second

// until waits for a condition that nothing announces.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain for: %s", patience, what)
		}
	}
}

// world is a state folder, the programs, and what was acknowledged.
type world struct {
	t       *testing.T
	bin     string
	state   string
	env     []string
	excused []check.Rule
	mu      struct {
		sync.Mutex
		sent, onDisk map[string]int // stop events by session: sent, and answered with "kept: disk"
		hooks        []time.Duration
	}
}

// newWorld has small numbers, so that checkpoints are written and segments sealed all the time. A setting is KEY=VALUE.
func newWorld(t *testing.T, settings ...string) *world {
	t.Helper()
	return newWorldOn(t, 0, settings...)
}

// newWorldOn has its state folder on a disk of its own of so many bytes, in memory; 0 means the disk that is there.
func newWorldOn(t *testing.T, size int, settings ...string) *world {
	t.Helper()

	// in memory where that can be: kill -9 does not ask the disk, and a busy one would be most of the time
	base := "/dev/shm"
	if info, err := os.Stat(base); err != nil || !info.IsDir() {
		base = ""
	}

	home, err := os.MkdirTemp(base, "bf")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(home) })
	w := &world{t: t, bin: bin, state: filepath.Join(home, "s")}
	w.mu.sent, w.mu.onDisk = map[string]int{}, map[string]int{}
	w.env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + home,
		"BELAY_STATE_DIR=" + w.state,
		"BELAY_GATES_SPARSE_TIME=0s",
		"BELAY_JOURNAL_SEGMENT=64KB",
		"BELAY_BREAKER_PAUSE=1s",
		"BELAY_BREAKER_MAX_PAUSE=2s",
	}, settings...)

	if err := os.Mkdir(w.state, 0o700); err != nil {
		t.Fatal(err)
	}

	if size > 0 {
		if err := syscall.Mount("belay-test", w.state, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
			t.Skipf("no small disk can be mounted here: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(w.state, syscall.MNT_DETACH) })
	}

	t.Cleanup(w.whole)
	t.Cleanup(w.endAll)
	t.Cleanup(w.inTime)
	return w
}

// whole is the oracle at the end of every test: the store keeps every rule.
func (w *world) whole() { checktest.Whole(w.t, w.state, w.excused...) }

// procs lists the processes that work in this world: its folder's name was made for this test alone.
func (w *world) procs(command string) (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		env, err := os.ReadFile(name)
		if err != nil || !strings.Contains("\x00"+string(env), "\x00BELAY_STATE_DIR="+w.state+"\x00") {
			continue
		}

		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		cmd, rerr := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err == nil && rerr == nil && len(cmd) > 0 && strings.Contains(string(cmd), "\x00"+command) {
			pids = append(pids, pid)
		}
	}

	return pids
}

func (w *world) endAll() {
	until(w.t, "the end of what this test started", func() bool {
		left := w.procs("")
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		return len(left) == 0
	})
}

// daemonProc is a daemon that a test started itself.
type daemonProc struct {
	*exec.Cmd
	w *world
}

// start runs a daemon and waits for its answer.
func (w *world) start() *daemonProc {
	w.t.Helper()
	d := w.launch()
	until(w.t, "the daemon answers", func() bool { return w.status() != nil })
	return d
}

func (w *world) launch() *daemonProc {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(w.bin, "belay"), "daemon")
	cmd.Env = w.env
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return &daemonProc{cmd, w}
}

func (d *daemonProc) kill() {
	_ = d.Process.Kill() // it may have ended
	_ = d.Wait()         // it says that it was killed
}

// stop ends it as SIGTERM does.
func (d *daemonProc) stop() error {
	return errors.Join(d.Process.Signal(syscall.SIGTERM), d.Wait())
}

func (w *world) do(req wire.Request, payload []byte) (wire.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := wire.Dial(ctx, w.state, "")
	if err != nil {
		return wire.Reply{}, err
	}

	defer c.Close()
	reply, _, err := c.Do(ctx, req, payload)
	return reply, err
}

// status is nil when no daemon answers.
func (w *world) status() *daemon.Status {
	reply, err := w.do(wire.Request{Op: "status"}, nil)
	if err != nil || !reply.OK {
		return nil
	}

	st := new(daemon.Status)
	if err := json.Unmarshal(reply.Body, st); err != nil {
		w.t.Errorf("status %s: %v", reply.Body, err)
		return nil
	}

	return st
}

// belay runs a command and gives what it prints.
func (w *world) belay(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(w.bin, "belay"), args...)
	cmd.Env = w.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// round sends one round of a session and counts what its answer promises.
func (w *world) round(c *wire.Conn, session string, size int) (wire.Reply, error) {
	w.mu.Lock()
	w.mu.sent[session]++
	n := w.mu.sent[session]
	w.mu.Unlock()
	id := fmt.Sprintf("%s-%d", session, n)
	body, err := json.Marshal(wire.Event{Kind: "stop", Turn: id, Text: id + " " + strings.Repeat("word ", size/5)})
	if err != nil {
		return wire.Reply{}, err
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, _, err := c.Do(
		ctx,
		wire.Request{Op: "event", Agent: "tester", Session: session, Workspace: "/proj", ID: id, Body: body},
		nil,
	)

	if err == nil && reply.OK && reply.Kept == wire.KeptDisk {
		w.mu.Lock()
		w.mu.onDisk[session]++
		w.mu.Unlock()
	}

	return reply, err
}

// rounds sends n rounds of a session on a connection of their own and gives the last answer.
func (w *world) rounds(session string, n, size int) (last wire.Reply) {
	w.t.Helper()
	c, err := wire.Dial(context.Background(), w.state, "")
	if err != nil {
		w.t.Fatal(err)
	}

	defer c.Close()
	for range n {
		if last, err = w.round(c, session, size); err != nil {
			w.t.Fatalf("round of %s: %v", session, err)
		}
	}

	return last
}

// healed waits until everything is on disk and the store is well.
func (w *world) healed() {
	w.t.Helper()
	until(w.t, "all is on disk and the store is well", func() bool {
		st := w.status()
		return st != nil && st.Journal.Error == "" && st.Journal.Held == 0 && !st.Degraded &&
			st.Journal.Stored == st.Journal.Last
	})
}

// compare reads the folder as `belay recover` does, without a daemon: what was acknowledged is there, and nothing
// twice.
func (w *world) compare() (acked int) {
	w.t.Helper()
	states := w.states()
	for session, sent := range w.mu.sent {
		got := 0
		if s := states[session]; s != nil {
			got = s.Rounds
		}

		if acked += w.mu.onDisk[session]; got < w.mu.onDisk[session] || got > sent {
			w.t.Errorf(
				"session %s: %d acknowledged <= %d recovered <= %d sent does not hold", session,
				w.mu.onDisk[session], got, sent,
			)
		}
	}

	return acked
}

func (w *world) states() map[string]*checkpoint.State {
	w.t.Helper()
	list, rep, err := query.Open(w.state, nil).Dir.States(context.Background(), nil)
	if err != nil || len(rep.Bad) > 0 {
		w.t.Errorf("states: %v, bad %v", err, rep.Bad)
	}

	out := map[string]*checkpoint.State{}
	for key, s := range list {
		out[key.Session] = s
	}

	return out
}

// prompt runs the hook of one prompt, and fails the test where an agent would notice belay. Its time counts in inTime.
func (w *world) prompt(session, text string) time.Duration {
	w.t.Helper()
	file := filepath.Join(filepath.Dir(w.state), fmt.Sprintf("in-%d", time.Now().UnixNano()))
	payload := fmt.Sprintf(
		`{"session_id":%q,"hook_event_name":"UserPromptSubmit","cwd":"/proj","prompt":%q}`, session, text,
	)

	if err := os.WriteFile(file, []byte(payload), 0o600); err != nil {
		w.t.Fatal(err)
	}

	defer os.Remove(file)
	in, err := os.Open(file)
	if err != nil {
		w.t.Fatal(err)
	}

	defer in.Close()
	cmd := exec.Command(filepath.Join(w.bin, "belay-hook"), "claude-code", "UserPromptSubmit")
	cmd.Env, cmd.Stdin = w.env, in
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil || len(out) > 0 {
		w.t.Errorf("belay-hook: %v, printed %q; want exit 0 and nothing", err, out)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.hooks = append(w.mu.hooks, took)
	return took
}

// inTime fails the test when hooks took longer than five times what they may. One alone may have had bad luck: the
// machine is busy. None hangs.
func (w *world) inTime() {
	if len(w.mu.hooks) == 0 {
		return
	}

	slices.Sort(w.mu.hooks)
	median, slowest := w.mu.hooks[len(w.mu.hooks)/2], w.mu.hooks[len(w.mu.hooks)-1]
	if most := 5 * wire.EventDeadline; median > most || slowest > 10*most {
		w.t.Errorf(
			"half of %d hooks took over %s, the slowest %s; want %s at most", len(w.mu.hooks), median, slowest,
			most,
		)
	}

	w.t.Logf(
		"%d hooks: half within %s, the slowest %s", len(w.mu.hooks), median.Round(time.Millisecond),
		slowest.Round(time.Millisecond),
	)
}

// quiet waits until no intake runs.
func (w *world) quiet() {
	w.t.Helper()
	until(w.t, "the last intake's end", func() bool { return len(w.procs("intake")) == 0 })
}

// spooled counts the events that wait for a daemon.
func (w *world) spooled() int {
	n, _, err := spool.Pending(vfs.OS{}, filepath.Join(w.state, "spool"))
	if err != nil {
		w.t.Error(err)
	}
	return n
}

// logLines counts the log's lines, and gives the last of them for a failing test.
func (w *world) logLines() int {
	data, err := os.ReadFile(filepath.Join(w.state, "belay.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}
