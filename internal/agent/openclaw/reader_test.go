package openclaw

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/sqlite"
)

// digest tells what a session came to, in one line.
func digest(b checkpoint.Batch) string {
	kinds := map[string]int{}
	turns, words := 0, ""
	open := map[string]bool{}
	for _, e := range b.Entries {
		switch {
		case e.Kind == checkpoint.EntryUser && !e.Aside:
			turns++
			words = e.Text
		case e.Kind == checkpoint.EntryAssistant && !e.Aside:
			words = e.Text
		case e.Kind == checkpoint.EntryCall:
			open[e.Call] = true
		case e.Kind == checkpoint.EntryResult && !e.MadeUp && !e.Background:
			delete(open, e.Call)
		}
		kinds[string(e.Op)+string(e.Kind)]++
	}

	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%s=%d", k, kinds[k]))
	}

	return fmt.Sprintf(
		"%s turns=%d open=%d bad=%d last=%.8x", strings.Join(parts, " "), turns, len(open), b.Losses.BadLines,
		sha256.Sum256([]byte(words)),
	)
}

func TestGolden(t *testing.T) {
	var got []string
	tell := func(file, path string, sessions ...string) {
		for _, s := range sessions {
			got = append(got, fmt.Sprintf("%s %s: %s", filepath.Base(file), s, digest(whole(t, path, s, ""))))
		}
	}

	files, err := filepath.Glob("testdata/rows/*.jsonl")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d captured files, %v, want 9 or more", len(files), err)
	}

	for _, f := range files {
		s, sessions := fromRows(t, f)
		tell(f, s.path, sessions...)
	}

	generated := "testdata/openclaw-agent-schema23.generated.sqlite"
	tell(generated, generated, "4038b454-c8ce-4bef-8515-65b5cbf8eb40", "9db47609-a016-45ad-9491-c0b2255f8bc4")
	text := strings.Join(got, "\n") + "\n"
	if *update {
		if err := os.WriteFile("testdata/golden.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

const (
	header = `{"type":"session","version":4,"id":"s1","timestamp":"2026-11-30T15:12:30.704Z","cwd":"/home/u/proj"}`
	ask1   = `{"type":"message","id":"a1","parentId":null,"timestamp":"2026-11-30T15:12:31Z","message":{"role":"user","content":"first question","timestamp":1}}`
	reply1 = `{"type":"message","id":"a2","parentId":"a1","timestamp":"2026-11-30T15:12:32Z","message":{"role":"assistant","content":[{"type":"text","text":"first answer"}],"stopReason":"stop","timestamp":2}}`
	ask2   = `{"type":"message","id":"a3","parentId":"a2","timestamp":"2026-11-30T15:12:33Z","message":{"role":"user","content":"second question","timestamp":3}}`
	reset  = `{"type":"reset","id":"a4","parentId":"a3","timestamp":"2026-11-30T15:12:34Z","reason":"new"}`
)

var bigResult = `{"type":"message","id":"a4","parentId":"a3","timestamp":"2026-11-30T15:12:34Z","message":{"role":"toolResult","toolCallId":"c1","toolName":"exec","content":[{"type":"text","text":"` +
	strings.Repeat(
		"line of output ", 400,
	) + `"}],"isError":false,"timestamp":4}}`

func TestGrowsAndGoesOn(t *testing.T) {
	for _, schema := range []string{schema19, schema23} {
		s := newStore(t, filepath.Join(t.TempDir(), databaseName), schema)
		s.add("s1", 0, header, false)
		s.add("s1", 1, ask1, false)
		s.add("other", 0, header, false)
		r := New(agent.Host{}).Open(agent.Source{Path: s.path, Session: "s1"})
		defer r.Close()
		b := readOn(t, r, "")
		if got, want := said(b), "user:first question"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}

		s.add("s1", 2, reply1, false)
		s.add("s1", 3, ask2, false)
		for name, more := range map[string]checkpoint.Batch{"the same reader": readOn(t, r, b.Cursor), "one of a later run": whole(t, s.path, "s1", b.Cursor)} {
			if got, want := said(more), "assistant:first answer user:second question"; got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}

		if more := whole(t, s.path, "s1", readOn(t, r, b.Cursor).Cursor); len(more.Entries) != 0 {
			t.Errorf("nothing new: got %v", more.Entries)
		}
	}
}

func TestPackedRecords(t *testing.T) {
	s := newStore(t, filepath.Join(t.TempDir(), databaseName), schema23)
	for i, rec := range []string{header, ask1, reply1, ask2} {
		s.add("s1", i, rec, i == 2)
	}

	s.add("s1", 4, bigResult, true)
	s.exec("insert into transcript_events values ('s1', 5, null, 1, x'0102030405', 5, '{}')")
	b := whole(t, s.path, "s1", "")
	if got := said(
		b,
	); !strings.Contains(got, "assistant:first answer") ||
		!strings.Contains(got, "result:line of output") {
		t.Errorf("got %q, want the packed answer and the packed result", got)
	}

	if b.Losses.BadLines != 1 {
		t.Errorf("got %d bad records, want the one that cannot be unpacked", b.Losses.BadLines)
	}
}

// TestRewritten: a new generation, or fewer rows, means a new beginning. What comes again is known.
func TestRewritten(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *store)
		want   string
	}{
		{"a new generation", func(s *store) {
			s.generation("s1", "two")
			s.exec("delete from transcript_events where seq >= 2")
			s.add("s1", 2, ask2, false)
		}, "reset user:first question user:second question"},
		{"fewer rows", func(s *store) { s.exec("delete from transcript_events where seq >= 2") }, "reset user:first question"},
		{"another session's", func(s *store) { s.generation("other", "two") }, ""},
		{"a reset", func(s *store) { s.add("s1", 4, reset, false) }, "clear"},
	} {
		s := newStore(t, filepath.Join(t.TempDir(), databaseName), schema23)
		s.generation("s1", "one")
		for i, rec := range []string{header, ask1, reply1, ask2} {
			s.add("s1", i, rec, false)
		}

		b := whole(t, s.path, "s1", "")
		c.change(s)
		if got := said(whole(t, s.path, "s1", b.Cursor)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestNotThere: a database, a table or a session that is not there (yet, or any more) changes no cursor.
func TestNotThere(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, filepath.Join(dir, databaseName), schema23)
	s.add("s1", 0, header, false)
	old := newStore(t, filepath.Join(dir, "old.sqlite"), "create table schema_meta (role text)")
	cursor := whole(t, s.path, "s1", "").Cursor
	for name, src := range map[string]agent.Source{"no database": {Path: filepath.Join(dir, "absent.sqlite"), Session: "s1"},
		"no session": {Path: s.path, Session: "s2"}, "no table": {Path: old.path, Session: "s1"}} {
		r := New(agent.Host{}).Open(src)
		b, err := r.Read(context.Background(), cursor, checkpoint.ReadOptions{})
		if !errors.Is(err, fs.ErrNotExist) || b.Cursor != cursor {
			t.Errorf("%s: got %v with cursor %s, want fs.ErrNotExist and the cursor as it was", name, err, b.Cursor)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFirstSight: of a long session the head and the newest part are read, in pages of bounded size.
func TestFirstSight(t *testing.T) {
	s := newStore(t, filepath.Join(t.TempDir(), databaseName), schema23)
	s.exec("begin")
	s.add("s1", 0, header, false)
	prev := "null"
	for i := 1; i <= 4000; i++ {
		role, text := "user", fmt.Sprintf("question %d", i)
		if i%2 == 0 {
			role, text = "assistant", fmt.Sprintf("answer %d", i)
		}

		s.add(
			"s1",
			i,
			fmt.Sprintf(
				`{"type":"message","id":"m%d","parentId":%s,"message":{"role":%q,"content":%q,"stopReason":"stop","timestamp":%d}}`,
				i, prev, role, text, i,
			),
			false,
		)

		prev = fmt.Sprintf(`"m%d"`, i)
	}

	s.exec("commit")
	r := New(agent.Host{}).Open(agent.Source{Path: s.path, Session: "s1"})
	defer r.Close()
	b, err := r.Read(context.Background(), "", checkpoint.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if got := said(
		b,
	); !b.First || b.Skipped == 0 || !strings.HasPrefix(got, "user:question 1 ") || !strings.HasSuffix(got, "assistant:answer 4000") ||
		strings.Contains(got, "question 3001 ") {
		t.Errorf(
			"first sight: got first %v, %d skipped, %d bytes from %.40q, want the head and the newest part alone",
			b.First, b.Skipped, len(got), got,
		)
	}

	if n := len(whole(t, s.path, "s1", "").Entries); n != 1+2000+2*2000 {
		t.Errorf("the whole session has %d entries, want %d", n, 1+2000+2*2000)
	}
}

func TestRecognise(t *testing.T) {
	data, err := os.ReadFile("testdata/openclaw-agent-schema23.generated.sqlite")
	if err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		head string
		want bool
	}{"the database": {string(data[:64<<10]), true}, "another database": {sqlite.Header + " nothing of the kind", false},
		"a file": {header + "\n" + `{"customType":"openclaw.cache-ttl","parentId":null}`, true}, "nothing": {"", false}} {
		if got := New(agent.Host{}).Recognise([]byte(c.head)) == agent.Mine; got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// TestBranch: what was said on a branch that was left is taken back, as in a file.
func TestBranch(t *testing.T) {
	s := newStore(t, filepath.Join(t.TempDir(), databaseName), schema23)
	for i, rec := range []string{header, ask1, reply1, ask2} {
		s.add("s1", i, rec, false)
	}

	r := New(agent.Host{}).Open(agent.Source{Path: s.path, Session: "s1"})
	defer r.Close()
	b := readOn(t, r, "")
	s.add(
		"s1", 4,
		`{"type":"message","id":"a9","parentId":"a2","timestamp":"2026-11-30T15:13:00Z","message":{"role":"user","content":"another question","timestamp":9}}`,
		false,
	)

	if got, want := said(readOn(t, r, b.Cursor)), "retract user:another question"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLocate(t *testing.T) {
	state := filepath.Join(t.TempDir(), ".openclaw")
	host := agenttest.Host("", "OPENCLAW_STATE_DIR="+state)
	s := newStore(t, filepath.Join(state, "agents", "main", "agent", databaseName), schema23)
	for i, id := range []string{"s1", "7f0c2d3e-1111-4222-8333-444455556666", "s3"} {
		cwd := "/home/u/proj"
		if i == 2 {
			cwd = "/elsewhere"
		}
		s.exec("insert into session_windows values (?, 'agent:main:main', 1, ?)", id, 1000+i)
		s.add(id, 0, strings.Replace(header, "/home/u/proj", cwd, 1), false)
	}

	newStore(t, filepath.Join(state, "agents", "old", "agent", databaseName), "create table schema_meta (role text)")
	file := func(agentID, id string) {
		dir := filepath.Join(state, "agents", agentID, "sessions")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, id+".jsonl"), []byte(header+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	file("main", "7f0c2d3e-1111-4222-8333-444455556666") // left behind: its header names s1, which is in the database
	for _, c := range []struct {
		q    agent.Query
		want string
	}{
		{agent.Query{}, "s3 7f0c2d3e-1111-4222-8333-444455556666 s1"},
		{agent.Query{Session: "s1"}, "s1"},
		{agent.Query{Workspace: "/home/u/proj", Most: 1}, "7f0c2d3e-1111-4222-8333-444455556666"},
		{agent.Query{Session: "none"}, ""},
	} {
		found, err := New(host).Locate(context.Background(), c.q)
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, f := range found {
			got = append(got, f.Session)
		}

		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: got %q, want %q", c.q, got, c.want)
		}
	}
}

// TestReadingChangesNothing: every file of a live database is as it was, and none came or went.
func TestReadingChangesNothing(t *testing.T) {
	s, sessions := fromRows(t, "testdata/rows/normal.final.sqlite-rows.jsonl")

	// The files as a kill leaves them: the writer is in this very process, where SQLite shares the index of the log.
	state := t.TempDir()
	host := agenttest.Host("", "OPENCLAW_STATE_DIR="+state)
	path := filepath.Join(state, "agents", "main", "agent", databaseName)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}

	for _, suffix := range []string{"", "-wal", "-shm"} {
		data, err := os.ReadFile(s.path + suffix)
		if err == nil {
			err = os.WriteFile(path+suffix, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	before := snapshot(t, filepath.Dir(path))
	if len(before) != 3 {
		t.Fatalf("got %d files, want the database, its log and its index", len(before))
	}
	if len(whole(t, path, sessions[0], "").Entries) == 0 {
		t.Error("nothing was read")
	}
	if _, err := New(host).Locate(context.Background(), agent.Query{}); err != nil {
		t.Error(err)
	}
	if after := snapshot(t, filepath.Dir(path)); !maps.Equal(after, before) {
		t.Errorf("got %v, want %v", after, before)
	}
}

func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	files := map[string]string{}
	for _, e := range list {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}

		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}

		files[e.Name()] = fmt.Sprintf("%x %v %v", sha256.Sum256(data), info.ModTime(), info.Mode())
	}

	return files
}

// TestOddRows: whatever a row holds, it costs no more than itself.
func TestOddRows(t *testing.T) {
	for i, record := range []string{
		"", "{", "null", "\x00", `{"type":"message"}`, `{"type":"message","message":{"role":"user","content":7}}`,
		`[]`, "\xff",
	} {
		for _, packed := range []bool{false, true} {
			s := newStore(t, filepath.Join(t.TempDir(), databaseName), schema23)
			s.add("s1", 0, header, false)
			s.add("s1", 1, ask1, false)
			s.add("s1", 2, record, packed)
			s.add("s1", 3, reply1, false)
			if got, want := said(
				whole(t, s.path, "s1", ""),
			), "user:first question assistant:first answer"; got != want {
				t.Errorf("row %d %q: got %q, want %q", i, record, got, want)
			}
		}
	}
}

// FuzzLine: a row is a line, or is counted.
func FuzzLine(f *testing.F) {
	f.Add([]byte(header), false)
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x00\x29\x00\x00hello\x99\xe9\xd8\x51"), true)
	r := openRows("", "")
	f.Fuzz(func(t *testing.T, data []byte, packed bool) {
		w := row{seq: 3, text: data}
		if packed {
			w = row{seq: 3, packed: data}
		}

		var span lines.Span
		line := r.line(w, &span)
		if line.Off != 3*rowSize || line.End != 4*rowSize || line.Num != 4 ||
			len(line.Data) > 0 && span.Losses.BadLines > 0 {
			t.Errorf(
				"got %d to %d, line %d, %d bytes with %d bad", line.Off, line.End, line.Num, len(line.Data),
				span.Losses.BadLines,
			)
		}
	})
}
