package agentzero_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/agent/agentzero"
	"belay/internal/daemon"
	"belay/internal/state/query"
	"belay/internal/vfs"
	"belay/internal/wire"
	"belay/recovery"
)

// patience is how long a test waits for something that must happen; only a failing test waits so long.
const patience = 20 * time.Second

// stage is an Agent Zero with the extension in it, and belay's state folder.
type stage struct {
	t                 *testing.T
	root, state, home string
	agent             *agentzero.Agent
	paths             agent.Paths
}

func setStage(t *testing.T) *stage {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not here: it runs the extension")
	}

	dir, err := os.MkdirTemp("", "az") // short: a socket's path has a bound
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})

	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}

	s := &stage{t: t, root: filepath.Join(dir, "a0"), state: filepath.Join(dir, "state"), home: dir}
	hook := filepath.Join(dir, "belay-hook")
	for path, text := range map[string]string{
		filepath.Join(s.root, "agent.py"):                "# the program\n",
		filepath.Join(s.root, "helpers", "extension.py"): "class Extension:\n    def __init__(self, agent=None, **kwargs):\n        self.agent = agent\n",
		filepath.Join(s.root, "usr", "settings.json"):    "{}\n",
		hook: "#!/bin/sh\necho \"$CLAUDE_PID $*\" >>" + dir + "/hooked\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Mkdir(s.state, 0o700); err != nil {
		t.Fatal(err)
	}

	s.agent, s.paths = agentzero.New(agenttest.Host("", "AGENT_ZERO_DIR="+s.root)), agent.Paths{Hook: hook}
	if _, err := s.agent.Install(t.Context(), s.paths, false); err != nil {
		t.Fatal(err)
	}

	return s
}

// play runs one scene in a process of its own, and gives what it printed.
func (s *stage) play(scene string, vars ...string) (out struct {
	Brief, Again string
	Held, Lost   int
	Slowest      float64 `json:"slowest_ms"`
}) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "testdata/drive.py", s.root, scene)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "BELAY_STATE_DIR=" + s.state}, vars...)
	var failed strings.Builder
	cmd.Stderr = &failed
	data, err := cmd.Output()
	if scene == "crash" {
		if err == nil || !strings.Contains(err.Error(), "killed") {
			s.t.Fatalf("%s ended with %v, want it killed: %s", scene, err, failed.String())
		}
		return out
	}

	if err != nil || json.Unmarshal(data, &out) != nil {
		s.t.Fatalf("%s: %v, %q, %s", scene, err, data, failed.String())
	}

	return out
}

// daemon runs belay on the state folder until the test ends.
func (s *stage) daemon() {
	s.t.Helper()
	d := daemon.New(
		daemon.Options{
			StateDir: s.state,
			FS:       vfs.OS{},
			Log:      zap.NewNop(),
			Version:  "test",
			Agents:   []agent.Agent{s.agent},
			Gates: checkpoint.Gates{
				SparseTime:   time.Hour,
				SparseRounds: 5,
				FullTime:     time.Hour,
				ForcedTime:   20 * time.Millisecond,
			},
			Retention: checkpoint.Policy{
				Count: 50,
				Bytes: 64 << 20,
				Age:   24 * time.Hour,
			},
			Adopt:             recovery.AdoptAuto,
			AdoptWindow:       24 * time.Hour,
			BriefBytes:        9000,
			Heartbeat:         "@every 30m",
			Breaker:           breaker.Options{Failures: 3, Pause: time.Second, MaxPause: time.Second},
			SegmentBytes:      16 << 20,
			MemoryBytes:       4 << 20,
			Mirror:            daemon.MirrorRedacted,
			Notify:            true,
			Poll:              50 * time.Millisecond,
			PollMax:           200 * time.Millisecond,
			Connections:       20,
			SessionsPerMinute: 1000,
		},
	)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("Run = %v", err)
		}
	})

	s.until("the daemon answers", func() bool { _, ok := s.ask(wire.Request{Op: "status"}); return ok })
}

func (s *stage) until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func (s *stage) ask(req wire.Request) (wire.Reply, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := wire.Dial(ctx, s.state, "")
	if err != nil {
		return wire.Reply{}, false
	}

	defer c.Close()
	reply, _, err := c.Do(ctx, req, nil)
	return reply, err == nil && reply.OK
}

func (s *stage) session() (st query.SessionStatus) {
	s.t.Helper()
	if reply, ok := s.ask(wire.Request{Op: "status", Agent: "agent-zero", Session: "chatAAAA", Workspace: s.root}); ok {
		if err := json.Unmarshal(reply.Body, &st); err != nil {
			s.t.Fatal(err)
		}
	}
	return st
}

// A round, a second one that is killed in the middle of a tool, and the same chat after a new start.
func TestCrashAndResume(t *testing.T) {
	s := setStage(t)
	s.daemon()
	s.play("crash")
	s.until("the death is noticed", func() bool { return s.session().State == "died" })
	st := s.session()
	if st.MessageCount != 1 || st.Title != "please list the files here" || st.Transcript == nil {
		t.Errorf(
			"%d rounds, title %q, transcript %+v: want the one that ended, of both witnesses", st.MessageCount,
			st.Title, st.Transcript,
		)
	}

	var r recovery.Result
	reply, ok := s.ask(wire.Request{Op: "recover", Agent: "agent-zero", Session: "chatAAAA", Workspace: s.root})
	if !ok || json.Unmarshal(reply.Body, &r) != nil || len(r.InDoubt) != 1 ||
		r.InDoubt[0].Name != "code_execution_tool" ||
		!strings.Contains(r.InDoubt[0].Digest, "rm -rf x") {
		t.Errorf("recover: %+v %s", reply, r.Text)
	}

	out := s.play("resume")
	if !strings.Contains(out.Brief, "rm -rf x") || !strings.Contains(out.Brief, "<belay-record") {
		t.Errorf("the prompt holds %q, want the call in doubt", out.Brief)
	}
	if out.Again != "" {
		t.Errorf("the next turn's prompt holds it again: %q", out.Again)
	}

	s.until("all rounds are counted", func() bool { return s.session().MessageCount == 4 })
	if n := len(s.session().OpenCalls); n != 0 {
		t.Errorf("%d open calls, want none", n)
	}
	if out.Slowest > 200 {
		t.Errorf("an extension held the agent up for %.0f ms", out.Slowest)
	}
}

func TestBackgroundContextsLeaveNothing(t *testing.T) {
	s := setStage(t)
	s.daemon()
	s.play("background")
	if entries, err := os.ReadDir(filepath.Join(s.state, "sessions")); err == nil && len(entries) > 0 {
		t.Errorf("%d agents in the state folder, want none", len(entries))
	}
}

func TestCancelledTurn(t *testing.T) {
	s := setStage(t)
	s.daemon()
	s.play("fails")
	s.until("the round is counted", func() bool { return s.session().MessageCount == 1 })
}

// Without a daemon the agent loses no time; what is held has a bound, and belay-hook is asked to start one.
func TestNoDaemon(t *testing.T) {
	s := setStage(t)
	out := s.play("alone", "WAIT_FOR="+filepath.Join(s.home, "hooked"))
	if out.Held < 255 || out.Held > 256 || out.Held+out.Lost != 401 {
		t.Errorf("%d held, %d lost: want 256 at most, and each of 401 in one of them", out.Held, out.Lost)
	}
	if out.Slowest > 200 {
		t.Errorf("an extension held the agent up for %.0f ms", out.Slowest)
	}

	s.until("belay-hook is called with a wake", func() bool {
		hooked, err := os.ReadFile(filepath.Join(s.home, "hooked"))
		return err == nil && strings.Contains(string(hooked), " agent-zero wake\n")
	})
}

func TestTheAgentIsNeverFailed(t *testing.T) {
	s := setStage(t)
	s.play("broken")
	s.play("alone", "BELAY_STATE_DIR=relative", "HOME=")
}

// The extension's arithmetic for the socket's place is that of the daemon.
func TestPlaces(t *testing.T) {
	s := setStage(t)
	script := `import importlib.util, json, os, sys
sys.path.insert(0, sys.argv[1])
spec = importlib.util.spec_from_file_location("x", sys.argv[2])
m = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)
print(json.dumps([m.places({"BELAY_STATE_DIR": d}, os.getuid()) for d in json.loads(sys.argv[3])]))`

	dirs := []string{"/s", "/a//b/../c/", "/" + strings.Repeat("long/", 30), "/ünï/x", "//two/slashes"}
	arg, err := json.Marshal(dirs)
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(s.root, "usr/extensions/python/monologue_start/_95_belay.py")
	out, err := exec.Command("python3", "-B", "-c", script, s.root, file, string(arg)).Output()
	var got [][]string
	if err != nil || json.Unmarshal(out, &got) != nil {
		t.Fatalf("%v %q", err, out)
	}

	for i, dir := range dirs {
		if want := wire.SocketPlaces(filepath.Clean(dir)); strings.Join(got[i], " ") != strings.Join(want, " ") {
			t.Errorf("%s: got %v, want %v", dir, got[i], want)
		}
	}
}

// Python's own leavings go with the extension.
func TestUninstallAfterARun(t *testing.T) {
	s := setStage(t)
	s.play("broken", "WRITE_BYTECODE=1")
	if cache, _ := filepath.Glob(s.root + "/usr/extensions/python/*/__pycache__/*"); len(cache) == 0 {
		t.Log("this Python wrote no bytecode")
	}
	if _, err := s.agent.Uninstall(s.paths, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(s.root, "usr", "extensions")); err == nil {
		t.Error("usr/extensions is still there: install had made it")
	}
}
