package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/state/mirror"
	"belay/internal/wire"
)

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
				appendLines(
					t, path, record(sessionA, "assistant", fmt.Sprint("answer ", i), i),
					record(sessionA, "user", fmt.Sprint("wish ", i), i),
				)
			}

			until(
				t, "50 rounds are counted",
				func() bool { return r.session("claude-code", sessionA).MessageCount == 50 },
			)

			until(
				t, "a SPARSE is taken",
				func() bool { return r.session("claude-code", sessionA).LastSparseCheckpoint != nil },
			)

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
			r := start(
				t, tempDir(t),
				func(d *Daemon) { d.times.session.LateText, d.opt.Gates.FullTime = 500*time.Millisecond, 0 },
			)

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

			if list := r.checkpoints(
				"claude-code", id,
			); len(list) == 0 ||
				!bytes.Contains(fileOf(t, r, id, list[0].Number), []byte(answer)) {
				t.Errorf("the newest of %d checkpoints does not hold the answer", len(list))
			}
		})
	}
}

// countIn counts a session's messages that are just these words.
func countIn(t *testing.T, r *running, id, words string) int {
	t.Helper()
	n, _ := session.Ask(t.Context(), r.active(findKey(t, r, id)), func(st *checkpoint.State) int {
		n := 0
		for _, m := range st.Messages {
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
	data, err := r.l.store.Get(t.Context(), findKey(t, r, session), number)
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
	cursor := func() checkpoint.Cursor {
		c, _ := session.Ask(
			t.Context(), r.active(findKey(t, r, sessionA)),
			func(st *checkpoint.State) checkpoint.Cursor { return st.Cursor },
		)
		return c
	}

	before := cursor()
	for i := range 20 {
		r.claude(
			path,
			payload{"hook_event_name": "PreCompact", "session_id": sessionA, "cwd": "/proj", "trigger": "auto", "n": i},
		)
	}

	if got := len(r.checkpoints("claude-code", sessionA)); got > 2 {
		t.Errorf("%d checkpoints after 20 events that brought nothing new", got)
	}
	if after := cursor(); after != before || before == "" {
		t.Errorf("the cursor went from %s to %s with no change in the file", before, after)
	}
	if list := r.recover("claude-code", sessionA).Messages; len(list) != 2 {
		t.Errorf("%d messages are recovered, want the 2 of the file once: %+v", len(list), list)
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
		for _, s := range r.l.sessions.Active() {
			if s.Key.Session == id {
				n, _ := session.Ask(t.Context(), s, func(st *checkpoint.State) int { return len(st.Messages) })
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
		n, _ := session.Ask(
			t.Context(), r.active(findKey(t, r, id)),
			func(st *checkpoint.State) int { return st.Losses.Rescued },
		)
		return n == 1
	})

	plain := 0
	for _, line := range lines {
		if json.Valid([]byte(line)) {
			plain++
		}
	}

	texts := regexp.MustCompile(`process [AB] \d+`).FindAllString(strings.Join(lines, " "), -1)
	kept, _ := session.Ask(t.Context(), r.active(findKey(t, r, id)), func(st *checkpoint.State) (list []string) {
		for _, m := range st.Messages {
			list = append(list, m.Text)
		}
		return list
	})

	for _, words := range texts {
		if !slices.Contains(kept, words) {
			t.Errorf("%q of one of the writers is not kept: %q", words, kept)
		}
	}

	if plain != 14 || len(texts) != 15 {
		t.Errorf("%d plain records and %d texts in the file, want 14 and one more that was rescued", plain, len(texts))
	}
}

func TestS07EventsAloneAreEnough(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	path := transcriptPath(t, id)
	r := start(t, tempDir(t))
	appendLines(t, path, readLines(t, "S07-stub-only.jsonl")...)
	for _, line := range readLines(t, "S07-events.jsonl") {
		line = strings.Replace(line, "store/"+id+".jsonl", path, 1)
		event := line[strings.Index(line, `"hook_event_name":"`)+len(`"hook_event_name":"`):]
		reply, _ := r.do(
			wire.Request{Op: "hook", Agent: "claude-code", Event: event[:strings.IndexByte(event, '"')]},
			[]byte(line),
		)

		if !reply.OK {
			t.Fatalf("%s: %+v", line, reply)
		}
	}

	res := r.recover("claude-code", id)
	for _, words := range []string{
		"fix the uploader", "Changed one line in uploader.go.", "now add a test", "Test added.",
	} {
		if !said(res, words) {
			t.Errorf("%q is not in the recovery", words)
		}
	}

	if !strings.Contains(res.Text, "transcript was silent since") {
		t.Errorf("the text does not say that the transcript is silent:\n%s", res.Text)
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
	appendLines(
		t, path, record(sessionA, "user", "a wish that matters", 0),
		record(sessionA, "assistant", "an answer", 1),
	)

	r.claude(path, startOf(sessionA, "startup", "/proj"))
	until(t, "first sight", func() bool { return len(r.checkpoints("claude-code", sessionA)) == 1 })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	res := r.recover("claude-code", sessionA)
	if !said(res, "a wish that matters") || !res.Lost.Gone {
		t.Errorf("recovered %v, missing %t", res.User, res.Lost.Gone)
	}
	if !strings.Contains(res.Text, "transcript is missing") && !strings.Contains(res.Text, "transcript is gone") {
		t.Errorf("the text does not say that the transcript is missing:\n%s", res.Text)
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
	rich := filepath.Join(r.l.dir.Session(key), mirror.FileName)
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
		t.Errorf(
			"%d messages and %d wishes after the file was cut, %d and %d before", len(now.Messages),
			len(now.User), len(before.Messages), len(before.User),
		)
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
		b.WriteString(
			record(
				sessionA, "assistant", strings.Repeat("words ", 2000), i,
			) + "\n" + record(
				sessionA, "user", fmt.Sprint("wish ", i), i,
			) + "\n",
		)
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

	until(
		t, "the mirror fills in the background",
		func() bool { return r.session("claude-code", sessionA).AtRisk.Bytes == 0 },
	)
}
