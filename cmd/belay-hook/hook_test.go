package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"belay/internal/wire"
	"belay/internal/wire/intake"
)

// Variables that make the test binary the `belay` that the hook starts. They go on to it because of their names.
const (
	takeVar = "BELAY_TEST_TAKE" // write what came on stdin into this file
	realVar = "BELAY_TEST_REAL" // run the real intake, whose daemon never comes up, and leave a file in this folder
	restVar = "BELAY_TEST_REST" // how long the real intake waits for the rest of a payload
)

// serveVar makes the test binary a small daemon at this socket, in a process of its own as the real one.
const serveVar = "BELAY_TEST_SERVE"

// bin is the folder of the built belay-hook and of a `belay` beside it that is the test binary.
var bin string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "belay" {
		os.Exit(fakeBelay())
	}
	if path := os.Getenv(serveVar); path != "" {
		os.Exit(serveAlone(path))
	}

	dir, err := os.MkdirTemp("", "belay-hook")
	if err == nil {
		bin = dir
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build belay-hook:", err)
		os.Exit(1)
	}

	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func build(dir string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "belay-hook"), ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}

	exe, err := os.Executable()
	if err != nil {
		return err
	}

	return os.Symlink(exe, filepath.Join(dir, "belay"))
}

// spawned is what a started intake saw.
type spawned struct {
	Args, Env    []string
	Stdin        []byte
	Cwd          string
	PID, Session int
	Files        map[string]string // descriptor -> what it is
}

func fakeBelay() int {
	state := os.Getenv("BELAY_STATE_DIR")
	if ends := os.Getenv(realVar); ends != "" {
		rest, _ := time.ParseDuration(os.Getenv(restVar))
		_ = intake.Run(context.Background(), os.Stdin, intake.Options{
			StateDir:    state,
			RestWait:    rest,
			Redact:      func(_, _ string, p []byte) []byte { return p },
			StartDaemon: func() error { return nil },
		})

		if os.WriteFile(filepath.Join(ends, strconv.Itoa(os.Getpid())), nil, 0o600) != nil {
			return 1
		}

		return 0
	}

	name := os.Getenv(takeVar)
	if name == "" {
		return 0
	}

	v := spawned{Args: os.Args[1:], Env: os.Environ(), PID: os.Getpid(), Files: map[string]string{}}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			v.Files[e.Name()] = to
		}
	}

	v.Stdin, _ = io.ReadAll(os.Stdin)
	v.Cwd, _ = os.Getwd()
	sid, _, _ := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
	v.Session = int(sid)
	data, _ := json.Marshal(v)

	// A name for each, put in place whole.
	name += "." + strconv.Itoa(os.Getpid())
	if os.WriteFile(name+".tmp", data, 0o600) != nil || os.Rename(name+".tmp", name+".json") != nil {
		return 1
	}

	return 0
}

// run is one run of the hook.
type run struct {
	stdout, stderr string
	took           time.Duration
	code           int
	usage          *syscall.Rusage
}

// hook runs the client in a state folder, with all of stdin there before it starts: what a busy machine does to the
// writer is not what these tests are about.
func hook(t *testing.T, state, stdin string, env []string, args ...string) run {
	t.Helper()
	f := stdinFile(t, stdin)
	defer f.Close()
	return hookFrom(t, state, f, env, args...)
}

// stdinFile is an open file that holds all of a hook's stdin.
func stdinFile(t *testing.T, stdin string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(bin, "stdin")
	if err != nil {
		t.Fatal(err)
	}

	_ = os.Remove(f.Name()) // the open file is enough
	if _, err := f.WriteString(stdin); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}

	return f
}

// hookFrom is hook with an open file as stdin. The client's environment is the given one and little else.
func hookFrom(t *testing.T, state string, stdin *os.File, env []string, args ...string) run {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "belay-hook"), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "BELAY_STATE_DIR=" + state}, env...)
	cmd.Stdin = stdin
	return runHook(t, cmd)
}

// runHook runs a client, which must exit 0.
func runHook(t *testing.T, cmd *exec.Cmd) run {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	r := run{stdout: out.String(), stderr: errs.String(), took: time.Since(began), code: cmd.ProcessState.ExitCode()}
	r.usage, _ = cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if err != nil || r.code != 0 {
		t.Errorf("%v: exit %d, %v, want 0 always", cmd.Args[1:], r.code, err)
	}

	return r
}

// within repeats a run until it ends in time, at most twenty times: a busy machine may take any of them.
func within(t *testing.T, limit time.Duration, one func() run) run {
	t.Helper()
	var r run
	for range 20 {
		if r = one(); r.took <= limit {
			return r
		}
	}

	t.Errorf("took %v, want at most %v", r.took, limit)
	return r
}

// quiet fails when the hook said anything.
func (r run) quiet(t *testing.T) {
	t.Helper()
	if r.stdout != "" || r.stderr != "" {
		t.Errorf("stdout %q, stderr %q, want nothing", r.stdout, r.stderr)
	}
}

// tempState is a private folder with a short name.
func tempState(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// daemon is a fake one.
type daemon struct {
	mu  sync.Mutex
	got []request
}

type request struct {
	line    string
	req     wire.Request
	payload string
}

func (d *daemon) list() []request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.got)
}

// serve lets answer talk to each client that comes to path; it ends with the test.
func serve(t testing.TB, path string, answer func(net.Conn, request)) *daemon {
	t.Helper()
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, ln, answer)
}

func serveOn(t testing.TB, ln net.Listener, answer func(net.Conn, request)) *daemon {
	t.Helper()
	d := &daemon{}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}

			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				if r, ok := d.read(c); ok {
					answer(c, r)
				}
			})
		}
	})

	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})

	return d
}

func (d *daemon) read(c net.Conn) (r request, ok bool) {
	br := bufio.NewReader(c)
	line, err := br.ReadString('\n')
	if err != nil || json.Unmarshal([]byte(line), &r.req) != nil {
		return r, false
	}

	buf := make([]byte, r.req.Len)
	if _, err := io.ReadFull(br, buf); err != nil {
		return r, false
	}

	r.line, r.payload = line, string(buf)
	d.mu.Lock()
	d.got = append(d.got, r)
	d.mu.Unlock()
	return r, true
}

// reply answers with these bytes and closes.
func reply(s string) func(net.Conn, request) {
	return func(c net.Conn, _ request) {
		_, _ = io.WriteString(c, s)
		_ = c.Close()
	}
}

const okReply = `{"ok":true,"seq":1,"kept":"disk"}` + "\n"

func sock(state string) string { return filepath.Join(state, "belay.sock") }

// until polls for something that another process does.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// intakes waits for n started intakes and gives what they saw.
func intakes(t *testing.T, file string, n int) []spawned {
	t.Helper()
	var list []spawned
	until(t, "an intake", func() bool {
		names, _ := filepath.Glob(file + ".*.json")
		list = nil
		for _, name := range names {
			var v spawned
			data, err := os.ReadFile(name)
			if err == nil && json.Unmarshal(data, &v) == nil {
				list = append(list, v)
			}
		}

		return len(list) >= n
	})

	if len(list) != n {
		t.Errorf("got %d intakes, want %d", len(list), n)
	}

	return list
}

// ended waits for the end of n real intakes.
func ended(t *testing.T, ends string, n int) {
	t.Helper()
	until(t, "the last intake's end", func() bool {
		entries, _ := os.ReadDir(ends)
		return len(entries) == n
	})
}
