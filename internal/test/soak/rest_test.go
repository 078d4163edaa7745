//go:build linux

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"belay/internal/state/query"
	"belay/internal/wire"
)

// alone is a daemon for one test.
func alone(t *testing.T) (f *fleet, pid int) {
	t.Helper()
	base := "/dev/shm" // in memory where that is possible: hundreds of syncs on a busy disk would be most of the time
	if info, err := os.Stat(base); err != nil || !info.IsDir() {
		base = ""
	}

	root, err := os.MkdirTemp(base, "belay-rest")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(root) })
	f = newFleet(t, root, 1<<30, time.Second)
	pid, err = f.launch(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = syscall.Kill(pid, syscall.SIGTERM) // its end is what newFleet's own clean-up looks after
		until(t, "the daemon ends", func() bool { return len(left(f.state)) == 0 })
	})

	return f, pid
}

// until waits for what nothing announces.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func (f *fleet) session(t *testing.T, agent, id string) (st query.SessionStatus) {
	t.Helper()
	conn, err := wire.Dial(t.Context(), f.state, "")
	if err != nil {
		t.Fatal(err)
	}

	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reply, _, err := conn.Do(ctx, wire.Request{Op: "status", Agent: agent, Session: id}, nil)
	if err != nil || !reply.OK {
		t.Fatalf("status of %s: %+v, %v", id, reply, err)
	}
	if err := json.Unmarshal(reply.Body, &st); err != nil {
		t.Fatal(err)
	}

	return st
}

// settled is the memory of a daemon that has done its work: what the collector gives back comes back within seconds.
func (f *fleet) settled(pid int) int64 {
	least := private(pid)
	for range 20 {
		time.Sleep(100 * time.Millisecond) // nothing tells of what the collector gives back
		least = min(least, private(pid))
	}
	return least
}

// TestM04MemoryDoesNotGrowWithTheTranscript streams many records through one session: the daemon takes at most 20 MB
// more than before. BELAY_RECORDS sets how many (100000; 1000000 is the long form).
func TestM04MemoryDoesNotGrowWithTheTranscript(t *testing.T) {
	records := setting(t, "BELAY_RECORDS", 100_000, strconv.Atoi)
	f, pid := alone(t)
	m := &member{
		fleet: f,
		talk:  &talk{agent: "claude-code", id: "aaaaaaaa-0000-4000-8000-aaaaaaaaaaaa", cwd: f.root, source: "startup"},
	}

	m.file = path(m.talk.agent, f.root, m.talk.id)
	m.told = &told{}
	tell := func(at moment) {
		req, payload := f.hooks.request(m.talk, at)
		if reply, err := m.send(t.Context(), req, payload); err != nil || !reply.OK {
			t.Fatalf("%s: %+v, %v", req.Event, reply, err)
		}
	}

	defer m.hangUp()
	stream := func(n int) {
		var lines bytes.Buffer
		for range n / 4 {
			m.round++
			m.call++
			m.prompt, m.command, m.output, m.answer = fmt.Sprint(
				"wish ", m.round,
			), "make", "made: all is well", fmt.Sprint(
				"answer ", m.round,
			)

			for _, at := range []moment{asked, toolBegins, toolEnds, handsBack} {
				for _, line := range m.lines(at) {
					lines.WriteString(line + "\n")
				}
			}
		}

		out, err := os.OpenFile(m.file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(lines.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}

		tell(asked) // the hook of the next prompt: the file is read now and not at the next look
		until(t, "the records are read", func() bool { return f.session(t, m.talk.agent, m.talk.id).AtRisk.Bytes == 0 })
	}

	if err := os.MkdirAll(filepath.Dir(m.file), 0o700); err != nil {
		t.Fatal(err)
	}

	tell(begins)
	stream(1000)
	before, most, began := f.settled(pid), int64(0), time.Now()
	for n := 0; n < records; n += 10_000 {
		stream(10_000)
		most = max(most, private(pid))
	}

	took := time.Since(began)
	after := f.settled(pid)
	t.Logf(
		"%d records in %s: %.1f MB before, %.1f MB after, at most %.1f MB meanwhile (resident, peak ever: %d MB)",
		records, took.Round(time.Millisecond), mb(before), mb(after), mb(most),
		procField(pid, "status", "VmHWM:")>>10,
	)

	if after > before+20<<20 {
		t.Errorf(
			"%.1f MB after %d records, want at most 20 MB more than the %.1f MB before", mb(after), records,
			mb(before),
		)
	}

	if got := f.session(t, m.talk.agent, m.talk.id).MessageCount; got == 0 {
		t.Error("no round was counted: nothing was read")
	}
}

func mb(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// TestD10TwoHundredSessionsLeaveOneProcess lets 200 sessions start, work and end: one process, and its memory near what
// it was. BELAY_REST (12m in the long form) waits until they have left memory, and then looks again.
func TestD10TwoHundredSessionsLeaveOneProcess(t *testing.T) {
	rest := setting(t, "BELAY_REST", 0, time.ParseDuration)
	f, pid := alone(t)
	base := f.settled(pid)
	for i := range 200 {
		m := &member{
			fleet: f,
			talk: &talk{
				agent:  "claude-code",
				id:     fmt.Sprintf("%08d-0000-4000-8000-aaaaaaaaaaaa", i),
				cwd:    f.root,
				source: "startup",
			},
		}

		m.file, m.prompt, m.answer = path(
			m.talk.agent, f.root, m.talk.id,
		), fmt.Sprint(
			"wish of ", i,
		), fmt.Sprint(
			"answer to ", i,
		)

		for _, at := range []moment{begins, asked, handsBack, ends} {
			if err := m.write(at, nil); err != nil {
				t.Fatal(err)
			}
			req, payload := f.hooks.request(m.talk, at)
			if reply, err := m.send(t.Context(), req, payload); err != nil || !reply.OK {
				t.Fatalf("%s of %d: %+v, %v", req.Event, i, reply, err)
			}
		}

		m.hangUp()
	}

	const perSession = 200 << 10 // while they are in memory: ten minutes
	after := f.settled(pid)
	t.Logf("%.1f MB before, %.1f MB after 200 sessions", mb(base), mb(after))
	if after > base+10<<20+200*perSession {
		t.Errorf("%.1f MB after 200 sessions, want at most %.1f MB", mb(after), mb(base+10<<20+200*perSession))
	}
	if pids := left(f.state); len(pids) != 1 || pids[0] != pid {
		t.Errorf("processes %v, want the daemon %d alone", pids, pid)
	}
	if rest == 0 {
		return
	}

	time.Sleep(rest)
	s, ok := f.look(t.Context())
	t.Logf(
		"after %s: %.1f MB, %d sessions in memory, %d open files, %d goroutines", rest, mb(s.Private), s.Active,
		s.Files, s.Goroutines,
	)

	if !ok || s.Active != 0 || s.Private > base+10<<20 || s.Files > filesBase || s.Goroutines > goroutinesBase {
		t.Errorf("at rest: %+v, want no session in memory, %.1f MB at most", s, mb(base+10<<20))
	}
}

// TestIdleDaemonSleeps: while nothing happens the daemon is not woken. BELAY_IDLE sets for how long it is watched (3s;
// 60s).
func TestIdleDaemonSleeps(t *testing.T) {
	long := setting(t, "BELAY_IDLE", 3*time.Second, time.ParseDuration)
	f, pid := alone(t)
	f.settled(pid) // what a start leaves to do is done
	before := f.switches(t, pid)
	time.Sleep(long) // silence is what is measured
	got := f.switches(t, pid) - before
	t.Logf("%d wake-ups in %s", got, long)
	if most := int64(5 + long/(10*time.Second)); got > most {
		t.Errorf("%d wake-ups in %s of silence, want none (%d at most, for the runtime)", got, long, most)
	}
}

// switches counts how often the threads of a process went to sleep.
func (f *fleet) switches(t *testing.T, pid int) (n int64) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("threads of %d: %v", pid, err)
	}

	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			t.Fatal(err)
		}
		n += procField(tid, "status", "voluntary_ctxt_switches:")
	}

	return n
}
