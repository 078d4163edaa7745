package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/internal/wire"
)

const briefReply = `{"ok":true,"len":5}` + "\nbrief"

// TestBriefOfADaemonThatIsStarting: the intake is started at once, and the socket is tried on under the same id.
func TestBriefOfADaemonThatIsStarting(t *testing.T) {
	for _, args := range [][]string{{"claude-code", "SessionStart"}, {"--wait", "pi", "session_start"}} {
		state := tempState(t)
		file := filepath.Join(state, "took")
		done := make(chan run)
		go func() {
			done <- hook(t, state, "{}", []string{takeVar + "=" + file}, args...)
		}()
		got := intakes(t, file, 1)[0] // only now a daemon listens
		d := serve(t, sock(state), reply(briefReply))
		r := <-done
		if r.took > briefTime {
			t.Skipf("the machine was too slow to start an intake in a second: %v", r.took)
		}
		if r.stdout != "brief" || r.stderr != "" {
			t.Errorf("%v: stdout %q, stderr %q, want the brief alone", args, r.stdout, r.stderr)
		}

		var req wire.Request
		header, _, _ := strings.Cut(string(got.Stdin), "\n")
		if err := json.Unmarshal([]byte(header), &req); err != nil {
			t.Fatal(err)
		}
		if list := d.list(); len(list) != 1 || list[0].req.ID != req.ID {
			t.Errorf("%v: the daemon got %+v, want one request with the intake's id %s", args, list, req.ID)
		}
	}
}

const briefTime = time.Second

func TestBriefEndsAfterASecond(t *testing.T) {
	tests := []struct {
		name string
		make func(state string)
	}{
		{"no daemon", func(string) {}},
		{"hung daemon", func(state string) { serve(t, sock(state), func(net.Conn, request) {}) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			state := tempState(t)
			tt.make(state)
			file := filepath.Join(state, "took")
			r := hook(t, state, "{}", []string{takeVar + "=" + file}, "claude-code", "SessionStart")
			r.quiet(t)
			if r.took < briefTime-50*time.Millisecond || r.took > 3*briefTime { // busy machines add to it
				t.Errorf("took %v, want about 1 s", r.took)
			}

			intakes(t, file, 1)
		})
	}
}

func TestVerbs(t *testing.T) {
	state := tempState(t)
	d := serve(t, sock(state), reply(`{"ok":true,"len":8}`+"\ntaken 4\n"))
	env := []string{"BELAY_SESSION=from-env"}
	for _, args := range [][]string{
		{"verb", "increment"},
		{"verb", "tool-start", "--session", "s1", "--agent=openclaw", "--name", "Bash", "--id", "call-1"},
		{"verb", "tool-end", "--failed", "--text", "a \"quoted\" text"},
		{"verb", "check-full", "--heartbeat", "--new=flag"},
	} {
		if r := hook(t, state, "", env, args...); r.stdout != "taken 4\n" || r.stderr != "" {
			t.Errorf("%v: stdout %q, stderr %q, want the reply's bytes", args, r.stdout, r.stderr)
		}
	}

	want := []wire.Request{
		{Event: "increment", Session: "from-env", Body: []byte(`{}`)},
		{Event: "tool-start", Session: "s1", Agent: "openclaw", Body: []byte(`{"name":"Bash","id":"call-1"}`)},
		{Event: "tool-end", Session: "from-env", Body: []byte(`{"failed":true,"text":"a \"quoted\" text"}`)},
		{Event: "check-full", Session: "from-env", Body: []byte(`{"heartbeat":true,"new":"flag"}`)},
	}

	got := d.list()
	if len(got) != len(want) {
		t.Fatalf("got %d requests, want %d", len(got), len(want))
	}

	for i, w := range want {
		g := got[i].req
		if g.V != 1 || g.Op != "verb" || g.Event != w.Event || g.Session != w.Session || g.Agent != w.Agent ||
			string(g.Body) != string(w.Body) || g.PID != os.Getpid() || g.Workspace == "" || g.ID == "" || g.Len != 0 {
			t.Errorf("got %s, want %+v", got[i].line, w)
		}
	}
}

// TestVerbWithoutDaemon: a count is handed over, a question waits for the daemon.
func TestVerbWithoutDaemon(t *testing.T) {
	state := tempState(t)
	file := filepath.Join(state, "took")
	hook(t, state, "", []string{takeVar + "=" + file}, "verb", "increment", "--session", "s").quiet(t)
	if got := intakes(t, file, 1)[0]; !strings.Contains(string(got.Stdin), `"event":"increment"`) {
		t.Errorf("the intake got %q, want the verb's request", got.Stdin)
	}

	file = filepath.Join(state, "asked")
	done := make(chan run)
	go func() { done <- hook(t, state, "", []string{takeVar + "=" + file}, "verb", "status") }()
	if got := intakes(t, file, 1)[0]; len(got.Stdin) != 0 {
		t.Errorf("the intake got %q, want nothing: a question is not kept", got.Stdin)
	}

	serve(t, sock(state), reply(briefReply))
	if r := <-done; r.took < 3*time.Second && (r.stdout != "brief" || r.stderr != "") {
		t.Errorf("stdout %q, stderr %q, want the answer", r.stdout, r.stderr)
	}
}

func TestStdin(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 1<<20) // 16 MiB
	t.Run("the most that is kept", func(t *testing.T) {
		testBig(t, big, false)
	})
	t.Run("more than is kept", func(t *testing.T) {
		testBig(t, big+"more", true)
	})
}

// testBig sends a payload with --wait, so that a slow machine has the time for it.
func testBig(t *testing.T, payload string, cut bool) {
	for range 5 {
		state := tempState(t)
		d := serve(t, sock(state), reply(okReply))
		r := hook(
			t, state, payload, []string{takeVar + "=" + filepath.Join(state, "took")}, "--wait", "claude-code",
			"Stop",
		)

		r.quiet(t)
		if r.took >= briefTime {
			continue // the machine was busy
		}

		list := d.list()
		if len(list) != 1 {
			t.Fatalf("got %d events, want 1", len(list))
		}
		if g := list[0]; g.req.Cut != cut || g.payload != payload[:maxPayload] {
			t.Errorf("got cut %v and %d bytes, want %v and 16 MiB", g.req.Cut, len(g.payload), cut)
		}

		t.Logf("16 MiB in %v", r.took)
		return
	}
	t.Skip("the machine is too slow to move 16 MiB in a second")
}

// An agent that does not read what its hook says is no reason to stay.
func TestStdoutThatNobodyReads(t *testing.T) {
	state := tempState(t)
	const size = 200 << 10 // more than a pipe holds
	serve(t, sock(state), reply(fmt.Sprintf(`{"ok":true,"len":%d}`, size)+"\n"+strings.Repeat("x", size)))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	defer r.Close()
	cmd := exec.Command(filepath.Join(bin, "belay-hook"), "claude-code", "SessionStart")
	cmd.Env, cmd.Stdin, cmd.Stdout = []string{"BELAY_STATE_DIR=" + state}, stdinFile(t, "{}"), w
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v, want exit 0", err)
		}
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill() // the end of the test
		t.Errorf("it still waits: %v", <-ended)
	}
}
