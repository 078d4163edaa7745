package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint/journal"
	"belay/internal/state"
	"belay/internal/state/check/checktest"
	"belay/internal/state/query"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
	"belay/internal/wire"
)

func TestRestartKeepsWhatWasAcknowledged(t *testing.T) {
	dir := tempDir(t)
	r := start(t, dir)
	for i := range 3 {
		if reply := r.rounds("s", i, 1); reply.Kept != wire.KeptDisk {
			t.Errorf("round %d: kept %q, want disk", i, reply.Kept)
		}
	}

	r.event("s", wire.Event{Kind: "mark", Text: "use tabs", Decision: true})
	if err := r.stop(); err != nil {
		t.Fatalf("Run = %v", err)
	}

	r = start(t, dir)
	st := r.session("tester", "s")
	if st.MessageCount != 3 {
		t.Errorf("after a restart %d rounds, want 3", st.MessageCount)
	}

	res := r.recover("tester", "s")
	if len(res.Decisions) != 1 || !said(res, "question 2 of s") || !said(res, "answer 2") {
		t.Errorf("after a restart: decisions %v, messages %v", res.Decisions, res.Messages)
	}
	if got := r.rounds("s", 3, 1).Kept; got != wire.KeptDisk {
		t.Errorf("a round after a restart: kept %q, want disk", got)
	}
	if st := r.session("tester", "s"); st.MessageCount != 4 {
		t.Errorf("after one more round %d, want 4", st.MessageCount)
	}
}

// Many short runs must not leave a segment each for the next start to read.
func TestSegmentsOfEarlierRunsGo(t *testing.T) {
	dir := tempDir(t)
	for i := range 6 {
		r := start(t, dir)
		r.rounds("s", i, 1)
		until(t, "old segments are let go", func() bool {
			names, err := filepath.Glob(filepath.Join(dir, "journal", "*.log"))
			return err == nil && len(names) <= 2
		})

		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}

	r := start(t, dir)
	if got := r.session("tester", "s").MessageCount; got != 6 {
		t.Errorf("%d rounds after six runs, want 6", got)
	}
}

// Sessions whose events are in no segment any more wake with the daemon when something is owed to them.
func TestOwedSessionsWakeWithoutTheJournal(t *testing.T) {
	dir := tempDir(t)
	slow := func(d *Daemon) {
		d.opt.SegmentBytes = 4096
		d.times.stop = time.Nanosecond // as after a kill: nothing is taken at the end
	}

	r := start(t, dir, slow)
	r.rounds("owed", 0, 1)
	r.do(eventCheckpoint("owed"), nil)
	r.event("owed", wire.Event{Kind: "tool-start", Call: "c1", Name: "Bash", Bare: true})
	reply := r.event("owed", wire.Event{Kind: "tool-end", Call: "c1", Bare: true})
	if reply.Decision == nil || !reply.Decision.Owed {
		t.Fatalf("decision %+v, want one that is owed", reply.Decision)
	}

	for i := range 40 { // other sessions push its records out of the journal
		r.rounds(fmt.Sprintf("other%d", i), 0, 1)
	}

	until(t, "its segment went", func() bool { return !journalHolds(t, dir, "owed") })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	r = start(t, dir)
	found := false
	for _, s := range r.status().Sessions {
		found = found || s.SessionID == "owed" && s.Owed != ""
	}

	if !found {
		t.Errorf("sessions at the start: %+v, want owed among them", r.status().Sessions)
	}
}

// When the journal is lost its numbers begin anew, below those that states hold: nothing of what comes may be passed
// over.
func TestNumbersBeginAnewAfterTheJournalWasLost(t *testing.T) {
	dir := tempDir(t)
	r := start(t, dir)
	r.rounds("s", 0, 10)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "journal")); err != nil {
		t.Fatal(err)
	}

	r = start(t, dir, func(d *Daemon) { d.times.stop = time.Nanosecond })
	if got := r.rounds("s", 10, 2); got.Kept != wire.KeptDisk || got.Seq > 10 {
		t.Fatalf("a round after the journal was lost: %+v, want low numbers", got)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	list, _, err := state.Dir{Root: dir, FS: vfs.OS{}}.Find(t.Context(), state.Name{Session: "s"})
	if err != nil || len(list) != 1 || list[0].Rounds != 12 {
		t.Errorf("without a daemon: %d sessions, %v, want one with 12 rounds", len(list), err)
	}

	r = start(t, dir)
	if got := r.session("tester", "s").MessageCount; got != 12 {
		t.Errorf("%d rounds after two restarts, want 12", got)
	}
}

func eventCheckpoint(session string) wire.Request {
	return wire.Request{Op: "checkpoint", Agent: "tester", Session: session, Workspace: "/proj"}
}

func journalHolds(t *testing.T, dir, session string) bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "journal", "*.log"))
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range names {
		data, err := os.ReadFile(name)
		if err == nil && containsSession(data, session) {
			return true
		}
	}

	return false
}

func containsSession(data []byte, session string) bool {
	needle, _ := json.Marshal(session)
	for i := range data {
		if len(data)-i >= len(needle) && string(data[i:i+len(needle)]) == string(needle) {
			return true
		}
	}
	return false
}

var belay struct {
	once sync.Once
	path string
	err  error
}

// binary builds the real program once.
func binary(t *testing.T) string {
	t.Helper()
	belay.once.Do(func() {
		dir, err := os.MkdirTemp("", "belay-bin")
		if err != nil {
			belay.err = err
			return
		}

		belay.path = filepath.Join(dir, "belay")
		out, err := exec.Command("go", "build", "-o", belay.path, "belay/cmd/belay").CombinedOutput()
		if err != nil {
			belay.err = fmt.Errorf("%w: %s", err, out)
		}
	})

	if belay.err != nil {
		t.Fatal(belay.err)
	}

	return belay.path
}

// TestKillLoop ends the real daemon with SIGKILL at random moments under the load of 8 clients and compares what was
// acknowledged with what the next one knows. BELAY_KILLS sets how many kills (20; 2000 is the long form), BELAY_SEED
// repeats a run.
func TestKillLoop(t *testing.T) {
	kills := vfstest.NewKills(t, 20)
	k := &killed{t: t, dir: tempDirIn(t, ""), bin: binary(t)}
	began := time.Now()
	kills.Each(func(i int) {
		// Most lives are reckoned from the first answer that promises something: on a busy disk it may take longer than
		// a life.
		k.run(kills.Moment(200*time.Millisecond), i%4 > 0)
		k.compare()
	})

	acked := int64(0)
	for i := range k.clients {
		acked += k.clients[i].acked.Load()
	}

	t.Logf(
		"%d kills in %s, %d events acknowledged as on disk, journal at %d", kills.N,
		time.Since(began).Round(time.Millisecond), acked, k.seq.Load(),
	)

	if acked < int64(kills.N)/2 || k.checkpoints == 0 {
		t.Errorf(
			"%d events acknowledged, %d checkpoints in %d lives: the test proved nothing", acked, k.checkpoints,
			kills.N,
		)
	}
}

type killed struct {
	t           *testing.T
	dir         string
	bin         string
	checkpoints int           // most that a session had
	seq         atomic.Uint64 // highest acknowledged number
	clients     [8]struct{ sent, acked, turn atomic.Int64 }
}

// run starts the daemon, loads it, and kills it a while after it answers, or after it has acknowledged an event.
func (k *killed) run(life time.Duration, acknowledged bool) {
	k.t.Helper()
	before := k.seq.Load()
	cmd := exec.Command(k.bin, "daemon", "--state-dir", k.dir)

	// Small numbers, so that checkpoints are written and segments sealed all the time.
	cmd.Env = append(
		os.Environ(), "HOME="+k.dir, "XDG_CONFIG_HOME="+k.dir, "BELAY_GATES_SPARSE_TIME=0s",
		"BELAY_JOURNAL_SEGMENT=64KB",
	)

	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range k.clients {
		clients.Go(func() { k.client(ctx, i) })
	}

	until(k.t, "the daemon answers", func() bool {
		c, err := wire.Dial(ctx, k.dir, "")
		if err == nil {
			_ = c.Close()
		}
		return err == nil && (!acknowledged || k.seq.Load() > before)
	})

	time.Sleep(life) // the random moment is what this test is about
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		k.t.Error(err)
	}

	_ = cmd.Wait() // it says that it was killed
	cancel()
	clients.Wait()
}

// client sends rounds of its own session until the connection breaks. Each is counted as sent before, and as
// acknowledged after the answer says that it is on disk.
func (k *killed) client(ctx context.Context, i int) {
	c := &k.clients[i]
	for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) { // the daemon is being started
		conn, err := wire.Dial(ctx, k.dir, "")
		if err != nil {
			continue
		}

		for {
			turn := fmt.Sprintf("turn-%d", c.turn.Add(1))
			req := eventRequest(
				fmt.Sprintf("client%d", i), wire.Event{Kind: "stop", Turn: turn, Text: "answer of " + turn},
			)

			req.ID = turn
			c.sent.Add(1)
			reply, _, err := tryDo(conn, req, nil)
			if err != nil || !reply.OK || reply.Kept != wire.KeptDisk {
				break
			}

			c.acked.Add(1)
			for seq := k.seq.Load(); reply.Seq > seq && !k.seq.CompareAndSwap(seq, reply.Seq); seq = k.seq.Load() {
			}
		}

		_ = conn.Close()
	}
}

// compare reads the folder as `belay recover` does, without a daemon.
func (k *killed) compare() {
	k.t.Helper()
	f := query.Open(k.dir, nil)
	states, rep, err := f.Dir.States(context.Background(), nil)
	if err != nil {
		k.t.Fatal(err)
	}
	if len(rep.Bad) > 0 || rep.Journal.Lost > 0 || rep.Journal.Damaged > 0 {
		k.t.Errorf("state files %v, journal %+v", rep.Bad, rep.Journal)
	}

	last := rep.Journal.Last
	found := map[string]int{}
	for key, s := range states {
		found[key.Session] = s.Rounds
		last = max(last, s.Seq)
		list, err := storeOf(k.t, k.dir).List(context.Background(), key)
		if err != nil {
			k.t.Error(err)
		}
		k.checkpoints = max(k.checkpoints, len(list))
	}

	checktest.Whole(k.t, k.dir)
	if want := k.seq.Load(); last < want {
		k.t.Errorf("journal ends at %d, acknowledged was %d", last, want)
	}

	for i := range k.clients {
		c := &k.clients[i]
		got := int64(found[fmt.Sprintf("client%d", i)])
		if got < c.acked.Load() || got > c.sent.Load() {
			k.t.Errorf(
				"client %d: %d acknowledged <= %d recovered <= %d sent does not hold", i, c.acked.Load(), got,
				c.sent.Load(),
			)
		}
	}
}

// A crash between the making of a segment and its first record leaves an empty one, whose name the next segment takes.
func TestEmptySegmentOfACrash(t *testing.T) {
	dir := tempDir(t)
	r := start(t, dir)
	last := r.rounds("s", 0, 3).Seq
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	names, err := filepath.Glob(filepath.Join(dir, "journal", "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatalf("segments %v, %v", names, err)
	}

	for n := last; n < last+10; n++ { // the daemon's own records follow the last round's
		name := filepath.Join(dir, "journal", fmt.Sprintf("%020d.log", n+1))
		if rep, err := journal.Scan(
			vfs.OS{}, filepath.Join(dir, "journal"), 0, func(uint64, []byte) error { return nil },
		); err != nil {
			t.Fatal(err)
		} else if rep.Last == n {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}

	kill := func(d *Daemon) { d.times.stop = time.Nanosecond } // nothing is saved at the end
	r = start(t, dir, kill)
	r.rounds("s", 3, 1)
	if err := releaseSegments(t.Context(), r.l.journal, r.l.sessions); err != nil {
		t.Fatal(err)
	}

	r.rounds("s", 4, 3)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	r = start(t, dir)
	if got := r.session("tester", "s").MessageCount; got != 7 {
		t.Errorf("%d rounds, want 7", got)
	}
}
