package daemon

import (
	"belay/internal/agent"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/agent/all"
	"belay/internal/daemon/session"
	"belay/internal/state"
	"belay/internal/state/check"
	"belay/internal/state/check/checktest"
	"belay/internal/state/query"
	"belay/internal/vfs"
	"belay/internal/wire"
	"belay/recovery"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if belay.path != "" {
			_ = os.RemoveAll(filepath.Dir(belay.path)) // a temporary folder: nothing is lost if it stays
		}
		os.Exit(code)
	}))
}

// patience is how long a test waits for something that must happen; only a failing test waits so long.
const patience = 20 * time.Second

// until waits for a condition that nothing announces.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain for: %s", patience, what)
		}
	}
}

func nopLog() *zap.Logger { return zap.NewNop() }

// tempDir is short, so that the socket fits. It lies in memory where that is possible: hundreds of syncs on a busy disk
// would be most of the time of these tests. The kill loop uses a real disk.
func tempDir(t *testing.T) string {
	t.Helper()
	base := "/dev/shm"
	if info, err := os.Stat(base); err != nil || !info.IsDir() {
		base = ""
	}
	return tempDirIn(t, base)
}

func tempDirIn(t *testing.T, base string) string {
	t.Helper()
	dir, err := os.MkdirTemp(base, "bd")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}

	return target
}

// testOptions are the design's settings but for small gates: what a test needs to wait for is short.
func testOptions(dir string, log *zap.Logger) Options {
	host := agent.Host{Home: os.Getenv("HOME"), State: dir, FS: vfs.OS{}, Env: os.Getenv} // as home has set them
	return Options{
		StateDir: dir,
		FS:       vfs.OS{},
		Log:      log,
		Version:  "test",
		Agents:   all.All(host),
		Gates: checkpoint.Gates{
			SparseTime:   time.Hour,
			SparseRounds: 5,
			FullTime:     time.Hour,
			ForcedTime:   20 * time.Millisecond,
		},
		Retention:         checkpoint.Policy{Count: 50, Bytes: 64 << 20, Age: 30 * 24 * time.Hour},
		Adopt:             recovery.AdoptAuto,
		AdoptWindow:       24 * time.Hour,
		BriefBytes:        9000,
		Heartbeat:         "@every 30m",
		Breaker:           breaker.Options{Failures: 3, Pause: 50 * time.Millisecond, MaxPause: 200 * time.Millisecond},
		SegmentBytes:      16 << 20,
		MemoryBytes:       4 << 20,
		Mirror:            MirrorRedacted,
		Notify:            true,
		Poll:              50 * time.Millisecond,
		PollMax:           200 * time.Millisecond,
		Connections:       600,
		SessionsPerMinute: 100_000,
	}
}

// storeOf gives the store of a state folder on the real disk, for reading.
func storeOf(t testing.TB, dir string) checkpoint.Store {
	t.Helper()
	s, err := state.Dir{Root: dir, FS: vfs.OS{}}.OpenStore()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lockName is the lock beside a socket.
func lockName(place string) string { return strings.TrimSuffix(place, ".sock") + ".lock" }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// running is a daemon that runs inside the test.
type running struct {
	t    *testing.T
	d    *Daemon
	l    *life // its first
	dir  string
	logs *observer.ObservedLogs
	stop func() error // ends it as SIGTERM does; a second call does nothing
	// excused are the rules of a whole store that the test breaks itself.
	excused []check.Rule
}

// start runs a daemon on a state folder until the test ends.
func start(t *testing.T, dir string, change ...func(*Daemon)) *running {
	t.Helper()

	// The first heartbeat of all comes at the start; in most tests it would only be in the way.
	if beat := filepath.Join(dir, "beat.json"); !exists(beat) {
		// some tests have no folder yet, and bear with the beat
		_ = state.Dir{Root: dir, FS: vfs.OS{}}.SaveBeat(time.Now())
	}

	core, logs := observer.New(zapcore.InfoLevel)
	opt := testOptions(dir, zap.New(core))
	d := New(opt)
	d.times.session.RetryFirst, d.times.session.RetryLongest = 20*time.Millisecond, 50*time.Millisecond
	d.times.spoolRetry = 50 * time.Millisecond
	for _, f := range change {
		f(d)
	}

	d.settings.Store(&d.opt)
	lives := make(chan *life, 10)
	d.ready = func(l *life) { lives <- l }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	r := &running{t: t, d: d, dir: dir, logs: logs}
	var result error
	stopped := false
	r.stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			result = <-ended
		}
		return result
	}

	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run = %v", err)
		}

		checktest.Whole(t, dir, r.excused...)
		if t.Failed() {
			for _, e := range logs.All() {
				t.Logf("log: %s %s %v", e.Level, e.Message, e.ContextMap())
			}
		}
	})

	select {
	case r.l = <-lives:
	case <-time.After(patience):
		t.Fatal("the daemon is not ready")
	}

	return r
}

func (r *running) dial() *wire.Conn {
	r.t.Helper()
	c, err := wire.Dial(context.Background(), r.dir, "")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func tryDo(c *wire.Conn, req wire.Request, payload []byte) (wire.Reply, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.Do(ctx, req, payload)
}

// do sends one request on a connection of its own.
func (r *running) do(req wire.Request, payload []byte) (wire.Reply, []byte) {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	reply, body, err := tryDo(c, req, payload)
	if err != nil {
		r.t.Fatalf("%s: %v", req.Op, err)
	}

	return reply, body
}

// payload is a hook payload's fields.
type payload map[string]any

// hook sends one of Claude Code's events and gives the text that was put into the context.
func (r *running) hook(pid int, p payload) (wire.Reply, string) {
	r.t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		r.t.Fatal(err)
	}

	reply, body := r.do(
		wire.Request{Op: "hook", Agent: "claude-code", Event: fmt.Sprint(p["hook_event_name"]), PID: pid}, data,
	)

	if !reply.OK {
		r.t.Fatalf("hook %v: %+v", p["hook_event_name"], reply)
	}

	return reply, injected(r.t, body)
}

// injected takes the text out of a hook's stdout.
func injected(t *testing.T, body []byte) string {
	t.Helper()
	if len(body) == 0 {
		return ""
	}

	var doc struct {
		Output struct {
			Context string `json:"additionalContext"`
		} `json:"hookSpecificOutput"`
	}

	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatalf("stdout %q is no JSON document: %v", body, err)
	}

	return doc.Output.Context
}

// event sends op event for a session of an agent that belay does not know.
func (r *running) event(session string, e wire.Event) wire.Reply {
	r.t.Helper()
	reply, _ := r.do(eventRequest(session, e), nil)
	if !reply.OK {
		r.t.Fatalf("event %s: %+v", e.Kind, reply)
	}
	return reply
}

func eventRequest(session string, e wire.Event) wire.Request {
	body, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return wire.Request{Op: "event", Agent: "tester", Session: session, Workspace: "/proj", Body: body}
}

// rounds plays so many rounds of a session and gives the last reply.
func (r *running) rounds(session string, from, n int) (last wire.Reply) {
	r.t.Helper()
	for i := from; i < from+n; i++ {
		r.event(session, wire.Event{Kind: "prompt", Text: fmt.Sprintf("question %d of %s", i, session)})
		last = r.event(session, wire.Event{Kind: "stop", Text: fmt.Sprintf("answer %d", i)})
	}
	return last
}

func (r *running) status() Status {
	r.t.Helper()
	var st Status
	reply, _ := r.do(wire.Request{Op: "status"}, nil)
	r.decode(reply, &st)
	return st
}

func (r *running) decode(reply wire.Reply, v any) {
	r.t.Helper()
	if !reply.OK {
		r.t.Fatalf("reply %+v", reply)
	}
	if err := json.Unmarshal(reply.Body, v); err != nil {
		r.t.Fatalf("body %s: %v", reply.Body, err)
	}
}

func (r *running) session(agent, id string) query.SessionStatus {
	r.t.Helper()
	var st query.SessionStatus
	reply, _ := r.do(wire.Request{Op: "status", Agent: agent, Session: id, Workspace: "/proj"}, nil)
	r.decode(reply, &st)
	return st
}

// checkpoints lists what is stored of a session, newest first.
func (r *running) checkpoints(agent, id string) []checkpoint.Meta {
	r.t.Helper()
	var shown query.Shown
	reply, _ := r.do(wire.Request{Op: "show", Agent: agent, Session: id, Workspace: "/proj"}, nil)
	if reply.Code == wire.CodeNotFound {
		return nil
	}

	r.decode(reply, &shown)
	return shown.Checkpoints
}

// recover gives the text of op recover.
func (r *running) recover(agent, id string) recovery.Result {
	r.t.Helper()
	var res recovery.Result
	reply, _ := r.do(wire.Request{Op: "recover", Agent: agent, Session: id, Workspace: "/proj"}, nil)
	r.decode(reply, &res)
	return res
}

// said says whether an answer holds a message with these words.
func said(res recovery.Result, words string) bool {
	for _, list := range [][]recovery.Said{res.User, res.Messages} {
		for _, m := range list {
			if strings.Contains(m.Text, words) {
				return true
			}
		}
	}
	return false
}

// active gives a session, in memory.
func (r *running) active(key checkpoint.Key) *session.Session {
	r.t.Helper()
	s, err := r.l.sessions.Session(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *running) count(name string) int64 { return r.status().Counts[name] }

// lines of a file, appended durably enough for a test.
func appendLines(t *testing.T, path string, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}

	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// record is one line of a Claude Code transcript.
func record(session, role, text string, n int) string {
	content := any(text)
	if role == "assistant" {
		content = []map[string]string{{"type": "text", "text": text}}
	}

	line, err := json.Marshal(
		map[string]any{
			"type":      role,
			"uuid":      fmt.Sprintf("%s-%s-%d", session[:8], role, n),
			"sessionId": session,
			"cwd":       "/proj",
			"timestamp": "2026-01-05T10:00:00.000Z",
			"message": map[string]any{
				"role":        role,
				"id":          fmt.Sprintf("msg_%s_%d", session[:8], n),
				"stop_reason": "end_turn",
				"content":     content,
			},
		},
	)

	if err != nil {
		panic(err)
	}

	return string(line)
}

const (
	sessionA = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
	sessionB = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
	sessionC = "cccccccc-cccc-4ccc-8ccc-cccccccccccc"
)

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
