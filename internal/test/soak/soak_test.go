//go:build linux

package soak

import (
	"belay/internal/agent"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/agent/all"
	"belay/internal/state"
	"belay/internal/state/check/checktest"
	"belay/internal/state/query"
	"belay/internal/vfs"
	"belay/recovery"
)

// The limits, stated before the run.
const (
	totalPerMember = 400 << 10 // retention.total_bytes, at every moment, for each agent that works at a time

	memoryBase       = 64 << 20  // of a daemon that works, private to it
	memoryPerSession = 512 << 10 // for each session in memory

	filesBase       = 40
	filesPerSession = 6 // its connection, process, transcript, mirror and folders

	goroutinesBase       = 60
	goroutinesPerSession = 6

	journalBytes = 6 * 4 << 20 // one segment that is written, and those that are being let go
	spoolBytes   = 64 << 20
	restBytes    = 64 << 20 // the log: log.bytes times log.files, and small files
)

// over says which limits a sample breaks.
func (f *fleet) over(s sample) (broken []string) {
	check := func(what string, got, most int64) {
		if got > most {
			broken = append(
				broken, fmt.Sprintf("%s: %d, at most %d (%d sessions in memory)", what, got, most, s.Active),
			)
		}
	}

	check("bytes below sessions/", s.Kept, f.total)
	check("bytes of memory", s.Private, memoryBase+memoryPerSession*s.Active)
	check("open files", s.Files, filesBase+filesPerSession*s.Active)
	check("goroutines", s.Goroutines, goroutinesBase+goroutinesPerSession*s.Active)
	check("bytes of the journal", s.Journal, journalBytes)
	check("bytes of the spool", s.Spool, spoolBytes)
	check("bytes of all else", s.Rest, restBytes)
	return broken
}

// setting reads a number or a time that makes a run longer.
func setting[T any](t *testing.T, name string, usual T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}

	v, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}

	return v
}

// TestSoak lets many agents of all kinds work beside one daemon, kills agents and daemon at random moments, and holds
// the daemon to the limits above the whole time. At the end no acknowledged event is missing, every session can be
// recovered, the store is whole and no process is left.
//
// BELAY_SOAK says how long (8s; 1h is the long form), BELAY_SOAK_SESSIONS how many work at a time (20; 200),
// BELAY_SOAK_DIR where (a folder that stays, with report.txt, samples.jsonl and soak.svg), BELAY_SEED repeats a run as
// far as that can be.
func TestSoak(t *testing.T) {
	length := setting(t, "BELAY_SOAK", 8*time.Second, time.ParseDuration)
	many := setting(t, "BELAY_SOAK_SESSIONS", 20, strconv.Atoi)
	seed := setting(
		t, "BELAY_SEED", uint64(time.Now().UnixNano()),
		func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) },
	)

	t.Logf("seed %d (BELAY_SEED), %d sessions for %s", seed, many, length)
	root := os.Getenv("BELAY_SOAK_DIR")
	if root == "" {
		root = t.TempDir()
	}

	f := newFleet(t, root, int64(many)*totalPerMember, max(100*time.Millisecond, min(length/300, 10*time.Second)))
	f.settings = busy
	w := &watcher{fleet: f, every: max(500*time.Millisecond, length/720), rng: rand.New(rand.NewPCG(seed, 0))}
	if _, err := f.launch(t.Context()); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var members, watchers sync.WaitGroup
	for i := range many {
		members.Go(func() { f.member(ctx, i, rand.New(rand.NewPCG(seed, uint64(i+1)))) })
	}

	watchers.Go(func() { w.watch(ctx) })
	watchers.Go(func() { w.kill(ctx, max(2*time.Second, length/40)) })
	members.Wait()
	watchers.Wait()
	f.finish(t, w)
	for _, fault := range f.mu.faults {
		t.Error(fault)
	}

	if len(f.mu.acked) == 0 || w.kills == 0 || f.died.Load() == 0 || len(w.samples) == 0 {
		t.Errorf(
			"%d events acknowledged, %d daemons and %d agents killed, %d samples: the test proved nothing",
			len(f.mu.acked), w.kills, f.died.Load(), len(w.samples),
		)
	}

	if err := w.report(t, length); err != nil {
		t.Error(err)
	}
}

func newFleet(t *testing.T, root string, total int64, pace time.Duration) *fleet {
	t.Helper()
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}

	f := &fleet{
		bin:   build(t),
		root:  root,
		state: filepath.Join(root, "state"),
		pace:  pace,
		total: total,
		spawn: make(chan struct{}, 4),
	}

	f.mu.acked = map[string]bool{}
	if f.hooks, err = readCaptured(); err != nil {
		t.Fatal(err)
	}

	name := path("opencode", root, "")
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(name), 0o700), os.MkdirAll(filepath.Join(root, "journal"), 0o700),
	); err != nil {
		t.Fatal(err)
	}

	f.db, err = sql.Open(
		"sqlite",
		"file:"+name+"?_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=busy_timeout(20000)",
	)

	if err != nil {
		t.Fatal(err)
	}

	f.db.SetMaxOpenConns(1)
	if _, err := f.db.Exec(schema); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := f.db.Close(); err != nil {
			t.Error(err)
		}
		for _, pid := range left(f.state) { // only where the test failed before its end
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})

	return f
}

// watcher samples the daemon, keeps the journal's segments before they go, and kills the daemon.
type watcher struct {
	*fleet
	every   time.Duration
	rng     *rand.Rand
	samples []sample
	kills   int
}

func (w *watcher) watch(ctx context.Context) {
	looked := time.Time{}
	for tick := time.NewTicker(min(w.every, time.Second)); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}

		w.archive()
		if time.Since(looked) < w.every {
			continue
		}

		looked = time.Now()
		if s, ok := w.look(ctx); ok {
			w.samples = append(w.samples, s)
			for _, b := range w.over(s) {
				w.fault("%s: %s", s.At.Format(time.TimeOnly), b)
			}
		}
	}
}

// archive keeps every segment of the journal under a second name: what was acknowledged is counted in these at the end.
func (w *watcher) archive() {
	names, _ := filepath.Glob(filepath.Join(w.state, "journal", "*.log"))
	for _, name := range names {
		kept := filepath.Join(w.root, "journal", filepath.Base(name))
		err := os.Link(name, kept)
		if errors.Is(err, fs.ErrExist) {
			// A segment without a record is made anew under its name after a crash.
			a, aerr := os.Stat(name)
			b, berr := os.Stat(kept)
			if aerr == nil && berr == nil && !os.SameFile(a, b) && b.Size() <= a.Size() {
				err = errors.Join(os.Remove(kept), os.Link(name, kept))
			} else {
				err = nil
			}
		}

		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.fault("keep a segment: %v", err)
		}
	}
}

// kill ends the daemon with SIGKILL about every so often, and starts it again after a while.
func (w *watcher) kill(ctx context.Context, every time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every/2 + time.Duration(w.rng.Int64N(int64(every)))):
		}

		pid, err := w.daemon(ctx, time.Minute)
		if err != nil {
			if ctx.Err() == nil {
				w.fault("%v", err)
			}
			return
		}

		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			w.fault("kill the daemon: %v", err)
			return
		}

		w.kills++
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(w.rng.Int64N(int64(min(every/4, 5*time.Second))))):
		}

		if _, err := w.launch(context.WithoutCancel(ctx)); err != nil {
			w.fault("start the daemon again: %v", err)
			return
		}
	}
}

// finish ends the daemon well and compares what is there with what was acknowledged.
func (f *fleet) finish(t *testing.T, w *watcher) {
	ctx := context.WithoutCancel(t.Context())
	pid, err := f.daemon(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}

	var last sample
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if s, ok := f.look(ctx); ok {
			if last = s; s.Spooled == 0 {
				break
			}
		}
	}

	if last.Spooled != 0 {
		t.Errorf("%d events still lie in the spool", last.Spooled)
	}

	for _, b := range f.over(last) {
		t.Errorf("at the end: %s", b)
	}

	w.samples = append(w.samples, last)
	w.archive()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	end := time.Now().Add(20 * time.Second)
	for ; len(left(f.state)) > 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}

	if pids := left(f.state); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}

	w.archive()
	checktest.Whole(t, f.state)
	f.recount(t)
	f.recoverAll(t)
}

// recount looks for every acknowledged event by its id.
func (f *fleet) recount(t *testing.T) {
	found := map[string]bool{}
	rep, err := journal.Scan(vfs.OS{}, filepath.Join(f.root, "journal"), 0, func(_ uint64, payload []byte) error {
		var e checkpoint.Event
		if err := json.Unmarshal(payload, &e); err != nil {
			return err
		}
		if id, _, _ := strings.Cut(e.ID, "#"); f.mu.acked[id] {
			found[id] = true
		}

		return nil
	})

	if err != nil || rep.Damaged > 0 {
		t.Errorf("the kept journal: %+v, %v", rep, err)
	}

	missing := 0
	for id := range f.mu.acked {
		if !found[id] {
			if missing++; missing <= 5 {
				t.Errorf("event %s was acknowledged and is not in the journal", id)
			}
		}
	}

	t.Logf("%d acknowledged events, %d of them missing in the journal", len(f.mu.acked), missing)
}

// recoverAll recovers every session and looks for its newest acknowledged prompt.
func (f *fleet) recoverAll(t *testing.T) {
	folder := query.Open(f.state, all.All(agent.Host{}))
	began, bad, damaged := time.Now(), 0, 0
	for _, s := range f.mu.talks {
		word := s.word.Load()
		if word == nil {
			continue // nothing of it was ever acknowledged
		}

		r, err := folder.Recover(
			t.Context(),
			query.Question{Name: state.Name{Agent: s.agent, Session: s.id}, NoWorkTree: true,
				Options: recovery.Options{Start: recovery.StartManual, Format: recovery.Brief, MaxBytes: 9000}},
		)

		switch {
		case err != nil:
			t.Errorf("recover %s of %s: %v", s.id, s.agent, err)
		case !utf8.ValidString(r.Text) || len(r.Text) > 9000:
			t.Errorf("recover %s of %s: %d bytes, valid %t", s.id, s.agent, len(r.Text), utf8.ValidString(r.Text))
		case !strings.Contains(r.Text, *word):
			if bad++; bad <= 5 {
				t.Errorf("recover %s of %s: the prompt %q is not in it:\n%s", s.id, s.agent, *word, r.Text)
			}
		}

		if r.Checkpoint != nil && r.Checkpoint.Damaged > 0 {
			damaged++
		}
	}

	if bad > 5 || damaged > 0 {
		t.Errorf("%d sessions without their newest prompt, %d with a damaged checkpoint", bad, damaged)
	}

	t.Logf("%d sessions recovered in %s", len(f.mu.talks), time.Since(began).Round(time.Millisecond))
}
