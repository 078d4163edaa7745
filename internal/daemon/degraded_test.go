package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/state/check"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// faulty is a store whose writes fail or hang as a test says.
type faulty struct {
	checkpoint.Store
	fail  atomic.Bool
	key   atomic.Pointer[string] // only this session's; nil: all, and the probe
	block atomic.Pointer[chan struct{}]
	panic atomic.Bool
	puts  atomic.Int64
}

func (f *faulty) Put(ctx context.Context, key checkpoint.Key, m checkpoint.Meta, data []byte) error {
	f.puts.Add(1)
	only := f.key.Load()
	if only == nil || *only == key.Session {
		if f.panic.CompareAndSwap(true, false) {
			panic("the store is broken")
		}
		if wait := f.block.Load(); wait != nil {
			<-*wait
		}
		if f.fail.Load() {
			return syscall.ENOSPC
		}
	}

	return f.Store.Put(ctx, key, m, data)
}

func (f *faulty) Probe(ctx context.Context, size int) error {
	if f.fail.Load() && f.key.Load() == nil {
		return syscall.ENOSPC
	}
	return f.Store.Probe(ctx, size)
}

// withFaults puts a faulty store into a daemon.
func withFaults(f *faulty) func(*Daemon) {
	return func(d *Daemon) {
		d.openStore = func(dir state.Dir) (s checkpoint.Store, err error) {
			f.Store, err = dir.OpenStore()
			return f, err
		}
		d.opt.Gates.FullTime, d.opt.Gates.SparseTime = 0, 0
	}
}

func (r *running) checkpoint(session string) wire.Reply {
	r.t.Helper()
	reply, _ := r.do(eventCheckpoint(session), nil)
	return reply
}

func (r *running) phase() breaker.Phase { return r.status().Breaker.Phase }

// degrade makes the breaker open.
func (r *running) degrade(f *faulty, session string) {
	r.t.Helper()
	f.fail.Store(true)
	r.rounds(session, 100, 1)
	r.checkpoint(session)
	until(r.t, "the breaker opens", func() bool { return r.phase() != breaker.Closed })
}

func TestDegradedCountsOnAndCatchesUpWithTheGapStated(t *testing.T) {
	f := &faulty{}
	r := start(t, tempDir(t), withFaults(f))
	r.rounds("s", 0, 1)
	if reply := r.checkpoint("s"); !reply.OK || reply.Decision.Number != 1 {
		t.Fatalf("first checkpoint: %+v", reply)
	}

	r.degrade(f, "s")
	before := f.puts.Load()
	reply := r.rounds("s", 1, 7)
	if reply.Kept != wire.KeptDisk || reply.Decision == nil || reply.Decision.Code != "degraded" ||
		!reply.Decision.Owed {
		t.Errorf(
			"a round while degraded: kept %q, decision %+v; want disk, degraded and owed", reply.Kept,
			reply.Decision,
		)
	}

	if got := f.puts.Load(); got != before {
		t.Errorf("%d writes while degraded, want none", got-before)
	}
	if st := r.session("tester", "s"); st.MessageCount != 9 || !st.Degraded || st.Owed == "" {
		t.Errorf("status %+v, want 9 rounds, degraded, something owed", st)
	}
	if st := r.status(); !st.Degraded || !strings.Contains(st.Breaker.Reason, "no space") {
		t.Errorf("status: degraded %t, reason %q", st.Degraded, st.Breaker.Reason)
	}
	if reply := r.checkpoint("s"); reply.OK && reply.Decision.Take {
		t.Errorf("checkpoint by hand while degraded: %+v", reply.Decision)
	}

	f.fail.Store(false)
	until(t, "it heals by itself and catches up", func() bool {
		return r.phase() == breaker.Closed && len(r.checkpoints("tester", "s")) == 2
	})
	c := r.newest("s")
	if c.Cause != checkpoint.CauseCatchUp || c.Gap == nil || c.State.Rounds != 9 {
		t.Errorf("catch-up: cause %s, gap %v, %d rounds; want catch-up, a gap, 9", c.Cause, c.Gap, c.State.Rounds)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}

// newest reads a session's newest checkpoint.
func (r *running) newest(session string) *checkpoint.Checkpoint {
	r.t.Helper()
	key := checkpoint.NewKey("tester", "", session, "/proj")
	list := r.checkpoints("tester", session)
	if len(list) == 0 {
		r.t.Fatal("no checkpoint")
	}

	data, err := r.l.store.Get(context.Background(), key, list[0].Number)
	if err != nil {
		r.t.Fatal(err)
	}

	c, err := checkpoint.Decode(data)
	if err != nil {
		r.t.Fatal(err)
	}

	return c
}

// C13: a starting session is told in one line, once.
func TestC13DegradedIsToldOnceAtAStart(t *testing.T) {
	home(t)
	f := &faulty{}
	r := start(t, tempDir(t), withFaults(f))
	r.degrade(f, "s")
	if _, text := r.hook(
		0, startOf(sessionA, "startup", "/proj"),
	); !strings.Contains(text, "checkpoints") ||
		strings.Count(strings.TrimSpace(text), "\n") > 2 {
		t.Errorf("want one line in the frame, got %q", text)
	}

	if _, text := r.hook(0, startOf(sessionB, "startup", "/other")); text != "" {
		t.Errorf("told twice: %q", text)
	}
}

func TestManualHealAndReset(t *testing.T) {
	f := &faulty{}
	r := start(t, tempDir(t), withFaults(f), func(d *Daemon) { d.opt.Breaker.Manual = true })
	r.degrade(f, "s")
	if reply, _ := r.do(wire.Request{Op: "reset"}, nil); reply.OK || reply.Code != wire.CodeDegraded {
		t.Errorf("reset while the store fails: %+v, want the code degraded", reply)
	}

	f.fail.Store(false)
	if got := r.phase(); got != breaker.Open {
		t.Errorf("phase %s although only reset may heal it", got)
	}
	if reply, _ := r.do(wire.Request{Op: "reset"}, nil); !reply.OK {
		t.Errorf("reset: %+v", reply)
	}

	until(t, "the catch-up", func() bool { return len(r.checkpoints("tester", "s")) == 1 })
}

func TestC07RestartWhileOpenIsProbedAtOnce(t *testing.T) {
	dir, f := tempDir(t), &faulty{}
	slow := func(d *Daemon) { d.opt.Breaker.Pause, d.opt.Breaker.MaxPause = time.Hour, time.Hour }
	r := start(t, dir, withFaults(f), slow)
	r.degrade(f, "s")
	until(
		t, "the trip is stored",
		func() bool { _, err := os.Stat(filepath.Join(dir, "breaker.json")); return err == nil },
	)

	if err := r.stop(); err != nil { // stopping while degraded
		t.Fatal(err)
	}

	r = start(t, dir, withFaults(f), slow)
	if got := r.phase(); got == breaker.Closed {
		t.Error("a restart hides the open breaker")
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	f.fail.Store(false)
	r = start(t, dir, withFaults(f), slow)
	until(t, "one probe at the start closes it and the owed FULL is taken", func() bool {
		return r.phase() == breaker.Closed && len(r.checkpoints("tester", "s")) == 1
	})
	if c := r.newest("s"); c.Gap == nil {
		t.Error("the catch-up after a restart does not state the gap")
	}
}

func TestC14ABadSessionDoesNotStopTheOthers(t *testing.T) {
	f, bad := &faulty{}, "bad"
	f.key.Store(&bad)
	r := start(t, tempDir(t), withFaults(f))
	f.fail.Store(true)
	r.rounds("bad", 0, 1)
	r.checkpoint("bad")
	until(t, "the bad session is set aside", func() bool { return len(r.status().Breaker.Aside) == 1 })
	home(t)
	if _, text := r.hook(
		0, startOf(sessionA, "startup", "/other"),
	); !strings.Contains(
		text, "checkpoints of 1 of its sessions",
	) {
		t.Errorf("a starting session is told %q, want that one session's checkpoints fail", text)
	}

	if _, text := r.hook(0, startOf(sessionB, "startup", "/another")); text != "" {
		t.Errorf("told twice: %q", text)
	}

	r.rounds("good", 0, 1)
	if reply := r.checkpoint("good"); !reply.OK || reply.Decision.Number == 0 {
		t.Errorf("the good session's checkpoint: %+v", reply)
	}
	if st := r.session("tester", "bad"); st.Aside == "" {
		t.Error("status does not say why the session's checkpoints are set aside")
	}
	if got := r.phase(); got != breaker.Closed {
		t.Errorf("the store's breaker is %s because of one session", got)
	}

	f.fail.Store(false)
	until(t, "it is tried again", func() bool { return len(r.checkpoints("tester", "bad")) > 0 })
}

func TestC05APanicIsOneFailure(t *testing.T) {
	f := &faulty{}
	r := start(t, tempDir(t), withFaults(f))
	f.panic.Store(true)
	r.rounds("s", 0, 1)
	r.checkpoint("s")
	until(t, "the next try works", func() bool { return len(r.checkpoints("tester", "s")) == 1 })
	if got := r.rounds("s", 1, 1); got.Kept != wire.KeptDisk {
		t.Errorf("after a panic: %+v", got)
	}
}

func TestD16ABlockedStoreHoldsUpNothingElse(t *testing.T) {
	f, slow, wait := &faulty{}, "slow", make(chan struct{})
	f.key.Store(&slow)
	f.block.Store(&wait)
	release := sync.OnceFunc(func() { f.block.Store(nil); close(wait) })
	defer release()
	r := start(t, tempDir(t), withFaults(f))
	r.rounds("slow", 0, 1)
	c := r.dial()
	if err := c.Send(eventCheckpoint("slow"), nil); err != nil {
		t.Fatal(err)
	}

	until(t, "the write hangs", func() bool { return f.puts.Load() == 1 })
	began := time.Now()
	if got := r.rounds("slow", 1, 20); got.Kept != wire.KeptDisk {
		t.Errorf("an event of the blocked session: %+v", got)
	}

	r.rounds("other", 0, 1)
	if reply := r.checkpoint("other"); !reply.OK || reply.Decision.Number == 0 {
		t.Errorf("another session's checkpoint: %+v", reply)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the others waited %s", took)
	}

	release()
	if reply, _, err := c.Receive(); err != nil || reply.Decision == nil || reply.Decision.Number != 1 {
		t.Errorf("the blocked checkpoint after all: %+v, %v", reply, err)
	}
}

// A store that hangs for ever does not keep the daemon from ending.
func TestStopWithAHangingStore(t *testing.T) {
	f, wait := &faulty{}, make(chan struct{})
	f.block.Store(&wait)
	r := start(t, tempDir(t), withFaults(f))
	r.rounds("s", 0, 1)
	began := time.Now()
	if err := r.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %s, want 2 s (10 at most)", took)
	}

	close(wait)
	until(t, "the write ends", func() bool { return len(r.l.sessions.services.Builds) == 0 })
	r.l.wait.Wait()
}

func TestJournalsDiskFailsAndComesBack(t *testing.T) {
	dir := tempDir(t)
	disk := &rotten{FS: vfs.OS{}, folder: "/journal"}
	r := start(t, dir, func(d *Daemon) { d.opt.FS, d.opt.MemoryBytes = disk, 64<<10 })
	r.rounds("s", 0, 2)
	disk.on.Store(true)
	if reply := r.rounds("s", 2, 1); reply.Kept != wire.KeptMemory {
		t.Errorf("kept %q while the journal's disk fails, want memory", reply.Kept)
	}

	r.rounds("s", 3, 400) // more than memory holds: the oldest are dropped
	st := r.status()
	if st.Journal.Error == "" || st.Journal.Dropped == 0 || st.Journal.Since.IsZero() {
		t.Errorf("journal status %+v, want the error, since when, and what was dropped", st.Journal)
	}

	disk.on.Store(false)
	until(t, "it is on disk again", func() bool { return r.rounds("s", 1000, 1).Kept == wire.KeptDisk })
	rounds := r.session("tester", "s").MessageCount
	if rounds < 404 {
		t.Errorf("%d rounds, want 404 at least", rounds)
	}

	until(t, "the state that holds the dropped events is saved", func() bool {
		s, err := r.l.dir.LoadState(checkpoint.NewKey("tester", "", "s", "/proj"))
		return err == nil && s.Rounds >= 404
	})

	warnings := 0
	for _, e := range r.logs.All() {
		if strings.Contains(e.Message, "journal's disk") {
			warnings++
		}
	}

	if warnings == 0 || warnings > 6 {
		t.Errorf("%d log lines about the journal's disk, want a line for each change", warnings)
	}
}

func TestStateFolderVanishesAndComesBack(t *testing.T) {
	dir := filepath.Join(tempDir(t), "state")
	r := start(t, dir, func(d *Daemon) { d.opt.Gates.FullTime = 0 })
	r.rounds("s", 0, 3)
	r.checkpoint("s")
	if err := os.RemoveAll(dir); err != nil {
		t.Logf("remove while the daemon writes: %v", err) // it may have made something anew
	}

	until(t, "hooks are answered again", func() bool {
		c, err := wire.Dial(context.Background(), dir, "")
		if err != nil {
			return false
		}
		defer c.Close()
		reply, _, err := tryDo(c, eventRequest("s", wire.Event{Kind: "prompt", Text: "still there?"}), nil)
		return err == nil && reply.Kept == wire.KeptDisk
	})

	if got := r.session("tester", "s").MessageCount; got < 3 {
		t.Errorf("%d rounds, want the three from before", got)
	}

	until(t, "a checkpoint is there again", func() bool { return len(r.checkpoints("tester", "s")) > 0 })
}

// spoiled are the ways in which a state folder cannot be used.
var spoiled = map[string]func(dir string) error{
	"a file in its place": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	"below a file": func(dir string) error {
		return errors.Join(os.Remove(filepath.Dir(dir)), os.WriteFile(filepath.Dir(dir), nil, 0o600))
	},
	"the journal is a file": func(dir string) error {
		return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "journal"), nil, 0o600))
	},
}

func TestG10TheStateFolderCannotBeUsed(t *testing.T) {
	for name, spoil := range spoiled {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join(tempDir(t), "base")
			dir := filepath.Join(base, "state")
			if err := errors.Join(os.Mkdir(base, 0o700), spoil(dir)); err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { // the second place's lock stays for good; this one is of the test's own
				for _, place := range wire.SocketPlaces(dir) {
					_ = os.Remove(lockName(place))
				}
			})

			r := start(t, dir)
			reply := r.rounds("s", 0, 2)
			if reply.Kept != wire.KeptMemory {
				t.Errorf("kept %q, want memory", reply.Kept)
			}
			if st := r.status(); !strings.Contains(st.Problem, base) {
				t.Errorf("status does not name the folder: %q", st.Problem)
			}
			if got := r.session("tester", "s").MessageCount; got != 2 {
				t.Errorf("%d rounds in memory, want 2", got)
			}

			// A person mends it.
			for _, path := range []string{base, dir, filepath.Join(dir, "journal")} {
				if info, err := os.Lstat(path); err == nil && !info.IsDir() {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
			}

			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}

			// The daemon that had no folder may find the disk well before it begins anew at its own place.
			until(t, "the socket is where it belongs", func() bool { return exists(wire.SocketPlaces(dir)[0]) })
			until(t, "events are on disk", func() bool {
				c, err := wire.Dial(context.Background(), dir, "")
				if err != nil {
					return false
				}
				defer c.Close()
				reply, _, err := tryDo(c, eventRequest("s", wire.Event{Kind: "mark", Text: "x"}), nil)
				return err == nil && reply.Kept == wire.KeptDisk
			})

			if got := r.session("tester", "s").MessageCount; got != 2 {
				t.Errorf("%d rounds after the folder was mended, want 2", got)
			}
		})
	}
}

func TestG12FullDiskWaitsAndGoesOn(t *testing.T) {
	dir := tempDir(t)
	mountSmall(t, dir)
	r := start(t, dir, func(d *Daemon) { d.opt.Gates.FullTime = 0; d.opt.SegmentBytes = 256 << 10 })
	r.rounds("s", 0, 2)
	if reply := r.checkpoint("s"); !reply.OK {
		t.Fatalf("first checkpoint: %+v", reply)
	}

	good, err := os.ReadFile(onlyCheckpoint(t, dir))
	if err != nil {
		t.Fatal(err)
	}

	fill := filepath.Join(dir, "fill")
	_ = os.WriteFile(fill, make([]byte, 2<<20), 0o600) // as much as there is room for
	r.rounds("s", 2, 1)
	r.checkpoint("s")
	until(t, "degraded for the full disk", func() bool { return r.phase() != breaker.Closed })
	for i := range 40 {
		r.rounds("s", 3+i, 1)
	}

	if now, err := os.ReadFile(onlyCheckpoint(t, dir)); err != nil || string(now) != string(good) {
		t.Errorf("the last good checkpoint changed: %v", err)
	}
	if st := r.status(); !strings.Contains(st.Breaker.Reason, "no space left") || st.Breaker.Since.IsZero() {
		t.Errorf("status: %q since %s", st.Breaker.Reason, st.Breaker.Since)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}

	until(
		t, "it goes on by itself",
		func() bool { return r.phase() == breaker.Closed && len(r.checkpoints("tester", "s")) >= 2 },
	)

	until(
		t, "events are on disk",
		func() bool { return r.event("s", wire.Event{Kind: "mark", Text: "x"}).Kept == wire.KeptDisk },
	)

	if got := r.session("tester", "s").MessageCount; got != 43 {
		t.Errorf("%d rounds, want 43", got)
	}
	if n := r.logs.Len(); n > 20 {
		t.Errorf("%d log lines, want under 20", n)
	}
}

func onlyCheckpoint(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "sessions/*/*/checkpoints/*.md"))
	if err != nil || len(names) == 0 {
		t.Fatalf("checkpoints %v, %v", names, err)
	}
	return names[0]
}

// G01: an empty file, as a full disk leaves it, is passed over.
func TestG01EmptyNewestCheckpoint(t *testing.T) {
	dir := tempDir(t)
	r := start(t, dir)
	r.excused = []check.Rule{check.Checkpoint} // it is the case
	r.rounds("s", 0, 2)
	r.checkpoint("s")
	empty := filepath.Join(filepath.Dir(onlyCheckpoint(t, dir)), "000002-full.md")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	res := r.recover("tester", "s")
	if res.Checkpoint == nil || res.Checkpoint.Number != 1 || res.Checkpoint.Damaged != 1 || !said(res, "answer 1") {
		t.Errorf("recover read %+v", res.Checkpoint)
	}

	r.rounds("s", 2, 1)
	if reply := r.checkpoint("s"); !reply.OK || reply.Decision.Number != 3 {
		t.Errorf("the next checkpoint: %+v, want number 3", reply)
	}
}
