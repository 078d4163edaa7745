package pi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/plugin"
	"belay/internal/wire"
)

// driver is one node that runs the extension, in pi's place.
type driver struct {
	t     *testing.T
	dir   string // also the home
	state string
	in    io.WriteCloser
	out   *bufio.Scanner
	cmd   *exec.Cmd
}

// nodeFolder is a folder with the extension, as install writes it, and the driver.
func nodeFolder(t *testing.T, p agent.Paths) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not here: it runs the extension")
	}

	dir, err := os.MkdirTemp("", "pi-") // short: a socket's path has a bound
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})

	text, err := plugin.OneFile(extension, p)
	if err != nil {
		t.Fatal(err)
	}

	put(t, filepath.Join(dir, "belay.mjs"), text)
	drive, err := os.ReadFile("testdata/drive.mjs")
	if err != nil {
		t.Fatal(err)
	}

	put(t, filepath.Join(dir, "drive.mjs"), string(drive))
	return dir
}

// drive starts the extension. Its belay-hook is a script that notes how it was called.
func drive(t *testing.T, vars ...string) *driver {
	t.Helper()
	hook := filepath.Join(t.TempDir(), "belay-hook")
	dir := nodeFolder(t, agent.Paths{Hook: hook})
	put(t, hook, "#!/bin/sh\necho \"$CLAUDE_PID $* $(cat)\" >>"+dir+"/hooked\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}

	d := &driver{t: t, dir: dir, state: filepath.Join(dir, "state")}
	if err := os.Mkdir(d.state, 0o700); err != nil {
		t.Fatal(err)
	}

	d.cmd = exec.Command("node", "drive.mjs")
	d.cmd.Dir = dir
	d.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "BELAY_STATE_DIR=" + d.state}, vars...)
	d.cmd.Stderr = os.Stderr
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}

	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	d.out = bufio.NewScanner(out)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { d.quit() })
	return d
}

// quit ends the driver's input: it must end by itself, whatever it still holds.
func (d *driver) quit() {
	d.t.Helper()
	if d.in == nil {
		return
	}

	_ = d.in.Close() // it may be gone
	d.in = nil
	late := time.AfterFunc(20*time.Second, func() {
		d.t.Error("the extension keeps its program alive")
		_ = d.cmd.Process.Kill()
	})

	defer late.Stop()
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("driver: %v", err)
	}
}

// handled is what a handler gave.
type handled struct {
	Event string
	MS    int
	Text  string
}

// event lets pi have an event; kind may be "broken" or "unkept".
func (d *driver) event(name, data, kind string) handled {
	d.t.Helper()
	if data == "" {
		data = "{}"
	}

	fmt.Fprintf(d.in, `{"event":%q,"data":%s,"kind":%q}`+"\n", name, data, kind)
	var h handled
	if !d.out.Scan() || json.Unmarshal(d.out.Bytes(), &h) != nil || h.Event != name {
		d.t.Fatalf("%s: the driver says %q, %v", name, d.out.Text(), d.out.Err())
	}

	return h
}

func (d *driver) hooked() []string {
	data, err := os.ReadFile(filepath.Join(d.dir, "hooked"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// fake is a daemon that keeps what it got.
type fake struct {
	t *testing.T
	// of the n-th request, from 1; "" is no answer, "end" closes the connection
	answer func(n int, r wire.Request) string
	mu     sync.Mutex
	got    []wire.Request
	bodies []string
}

// listen starts a daemon at the driver's state folder.
func (d *driver) listen(answer func(n int, r wire.Request) string) *fake {
	d.t.Helper()
	l, err := net.Listen("unix", filepath.Join(d.state, "belay.sock"))
	if err != nil {
		d.t.Fatal(err)
	}

	f := &fake{t: d.t, answer: answer}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.t.Cleanup(func() { _ = c.Close() })
			conns.Go(func() { f.talk(c) })
		}
	})

	d.t.Cleanup(func() {
		d.quit()
		_ = l.Close()
		conns.Wait()
	})

	return f
}

func (f *fake) talk(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}

		var req wire.Request
		if err := json.Unmarshal(line, &req); err != nil {
			f.t.Errorf("no request: %q", line)
			return
		}

		body := make([]byte, req.Len)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}

		f.mu.Lock()
		f.got, f.bodies = append(f.got, req), append(f.bodies, string(body))
		n := len(f.got)
		f.mu.Unlock()
		switch a := f.answer(n, req); a {
		case "":
		case "end":
			return
		default:
			_, _ = io.WriteString(c, a) // a client that is gone needs none
		}
	}
}

func okay(int, wire.Request) string { return `{"ok":true,"seq":1,"kept":"disk"}` + "\n" }

func (f *fake) events() []wire.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// until waits for so many requests.
func (f *fake) until(n int) []wire.Request {
	f.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if got := f.events(); len(got) >= n {
			return got
		}
		if time.Now().After(end) {
			f.t.Fatalf("got %d requests, want %d: %+v", len(f.events()), n, f.events())
		}
	}
}

// TestExtensionTells: a session's events arrive in order, each under its own id, in a form that Decode reads.
func TestExtensionTells(t *testing.T) {
	d := drive(t)
	f := d.listen(okay)
	run := []struct{ event, data, want string }{
		{"session_start", `{"reason":"startup"}`, "start source=startup"},
		{"before_agent_start", `{"prompt":"please start"}`, "prompt text=please start"},
		{
			"tool_execution_start",
			`{"toolCallId":"c1","toolName":"bash","args":{"command":"ls"}}`,
			`tool-start call=c1 name=bash input={"command":"ls"}`,
		},
		{
			"tool_execution_end",
			`{"toolCallId":"c1","toolName":"bash","result":{"content":[{"type":"text","text":"a"},{"type":"image","data":"AAAA"}]}}`,
			"tool-end call=c1 name=bash output=a\n[image]",
		},
		{
			"tool_execution_start",
			`{"toolCallId":"c2","toolName":"write","args":{"content":"` + strings.Repeat("x", 300<<10) + `"}}`,
			"",
		},
		{"session_before_compact", `{"reason":"manual","branchEntries":["much"]}`, "compacting reason=manual"},
		{
			"session_compact",
			`{"reason":"manual","compactionEntry":{"summary":"what was"}}`,
			"compacted reason=manual text=what was",
		},
		{
			"agent_end",
			`{"messages":[{"role":"user","content":"x"},{"role":"assistant","stopReason":"stop","content":[{"type":"thinking","thinking":"secret thoughts"},{"type":"text","text":"Done."}]},{"role":"toolResult"}]}`,
			"stop text=Done.",
		},
		{"session_shutdown", `{"reason":"quit"}`, "end reason=quit"},
	}

	for _, e := range run {
		if h := d.event(e.event, e.data, ""); h.Text != "" {
			t.Errorf("%s: got %q, want no text", e.event, h.Text)
		}
	}

	d.event("agent_end", `{}`, "") // after the good-bye: nothing more
	f.until(len(run))
	d.quit()
	got := f.events()
	if len(got) != len(run) {
		t.Fatalf("got %d events, want %d", len(got), len(run))
	}

	ids := map[string]bool{}
	for i, req := range got {
		if req.V != 1 || req.Op != "hook" || req.Agent != "pi" || req.Event != run[i].event ||
			req.PID != d.cmd.Process.Pid ||
			req.Workspace != "/work-folder" ||
			req.ID == "" ||
			ids[req.ID] {
			t.Errorf("got %+v, want %s of pi with an id of its own", req, run[i].event)
		}

		ids[req.ID] = true
		in, err := Pi(agent.Host{}).Decode(t.Context(), agent.Hook{Event: req.Event, Payload: []byte(f.bodies[i])})
		if err != nil || len(in.Events) == 0 || run[i].want != "" && line(in.Events[0]) != run[i].want {
			t.Errorf("%s: got %+v, %v, want %s", req.Event, in.Events, err, run[i].want)
		}
		if strings.Contains(f.bodies[i], "secret thoughts") || len(f.bodies[i]) > 270<<10 {
			t.Errorf("%s: %d bytes, or what the model thought", req.Event, len(f.bodies[i]))
		}
	}
}

// TestExtensionSettles: a pi that says when a run has settled is not taken for done before, whatever it tries again.
func TestExtensionSettles(t *testing.T) {
	d := drive(t)
	f := d.listen(okay)
	d.event("before_agent_start", `{"prompt":"go"}`, "")
	d.event("turn_end", `{"messageEntryId":"e1"}`, "")
	d.event(
		"agent_end",
		`{"messages":[{"role":"assistant","stopReason":"error","errorMessage":"busy","content":[]}]}`, "",
	)

	d.event(
		"agent_end",
		`{"messages":[{"role":"assistant","stopReason":"stop","content":[{"type":"text","text":"Done."}]}]}`,
		"",
	)

	d.event("agent_settled", `{"aborted":false}`, "")
	got := f.until(2)
	d.quit()
	in, err := Pi(agent.Host{}).Decode(t.Context(), agent.Hook{Event: got[1].Event, Payload: []byte(f.bodies[1])})
	if err != nil || len(f.events()) != 2 || line(in.Events[0]) != "stop text=Done." {
		t.Errorf("got %+v, %v, want the prompt and one end", got, err)
	}
}

// TestExtensionBrief: the first turn carries what the daemon has to say, once, and waits for it a second at most.
func TestExtensionBrief(t *testing.T) {
	brief := func(text string) string { return fmt.Sprintf(`{"ok":true,"len":%d}`+"\n%s", len(text), text) }
	t.Run("there", func(t *testing.T) {
		d := drive(t)
		d.listen(func(_ int, r wire.Request) string {
			if r.Event == "before_agent_start" {
				return brief("what wäs before")
			}
			return okay(0, r)
		})

		d.event("session_start", `{"reason":"startup"}`, "")
		if h := d.event("before_agent_start", `{"prompt":"go"}`, ""); h.Text != "what wäs before" {
			t.Errorf("got %q, want the brief", h.Text)
		}
	})

	t.Run("late", func(t *testing.T) {
		d := drive(t)
		f := d.listen(func(_ int, r wire.Request) string {
			if r.Event == "before_agent_start" {
				time.Sleep(1200 * time.Millisecond) // a daemon that is slow
				return brief("late words")
			}
			return okay(0, r)
		})

		d.event("session_start", `{"reason":"startup"}`, "")
		if h := d.event("before_agent_start", `{"prompt":"go"}`, ""); h.Text != "" || h.MS < 900 || h.MS > 3000 {
			t.Errorf("got %q after %d ms, want nothing after a second", h.Text, h.MS)
		}

		d.event("tool_execution_start", `{"toolCallId":"c"}`, "")
		f.until(3) // its answer went out before this one came
		for range 3 {
			d.event("no such event", "", "") // let the answer in
		}

		if h := d.event("before_agent_start", `{"prompt":"on"}`, ""); h.Text != "late words" || h.MS > 500 {
			t.Errorf("next turn: got %q after %d ms, want the late words at once", h.Text, h.MS)
		}
	})

	t.Run("nobody", func(t *testing.T) {
		d := drive(t)
		d.event("session_start", `{"reason":"startup"}`, "")
		if h := d.event("before_agent_start", `{"prompt":"go"}`, ""); h.Text != "" || h.MS > 3000 {
			t.Errorf("got %q after %d ms, want nothing after a second", h.Text, h.MS)
		}
		if h := d.event("before_agent_start", `{"prompt":"on"}`, ""); h.MS > 500 {
			t.Errorf("the second turn waited %d ms, want none", h.MS)
		}
	})

	t.Run("a new session is told nothing", func(t *testing.T) {
		d := drive(t)
		d.listen(func(int, wire.Request) string { return "" }) // a daemon that hangs
		d.event("session_start", `{"reason":"new"}`, "")
		if h := d.event("before_agent_start", `{"prompt":"go"}`, ""); h.MS > 500 {
			t.Errorf("waited %d ms, want none", h.MS)
		}
	})
}

// TestExtensionHolds: while nobody answers the newest events are held, a daemon is called for at most once a second,
// and what had no room is told.
func TestExtensionHolds(t *testing.T) {
	d := drive(t)
	d.event("session_start", `{"reason":"new"}`, "")
	for i := range 299 {
		d.event("tool_execution_start", fmt.Sprintf(`{"toolCallId":"c%d"}`, i), "")
	}

	kicks := len(d.hooked())
	if kicks > 5 {
		t.Errorf("belay-hook was started %d times for 300 events, want once a second at most", kicks)
	}

	f := d.listen(okay)
	got := f.until(257)
	if got[0].Event != "dropped" || !strings.Contains(f.bodies[0], `"count":44`) ||
		!strings.Contains(f.bodies[1], `"c43"`) ||
		!strings.Contains(f.bodies[256], `"c298"`) {
		t.Errorf(
			"got %s %s, then %s, and at last %s, want 44 dropped and the newest 256", got[0].Event, f.bodies[0],
			f.bodies[1], f.bodies[256],
		)
	}

	if list := d.hooked(); len(list) == 0 ||
		strings.TrimSpace(list[0]) != fmt.Sprintf("%d pi wake", d.cmd.Process.Pid) {
		t.Errorf("belay-hook was called as %q, want pi wake with pi's pid", list)
	}
}

// TestExtensionSendsAgain: what was not answered goes again, under the same id.
func TestExtensionSendsAgain(t *testing.T) {
	for _, first := range []string{"end", `{"ok":false,"code":"stopping"}` + "\n"} {
		d := drive(t)
		f := d.listen(func(n int, r wire.Request) string {
			if n == 1 {
				return first
			}
			return okay(n, r)
		})

		d.event("session_start", `{"reason":"new"}`, "")
		got := f.until(2)
		if got[0].ID != got[1].ID || got[1].Event != "session_start" {
			t.Errorf("after %q: got %+v, want the same event again", first, got)
		}

		d.quit()
	}
}

// TestExtensionQuits: what is held when pi quits goes to belay-hook.
func TestExtensionQuits(t *testing.T) {
	d := drive(t)
	d.event("session_start", `{"reason":"new"}`, "")
	d.event("session_shutdown", `{"reason":"quit"}`, "")
	d.quit()
	want := []string{"pi session_shutdown {", "pi session_start {"}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all := strings.Join(d.hooked(), "\n")
		if strings.Contains(all, want[0]) && strings.Contains(all, want[1]) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("belay-hook got %q, want both events", all)
		}
	}
}

// TestExtensionIsNeverInTheWay: nothing that goes wrong reaches pi, and it talks to no socket that a stranger may hold.
func TestExtensionIsNeverInTheWay(t *testing.T) {
	d := drive(t)
	for _, e := range Pi(agent.Host{}).Events() {
		d.event(e.Name, `{"messages":7,"result":{"content":7},"compactionEntry":7}`, "broken")
		d.event(e.Name, "", "unkept")
		d.event(e.Name, `{"messages":7,"result":{"content":7},"compactionEntry":7,"prompt":{}}`, "")
	}

	d = drive(t)
	if err := os.Chmod(d.state, 0o755); err != nil {
		t.Fatal(err)
	}

	f := d.listen(okay)
	d.event("session_start", `{"reason":"startup"}`, "")
	d.event("before_agent_start", `{"prompt":"go"}`, "")
	if got := f.events(); len(got) != 0 {
		t.Errorf("got %d events at a socket in an open folder, want none", len(got))
	}

	d = drive(t, "BELAY_INTERNAL=1")
	f = d.listen(okay)
	d.event("session_start", `{"reason":"startup"}`, "")
	d.quit()
	if got := f.events(); len(got) != 0 {
		t.Errorf("belay's own pi: got %d events, want none", len(got))
	}
}
