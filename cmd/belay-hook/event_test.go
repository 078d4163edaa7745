package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"belay/internal/state/spool"
	"belay/internal/vfs"
	"belay/internal/wire"
)

func TestEventIsForwardedUnparsed(t *testing.T) {
	state := tempState(t)
	d := serve(t, sock(state), reply(okReply))
	payload := "{\"not\":\"parsed\"\x00\xff\n"
	hook(t, state, payload, nil, "claude-code", "Stop").quiet(t)
	hook(t, state, "", []string{"CLAUDE_PID=4711"}, "pi", "agent\"\\\n\xff_end").quiet(t)
	got := d.list()
	if len(got) != 2 {
		t.Fatalf("got %d requests, want 2", len(got))
	}

	cwd, _ := os.Getwd()
	cwd, _ = filepath.EvalSymlinks(cwd)
	a, b := got[0], got[1]
	if a.req.V != 1 || a.req.Op != "hook" || a.req.Agent != "claude-code" || a.req.Event != "Stop" ||
		a.req.PID != os.Getpid() || a.req.Workspace != cwd || a.req.Cut || a.payload != payload {
		t.Errorf("got %s with %q, want the event as given, our pid and folder", a.line, a.payload)
	}
	if !strings.HasSuffix(a.line, fmt.Sprintf(`"len":%d}`+"\n", len(payload))) {
		t.Errorf("got %s, want len last", a.line)
	}
	if b.req.PID != 4711 || b.req.Event != "agent\"\\\n\uFFFD_end" || b.payload != "" {
		t.Errorf("got %s, want the pid that the agent names and the event's name as valid JSON", b.line)
	}
	if a.req.ID == "" || a.req.ID == b.req.ID || a.req.ID > b.req.ID {
		t.Errorf("ids %q and %q, want two that sort by time", a.req.ID, b.req.ID)
	}
}

// TestO02OneDocumentOrNothing: stdout is what the daemon gave, whole, or nothing.
func TestO02OneDocumentOrNothing(t *testing.T) {
	doc := `{"hookSpecificOutput":{"additionalContext":"` + strings.Repeat("ä", 6000) + `"}}`
	full := fmt.Sprintf(`{"ok":true,"seq":1,"len":%d}`+"\n%s", len(doc), doc)
	tests := []struct {
		name   string
		answer func(net.Conn, request)
		want   string
		intake int
	}{
		{"whole", reply(full), doc, 0},
		{"in pieces", func(c net.Conn, _ request) {
			for i := 0; i < len(full); i += 1777 {
				_, _ = io.WriteString(c, full[i:min(i+1777, len(full))])
				time.Sleep(time.Millisecond)
			}
		}, doc, 0},
		{"nothing to say", reply(okReply), "", 0},
		{"bytes after it", reply(full + "more"), doc, 0},
		{"cut in the document", reply(full[:len(full)-1]), "", 1},
		{"cut in the line", reply(full[:20]), "", 1},
		{"closed at once", reply(""), "", 1},
		{"no reply of ours", reply("HTTP/1.1 400 Bad Request\r\n\r\n"), "", 1},
		{"another len inside", reply(`{"ok":true,"body":{"len":7}}` + "\n"), "", 0},
		{"a length that cannot be", reply(`{"ok":true,"len":99999999999999999999}` + "\n"), "", 1},
		{"refused", reply(`{"ok":false,"code":"bad_request"}` + "\n"), "", 0},
		{"stopping", reply(`{"ok":false,"code":"stopping"}` + "\n"), "", 1},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := tempState(t)
			serve(t, sock(state), tt.answer)
			file := filepath.Join(state, "took")

			// --wait not set: a test of the reply alone.
			r := hook(t, state, "{}", []string{takeVar + "=" + file}, "claude-code", "UserPromptSubmit")
			if r.stdout != tt.want || r.stderr != "" {
				t.Errorf("stdout %.60q, stderr %q, want %.60q and nothing", r.stdout, r.stderr, tt.want)
			}

			if tt.intake == 0 {
				if names, _ := filepath.Glob(file + ".*"); len(names) != 0 {
					t.Errorf("an intake was started for an event that the daemon has")
				}
				return
			}

			intakes(t, file, tt.intake)
		})
	}
}

// TestH02SlowDaemon: a daemon that answers after 30 s. The client keeps its own deadline and hands over.
func TestH02SlowDaemon(t *testing.T) {
	state := tempState(t)
	serve(t, sock(state), func(net.Conn, request) {}) // would answer after the test
	runs, file := 0, filepath.Join(state, "took")
	r := within(t, 200*time.Millisecond, func() run {
		runs++
		r := hook(t, state, "p", []string{takeVar + "=" + file}, "claude-code", "SessionEnd")
		r.quiet(t)
		return r
	})

	if r.took < 90*time.Millisecond {
		t.Errorf("took %v, want the daemon given 100 ms", r.took)
	}

	t.Logf("daemon that never answers: %v", r.took)
	intakes(t, file, runs)
}

func TestH03DaemonThatNeverReads(t *testing.T) {
	for _, size := range []int{10, 3 << 20} { // the second does not fit into the socket's buffer
		state := tempState(t)
		ln, err := net.Listen("unix", sock(state))
		if err != nil {
			t.Fatal(err)
		}

		defer ln.Close() // its backlog takes the connection, nobody accepts
		runs, file := 0, filepath.Join(state, "took")
		payload := strings.Repeat("x", size)
		within(t, 250*time.Millisecond, func() run {
			runs++
			r := hook(t, state, payload, []string{takeVar + "=" + file}, "claude-code", "Stop")
			r.quiet(t)
			return r
		})

		for _, got := range intakes(t, file, runs) {
			header, rest, _ := strings.Cut(string(got.Stdin), "\n")
			if rest != payload && !strings.Contains(header, `"cut":true`) { // cut: the machine stood still for 100 ms
				t.Errorf("%d bytes: the intake got %s and %d bytes, want the payload", size, header, len(rest))
			}
		}
	}
}

// TestFullBacklog: connect itself would wait.
func TestFullBacklog(t *testing.T) {
	state := tempState(t)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}

	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: sock(state)}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}

	c, err := net.Dial("unix", sock(state)) // takes the only place
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close()
	within(t, 250*time.Millisecond, func() run {
		r := hook(t, state, "p", nil, "claude-code", "Stop")
		r.quiet(t)
		return r
	})
}

// TestD08IntakeIsDetached: what the hook starts holds nothing of the agent's, and content is only on its stdin (X04).
func TestD08IntakeIsDetached(t *testing.T) {
	state := tempState(t)
	file := filepath.Join(state, "took")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	leak, err := syscall.Dup(int(w.Fd())) // an agent's descriptor without close-on-exec
	if err != nil {
		t.Fatal(err)
	}

	payload := strings.Repeat("content of the event ", 1000)
	res := hook(t, state, payload, []string{takeVar + "=" + file, "SECRET_KEY=content", "HOME=/h",
		"GEMINI_CONFIG_DIR=/g", "BELAY_SESSION=s"}, "claude-code", "Stop")
	res.quiet(t)
	_ = w.Close()
	_ = syscall.Close(leak)
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil { // a holder would make this wait for ever
		t.Errorf("pipe: got %d, %v, want its end", n, err)
	}

	_ = r.Close()
	got := intakes(t, file, 1)[0]
	header, rest, _ := strings.Cut(string(got.Stdin), "\n")
	var req wire.Request
	if err := json.Unmarshal([]byte(header), &req); err != nil || rest != payload || req.ID == "" {
		t.Errorf("stdin: header %s (%v) and %d bytes, want the whole request", header, err, len(rest))
	}
	if !slices.Equal(got.Args, []string{"intake"}) {
		t.Errorf("arguments %q, want intake alone", got.Args)
	}

	want := []string{"BELAY_INTERNAL=1", "BELAY_STATE_DIR=" + state, "PATH=" + os.Getenv("PATH"), takeVar + "=" + file,
		"HOME=/h", "GEMINI_CONFIG_DIR=/g"}
	if !slices.Equal(got.Env, want) {
		t.Errorf("environment %q, want %q", got.Env, want)
	}
	if got.Cwd != "/" || got.Session != got.PID {
		t.Errorf("folder %q, session %d of process %d, want / and a session of its own", got.Cwd, got.Session, got.PID)
	}

	for fd, what := range got.Files {
		own := strings.HasPrefix(what, "/proc/") || strings.HasPrefix(what, "/sys/") ||
			strings.HasPrefix(what, "anon_inode:")
		if fd == "1" || fd == "2" {
			own = what == "/dev/null"
		} else if fd == "0" {
			own = strings.HasPrefix(what, "/memfd:") || strings.HasPrefix(what, "pipe:")
		}

		if !own {
			t.Errorf("descriptor %s is %s", fd, what)
		}
	}
}

// TestH05NobodyAnswers: 20 prompts against a stale listener; each is quick, the spool holds all, no process is left.
func TestH05NobodyAnswers(t *testing.T) {
	state := tempState(t)
	ln, err := net.Listen("unix", sock(state))
	if err != nil {
		t.Fatal(err)
	}

	defer ln.Close() // never accepts
	runs, ends := 0, tempState(t)
	for i := range 20 {
		within(t, time.Second, func() run {
			runs++
			r := hook(
				t, state, fmt.Sprint("prompt ", i), []string{realVar + "=" + ends}, "claude-code",
				"UserPromptSubmit",
			)

			r.quiet(t)
			return r
		})
	}

	dir := filepath.Join(state, "spool")
	ended(t, ends, runs)
	if n, _, err := spool.Pending(vfs.OS{}, dir); n != runs || err != nil {
		t.Errorf("spool: got %d events, %v, want one for each of %d runs", n, err, runs)
	}

	seen := map[string]bool{}
	if _, err := spool.Drain(t.Context(), vfs.OS{}, dir, func(_, p []byte) error {
		seen[string(p)] = true
		return nil
	}); err != nil || len(seen) != 20 {
		t.Errorf("got %d different prompts, %v, want 20", len(seen), err)
	}
}

// TestD17FiftyHooks: 50 clients at once find no daemon; none of the 50 events is lost and one daemon is started. The
// daemon is this test, which appears when all have asked for one.
func TestD17FiftyHooks(t *testing.T) {
	state, ends := tempState(t), tempState(t)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			hook(t, state, fmt.Sprint(i), []string{realVar + "=" + ends}, "pi", "agent_end").quiet(t)
		})
	}

	wg.Wait()
	until(t, "the start of a daemon", func() bool {
		_, err := os.Lstat(filepath.Join(state, "start.stamp"))
		return err == nil
	})

	d := serve(t, sock(state), reply(okReply)) // one request a connection: a drain comes again for the next
	ended(t, ends, 50)
	dir := filepath.Join(state, "spool")
	seen := map[string]bool{}
	for _, r := range d.list() {
		seen[r.req.ID] = true
	}

	t.Logf("%d events handed over at once", len(seen))

	// a slow machine may take over 2 s for some
	_, err := spool.Drain(t.Context(), vfs.OS{}, dir, func(h, _ []byte) error {
		var req wire.Request
		err := json.Unmarshal(h, &req)
		seen[req.ID] = true
		return err
	})

	if err != nil || len(seen) != 50 {
		t.Errorf("got %d events in daemon and spool, %v, want 50", len(seen), err)
	}
	if n, err := spool.Dropped(vfs.OS{}, dir); n != 0 || err != nil {
		t.Errorf("dropped: got %d, %v, want 0", n, err)
	}
}

// Every flag with a value that the daemon's verbs know may stand before its value, as shells users write it.
func TestVerbFlagsTakeTheNextWord(t *testing.T) {
	for _, name := range []string{"session", "agent", "name", "id", "text", "input", "transcript"} {
		v := parseVerb([]string{"tool-start", "--" + name, "a value"}, "")
		got := map[string]string{"session": v.session, "agent": v.agent}[name]
		for _, f := range v.flags {
			if f.name == name && f.isText {
				got = f.text
			}
		}

		if got != "a value" || v.name != "tool-start" {
			t.Errorf("--%s: got %q for the verb %q; want %q for tool-start", name, got, v.name, "a value")
		}
	}
}
