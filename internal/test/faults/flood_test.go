//go:build linux

package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"belay/internal/wire"
)

// peak is the most memory that the daemon ever had, and files how many it has open now.
func (d *daemonProc) peak() (bytes int64) {
	d.w.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Process.Pid))
	if err != nil {
		d.w.t.Fatal(err)
	}

	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		d.w.t.Fatal(err)
	}

	return kb << 10
}

func (d *daemonProc) files() int {
	d.w.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.Process.Pid))
	if err != nil {
		d.w.t.Fatal(err)
	}
	return len(list)
}

// work is the processor time that the daemon has used.
func (d *daemonProc) work() time.Duration {
	d.w.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.Process.Pid))
	if err != nil {
		d.w.t.Fatal(err)
	}

	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, uerr := strconv.Atoi(fields[11])
	system, serr := strconv.Atoi(fields[12])
	if err := errors.Join(uerr, serr); err != nil {
		d.w.t.Fatal(err)
	}

	return time.Duration(user+system) * 10 * time.Millisecond // a hundred ticks a second, on every Linux
}

// most fails the test when the daemon ever had more memory.
func (d *daemonProc) most(bytes int64) {
	d.w.t.Helper()
	got := d.peak()
	d.w.t.Logf("the daemon's memory: %d MB at the most", got>>20)
	if got > bytes {
		d.w.t.Errorf("the daemon had %d MB, want %d at the most", got>>20, bytes>>20)
	}
}

// A transcript that is watched gets a line of 200 MB: it is passed over and counted, and what follows is read.
func TestHugeLine(t *testing.T) {
	w := newWorld(t)
	d := w.start()
	dir, err := os.MkdirTemp("", "bft")
	if err != nil {
		t.Fatal(err)
	}

	defer os.RemoveAll(dir)
	path := filepath.Join(dir, claudeSession+".jsonl")
	appendTo(t, path, transcriptLine(0, "the first wish"))
	payload := fmt.Sprintf(
		`{"session_id":%q,"transcript_path":%q,"hook_event_name":"SessionStart","source":"startup","cwd":"/proj"}`,
		claudeSession, path,
	)

	if reply, err := w.do(
		wire.Request{Op: "hook", Agent: "claude-code", Event: "SessionStart"}, []byte(payload),
	); err != nil ||
		!reply.OK {
		t.Fatalf("SessionStart: %+v, %v", reply, err)
	}

	size := 200 << 20
	if long() {
		size = 1 << 30
	}

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}

	part := bytes.Repeat([]byte("x"), 1<<20)
	_, err = io.WriteString(f, `{"type":"user","message":{"role":"user","content":"`)
	for n := 0; n < size && err == nil; n += len(part) {
		_, err = f.Write(part)
	}

	_, werr := io.WriteString(f, `"}}`+"\n")
	if err := errors.Join(err, werr, f.Close()); err != nil {
		t.Fatal(err)
	}

	appendTo(t, path, transcriptLine(1, "a wish after the line"))
	began := time.Now()
	until(t, "what follows is read", func() bool {
		out, err := w.belay("status", "--json", "--agent", "claude-code", "--session", claudeSession)
		return err == nil && strings.Contains(out, "a wish after the line")
	})

	t.Logf("read after %s", time.Since(began).Round(time.Millisecond))
	d.most(400 << 20)
}

func transcriptLine(n int, text string) string {
	return fmt.Sprintf(
		`{"type":"user","uuid":"u%d","sessionId":%q,"cwd":"/proj","timestamp":"2026-01-05T10:00:0%d.000Z","message":{"role":"user","content":%q}}`,
		n, claudeSession, n, text,
	)
}

func appendTo(t *testing.T, path, line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}

	_, err = io.WriteString(f, line+"\n")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// connect opens a bare connection.
func (w *world) connect() net.Conn {
	w.t.Helper()
	c, err := net.Dial("unix", filepath.Join(w.state, "belay.sock"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// A gigabyte comes in without a newline, and one behind a header that announces it.
func TestGigabyte(t *testing.T) {
	w := newWorld(t)
	d := w.start()
	part := bytes.Repeat([]byte("x"), 1<<20)
	c := w.connect()
	sent, err := int64(0), error(nil)
	for n := 0; sent < 1<<30 && err == nil; sent += int64(n) {
		n, err = c.Write(part)
	}

	if err == nil || sent > 32<<20 {
		t.Errorf("the daemon took %d MB without a newline, %v; want the connection ended", sent>>20, err)
	}

	size := 128 << 20
	if long() {
		size = 1 << 30
	}

	c = w.connect()
	_, err = fmt.Fprintf(c, `{"v":1,"op":"hook","agent":"claude-code","event":"UserPromptSubmit","len":%d}`+"\n", size)
	for n := 0; n < size && err == nil; n += len(part) {
		_, err = c.Write(part)
	}

	if err != nil {
		t.Fatalf("a payload of %d MB: %v", size>>20, err)
	}

	_ = c.SetReadDeadline(time.Now().Add(patience))
	if line := make([]byte, 1<<10); err == nil {
		n, err := c.Read(line)
		if err != nil || !bytes.HasPrefix(line[:n], []byte(`{"ok":`)) {
			t.Errorf("answer %q, %v; want one", line[:n], err)
		}
	}

	if reply := w.rounds("s", 1, 10); reply.Kept != wire.KeptDisk {
		t.Errorf("another client's answer %+v, want it on disk", reply)
	}

	d.most(160 << 20)
}

// Idle connections take no place from those who have something to say.
func TestIdleConnections(t *testing.T) {
	const places = 512
	w := newWorld(t)
	d := w.start()
	idle := make([]net.Conn, 0, places)
	for len(idle) < 500 {
		idle = append(idle, w.connect())
	}

	took := w.speakUp()
	for len(idle) < places {
		idle = append(idle, w.connect())
	}

	time.Sleep(2 * wire.EventDeadline) // silence is what this test is about: before it nobody's place may be taken
	full := w.speakUp()
	st := w.status()
	if st.Counts["refused_connections"] > 0 || st.Counts["idle_put_out"] == 0 {
		t.Errorf(
			"%d connections refused, %d idle ones put out; want none and some",
			st.Counts["refused_connections"], st.Counts["idle_put_out"],
		)
	}

	_ = idle[0].SetReadDeadline(time.Now().Add(patience))
	if n, err := idle[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the idlest connection: %d bytes, %v; want the end of the stream", n, err)
	}

	last := idle[places-1]
	_ = last.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(last, `{"op":"hello"}`+"\n"); err != nil {
		t.Errorf("the newest of the idle: %v", err)
	} else if n, err := last.Read(make([]byte, 1<<10)); err != nil || n == 0 {
		t.Errorf("the newest of the idle: %d bytes, %v; want an answer", n, err)
	}

	t.Logf(
		"slowest beside 500 idle: %s; beside %d, which is all: %s; %d files, %d goroutines", took, places, full,
		d.files(), st.Counts["goroutines"],
	)

	d.most(128 << 20)
}

// speakUp sends what a user sends: five events and five hooks, each on a connection of its own. It gives the slowest's
// time.
func (w *world) speakUp() (slowest time.Duration) {
	w.t.Helper()
	for range 5 {
		began := time.Now()
		if reply := w.rounds("s", 1, 10); reply.Kept != wire.KeptDisk {
			w.t.Errorf("answer %+v, want it on disk", reply)
		}
		slowest = max(slowest, time.Since(began))
		slowest = max(slowest, w.prompt(claudeSession, "may I"))
	}

	if slowest > 5*time.Second {
		w.t.Errorf("an event took %s, want 1 s (5 at most)", slowest)
	}

	return slowest
}

// A thousand sessions start within ten seconds: each is durable, and nothing grows without a bound.
func TestThousandStarts(t *testing.T) {
	const sessions, workers = 1000, 40
	w := newWorld(t)
	d := w.start()
	began := time.Now()
	var next, kept, notKept atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1); i <= sessions; i = next.Add(1) {
				id := fmt.Sprintf("11111111-2222-4333-8444-%012d", i)
				payload, err := json.Marshal(
					map[string]any{
						"session_id":      id,
						"hook_event_name": "SessionStart",
						"source":          "startup",
						"cwd":             "/proj",
					},
				)

				if err != nil {
					t.Error(err)
				}

				reply, err := w.do(
					wire.Request{Op: "hook", Agent: "claude-code", Event: "SessionStart", ID: id}, payload,
				)

				if err == nil && reply.Kept == wire.KeptDisk {
					kept.Add(1)
				} else if notKept.Add(1) == 1 {
					t.Errorf("start %d: %+v, %v; want it on disk", i, reply, err)
				}
			}
		})
	}

	wg.Wait()
	took := time.Since(began)
	st := w.status()
	t.Logf(
		"%d starts in %s (%s of the processor), %d files, %d goroutines, heap %d MB", kept.Load(),
		took.Round(time.Millisecond), d.work(), d.files(), st.Counts["goroutines"], st.Memory>>20,
	)

	if took > 50*time.Second {
		t.Errorf("a thousand starts took %s, want 10 s (50 at most)", took)
	}
	if files := d.files(); files > 300 {
		t.Errorf("%d open files, want 300 at most", files)
	}
	if n := st.Counts["goroutines"]; n > 4*sessions {
		t.Errorf("%d goroutines, want %d at most", n, 4*sessions)
	}

	d.most(400 << 20)
	d.kill()
	if got := len(w.states()); got != sessions {
		t.Errorf("%d sessions are there after kill -9, want %d", got, sessions)
	}
}

// Somebody removes the journal's folder under the daemon: what comes is on disk, and what was there is in the states.
func TestJournalRemoved(t *testing.T) {
	for _, notify := range []string{"true", "false"} {
		t.Run("notify "+notify, func(t *testing.T) {
			// no checkpoint stands in
			w := newWorld(t, "BELAY_WATCH_NOTIFY="+notify, "BELAY_GATES_SPARSE_TIME=1h", "BELAY_GATES_FULL_TIME=1h")
			folder := filepath.Join(w.state, "journal")
			d := w.start()
			w.rounds("s", 5, 100)
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}

			until(t, "the state holds what the journal held", func() bool {
				s := w.states()["s"]
				return s != nil && s.Rounds == 5
			})

			if reply := w.rounds("s", 5, 100); reply.Kept != wire.KeptDisk {
				t.Errorf("answer %+v, want it on disk", reply)
			}
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			if reply := w.rounds("s", 5, 100); reply.Kept != wire.KeptDisk { // nobody has looked yet
				t.Errorf("answer %+v, want it on disk", reply)
			}

			until(t, "the state holds what the journal held", func() bool {
				s := w.states()["s"]
				return s != nil && s.Rounds == 15
			})

			d.kill()
			d = w.start()
			defer d.kill()
			w.rounds("s", 1, 100)
			d.kill()
			if got := w.states()["s"].Rounds; got != 16 {
				t.Errorf("%d rounds, want 16", got)
			}

			w.compare()
		})
	}
}
