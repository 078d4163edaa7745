package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/mirror"
	"belay/internal/spool"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// --- gates

func (r *running) verb(session, verb string, flags string) string {
	r.t.Helper()
	reply, body := r.do(wire.Request{Op: "verb", Event: verb, Session: session, Workspace: "/proj", Body: []byte(flags)}, nil)
	if !reply.OK {
		r.t.Fatalf("%s: %+v", verb, reply)
	}
	return strings.TrimSpace(string(body))
}

func TestGatesSayWhyAndCheckSparseSaysWhatWasTaken(t *testing.T) {
	r := start(t, tempDir(t))
	for i := range 4 {
		want := fmt.Sprintf("round gate: %d of 5", i+1)
		if got := r.verb("s", "increment", "{}"); got != want {
			t.Errorf("round %d: %q, want %q", i+1, got, want)
		}
	}
	if got := r.verb("s", "check-sparse", "{}"); got != "round gate: 4 of 5" {
		t.Errorf("check-sparse before: %q", got)
	}
	if got := r.verb("s", "increment", "{}"); got != "taking SPARSE: all gates passed" {
		t.Errorf("round 5: %q", got)
	}
	if got := r.verb("s", "check-sparse", "{}"); got != "taken 1 (SPARSE: all gates passed)" {
		t.Errorf("check-sparse after: %q", got)
	}
	if got := r.verb("s", "check-full", "{}"); got != "taken 2 (FULL: heartbeat)" && got != "nothing new" {
		t.Errorf("check-full: %q", got)
	}
	if got := r.verb("s", "check-full", `{"heartbeat":true}`); got != "nothing new" {
		t.Errorf("check-full --heartbeat with nothing new: %q", got)
	}
	r.verb("s", "increment", "{}")
	if got := r.verb("s", "check-full", "{}"); !strings.HasPrefix(got, "time gate: ") || !strings.HasSuffix(got, "left (owed)") {
		t.Errorf("check-full under the time gate: %q", got)
	}
}

func TestOwedIsTakenOnceWhenTheGateOpens(t *testing.T) {
	r := start(t, tempDir(t), func(d *Daemon) { d.opt.Gates.FullTime = 400 * time.Millisecond })
	turn := func(i int) wire.Reply {
		r.event("s", wire.Event{Kind: "prompt", Text: fmt.Sprint("q", i)})
		r.event("s", wire.Event{Kind: "tool-start", Call: fmt.Sprint("c", i), Name: "Read"})
		r.event("s", wire.Event{Kind: "tool-end", Call: fmt.Sprint("c", i)})
		return r.event("s", wire.Event{Kind: "stop", Text: "a"})
	}
	if d := turn(1).Decision; d == nil || !d.Take || d.Text != "tool chain ended" {
		t.Errorf("first chain: %+v", d)
	}
	if d := turn(2).Decision; d == nil || d.Take || !d.Owed || d.Code != "time_gate" && d.Code != "in_progress" {
		t.Errorf("second chain at once: %+v, want it owed", d)
	}
	until(t, "the owed one is taken", func() bool { return len(r.checkpoints("tester", "s")) == 2 })
	time.Sleep(600 * time.Millisecond) // silence: there is no event to wait for
	if got := len(r.checkpoints("tester", "s")); got != 2 {
		t.Errorf("%d checkpoints after a silence, want 2", got)
	}
}

func TestForcedCheckpoints(t *testing.T) {
	for name, c := range map[string]struct {
		e     wire.Event
		cause checkpoint.Cause
	}{
		"session end":       {wire.Event{Kind: "end", Reason: "bye"}, checkpoint.CauseEnd},
		"before compaction": {wire.Event{Kind: "compacting"}, checkpoint.CauseCompaction},
		"decision":          {wire.Event{Kind: "mark", Text: "tabs", Decision: true}, checkpoint.CauseDecision},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, tempDir(t))
			r.rounds("s", 0, 1)
			if d := r.event("s", c.e).Decision; d == nil || !d.Take || d.Text != "forced: "+string(c.cause) {
				t.Errorf("decision %+v", d)
			}
			until(t, "it is taken", func() bool { return len(r.checkpoints("tester", "s")) == 1 })
		})
	}
}

// A trigger that comes while a checkpoint is being written is not in it: it is owed, and taken after it.
func TestATriggerDuringAWriteIsOwed(t *testing.T) {
	f, wait := &faulty{}, make(chan struct{})
	f.block.Store(&wait)
	r := start(t, tempDir(t), withFaults(f))
	r.rounds("s", 0, 1)
	c := r.dial()
	if err := c.Send(eventCheckpoint("s"), nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the write is under way", func() bool { return f.puts.Load() == 1 })
	r.event("s", wire.Event{Kind: "prompt", Text: "said during the write"})
	if d := r.event("s", wire.Event{Kind: "compacting"}).Decision; d == nil || !d.Owed || d.Code != "in_progress" {
		t.Errorf("decision %+v, want it owed", d)
	}
	f.block.Store(nil)
	close(wait)
	until(t, "the owed one is taken", func() bool { return len(r.checkpoints("tester", "s")) == 2 })
	if got := r.newest("s"); got.Cause != checkpoint.CauseCompaction || len(got.State.Messages) != 3 {
		t.Errorf("cause %s with %d messages, want compaction with 3", got.Cause, len(got.State.Messages))
	}
}

func TestBothKindsAreOneFull(t *testing.T) {
	r := start(t, tempDir(t))
	r.rounds("s", 0, 4)
	r.event("s", wire.Event{Kind: "prompt", Text: "the fifth"})
	r.event("s", wire.Event{Kind: "tool-start", Call: "c", Name: "Read"})
	r.event("s", wire.Event{Kind: "tool-end", Call: "c"})
	r.event("s", wire.Event{Kind: "stop", Text: "a"})
	until(t, "a FULL", func() bool { return len(r.checkpoints("tester", "s")) == 1 })
	st := r.session("tester", "s")
	if st.LastFullCheckpoint == nil || st.LastSparseCheckpoint == nil || r.checkpoints("tester", "s")[0].Level != checkpoint.Full {
		t.Errorf("stamps: full %v, sparse %v; want both moved by one FULL", st.LastFullCheckpoint, st.LastSparseCheckpoint)
	}
}

func TestReloadChangesTheGates(t *testing.T) {
	r := start(t, tempDir(t))
	r.rounds("s", 0, 1)
	opt := r.d.opt
	opt.Gates.SparseRounds = 2
	r.d.Reload(opt)
	if d := r.rounds("s", 1, 1).Decision; d == nil || !d.Take {
		t.Errorf("second round with a gate of two: %+v", d)
	}
}

// --- transcripts

// claude sends events of a session whose transcript lies at a path.
func (r *running) claude(path string, events ...payload) {
	r.t.Helper()
	for _, p := range events {
		p["transcript_path"] = path
		r.hook(0, p)
	}
}

func transcriptPath(t *testing.T, session string) string {
	t.Helper()
	dir := filepath.Join(home(t), ".claude", "projects", "-proj")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, session+".jsonl")
}

// H12 and V01: the file alone is enough, with and without the kernel's events.
func TestH12RoundsInTheFileCountWithoutHooks(t *testing.T) {
	for name, notify := range map[string]bool{"notify": true, "V01 polling alone": false} {
		t.Run(name, func(t *testing.T) {
			path := transcriptPath(t, sessionA)
			r := start(t, tempDir(t), func(d *Daemon) { d.opt.Notify = notify })
			appendLines(t, path, record(sessionA, "user", "the first wish", 0))
			r.claude(path, startOf(sessionA, "startup", "/proj"))
			until(t, "first sight", func() bool { return len(r.checkpoints("claude-code", sessionA)) == 1 })
			for i := 1; i <= 50; i++ {
				appendLines(t, path, record(sessionA, "assistant", fmt.Sprint("answer ", i), i), record(sessionA, "user", fmt.Sprint("wish ", i), i))
			}
			until(t, "50 rounds are counted", func() bool { return r.session("claude-code", sessionA).MessageCount == 50 })
			until(t, "a SPARSE is taken", func() bool { return r.session("claude-code", sessionA).LastSparseCheckpoint != nil })
			if got := r.session("claude-code", sessionA).LastSparseCheckpoint; got == nil {
				t.Error("no SPARSE")
			}
		})
	}
}

func TestH07LastAnswerComesLateOrNever(t *testing.T) {
	for name, late := range map[string]bool{"late": true, "never": false} {
		t.Run(name, func(t *testing.T) {
			const id = "11111111-1111-4111-8111-111111111111"
			path := transcriptPath(t, id)
			r := start(t, tempDir(t), func(d *Daemon) { d.times.lateText, d.opt.Gates.FullTime = 500*time.Millisecond, 0 })
			appendLines(t, path, readLines(t, "H07-transcript-at-hook.jsonl")...)
			r.claude(path, startOf(id, "startup", "/proj/demo"))
			until(t, "first sight", func() bool { return len(r.checkpoints("claude-code", id)) == 1 })
			const answer = "The final answer is 42 retries."
			r.claude(path, stopOf(id, answer, "/proj/demo"))
			if late {
				time.Sleep(100 * time.Millisecond) // the file is late, that is the case
				appendLines(t, path, readLines(t, "H07-appended-1500ms-later.jsonl")...)
				until(t, "the file is read", func() bool { return countIn(t, r, id, answer) == 1 })
			}
			r.do(wire.Request{Op: "checkpoint", Agent: "claude-code", Session: id}, nil)
			if got := countIn(t, r, id, answer); got != 1 {
				t.Errorf("the answer is there %d times, want once", got)
			}
			if list := r.checkpoints("claude-code", id); len(list) == 0 || !bytes.Contains(fileOf(t, r, id, list[0].Number), []byte(answer)) {
				t.Errorf("the newest of %d checkpoints does not hold the answer", len(list))
			}
		})
	}
}

// countIn counts a session's messages that are just these words.
func countIn(t *testing.T, r *running, id, words string) int {
	t.Helper()
	n, _ := ask(t.Context(), r.d.session(findKey(t, r, id)), func(s *session) int {
		n := 0
		for _, m := range s.state.Messages {
			if m.Text == words {
				n++
			}
		}
		return n
	})
	return n
}

func fileOf(t *testing.T, r *running, session string, number uint64) []byte {
	t.Helper()
	data, err := r.d.store.Get(t.Context(), findKey(t, r, session), number)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestF06ManyCompactionEventsAreOneFull(t *testing.T) {
	path := transcriptPath(t, sessionA)
	r := start(t, tempDir(t))
	appendLines(t, path, record(sessionA, "user", "a wish", 0), record(sessionA, "assistant", "an answer", 1))
	r.claude(path, startOf(sessionA, "startup", "/proj"))
	until(t, "first sight", func() bool { return len(r.checkpoints("claude-code", sessionA)) == 1 })
	for i := range 20 {
		r.claude(path, payload{"hook_event_name": "PreCompact", "session_id": sessionA, "cwd": "/proj", "trigger": "auto", "n": i})
	}
	if got := len(r.checkpoints("claude-code", sessionA)); got > 2 {
		t.Errorf("%d checkpoints after 20 events that brought nothing new", got)
	}
}

func TestH09CompactionWithoutAPathIsOfTheKnownSession(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	other := filepath.Join(tempDir(t), "projects", "-proj") // another home of the agent: the path alone says so
	path := filepath.Join(other, id+".jsonl")
	home(t)
	r := start(t, tempDir(t))
	r.claude(path, startOf(id, "startup", "/proj"), promptOf(id, "a wish", "/proj"))
	data, err := os.ReadFile("testdata/H09-precompact-no-path.json")
	if err != nil {
		t.Fatal(err)
	}
	reply, _ := r.do(wire.Request{Op: "hook", Agent: "claude-code", Event: "PreCompact"}, data)
	if !reply.OK || reply.Decision == nil || !reply.Decision.Take {
		t.Errorf("compaction without a path: %+v, want a FULL", reply)
	}
	if got := len(r.status().Sessions); got != 1 {
		t.Errorf("%d sessions, want the one that is known", got)
	}
}

func TestS04RecordsGoToTheSessionThatTheyName(t *testing.T) {
	const one, two = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	path := transcriptPath(t, one)
	r := start(t, tempDir(t))
	lines := readLines(t, "S04-wrong-file.jsonl")
	r.claude(path, startOf(one, "startup", "/proj/demo"))
	appendLines(t, path, lines...)
	said := func(id string) int {
		for _, s := range r.d.active() {
			if s.key.Session == id {
				n, _ := ask(t.Context(), s, func(s *session) int { return len(s.state.Messages) })
				return n
			}
		}
		return 0
	}
	until(t, "both sessions have their records", func() bool { return said(one) == 5 && said(two) == 4 })
}

func TestS01InterleavedWriters(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	path := transcriptPath(t, id)
	r := start(t, tempDir(t))
	r.claude(path, startOf(id, "startup", "/proj/demo"))
	lines := readLines(t, "S01-interleaved.jsonl")
	appendLines(t, path, lines...)
	until(t, "the file is read", func() bool {
		n, _ := ask(t.Context(), r.d.session(findKey(t, r, id)), func(s *session) int { return s.state.Losses.Rescued })
		return n == 1
	})
}

func TestS07EventsAloneAreEnough(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	path := transcriptPath(t, id)
	r := start(t, tempDir(t))
	appendLines(t, path, readLines(t, "S07-stub-only.jsonl")...)
	for _, line := range readLines(t, "S07-events.jsonl") {
		line = strings.Replace(line, "store/"+id+".jsonl", path, 1)
		event := line[strings.Index(line, `"hook_event_name":"`)+len(`"hook_event_name":"`):]
		reply, _ := r.do(wire.Request{Op: "hook", Agent: "claude-code", Event: event[:strings.IndexByte(event, '"')]}, []byte(line))
		if !reply.OK {
			t.Fatalf("%s: %+v", line, reply)
		}
	}
	res := r.recover("claude-code", id)
	for _, words := range []string{"fix the uploader", "Changed one line in uploader.go.", "now add a test", "Test added."} {
		if !said(res, words) {
			t.Errorf("%q is not in the recovery", words)
		}
	}
}

func TestS09SessionsOfOneFolderStayApart(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	for i := range 3 {
		for _, id := range []string{sessionA, sessionB} {
			r.hook(0, promptOf(id, fmt.Sprintf("wish %d of %s", i, id[:4]), cwd))
			r.hook(0, stopOf(id, fmt.Sprintf("answer %d of %s", i, id[:4]), cwd))
		}
	}
	for id, other := range map[string]string{sessionA: "bbbb", sessionB: "aaaa"} {
		res := r.recover("claude-code", id)
		if !said(res, "wish 2 of "+id[:4]) || said(res, other) || strings.Contains(res.Text, "of "+other) {
			t.Errorf("recovery of %s: %s", id[:4], res.Text)
		}
	}
}

func TestF10TheTranscriptIsDeleted(t *testing.T) {
	path := transcriptPath(t, sessionA)
	r := start(t, tempDir(t))
	appendLines(t, path, record(sessionA, "user", "a wish that matters", 0), record(sessionA, "assistant", "an answer", 1))
	r.claude(path, startOf(sessionA, "startup", "/proj"))
	until(t, "first sight", func() bool { return len(r.checkpoints("claude-code", sessionA)) == 1 })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	res := r.recover("claude-code", sessionA)
	if !said(res, "a wish that matters") || !res.Lost.Gone {
		t.Errorf("recovered %v, missing %t", res.User, res.Lost.Gone)
	}
	r.claude(path, promptOf(sessionA, "go on", "/proj"))
	if got := r.session("claude-code", sessionA).CurrentTask; got == "" {
		t.Error("the session does not go on without its file")
	}
}

func TestF12ThePoorerFileDoesNotReplaceTheRicherOne(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	path := transcriptPath(t, id)
	dir := tempDir(t)
	r := start(t, dir)
	appendLines(t, path, readLines(t, "F12-before.jsonl")...)
	r.claude(path, startOf(id, "startup", "/proj/demo"))
	until(t, "first sight", func() bool { return len(r.checkpoints("claude-code", id)) == 1 })
	before := r.recover("claude-code", id)
	key := findKey(t, r, id)
	rich := filepath.Join(r.d.dir.Session(key), mirror.FileName)
	until(t, "the mirror holds it", func() bool { info, err := os.Stat(rich); return err == nil && info.Size() > 0 })
	size := mustSize(t, rich)
	after, err := os.ReadFile("testdata/F12-after.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, after, 0o600); err != nil {
		t.Fatal(err)
	}
	r.claude(path, promptOf(id, "is it all there?", "/proj/demo"))
	r.do(wire.Request{Op: "checkpoint", Agent: "claude-code", Session: id}, nil)
	now := r.recover("claude-code", id)
	if len(now.Messages)+len(now.User) < len(before.Messages)+len(before.User) {
		t.Errorf("%d messages and %d wishes after the file was cut, %d and %d before", len(now.Messages), len(now.User), len(before.Messages), len(before.User))
	}
	if got := mustSize(t, rich); got < size {
		t.Errorf("the mirror shrank from %d to %d bytes", size, got)
	}
}

func mustSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestFirstSightOfABigFile(t *testing.T) {
	path := transcriptPath(t, sessionA)
	var b strings.Builder
	b.WriteString(record(sessionA, "user", "the very first wish", 0) + "\n")
	for i := 1; b.Len() < 20<<20; i++ {
		b.WriteString(record(sessionA, "assistant", strings.Repeat("words ", 2000), i) + "\n" + record(sessionA, "user", fmt.Sprint("wish ", i), i) + "\n")
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, tempDir(t))
	began := time.Now()
	r.claude(path, startOf(sessionA, "startup", "/proj"))
	until(t, "one FULL", func() bool { return len(r.checkpoints("claude-code", sessionA)) == 1 })
	t.Logf("first sight of %d MB took %s", b.Len()>>20, time.Since(began).Round(time.Millisecond))
	st := r.session("claude-code", sessionA)
	if st.MessageCount != 0 || st.Title != "the very first wish" {
		t.Errorf("%d rounds and title %q; want none counted and the first wish", st.MessageCount, st.Title)
	}
	until(t, "the mirror fills in the background", func() bool { return r.session("claude-code", sessionA).AtRisk.Bytes == 0 })
}

// --- many sessions

func TestStopWith200Sessions(t *testing.T) {
	dir := tempDir(t)
	r := start(t, dir)
	for i := range 200 {
		r.rounds(fmt.Sprint("s", i), 0, 1)
	}
	began := time.Now()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	if took > 10*time.Second {
		t.Errorf("stopping took %s, want 2 s (10 at most)", took)
	}
	names, err := filepath.Glob(filepath.Join(dir, "sessions/tester/*/checkpoints/*-full.md"))
	if err != nil || len(names) == 0 {
		t.Errorf("no FULL was taken at the stop: %v", err)
	}
	t.Logf("stopped in %s with %d of 200 FULLs", took.Round(time.Millisecond), len(names))
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
	r := start(t, tempDir(t), func(d *Daemon) { d.times.idleAfter = 50 * time.Millisecond })
	r.rounds("warm", 0, 1)
	until(t, "the first session leaves", func() bool { return len(r.d.active()) == 0 })
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for i := range 100 {
		id := fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", i)
		file := strings.Replace(path, sessionA, id, 1)
		appendLines(t, file, record(id, "user", "wish", 0), record(id, "assistant", "answer", 1))
		r.claude(file, startOf(id, "startup", "/proj"), payload{"hook_event_name": "SessionEnd", "session_id": id, "cwd": "/proj", "reason": "exit"})
	}
	until(t, "all sessions leave memory", func() bool { return len(r.d.active()) == 0 })
	until(t, "files and goroutines are let go", func() bool {
		return openFiles(t) <= files+5 && runtime.NumGoroutine() <= goroutines+5
	})
	if n := r.d.watch.Status().Paths; n > 3 {
		t.Errorf("%d paths are still watched", n)
	}
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
	r := start(t, tempDir(t), func(d *Daemon) { d.times.idleAfter = time.Hour })
	// An open call of a session without a known process: nothing can be noted of it.
	r.event("s", wire.Event{Kind: "start"})
	r.event("s", wire.Event{Kind: "tool-start", Call: "c", Name: "Bash"})
	appendLines(t, path, record(sessionA, "user", "wish", 0))
	r.claude(path, startOf(sessionA, "startup", "/proj"))
	until(t, "first sight", func() bool { return len(r.checkpoints("claude-code", sessionA)) == 1 })
	time.Sleep(1500 * time.Millisecond) // calls are noted and the mirror is flushed within a second
	ticks := r.d.counts.ticks.Load()
	time.Sleep(time.Second) // silence is what is measured
	if n := r.d.counts.ticks.Load() - ticks; n > 1 {
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
		if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "state.json"), []byte("{"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	r := start(t, dir)
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
		req := eventRequest(fmt.Sprint("s", i%sessions), wire.Event{Kind: kind, Text: fmt.Sprint("word ", i), Decision: true})
		req.ID, req.Spooled = fmt.Sprint("e", i), time.Now().UnixMilli()
		header := mustJSON(t, req)
		if _, err := spool.Write(vfs.OS{}, filepath.Join(dir, "spool"), spool.DefaultLimits(), header, nil, time.Now()); err != nil {
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

// C13: a poisoned event among good ones is set aside; the rest is done.
func TestC13APoisonedSpoolFileIsSetAside(t *testing.T) {
	dir := tempDir(t)
	for i := range 20 {
		req := eventRequest("s", wire.Event{Kind: "stop", Text: fmt.Sprint(i)})
		req.ID, req.Spooled = fmt.Sprint("e", i), time.Now().UnixMilli()
		if i == 7 {
			req.Op = "poison"
		}
		if _, err := spool.Write(vfs.OS{}, filepath.Join(dir, "spool"), spool.DefaultLimits(), mustJSON(t, req), nil, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, dir)
	until(t, "it is set aside", func() bool {
		names, err := filepath.Glob(filepath.Join(dir, "spool", "bad", "*"))
		return err == nil && len(names) == 1
	})
	if got := r.session("tester", "s").MessageCount; got != 19 {
		t.Errorf("%d rounds, want the 19 good ones", got)
	}
	until(t, "it is counted as dropped", func() bool { return r.count("dropped") == 1 })
}

func TestG04TotalBudget(t *testing.T) {
	r := start(t, tempDir(t), func(d *Daemon) {
		d.times.idleAfter, d.opt.TotalBytes = 20*time.Millisecond, 60<<10
		d.opt.Gates.ForcedTime = 0
	})
	for i := range 10 {
		for j := range 4 {
			r.rounds(fmt.Sprint("s", i), j, 1)
			r.checkpoint(fmt.Sprint("s", i))
		}
	}
	until(t, "the sessions leave memory", func() bool { return len(r.d.active()) == 0 })
	if err := r.d.keepTotal(t.Context()); err != nil {
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
	if total > 60<<10 || len(sessions) != 10 {
		t.Errorf("%d bytes of %d sessions, want at most %d and a FULL of each of 10", total, len(sessions), 60<<10)
	}
	for name, n := range sessions {
		if strings.Contains(name, "s9") && n < 2 {
			t.Errorf("the newest session was cut to %d although older ones had more to give", n)
		}
	}
}
