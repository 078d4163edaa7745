package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"go.uber.org/goleak"
)

// roleVar makes the test binary a daemon: it is kept by Environ because of its name.
const roleVar = "BELAY_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == "daemon" {
		if err := fakeDaemon(os.Getenv("BELAY_STATE_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// birth is what a daemon knows of itself.
type birth struct {
	PID, Session int
	Cwd          string
	Env          []string
	Files        map[string]string // descriptor -> what it is
}

// fakeDaemon is one process with a lock and a socket. It writes each event's id to a file and ends when no event came
// for a while.
func fakeDaemon(dir string) error {
	appendLine(filepath.Join(dir, "starts"), strconv.Itoa(os.Getpid()))
	b := birth{PID: os.Getpid(), Env: os.Environ(), Files: map[string]string{}}
	b.Cwd, _ = os.Getwd()
	sid, _, _ := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
	b.Session = int(sid)
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			b.Files[e.Name()] = to
		}
	}

	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "birth.tmp"), data, 0o600); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "birth.tmp"), filepath.Join(dir, "birth")); err != nil {
		return err
	}
	if ok, err := flock.New(filepath.Join(dir, "belay.lock")).TryLock(); !ok || err != nil {
		appendLine(filepath.Join(dir, "second"), strconv.Itoa(os.Getpid()))
		return err
	}

	ln, err := net.Listen("unix", filepath.Join(dir, "belay.sock"))
	if err != nil {
		return err
	}

	for {
		if err := ln.(*net.UnixListener).SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
			return err
		}

		conn, err := ln.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ln.Close()
		}
		if err != nil {
			return err
		}

		f := &fake{}
		go func() {
			f.talk(conn, okReply)
			for _, g := range f.list() {
				appendLine(filepath.Join(dir, "events"), g.req.ID)
			}
			_ = conn.Close()
		}()
	}
}

func appendLine(name, line string) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return // the test misses the line
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}

func lines(name string) []string {
	data, _ := os.ReadFile(name)
	return strings.Fields(string(data))
}

// until polls for something that another process does.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// daemonOptions start the test binary as a daemon, which the end of the test stops by its id.
func daemonOptions(t *testing.T, dir string) Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	t.Setenv(roleVar, "daemon")
	t.Cleanup(func() {
		for _, s := range lines(filepath.Join(dir, "starts")) {
			if pid, err := strconv.Atoi(s); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
				var ws syscall.WaitStatus
				_, _ = syscall.Wait4(pid, &ws, 0, nil)
			}
		}
	})

	opt := options(dir)
	opt.StartDaemon = func() error { return StartDetached(exe, nil, dir) }
	opt.Wait = 20 * time.Second // the machine may be busy; D17 is about one daemon and no lost event
	return opt
}

// TestD17FiftyAtOnce: 50 hooks find no daemon at the same moment.
func TestD17FiftyAtOnce(t *testing.T) {
	dir := stateDir(t)
	opt := daemonOptions(t, dir)
	var wg sync.WaitGroup
	var want []string
	for i := range 50 {
		id := fmt.Sprintf("id-%02d", i)
		want = append(want, id)
		wg.Go(func() {
			if err := Run(t.Context(), event(id, "p"), opt); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}

	wg.Wait()
	var ids []string
	until(t, "50 events", func() bool {
		ids = lines(filepath.Join(dir, "events"))
		slices.Sort(ids)
		ids = slices.Compact(ids) // a double is dropped by its id
		return len(ids) >= 50
	})

	if !slices.Equal(ids, want) {
		t.Errorf("got %v, want each of the 50 once", ids)
	}
	if n := len(lines(filepath.Join(dir, "starts"))); n != 1 {
		t.Errorf("got %d daemons started, want 1", n)
	}
	if n := len(spooled(t, dir)); n != 0 {
		t.Errorf("spool: got %d events, want none left", n)
	}

	wantDropped(t, dir, 0)
}

// TestD08StartedDaemonHoldsNothing: a pipe of the agent that the daemon kept open would make the agent wait for ever.
// D07 is the same for the listening socket.
func TestD08StartedDaemonHoldsNothing(t *testing.T) {
	dir := stateDir(t)
	opt := daemonOptions(t, dir)
	t.Setenv("ANTHROPIC_API_KEY", "a-key")
	t.Setenv("CLAUDE_CONFIG_DIR", "/some/where")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	defer r.Close()
	leak, err := syscall.Dup(int(w.Fd())) // without close-on-exec, as an agent leaves its own
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), strings.NewReader(""), opt); err != nil { // only starts
		t.Fatal(err)
	}

	_ = w.Close()
	_ = syscall.Close(leak)
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil { // would wait for ever
		t.Errorf("read from the pipe: got %d, %v, want its end", n, err)
	}

	var b birth
	until(t, "the daemon", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "birth"))
		return err == nil && json.Unmarshal(data, &b) == nil
	})

	if b.Cwd != "/" || b.Session != b.PID {
		t.Errorf("got folder %q, session %d of process %d; want / and a session of its own", b.Cwd, b.Session, b.PID)
	}

	for fd, what := range b.Files {
		n, _ := strconv.Atoi(fd)
		own := strings.HasPrefix(what, "/proc/") || strings.HasPrefix(what, "anon_inode:") ||
			strings.HasPrefix(what, "/sys/")
		if n < 3 && what != "/dev/null" || n >= 3 && !own {
			t.Errorf("descriptor %s is %s, want /dev/null for stdio and nothing else", fd, what)
		}
	}

	for _, want := range []string{"BELAY_INTERNAL=1", "BELAY_STATE_DIR=" + dir, "CLAUDE_CONFIG_DIR=/some/where"} {
		if !slices.Contains(b.Env, want) {
			t.Errorf("environment lacks %s", want)
		}
	}

	if i := slices.IndexFunc(b.Env, func(kv string) bool { return strings.Contains(kv, "a-key") }); i >= 0 {
		t.Error("the agent's key is in the daemon's environment")
	}
}

func TestAStartIsNotRepeatedAtOnce(t *testing.T) {
	dir := stateDir(t)
	opt := options(dir)
	starts := 0
	opt.StartDaemon = func() error { starts++; return nil } // "started", but it never answers
	opt.Wait = 150 * time.Millisecond
	for range 3 {
		if err := Run(t.Context(), event("id", "p"), opt); err != nil {
			t.Fatal(err)
		}
	}

	if starts != 1 {
		t.Errorf("got %d starts within a second, want 1", starts)
	}
	if n := len(spooled(t, dir)); n != 3 {
		t.Errorf("spool: got %d events, want 3", n)
	}
}

func TestStartDetachedTellsAMissingProgram(t *testing.T) {
	err := StartDetached(filepath.Join(t.TempDir(), "none"), nil, "")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
}
