package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"belay/internal/daemon"
	"belay/internal/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The tests run the real programs, built once. place.work is short: a socket's path must be.
var place struct{ bin, work string }

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "daemon" {
		os.Exit(0) // a command that a test runs in its own process found no daemon, and takes this for the program
	}

	flag.Parse()
	dir, err := os.MkdirTemp("", "bl")
	if err != nil {
		panic(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		panic(err)
	}

	place.bin, place.work = filepath.Join(dir, "bin"), filepath.Join(dir, "w")
	build := exec.Command("go", "build", "-o", place.bin+"/", ".", "../belay-hook")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	if err := os.Mkdir(place.work, 0o700); err != nil {
		panic(err)
	}

	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}))
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", WorkdirRoot: place.work, RequireUniqueNames: true, UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			e.Setenv("HOME", home)
			e.Setenv("PATH", place.bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
			e.Setenv("BIN", place.bin)
			e.Setenv("STATE", filepath.Join(home, ".local", "state", "belay"))
			e.Defer(func() {
				stopDaemon(filepath.Join(home, ".local", "state", "belay"))
				stopDaemon(filepath.Join(e.WorkDir, "st")) // the other folder that a script may use
				// no folder can be there: its daemon listens at the second place
				stopDaemon(filepath.Join(e.WorkDir, "plain.txt", "st"))
			})

			return os.MkdirAll(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  exits,
			"ready":  ready,
			"until":  until,
			"keys":   keys,
			"value":  value,
			"claude": fakeClaude,
			"hup":    hup,
		},
	})
}

// exits N COMMAND... runs a command, which must end with the exit code N.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}

	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ee *exec.ExitError
		if !errors.As(err, &ee) {
			ts.Fatalf("%v", err)
		}
		got = ee.ExitCode()
	}

	ts.Logf("[stdout]\n%s[stderr]\n%s", ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func stateOf(ts *testscript.TestScript) string {
	if dir := ts.Getenv("BELAY_STATE_DIR"); dir != "" {
		return dir
	}
	return ts.Getenv("STATE")
}

// ready waits for the daemon.
func ready(ts *testscript.TestScript, _ bool, _ []string) {
	if !wait(func() bool { return isReady(stateOf(ts)) }) {
		ts.Fatalf("no daemon answers")
	}
}

// hup makes the daemon read its settings again.
func hup(ts *testscript.TestScript, _ bool, _ []string) {
	st, err := daemonStatus(stateOf(ts))
	ts.Check(err)
	ts.Check(syscall.Kill(st.PID, syscall.SIGHUP))
}

// until TEXT COMMAND... runs a command again and again until its output holds the text.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until TEXT COMMAND [ARG...]")
	}
	if !wait(func() bool {
		return ts.Exec(args[1], args[2:]...) == nil && strings.Contains(ts.ReadFile("stdout"), args[0])
	}) {
		ts.Fatalf("never said %q, last:\n%s%s", args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// wait polls until done or a generous deadline.
func wait(done func() bool) bool {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

// keys NAME compares the names of all fields of the JSON on stdout with testdata/keys/NAME.txt, the documented ones.
func keys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keys NAME")
	}
	if err := golden(args[0], keyList(decodeJSON(ts, ts.ReadFile("stdout")))); err != nil {
		ts.Fatalf("%v", err)
	}
}

func golden(name string, got []string) error {
	file := filepath.Join("testdata", "keys", name+".txt")
	text := strings.Join(got, "\n") + "\n"
	if *update {
		return os.WriteFile(file, []byte(text), 0o644)
	}

	want, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if text != string(want) {
		return fmt.Errorf("fields:\n%s\nwant those of %s:\n%s", text, file, want)
	}

	return nil
}

// keyList gives the path of every field: sessions[].agent.
func keyList(v any) []string {
	seen := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				p := strings.TrimPrefix(path+"."+k, ".")
				seen[p] = true
				if p != "state" && p != "watch" && p != "counts" { // for debugging, of the machine, and open to more
					walk(p, x)
				}
			}
		case []any:
			for _, x := range v {
				walk(path+"[]", x)
			}
		}
	}

	walk("", v)
	list := make([]string, 0, len(seen))
	for k := range seen {
		list = append(list, k)
	}

	slices.Sort(list)
	return list
}

func decodeJSON(ts *testscript.TestScript, text string) any {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		ts.Fatalf("stdout is no JSON document: %v\n%s", err, text)
	}
	return v
}

// value PATH WANT compares one field of the JSON on stdout: value sessions.0.agent mine.
func value(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: value PATH WANT")
	}

	v := decodeJSON(ts, ts.ReadFile("stdout"))
	for _, k := range strings.Split(args[0], ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[k]
		case []any:
			i, err := strconv.Atoi(k)
			if err != nil || i >= len(x) {
				ts.Fatalf("no %s", args[0])
			}
			v = x[i]

		default:
			ts.Fatalf("no %s", args[0])
		}
	}

	if got := fmt.Sprint(v); (got == args[1]) == neg {
		ts.Fatalf("%s = %s, want %s (not: %v)", args[0], got, args[1], neg)
	}
}

// fakeClaude VERSION puts a claude program that says its version into $WORK/agents and that folder on PATH.
func fakeClaude(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs("agents")
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(os.WriteFile(filepath.Join(dir, "claude"), []byte("#!/bin/sh\necho '"+args[0]+" (Claude Code)'\n"), 0o755))
	ts.Setenv("PATH", dir+string(filepath.ListSeparator)+ts.Getenv("PATH"))
}

func daemonStatus(state string) (st daemon.Status, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := wire.Dial(ctx, state, "")
	if err != nil {
		return st, err
	}

	defer c.Close() // the answer is here
	r, _, err := c.Do(ctx, wire.Request{Op: "status"}, nil)
	if err != nil {
		return st, err
	}

	return st, json.Unmarshal(r.Body, &st)
}

// isReady says whether a daemon answers and has had its first heartbeat, which may take a checkpoint of its own.
func isReady(state string) bool {
	st, err := daemonStatus(state)
	return err == nil && !st.Heartbeat.IsZero()
}

// stopDaemon ends the daemon of a state folder, which a test has started, directly or by an event.
func stopDaemon(state string) {
	st, err := daemonStatus(state)
	if err != nil || st.PID <= 1 {
		return
	}
	_ = syscall.Kill(st.PID, syscall.SIGTERM) // gone already: then the next line ends at once
	wait(func() bool { return unlocked(strings.TrimSuffix(st.Socket, ".sock") + ".lock") })
}

// unlocked says whether nobody holds a lock file: the daemon's end, after its last write.
func unlocked(name string) bool {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a test may have put a pipe there
	if err != nil {
		return true // gone with its folder
	}
	defer f.Close() // only read; lets the lock go again
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
