package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"belay/internal/state/query"
	"belay/internal/wire"
)

// daemon starts a daemon of this home's and waits for it; kill ends it as kill -9 does, and waits until it is gone.
func (h home) daemon(t *testing.T) (pid int, kill func()) {
	t.Helper()
	cmd := exec.Command(filepath.Join(place.bin, "belay"), "daemon")
	cmd.Env = []string{"HOME=" + string(h), "PATH=" + os.Getenv("PATH")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill() // gone already: then Wait ends at once
			_ = cmd.Wait()         // it was killed
		}
	}

	t.Cleanup(kill)
	if !wait(func() bool { return isReady(h.state()) }) {
		t.Fatal("no daemon answers")
	}

	return cmd.Process.Pid, kill
}

// ok runs belay, which must succeed, and gives what it printed.
func (h home) ok(t *testing.T, args ...string) string {
	t.Helper()
	out, code := h.belay(t, string(h), args...)
	if code != exitOK {
		t.Fatalf("belay %q: exit code %d, want 0: %s", args, code, out)
	}
	return out
}

// talked gives a session a round and a FULL that holds it.
func (h home) talked(t *testing.T, id, words string) {
	t.Helper()
	for _, event := range []string{`{"kind":"prompt","text":"%s"}`, `{"kind":"stop","text":"answer to %s"}`} {
		h.ok(t, "event", "--agent", "mine", "--session", id, fmt.Sprintf(event, words))
	}

	last := "" // within a second of the FULL at first sight there is none by hand
	if !wait(func() bool {
		last = h.ok(t, "checkpoint", "--agent", "mine", "--session", id)
		return strings.Contains(last, "nothing new")
	}) {
		t.Fatalf("the checkpoint of %s does not hold all: %s", id, last)
	}
}

// D07: nobody else holds the listener, so that it goes with the daemon; what the daemon starts does not outlive its
// work.
func TestD07NobodyElseHoldsTheSocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("who holds a socket is read from /proc")
	}
	for name, start := range map[string]func(h home) int{
		"started by a person": func(h home) int { pid, _ := h.daemon(t); return pid },
		"started by a hook": func(h home) int {
			hook := exec.Command(filepath.Join(place.bin, "belay-hook"), "verb", "increment")
			hook.Env = []string{"HOME=" + string(h), "PATH=" + os.Getenv("PATH"), "BELAY_SESSION=s"}
			if out, err := hook.CombinedOutput(); err != nil {
				t.Fatalf("belay-hook: %v: %s", err, out)
			}
			if !wait(func() bool { return isReady(h.state()) }) {
				t.Fatal("no daemon was started")
			}

			st, err := daemonStatus(h.state())
			if err != nil {
				t.Fatal(err)
			}

			return st.PID
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			if out, err := exec.Command("git", "init", "-q", string(h)).CombinedOutput(); err != nil {
				t.Fatalf("git init: %v: %s", err, out) // so that a FULL starts git
			}

			pid := start(h)
			h.talked(t, "s", "look at the tree")
			path := filepath.Join(h.state(), "belay.sock")
			if got := holders(t, path); !slices.Equal(got, []int{pid}) {
				t.Errorf("the listener is held by %v, want the daemon %d alone", got, pid)
			}
			if list := children(pid); len(list) > 0 {
				t.Errorf("the daemon has the children %v after its work, want none", list)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}

			if !wait(func() bool {
				c, err := net.Dial("unix", path)
				if err == nil {
					_ = c.Close() // the kernel has not ended it yet
				}
				return errors.Is(err, syscall.ECONNREFUSED)
			}) {
				t.Error("after kill -9 somebody still answers, want connection refused")
			}
		})
	}
}

// holders are the processes with the listening socket at a path open; each must have it marked close-on-exec.
func holders(t *testing.T, path string) (pids []int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}

	inode := ""
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) == 8 && f[7] == path && f[3] == "00010000" { // listens
			inode = f[6]
		}
	}

	links, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	if err != nil || inode == "" {
		t.Fatalf("socket of %s: inode %q, %v", path, inode, err)
	}

	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != "socket:["+inode+"]" {
			continue // gone, not ours to see, or another file
		}

		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil {
			t.Fatal(err)
		}

		pids = append(pids, pid)
		info, err := os.ReadFile(strings.Replace(link, "/fd/", "/fdinfo/", 1))
		if err != nil {
			t.Fatal(err)
		}

		_, flags, _ := strings.Cut(string(info), "flags:")
		n, err := strconv.ParseUint(strings.Fields(flags)[0], 8, 64)
		if err != nil || n&syscall.O_CLOEXEC == 0 {
			t.Errorf("flags of %s: %o, %v, want close-on-exec", link, n, err)
		}
	}

	return pids
}

func children(pid int) (list []string) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is a good one
	for _, name := range lists {
		data, _ := os.ReadFile(name) // a thread that ended has none
		list = append(list, strings.Fields(string(data))...)
	}
	return list
}

// spoiled are the ways in which a file of bookkeeping can be ruined.
var spoiled = map[string]func(path string) error{
	"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
	"zeroed":  func(path string) error { return os.WriteFile(path, make([]byte, 5000), 0o600) },
	"garbage": func(path string) error { return os.WriteFile(path, []byte("{\"format\":1,\x00\xff[[[ no"), 0o600) },
	"gone": func(path string) error {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	},
	"a folder": func(path string) error {
		return errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700))
	},
}

// T07: an index, a lock, a spool and a journal that a crash ruined: the last FULL is printed all the same, without a
// daemon and by one that starts among them.
func TestT07BrokenBookkeepingHidesNoCheckpoint(t *testing.T) {
	for name, spoil := range spoiled {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			_, kill := h.daemon(t)
			h.talked(t, "s", "count the herons")
			kill()
			for _, file := range []string{
				"index.db", "index.db-wal", "active.json", "breaker.json", "spool/00000000000000000001-00-x.ev",
				"sessions/mine/state.json",
			} {
				path := filepath.Join(h.state(), file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := spoil(path); err != nil {
					t.Fatal(err)
				}
			}

			sessions, err := filepath.Glob(filepath.Join(h.state(), "sessions/*/*/checkpoints"))
			if err != nil || len(sessions) != 1 {
				t.Fatalf("sessions %v, %v", sessions, err)
			}
			if err := spoil(filepath.Join(filepath.Dir(sessions[0]), "state.json")); err != nil {
				t.Fatal(err)
			}

			segments, err := filepath.Glob(filepath.Join(h.state(), "journal", "*.log"))
			if err != nil || len(segments) == 0 {
				t.Fatalf("journal %v, %v", segments, err)
			}

			for _, s := range segments { // its records are gone: the checkpoint is all there is
				if err := os.WriteFile(s, make([]byte, 9000), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			dead := fmt.Sprintf("%d\n", deadPID(t))
			for _, lock := range []string{"belay.lock", "belay.pid"} {
				if err := os.WriteFile(filepath.Join(h.state(), lock), []byte(dead), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			for _, when := range []string{"without a daemon", "with a daemon"} {
				if when == "with a daemon" {
					h.daemon(t)
				}

				text, r := h.recovered(t, "--session", "s")
				if r.Checkpoint == nil || r.Checkpoint.Level != "FULL" || !strings.Contains(text, "count the herons") ||
					!strings.Contains(text, "answer to count") {
					t.Errorf("%s: checkpoint %+v, want the FULL with both messages:\n%s", when, r.Checkpoint, text)
				}
			}

			h.talked(t, "s", "count the storks") // and the session goes on
			if text, _ := h.recovered(t, "--session", "s"); !strings.Contains(text, "count the storks") {
				t.Errorf("what came later is not in\n%s", text)
			}
		})
	}
}

// deadPID is a process id of nobody.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// G02: whatever lies where an index, the states or the list of active sessions would be: the list of sessions is the
// same, now and after a start. The checkpoints are all that it needs.
func TestG02ListIsTheSameWithoutItsCaches(t *testing.T) {
	const sessions = 3
	for name, spoil := range spoiled {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			_, kill := h.daemon(t)
			for i := range sessions {
				h.talked(t, fmt.Sprint("s", i), fmt.Sprint("wish ", i))
			}

			kill()
			want := h.listed(t) // an index would be made by now
			if len(want) != sessions || !strings.Contains(want[0], "wish 0") {
				t.Fatalf("listed %q, want %d sessions with their titles", want, sessions)
			}
			if err := os.RemoveAll(filepath.Join(h.state(), "journal")); err != nil {
				t.Fatal(err)
			}

			folders, err := filepath.Glob(filepath.Join(h.state(), "sessions/*/*"))
			if err != nil || len(folders) != sessions {
				t.Fatalf("sessions %v, %v", folders, err)
			}

			for _, path := range append(folders, filepath.Join(h.state(), "index.db"), filepath.Join(h.state(), "active.json")) {
				if filepath.Dir(path) != h.state() {
					path = filepath.Join(path, "state.json")
				}
				if err := spoil(path); err != nil {
					t.Fatal(err)
				}
			}

			if got := h.listed(t); !slices.Equal(got, want) {
				t.Errorf("without a daemon: listed %q, want %q", got, want)
			}

			h.daemon(t)
			if got := h.listed(t); !slices.Equal(got, want) {
				t.Errorf("after a start: listed %q, want %q", got, want)
			}

			for i := range sessions {
				if text, _ := h.recovered(
					t, "--session", fmt.Sprint("s", i),
				); !strings.Contains(
					text, fmt.Sprint("wish ", i),
				) {
					t.Errorf("session %d: its words are not in\n%s", i, text)
				}
			}

			h.talked(t, "s1", "one more wish")
			if text, _ := h.recovered(
				t, "--session", "s1",
			); !strings.Contains(text, "one more wish") ||
				!strings.Contains(text, "wish 1") {
				t.Errorf("the session does not go on with what it had:\n%s", text)
			}
		})
	}
}

// listed is what belay list says of each session: id, title and rounds, sorted.
func (h home) listed(t *testing.T) (lines []string) {
	t.Helper()
	var list struct{ Sessions []query.SessionStatus }
	out := h.ok(t, "list", "--json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	for _, s := range list.Sessions {
		lines = append(lines, fmt.Sprintf("%s %q %d rounds", s.SessionID, s.Title, s.MessageCount))
	}

	slices.Sort(lines)
	return lines
}

// D15: a daemon of another version than its clients: what they have more of is passed over, nothing is lost, nobody
// restarts it.
func TestD15NewerClients(t *testing.T) {
	h := newHome(t)
	pid, _ := h.daemon(t)
	c, err := net.Dial("unix", filepath.Join(h.state(), "belay.sock"))
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close()
	answers := bufio.NewReader(c)
	for i := range 100 {
		payload := fmt.Sprintf(
			`{"hook_event_name":"UserPromptSubmit","session_id":"22222222-2222-4222-8222-222222222222","cwd":"/proj","prompt":"wish %d","brand_new":{"a":[1]}}`,
			i,
		)

		header := fmt.Sprintf(
			`{"v":99,"op":"hook","agent":"claude-code","event":"UserPromptSubmit","client":"belay-hook 99.0","brand_new":[{"x":null}],"id":"n%d","len":%d}`,
			i, len(payload),
		)

		if i%10 == 5 { // an event, and an op, of the future between them
			fmt.Fprintf(c, `{"v":99,"op":"hook","agent":"claude-code","event":"BrandNewEvent","len":2}`+"\n{}")
			fmt.Fprintf(c, `{"v":99,"op":"brand_new_op"}`+"\n")
		}
		if _, err := fmt.Fprintf(c, "%s\n%s", header, payload); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}

	kept := 0
	for range 120 {
		line, err := answers.ReadBytes('\n')
		if err != nil {
			t.Fatalf("after %d kept events: %v", kept, err)
		}

		var reply wire.Reply
		if err := json.Unmarshal(bytes.TrimSpace(line), &reply); err != nil {
			t.Fatalf("answer %q: %v", line, err)
		}
		if reply.Seq > 0 && reply.Kept == wire.KeptDisk {
			kept++
		}
	}

	// The hook of today beside it, from another build: it asks no version either.
	for range 20 {
		hook := exec.Command(filepath.Join(place.bin, "belay-hook"), "verb", "increment")
		hook.Env = []string{"HOME=" + string(h), "PATH=" + os.Getenv("PATH"), "BELAY_SESSION=s"}
		if out, err := hook.CombinedOutput(); err != nil {
			t.Errorf("belay-hook: %v: %q", err, out)
		}
	}

	st, err := daemonStatus(h.state())
	if err != nil || st.PID != pid {
		t.Fatalf("daemon %d, %v; want the first one, %d", st.PID, err, pid)
	}

	// The hundredth prompt waits for its answer: 99 rounds ended.
	for _, want := range []string{`22222222-2222-4222-8222-222222222222 "wish 0" 99 rounds`, `s "" 20 rounds`} {
		if got := h.listed(t); !slices.Contains(got, want) {
			t.Errorf("listed %q, want %q among them", got, want)
		}
	}

	if kept != 100 {
		t.Errorf("%d of 100 events were kept", kept)
	}
}

// D10: sessions that started and ended leave no process behind, and no memory.
func TestD10ManySessionsLeaveOneProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes and their memory are read from /proc")
	}

	h := newHome(t)
	pid, _ := h.daemon(t)
	c, err := wire.Dial(t.Context(), h.state(), "")
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close()
	play := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			id := fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
			for _, p := range []string{
				`{"hook_event_name":"SessionStart","session_id":%q,"cwd":"/proj","source":"startup"}`,
				`{"hook_event_name":"UserPromptSubmit","session_id":%q,"cwd":"/proj","prompt":"a wish"}`,
				`{"hook_event_name":"Stop","session_id":%q,"cwd":"/proj","last_assistant_message":"an answer"}`,
				`{"hook_event_name":"SessionEnd","session_id":%q,"cwd":"/proj","reason":"exit"}`,
			} {
				if err := c.Send(wire.Request{Op: "hook", Agent: "claude-code"}, fmt.Appendf(nil, p, id)); err != nil {
					t.Fatalf("session %d: %v", i, err)
				}
			}

			for range 4 {
				if r, _, err := c.Receive(); err != nil || !r.OK {
					t.Fatalf("session %d: %+v, %v", i, r, err)
				}
			}
		}
	}

	play(0, 40) // what the first sessions take is the base
	before := resident(t, pid)
	play(40, 240)
	after := int64(0)
	if !wait(func() bool { after = resident(t, pid); return after <= before+20<<20 }) {
		t.Errorf("after 200 sessions the daemon holds %d MB, %d before: want 20 MB more at most", after>>20, before>>20)
	}
	if !wait(func() bool { return len(children(pid)) == 0 }) {
		t.Errorf("the daemon has the children %v, want none", children(pid))
	}

	t.Logf("%d MB before, %d MB after 200 sessions", before>>20, after>>20)
}
