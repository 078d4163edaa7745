package main

import (
	"bufio"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/internal/wire"
)

// rival is one program of BenchmarkSpawn.
type rival struct {
	name string
	argv []string
	env  []string

	took   []float64 // ms
	faults []float64
}

// spawn runs the program once, from spawn to exit, with a payload that is there already.
func (r *rival) spawn(b *testing.B, payload []byte, null int) {
	stdin, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}

	defer stdin.Close()
	fd := stdin.Fd()
	_, err = w.Write(payload)
	_ = w.Close() // all of it is in the pipe
	if err != nil {
		b.Fatal(err)
	}

	began := time.Now()
	pid, err := syscall.ForkExec(
		r.argv[0], r.argv, &syscall.ProcAttr{Env: r.env, Files: []uintptr{fd, uintptr(null), uintptr(null)}},
	)

	if err != nil {
		b.Fatal(err)
	}

	var status syscall.WaitStatus
	var usage syscall.Rusage
	for {
		if _, err = syscall.Wait4(pid, &status, 0, &usage); err != syscall.EINTR {
			break
		}
	}

	r.took = append(r.took, float64(time.Since(began))/1e6)
	r.faults = append(r.faults, float64(usage.Minflt))
	if err != nil || status.ExitStatus() != 0 {
		b.Fatalf("%s: status %d, %v, want 0", r.name, status.ExitStatus(), err)
	}
}

// serveAlone answers one request a connection, until it is killed.
func serveAlone(path string) int {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return 1
	}

	for {
		c, err := ln.Accept()
		if err != nil {
			return 1
		}

		go func() {
			var req wire.Request
			line, err := bufio.NewReader(c).ReadBytes('\n') // the payload is in the buffer too
			if err == nil && json.Unmarshal(line, &req) == nil {
				_, _ = io.WriteString(c, `{"ok":true,"seq":1}`+"\n")
			}
			_ = c.Close()
		}()
	}
}

// startServer runs it until the benchmark ends.
func startServer(b *testing.B, path string) {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}

	cmd := exec.Command(exe)
	cmd.Env = []string{serveVar + "=" + path}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})

	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			return
		} else if time.Now().After(end) {
			b.Fatal(err)
		}
	}
}

func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	return s[len(s)/2]
}

// BenchmarkSpawn is goals A1, A3 and A4: what an agent waits for at each hook, beside a static C client and an empty Go
// program in the same run and in random order. One iteration runs each once: use -benchtime 300x.
func BenchmarkSpawn(b *testing.B) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		b.Skip("gcc is not here: there is no yardstick")
	}

	dir := b.TempDir()
	floor, empty := filepath.Join(dir, "floor"), filepath.Join(dir, "empty")
	for _, args := range [][]string{
		{gcc, "-O2", "-static", "-o", floor, "testdata/floor.c"},
		{"go", "build", "-trimpath", "-ldflags=-s -w", "-o", empty, "./testdata/empty"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			b.Skipf("%v: %v %s", args, err, out)
		}
	}

	// The hook's own cost without a daemon: the belay beside it ends at once.
	alone := filepath.Join(dir, "alone")
	for from, to := range map[string]string{filepath.Join(bin, "belay-hook"): "belay-hook", floor: "belay"} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(alone, 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(alone, to), data, 0o700)
		}
		if err != nil {
			b.Fatal(err)
		}
	}

	state, none := tempState(b), tempState(b)
	startServer(b, sock(state))
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}

	defer syscall.Close(null)
	env := func(state string) []string {
		return []string{"PATH=/usr/bin:/bin", "HOME=/h", "BELAY_STATE_DIR=" + state}
	}
	c := &rival{name: "c", argv: []string{floor, sock(state)}}
	exit := &rival{name: "exit", argv: []string{floor}} // spawned, and ends at once
	goMain := &rival{name: "empty", argv: []string{empty}}
	hook := &rival{
		name: "hook",
		argv: []string{filepath.Join(bin, "belay-hook"), "claude-code", "Stop"},
		env:  env(state),
	}

	lost := &rival{
		name: "nodaemon",
		argv: []string{filepath.Join(alone, "belay-hook"), "claude-code", "Stop"},
		env:  env(none),
	}

	all := []*rival{c, exit, goMain, hook, lost}
	payload := []byte(
		`{"session_id":"11111111-2222-4333-8444-555555555555","hook_event_name":"Stop","last_assistant_message":"` +
			strings.Repeat("x", 120) + `"}`,
	)

	for b.Loop() {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, r := range all {
			r.spawn(b, payload, null)
		}
	}

	for _, r := range all {
		b.ReportMetric(median(r.took), r.name+"-ms")
		b.ReportMetric(median(r.faults), r.name+"-faults")
		b.ReportMetric(slices.Min(r.faults), r.name+"-minfaults")
	}

	b.ReportMetric(median(hook.took)/median(c.took), "hook/c")
	b.ReportMetric(median(hook.took)/median(goMain.took), "hook/empty")

	// An empty program does not talk to the daemon; what that costs a C client is added to it.
	b.ReportMetric(median(hook.took)/(median(goMain.took)+median(c.took)-median(exit.took)), "hook/empty+trip")
	b.ReportMetric(median(lost.took)/median(hook.took), "nodaemon/hook")
}
