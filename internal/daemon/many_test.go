package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/state"
	"belay/internal/state/check"
	"belay/internal/state/spool"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// ordered is a store that notes whose checkpoints came, in which order.
type ordered struct {
	checkpoint.Store
	mu   sync.Mutex
	came []string
}

func (o *ordered) Put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	o.mu.Lock()
	o.came = append(o.came, key.Session)
	o.mu.Unlock()
	return o.Store.Put(ctx, key, m, data)
}

// TestStopWith200Sessions: a stop takes the newest sessions first, within five times its budget.
func TestStopWith200Sessions(t *testing.T) {
	dir := tempDir(t)
	o := &ordered{}
	r := start(t, dir, func(d *Daemon) {
		d.openStore = func(dir state.Dir) (s checkpoint.Store, err error) {
			o.Store, err = dir.OpenStore()
			return o, err
		}
	})

	for i := range 200 {
		r.rounds(fmt.Sprint("s", i), 0, 1)
	}

	began := time.Now()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	took := time.Since(began)
	t.Logf("stopped in %s with %d of 200 FULLs", took.Round(time.Millisecond), len(o.came))
	if most := 5 * usualTimes().stop; took > most { // other tests' work is on the same disk
		t.Errorf("stopping took %s, want %s (%s at most)", took, usualTimes().stop, most)
	}
	if len(o.came) == 0 {
		t.Error("no FULL was taken at the stop")
	}

	for i, name := range o.came { // as many as are written at a time may pass each other
		var number int
		if _, err := fmt.Sscanf(name, "s%d", &number); err != nil || number <= 199-i-session.MaxBuilds {
			t.Errorf("checkpoint %d of the stop is of %s, want one newer than s%d", i, name, 199-i-session.MaxBuilds)
		}
	}

	r = start(t, dir)
	if got := r.session("tester", "s199").MessageCount; got != 1 {
		t.Errorf("%d rounds, want 1", got)
	}

	until(t, "the rest is taken", func() bool {
		names, err := filepath.Glob(filepath.Join(dir, "sessions/tester/*/checkpoints/*-full.md"))
		return err == nil && len(names) >= 200
	})
}

func TestD10SessionsLeaveMemoryAndFilesAreClosed(t *testing.T) {
	path := transcriptPath(t, sessionA)
	r := start(t, tempDir(t), func(d *Daemon) { d.times.session.IdleAfter = 50 * time.Millisecond })
	r.rounds("warm", 0, 1)
	until(t, "the first session leaves", func() bool { return len(r.l.sessions.Active()) == 0 })
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for i := range 100 {
		id := fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", i)
		file := strings.Replace(path, sessionA, id, 1)
		appendLines(t, file, record(id, "user", "wish", 0), record(id, "assistant", "answer", 1))
		r.claude(
			file, startOf(id, "startup", "/proj"),
			payload{"hook_event_name": "SessionEnd", "session_id": id, "cwd": "/proj", "reason": "exit"},
		)
	}

	until(t, "all sessions leave memory", func() bool { return len(r.l.sessions.Active()) == 0 })
	until(t, "files and goroutines are let go", func() bool {
		return openFiles(t) <= files+5 && runtime.NumGoroutine() <= goroutines+5
	})
	until(
		t, "only socket, state folder, spool and journal are watched",
		func() bool { return r.l.watchers.watch.Status().Paths <= 4 },
	)

	if got := r.session("claude-code", "00000007-aaaa-4aaa-8aaa-aaaaaaaaaaaa"); got.State != "ended" {
		t.Errorf("a session on disk: %+v", got)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("open files cannot be counted here: %v", err)
	}
	return len(list)
}

func TestNothingWakesUpWhenNothingHappens(t *testing.T) {
	path := transcriptPath(t, sessionA)
	r := start(t, tempDir(t), func(d *Daemon) { d.times.session.IdleAfter = time.Hour })

	// An open call of a session without a known process: nothing can be noted of it.
	r.event("s", wire.Event{Kind: "start"})
	r.event("s", wire.Event{Kind: "tool-start", Call: "c", Name: "Bash"})
	appendLines(t, path, record(sessionA, "user", "wish", 0))
	r.claude(path, startOf(sessionA, "startup", "/proj"))
	until(t, "first sight", func() bool { return len(r.checkpoints("claude-code", sessionA)) == 1 })
	time.Sleep(1500 * time.Millisecond) // calls are noted and the mirror is flushed within a second
	ticks := r.l.counts.Ticks.Load()
	time.Sleep(time.Second) // silence is what is measured
	if n := r.l.counts.Ticks.Load() - ticks; n > 1 {
		t.Errorf("%d ticks of sessions in a silent second", n)
	}
}

// BELAY_MANY sets how many sessions lie there (1000; 10000 is the long form: making them takes the time).
func TestStartDoesNotReadWhatIsOnDisk(t *testing.T) {
	dir := tempDir(t)
	many := 1000
	if n, err := strconv.Atoi(os.Getenv("BELAY_MANY")); err == nil {
		many = n
	}

	for i := range many {
		folder := filepath.Join(dir, "sessions", "tester", fmt.Sprint("s", i))
		if err := errors.Join(
			os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "state.json"), []byte("{"), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}

	began := time.Now()
	r := start(t, dir)
	r.excused = []check.Rule{check.State} // the files are empty
	took := time.Since(began)
	t.Logf("ready after %s beside %d sessions", took.Round(time.Millisecond), many)
	if took > 5*time.Second {
		t.Errorf("ready after %s, want 1 s (5 at most)", took)
	}
	if got := len(r.status().Sessions); got != 0 {
		t.Errorf("%d sessions in memory, want none", got)
	}
}

func TestM06ManySpooledEventsAreOneCheckpointEach(t *testing.T) {
	dir := tempDir(t)
	const sessions, events = 20, 10
	for i := range sessions * events {
		kind := []string{"prompt", "compacting", "stop", "end", "mark"}[i/sessions%5]
		req := eventRequest(
			fmt.Sprint("s", i%sessions), wire.Event{Kind: kind, Text: fmt.Sprint("word ", i), Decision: true},
		)

		req.ID, req.Spooled = fmt.Sprint("e", i), time.Now().UnixMilli()
		header := mustJSON(t, req)
		if _, err := spool.Write(
			vfs.OS{}, filepath.Join(dir, "spool"), spool.DefaultLimits(), header, nil, time.Now(),
		); err != nil {
			t.Fatal(err)
		}
	}

	r := start(t, dir)
	until(t, "the spool is empty", func() bool {
		names, err := filepath.Glob(filepath.Join(dir, "spool", "*-*"))
		return err == nil && len(names) == 0
	})

	until(t, "each session has its FULL", func() bool { return r.count("checkpoints") >= sessions })
	if got := r.count("checkpoints"); got > sessions {
		t.Errorf("%d checkpoints of %d sessions, want one each", got, sessions)
	}
	if got := r.count("events"); got != sessions*events {
		t.Errorf("%d events were taken, want %d", got, sessions*events)
	}
}

// C13: one of a hundred events always fails: 99 are taken, it is tried three times and set aside, and one starting
// session is told of it in one line.
func TestC13APoisonedSpoolFileIsSetAside(t *testing.T) {
	home(t)
	dir := tempDir(t)
	for i := range 100 {
		req := eventRequest("s", wire.Event{Kind: "stop", Text: fmt.Sprint(i)})
		req.ID, req.Spooled = fmt.Sprint("e", i), time.Now().UnixMilli()
		if i == 7 {
			req.Op = "poison"
		}

		if _, err := spool.Write(
			vfs.OS{}, filepath.Join(dir, "spool"), spool.DefaultLimits(), mustJSON(t, req), nil, time.Now(),
		); err != nil {
			t.Fatal(err)
		}
	}

	r := start(t, dir)
	r.excused = []check.Rule{check.Aside} // it is the case
	var bad []string
	until(t, "it is set aside", func() (done bool) {
		names, err := filepath.Glob(filepath.Join(dir, "spool", "bad", "*"))
		bad = names
		return err == nil && len(names) == 1
	})

	if got := filepath.Ext(bad[0]); got != ".3" {
		t.Errorf("it was set aside as %s, want after 3 tries", filepath.Base(bad[0]))
	}
	if got := r.session("tester", "s").MessageCount; got != 99 {
		t.Errorf("%d rounds, want the 99 good ones", got)
	}

	until(t, "it is counted as dropped", func() bool { return r.count("dropped") == 1 })
	if got := r.logs.FilterMessage("events were dropped while no daemon answered").Len(); got != 1 {
		t.Errorf("the log says %d times that events were dropped, want once", got)
	}

	if _, text := r.hook(
		0, startOf(sessionA, "startup", "/proj"),
	); !strings.Contains(text, "could not take in 1 of the events") ||
		strings.Count(strings.TrimSpace(text), "\n") > 2 {
		t.Errorf("want one line in the frame, got %q", text)
	}

	if _, text := r.hook(0, startOf(sessionB, "startup", "/other")); text != "" {
		t.Errorf("told twice: %q", text)
	}
}

// The agent ended well while no daemon ran: its last words and its good-bye lie in the spool when the next daemon sees
// that the process is gone.
func TestASpooledGoodByeIsNoDeath(t *testing.T) {
	dir := tempDir(t)
	r := start(t, dir)
	pid, kill := agentProcess(t)
	r.event("s", wire.Event{Kind: "start", PID: pid})
	r.event("s", wire.Event{Kind: "prompt", Text: "deploy it", PID: pid})
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	for i, e := range []wire.Event{{Kind: "stop", Text: "It is deployed.", PID: pid}, {Kind: "end", Reason: "exit", PID: pid}} {
		req := eventRequest("s", e)
		req.ID, req.Spooled = e.Kind, time.Now().UnixMilli()
		if _, err := spool.Write(
			vfs.OS{}, filepath.Join(dir, "spool"), spool.DefaultLimits(), mustJSON(t, req), nil,
			time.Now().Add(time.Duration(i)*time.Millisecond),
		); err != nil {
			t.Fatal(err)
		}
	}

	kill()
	r = start(t, dir)
	until(t, "the spool is empty", func() bool {
		names, err := filepath.Glob(filepath.Join(dir, "spool", "*-*"))
		return err == nil && len(names) == 0
	})

	if got := r.session("tester", "s"); got.State != "ended" || got.MessageCount != 1 {
		t.Errorf("the session is %q with %d rounds, want ended with 1", got.State, got.MessageCount)
	}
}

// Of all sessions together no more than the bound is kept, after each of their checkpoints.
func TestG04TotalBudget(t *testing.T) {
	const most = 200 << 10
	r := start(t, tempDir(t), func(d *Daemon) {
		d.times.session.IdleAfter, d.opt.TotalBytes = 20*time.Millisecond, most
		d.opt.Gates.ForcedTime = 0
	})

	seen := int64(0)
	for j := range 12 {
		for i := range 10 {
			r.rounds(fmt.Sprint("s", i), j, 1)
			r.checkpoint(fmt.Sprint("s", i))
			kept := sized(t, r.l.dir.Sessions())
			if seen = max(seen, kept); kept > most {
				t.Fatalf("after checkpoint %d of session %d %d bytes are kept, want at most %d", j, i, kept, most)
			}
		}
	}

	if seen < most/2 {
		t.Errorf("never more than %d bytes of %d were kept: too little is, or the bound was never met", seen, most)
	}

	until(t, "the sessions leave memory", func() bool { return len(r.l.sessions.Active()) == 0 })
	if err := r.l.budget.keep(t.Context()); err != nil {
		t.Fatal(err)
	}

	total, sessions := int64(0), map[string]int{}
	names, err := filepath.Glob(filepath.Join(r.dir, "sessions/tester/*/checkpoints/*.md"))
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range names {
		total += mustSize(t, name)
		sessions[filepath.Dir(filepath.Dir(name))]++
	}

	if total > most || len(sessions) != 10 {
		t.Errorf("%d bytes of %d sessions, want at most %d and a FULL of each of 10", total, len(sessions), most)
	}
	if got, want := r.count("kept_bytes"), sized(t, r.l.dir.Sessions()); got != want || r.count("kept_most") != most {
		t.Errorf("status says %d bytes of at most %d, want %d of %d", got, r.count("kept_most"), want, most)
	}

	for name, n := range sessions {
		if strings.Contains(name, "s9") && n < 2 {
			t.Errorf("the newest session was cut to %d although older ones had more to give", n)
		}
	}
}
