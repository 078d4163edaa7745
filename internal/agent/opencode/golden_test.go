package opencode

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
)

const captured = "testdata/1.18-opencode.db"

// TestGolden reads every session of the captured data in its three forms: the database, its table of events as text,
// its tables of messages and parts as text. All three tell of the same conversations.
func TestGolden(t *testing.T) {
	var got bytes.Buffer
	for _, c := range []struct{ name, path string }{
		{"database", captured}, {"events", fromEvents(t)}, {"tables", fromTables(t)},
	} {
		found, err := locate(context.Background(), c.path, agent.Query{Most: 9})
		if err != nil || len(found) != 3 {
			t.Fatalf("%s: found %d sessions, %v, want 3", c.name, len(found), err)
		}

		slices.Reverse(found)
		for _, f := range found {
			b := readFrom(t, f.Source, "", checkpoint.ReadOptions{Whole: true})
			fmt.Fprintf(&got, "%s %s: %s\n", c.name, f.Session, digest(b))
		}
	}

	compareGolden(t, "golden.txt", got.Bytes())
}

// TestCapturedConversation: what a user of the captured sessions had said and done.
func TestCapturedConversation(t *testing.T) {
	for _, c := range []struct{ session, want string }{
		{"ses_dd2f85627ffeUHYk4HeIw5okEk", `meta
user "TOOLS please"
call read
call read in={"filePath":"/home/user/proj/a.txt"}
call bash
call bash in={"command":"ls | wc -l","description":"count"}
assistant I will read the file.
result read out=<path>/home/user/proj/a.txt</path>
<type>file</type>
<content>
1: hello

(End of file - total 1 lines)
</content>
result bash out=2

assistant Done. One file, a.txt.
turn-end`},
		// killed while the answer streamed: no word of it is there
		{"ses_dd2f7d75cffeWDWyAzzoE0EZLz", "meta\nuser \"SLOW please\""},
	} {
		b := readFrom(t, agent.Source{Path: captured, Session: c.session}, "", checkpoint.ReadOptions{Whole: true})
		if got := show(b.Entries); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.session, got, c.want)
		}
	}
}

// TestNothingChanges: no byte, no time and no name of the captured folder is another after it was read and searched.
func TestNothingChanges(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(captured)
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, "opencode.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	before := folderState(t, dir)
	readFrom(t, agent.Source{Path: path}, "", checkpoint.ReadOptions{})
	if _, err := (&Agent{data: dir}).Locate(context.Background(), agent.Query{}); err != nil {
		t.Fatal(err)
	}
	if after := folderState(t, dir); after != before {
		t.Errorf("got\n%s\nwant\n%s", after, before)
	}
}

// TestAfterDeath: a killed opencode leaves its log beside the database. All is read, and nothing of it changes.
func TestAfterDeath(t *testing.T) {
	w := newWriter(t, true, "journal_mode = wal", "wal_autocheckpoint = 0")
	w.session(ses, "", folder)
	w.turn(ses, 1)
	dir := t.TempDir() // what is there when the process is gone: the writer itself lives
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(w.path))); err != nil {
		t.Fatal(err)
	}

	before := folderState(t, dir)
	b := readFrom(t, agent.Source{Path: filepath.Join(dir, "opencode.db"), Session: ses}, "", checkpoint.ReadOptions{})
	if after := folderState(t, dir); after != before || !strings.Contains(before, "-wal") {
		t.Errorf("the folder: got\n%s\nwant\n%s", after, before)
	}
	if got := show(b.Entries); !strings.Contains(got, "assistant answer 1") {
		t.Errorf("got\n%s\nwant the whole turn", got)
	}
}

// TestLiveWriter: the session of a running opencode is read, and what comes later from the cursor on.
func TestLiveWriter(t *testing.T) {
	w := newWriter(t, true, "journal_mode = wal", "wal_autocheckpoint = 0")
	w.session(ses, "", folder)
	w.turn(ses, 1)
	first := readFrom(t, w.source(), "", checkpoint.ReadOptions{})
	w.turn(ses, 2)
	second := readFrom(t, w.source(), first.Cursor, checkpoint.ReadOptions{})
	if got := show(second.Entries); !strings.Contains(got, "user prompt 2") || strings.Contains(got, "prompt 1") {
		t.Errorf("after the cursor: got\n%s\nwant the second turn alone", got)
	}

	if again := readFrom(
		t, w.source(), second.Cursor, checkpoint.ReadOptions{},
	); len(again.Entries) != 0 ||
		again.Cursor != second.Cursor {
		t.Errorf(
			"nothing is new: got %d entries, cursor %s, want none and %s", len(again.Entries), again.Cursor,
			second.Cursor,
		)
	}
}

func folderState(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	var b strings.Builder
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}

		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}

		fmt.Fprintf(&b, "%s %x %v %v\n", e.Name(), sha256.Sum256(data), info.Mode(), info.ModTime())
	}

	return b.String()
}

// jsonLines gives the objects of a file of JSON lines.
func jsonLines(t *testing.T, name string) []map[string]json.RawMessage {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}

	var list []map[string]json.RawMessage
	for line := range bytes.Lines(data) {
		var v map[string]json.RawMessage
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list = append(list, v)
	}

	return list
}

// put writes an object of the captured text into its table.
func (w *writer) put(v map[string]json.RawMessage, columns ...string) {
	w.t.Helper()
	var args []any
	for _, c := range columns {
		var text string
		if c == "data" || json.Unmarshal(v[c], &text) != nil {
			text = string(v[c])
		}
		args = append(args, text)
	}

	var table string
	if err := json.Unmarshal(v["table"], &table); err != nil {
		w.t.Fatal(err)
	}

	w.exec(
		fmt.Sprintf(
			"insert into %s (%s) values (?%s)", table, strings.Join(columns, ", "),
			strings.Repeat(", ?", len(columns)-1),
		),
		args...)
}

func fromTables(t *testing.T) string {
	w := newWriter(t, false)
	w.putTables()
	return w.path
}

func (w *writer) putTables() {
	for _, v := range jsonLines(w.t.(*testing.T), "1.18-session-message-part.jsonl") {
		switch string(v["table"]) {
		case `"session"`:
			w.put(v, "id", "project_id", "slug", "directory", "title", "time_created", "time_updated")
		case `"message"`:
			w.put(v, "id", "session_id", "time_created", "time_updated", "data")
		case `"part"`:
			w.put(v, "id", "message_id", "session_id", "time_created", "time_updated", "data")
		}
	}
}

func fromEvents(t *testing.T) string {
	w := newWriter(t, true)
	w.putTables()
	for _, v := range jsonLines(t, "1.18-event-table.jsonl") {
		v["table"] = json.RawMessage(`"event"`)
		w.put(v, "id", "aggregate_id", "seq", "type", "data")
	}
	return w.path
}
