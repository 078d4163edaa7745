package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"belay/internal/daemon/socket"
	"belay/internal/state/check"
	"belay/internal/wire"
)

// raw is a connection without the client's manners.
func (r *running) raw() *net.UnixConn {
	r.t.Helper()
	c, err := net.Dial("unix", r.l.site.path())
	if err != nil {
		r.t.Fatal(err)
	}

	r.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}

	return c.(*net.UnixConn)
}

func TestOps(t *testing.T) {
	home(t)
	r := start(t, tempDir(t))
	r.rounds("s", 0, 2)
	for _, c := range []struct {
		name string
		req  wire.Request
		code string // "" is ok
		want string // in body or text
	}{
		{"hello", wire.Request{Op: "hello", Agent: "claude-code"}, "", `"v":1`},
		{"event", eventRequest("s", wire.Event{Kind: "task", Text: "paint it"}), "", ""},
		{"checkpoint", eventCheckpoint("s"), "", "taken"},
		{"event without a session", wire.Request{Op: "event", Body: []byte(`{"kind":"stop"}`)}, wire.CodeBadRequest, ""},
		{"event of no kind", wire.Request{Op: "event", Session: "s", Body: []byte(`{"kind":"dance"}`)}, wire.CodeBadRequest, ""},
		{"event with a broken body", wire.Request{Op: "event", Session: "s", Body: []byte(`7`)}, wire.CodeBadRequest, ""},
		{"event with a huge id", wire.Request{Op: "event", Session: strings.Repeat("x", 5000), Body: []byte(`{"kind":"stop"}`)}, wire.CodeBadRequest, ""},
		{"hook of an unknown agent", wire.Request{Op: "hook", Agent: "nobody"}, wire.CodeUnknownAgent, ""},
		{"mark", wire.Request{Op: "mark", Agent: "tester", Session: "s", Workspace: "/proj", Body: []byte(`{"text":"keep","decision":true}`)}, "", ""},
		{"mark without text", wire.Request{Op: "mark", Agent: "tester", Session: "s"}, wire.CodeBadRequest, ""},
		{"checkpoint of no session", eventCheckpoint("none"), wire.CodeNotFound, ""},
		{"check", wire.Request{Op: "check", Agent: "tester", Session: "s", Workspace: "/proj", Body: []byte(`{"kind":"sparse"}`)}, "", ""},
		{"verb", wire.Request{Op: "verb", Event: "increment", Session: "v"}, "", ""},
		{"verb that is none", wire.Request{Op: "verb", Event: "dance", Session: "v"}, wire.CodeUnknownOp, ""},
		{"status", wire.Request{Op: "status"}, "", `"sessions":[`},
		{"status of a session", wire.Request{Op: "status", Agent: "tester", Session: "s"}, "", `"messageCount":2`},
		{"status of none", wire.Request{Op: "status", Session: "none"}, wire.CodeNotFound, ""},
		{"list", wire.Request{Op: "list"}, "", `"sessionId":"s"`},
		{"show", wire.Request{Op: "show", Session: "s", Agent: "tester"}, "", "question 1 of s"},
		{"recover", wire.Request{Op: "recover", Session: "s", Agent: "tester"}, "", "paint it"},
		{"reset", wire.Request{Op: "reset"}, "", "closed"},
		{"an op of the future", wire.Request{Op: "teleport"}, wire.CodeUnknownOp, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			reply, body := r.do(c.req, nil)
			if reply.OK != (c.code == "") || reply.Code != c.code {
				t.Errorf("reply %+v, want code %q", reply, c.code)
			}
			if got := string(reply.Body) + string(body); !strings.Contains(got, c.want) {
				t.Errorf("answer %q, want %q in it", got, c.want)
			}
		})
	}
}

func TestPipelinedAnswersComeInOrder(t *testing.T) {
	r := start(t, tempDir(t))
	c := r.dial()
	const n = 300
	go func() {
		for i := range n {
			if c.Send(
				eventRequest(fmt.Sprintf("s%d", i%7), wire.Event{Kind: "stop", Text: fmt.Sprint(i)}), nil,
			) != nil {
				return // the reader says so
			}
		}
	}()

	last := uint64(0)
	for i := range n {
		reply, _, err := c.Receive()
		if err != nil || !reply.OK || reply.Seq <= last {
			t.Fatalf("answer %d: %+v after %d, %v", i, reply, last, err)
		}
		last = reply.Seq
	}
}

func TestD11FramesHoweverTheyAreCut(t *testing.T) {
	home(t)
	data, err := os.ReadFile("testdata/D11-frames.txt")
	if err != nil {
		t.Fatal(err)
	}

	for name, size := range map[string]int{"byte by byte": 1, "7 bytes": 7, "one write": len(data)} {
		t.Run(name, func(t *testing.T) {
			r := start(t, tempDir(t))
			c := r.raw()
			if _, err := c.Write([]byte(`{"op":"hello","agent":"claude-code"}` + "\n")); err != nil {
				t.Fatal(err)
			}

			for rest := data; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err := c.Write(rest[:min(size, len(rest))]); err != nil {
					t.Fatal(err)
				}
			}

			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}

			answers, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}

			kept, bad, thin := 0, 0, -1 // hello is answered without a number too
			for line := range bytes.Lines(answers) {
				var reply wire.Reply
				if err := json.Unmarshal(line, &reply); err != nil {
					t.Fatalf("answer %q: %v", line, err)
				}

				switch {
				case reply.Seq > 0:
					kept++
				case reply.OK:
					thin++
				default:
					bad++
				}
			}

			cut := r.count("cut_frames")
			if kept != 3 || bad != 1 || thin != 1 || cut != 1 {
				t.Errorf("%d usable, %d bad, %d thin, %d cut; want 3, 1, 1, 1", kept, bad, thin, cut)
			}
		})
	}
}

// An agent's payload may have fields with the names of ours, of any type.
func TestBarePayloadWithOurFieldNames(t *testing.T) {
	home(t)
	r := start(t, tempDir(t))
	c := r.raw()
	lines := `{"op":"hello","agent":"claude-code"}
{"hook_event_name":"Stop","session_id":"` + sessionA + `","cwd":"/proj","last_assistant_message":"yes","len":5000,"id":7,"event":{"a":1},"v":"x"}
{"op":"status"}
`

	if _, err := c.Write([]byte(lines)); err != nil {
		t.Fatal(err)
	}

	read := bufio.NewReader(c)
	for i, want := range []string{`"state_dir"`, `"kept":"disk"`, `"sessions"`} {
		line, err := read.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("answer %d: %q, %v; want %s in it", i, line, err, want)
		}
	}
}

func TestPayloadOverTheBoundIsCut(t *testing.T) {
	home(t)
	r := start(t, tempDir(t))
	big := []byte(
		`{"hook_event_name":"UserPromptSubmit","session_id":"` + sessionA + `","cwd":"/proj","prompt":"the first words ` +
			strings.Repeat(
				"x", wire.MaxPayload,
			) + `"}`,
	)

	reply, _ := r.do(wire.Request{Op: "hook", Agent: "claude-code", Event: "UserPromptSubmit"}, big)
	if !reply.OK || reply.Kept != wire.KeptDisk {
		t.Errorf("a payload of %d bytes: %+v", len(big), reply)
	}
	if got := r.session("claude-code", sessionA).CurrentTask; !strings.HasPrefix(got, "the first words") {
		t.Errorf("task %.40q, want the readable head", got)
	}
}

func TestD12OneBadClientDoesNotStopTheOthers(t *testing.T) {
	r := start(t, tempDir(t))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := r.raw()
	chunk, sent := bytes.Repeat([]byte("x"), 1<<20), int64(0)
	for sent < 1<<30 {
		n, err := c.Write(chunk)
		sent += int64(n)
		if err != nil {
			break
		}
	}

	if sent > 16<<20 {
		t.Errorf("the daemon read %d bytes of a line without an end", sent)
	}

	// A header that promises much takes no memory before the bytes come.
	for range 20 {
		if _, err := fmt.Fprintf(r.raw(), `{"op":"hook","agent":"claude-code","len":16777216}`+"\n"); err != nil {
			t.Fatal(err)
		}
	}

	idle := make([]*net.UnixConn, 500)
	for i := range idle {
		idle[i] = r.raw()
	}

	began := time.Now()
	if got := r.rounds("s", 0, 1); got.Kept != wire.KeptDisk {
		t.Errorf("an event beside them: %+v", got)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("an event took %s, want 1 s (5 at most)", took)
	}

	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
}

func TestSubscribe(t *testing.T) {
	r := start(t, tempDir(t))
	c := r.dial()
	if err := c.Send(wire.Request{Op: "subscribe"}, nil); err != nil {
		t.Fatal(err)
	}
	if reply, _, err := c.Receive(); err != nil || !reply.OK {
		t.Fatalf("subscribe: %+v, %v", reply, err)
	}

	r.event("s", wire.Event{Kind: "prompt", Text: "a private word"})
	line, err := c.Line()
	if err != nil || !bytes.Contains(line, []byte(`"kind":"prompt"`)) || bytes.Contains(line, []byte("private")) {
		t.Errorf("line %s, %v; want the kind and no content", line, err)
	}
}

func TestDoublesByID(t *testing.T) {
	r := start(t, tempDir(t))
	req := eventRequest("s", wire.Event{Kind: "stop", Text: "once"})
	req.ID = "e1"
	for range 3 {
		r.do(req, nil)
	}

	if got := r.session("tester", "s").MessageCount; got != 1 {
		t.Errorf("%d rounds of one event sent three times, want 1", got)
	}
}

// S08: an agent that starts itself over and over.
func TestS08NewSessionsAreBounded(t *testing.T) {
	home(t)
	r := start(t, tempDir(t), func(d *Daemon) { d.opt.SessionsPerMinute = 50 })
	goroutines := runtime.NumGoroutine()
	c := r.dial()
	taken := 0
	for i := range 1000 {
		data, err := json.Marshal(startOf(fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", i), "startup", "/proj"))
		if err != nil {
			t.Fatal(err)
		}

		reply, _, err := tryDo(c, wire.Request{Op: "hook", Agent: "claude-code", Event: "SessionStart"}, data)
		if err != nil {
			t.Fatal(err)
		}
		if reply.OK {
			taken++
		}
	}

	if taken != 50 {
		t.Errorf("%d of 1000 new sessions were taken, want 50", taken)
	}
	if got := len(r.status().Sessions); got != 50 {
		t.Errorf("%d sessions in memory, want 50", got)
	}
	if grown := runtime.NumGoroutine() - goroutines; grown > 200 {
		t.Errorf("%d more goroutines", grown)
	}
	if n := r.logs.FilterMessageSnippet("more new sessions").Len(); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
	if got := r.count("dropped"); got != 950 {
		t.Errorf("dropped %d, want 950", got)
	}
}

// --- listening

func TestD01LongStateFolders(t *testing.T) {
	for _, part := range []string{"a", "好"} {
		for n := 60; n <= 140; n += 20 {
			t.Run(fmt.Sprintf("%s %d", part, n), func(t *testing.T) {
				base := tempDir(t)
				dir := filepath.Join(base, strings.Repeat(part, (n-len(base)-1)/len(part)))
				t.Cleanup(func() {
					for _, place := range wire.SocketPlaces(dir) {
						_ = os.Remove(lockName(place))
					}
				})

				r := start(t, dir)
				if got := r.rounds("s", 0, 1); got.Kept != wire.KeptDisk {
					t.Errorf("an event: %+v", got)
				}
			})
		}
	}
}

func TestD02WhatLiesAtTheSocketsPlace(t *testing.T) {
	for name, lay := range map[string]func(path string) error{
		"a file":   func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"a link":   func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			path := filepath.Join(dir, "belay.sock")
			if err := lay(path); err != nil {
				t.Fatal(err)
			}

			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = os.Remove(lockName(wire.SocketPlaces(dir)[1])) })
			r := start(t, dir)
			r.excused = []check.Rule{check.Private, check.Known} // what lies there stays
			if r.l.site.path() == path {
				t.Fatal("it listens there")
			}

			// Nobody may start at the first place later, while this one runs at the second.
			if err := errors.Join(os.RemoveAll(path), lay(path)); err != nil {
				t.Fatal(err)
			}
			if _, err := socket.Listen(dir); !errors.Is(err, socket.ErrRunning) {
				t.Errorf("a second daemon: %v, want ErrRunning", err)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() {
				t.Errorf("what lay there is now %v, %v", after, err)
			}
		})
	}
}

func TestD02StaleSocket(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "belay.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}

	l.SetUnlinkOnClose(false) // as kill -9 leaves it
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	r := start(t, dir)
	if r.l.site.path() != path {
		t.Errorf("listens at %s, want %s", r.l.site.path(), path)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("up after %s, want 1 s (5 at most)", took)
	}
}

func TestD13TheFolderIsClosedToOthersFirst(t *testing.T) {
	dir := tempDir(t)

	// a daemon's folder
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "belay.lock"), nil, 0o600), os.Chmod(dir, 0o777),
	); err != nil {
		t.Fatal(err)
	}

	if err := wire.Private(dir); err == nil {
		t.Error("a socket would be made in a folder that is open to all")
	}

	r := start(t, dir) // the daemon closes a folder of its own first
	r.rounds("s", 0, 1)
	r.checkpoint("s")
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}

		return err
	})

	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestD05APidFileMeansNothing(t *testing.T) {
	dir := tempDir(t)
	if err := os.WriteFile(filepath.Join(dir, "belay.lock"), []byte(fmt.Sprint(os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}

	r := start(t, dir)
	if got := r.rounds("s", 0, 1); got.Kept != wire.KeptDisk {
		t.Errorf("an event: %+v", got)
	}
}

func TestTwoDaemonsRacing(t *testing.T) {
	dir := tempDir(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 5)
	for range cap(ended) {
		go func() { ended <- New(testOptions(dir, nopLog())).Run(ctx) }()
	}

	for range cap(ended) - 1 {
		if err := <-ended; !errors.Is(err, socket.ErrRunning) {
			t.Errorf("a loser ended with %v, want ErrRunning", err)
		}
	}

	c, err := wire.Dial(ctx, dir, "")
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close()
	if reply, _, err := tryDo(c, wire.Request{Op: "hello"}, nil); err != nil || !reply.OK {
		t.Errorf("the winner: %+v, %v", reply, err)
	}

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the winner ended with %v", err)
	}
}
