package opencode

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // writes the databases of the tests

	"belay/checkpoint"
	"belay/internal/agent"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// schema is opencode's, as far as the reader and its writer need it.
const schema = `create table session (id text primary key, project_id text not null, parent_id text, slug text not null, directory text not null, title text not null, time_created integer not null, time_updated integer not null);
create table message (id text primary key, session_id text not null, time_created integer not null, time_updated integer not null, data text not null);
create table part (id text primary key, message_id text not null, session_id text not null, time_created integer not null, time_updated integer not null, data text not null);`

const eventSchema = `create table event (id text primary key, aggregate_id text not null, seq integer not null, type text not null, data text not null);
create unique index event_seq on event (aggregate_id, seq);`

// writer is an opencode of the tests: it writes every change into the tables, and into the log of events if there is
// one.
type writer struct {
	t    testing.TB
	db   *sql.DB
	path string
	log  bool
	seq  map[string]int
	time int64
}

const (
	ses    = "ses_dd250cb67ffeWYC4bRTWo1e849"
	folder = "/home/user/proj"
)

func newWriter(t testing.TB, log bool, pragmas ...string) *writer {
	t.Helper()
	w := &writer{
		t:    t,
		path: filepath.Join(t.TempDir(), "opencode.db"),
		log:  log,
		seq:  map[string]int{},
		time: 1796062787000,
	}

	db, err := sql.Open("sqlite", "file:"+w.path)
	if err != nil {
		t.Fatal(err)
	}

	db.SetMaxOpenConns(1)
	w.db = db
	t.Cleanup(func() { _ = db.Close() })                                  // a test may have closed it
	for _, p := range append([]string{"synchronous = off"}, pragmas...) { // what is proved here is not the disk
		w.exec("pragma " + p)
	}

	w.exec(schema)
	if log {
		w.exec(eventSchema)
	}

	return w
}

func (w *writer) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Exec(query, args...); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
}

func (w *writer) event(session, typ, data string) {
	w.t.Helper()
	w.time++
	if w.log {
		n := w.seq[session]
		w.seq[session]++
		w.exec(
			`insert into event values (?, ?, ?, ?, ?)`, fmt.Sprintf("evt_%s_%d", session, n), session, n,
			typ+".1", data,
		)
	}
}

func (w *writer) session(id, parent, dir string) {
	w.t.Helper()
	info := fmt.Sprintf(
		`{"id":%q,"parentID":%q,"directory":%q,"model":{"id":"m"},"time":{"created":%d}}`, id, parent, dir,
		w.time,
	)

	w.exec(
		`insert into session values (?, 'global', nullif(?, ''), 'slug', ?, 'title', ?, ?)`, id, parent, dir,
		w.time, w.time,
	)

	w.event(id, "session.created", fmt.Sprintf(`{"sessionID":%q,"info":%s}`, id, info))
}

// message writes a message; rest are further members of it.
func (w *writer) message(session, id, role, rest string) {
	w.t.Helper()
	data := fmt.Sprintf(`{"role":%q,"time":{"created":%d}%s}`, role, w.time, rest)
	if strings.Contains(rest, `"time"`) {
		data = fmt.Sprintf(`{"role":%q%s}`, role, rest)
	}

	w.exec(
		`insert into message values (?1, ?2, ?3, ?3, ?4) on conflict (id) do update set data = ?4, time_updated = ?3`,
		id, session, w.time, data,
	)

	w.event(session, "message.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,%s}`, session, id, data[1:]))
}

// done ends an answer of the model's.
func (w *writer) done(session, id, prompt, finish string) {
	w.t.Helper()
	w.message(
		session,
		id,
		"assistant",
		fmt.Sprintf(
			`,"parentID":%q,"modelID":"m","mode":"build","finish":%q,"time":{"created":%d,"completed":%d}`,
			prompt, finish, w.time, w.time,
		),
	)
}

func (w *writer) part(session, message, id, data string) {
	w.t.Helper()
	w.exec(
		`insert into part values (?1, ?2, ?3, ?4, ?4, ?5) on conflict (id) do update set data = ?5, time_updated = ?4`,
		id, message, session, w.time, data,
	)

	w.event(
		session,
		"message.part.updated",
		fmt.Sprintf(
			`{"sessionID":%q,"part":{"id":%q,"messageID":%q,%s,"time":%d}`, session, id, message, data[1:],
			w.time,
		),
	)
}

func (w *writer) text(session, message, id, text string) {
	w.t.Helper()
	w.part(session, message, id, `{"type":"text","text":`+quote(text)+`}`)
}

// tool writes a call in a state; rest are further members of the state.
func (w *writer) tool(session, message, id, tool, status, rest string) {
	w.t.Helper()
	w.part(
		session, message, id,
		fmt.Sprintf(`{"type":"tool","callID":"call_1","tool":%q,"state":{"status":%q%s}}`, tool, status, rest),
	)
}

func (w *writer) remove(session, message string) {
	w.t.Helper()
	w.exec(`delete from part where message_id = ?`, message)
	w.exec(`delete from message where id = ?`, message)
	w.event(session, "message.removed", fmt.Sprintf(`{"sessionID":%q,"messageID":%q}`, session, message))
}

func quote(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a form
	}
	return string(data)
}

// turn is a whole round: a prompt, a call that ended, an answer.
func (w *writer) turn(session string, n int) {
	w.t.Helper()
	u, a, b := fmt.Sprintf("msg_%04da", n), fmt.Sprintf("msg_%04db", n), fmt.Sprintf("msg_%04dc", n)
	w.message(session, u, "user", "")
	w.text(session, u, fmt.Sprintf("prt_%04da", n), fmt.Sprintf("prompt %d", n))
	w.message(session, u, "user", `,"summary":{"diffs":[]}`)
	w.message(session, a, "assistant", `,"modelID":"m","mode":"build"`)
	w.tool(session, a, fmt.Sprintf("prt_%04db", n), "bash", "pending", `,"input":{}`)
	w.tool(session, a, fmt.Sprintf("prt_%04db", n), "bash", "running", `,"input":{"command":"ls"}`)
	w.tool(
		session, a, fmt.Sprintf("prt_%04db", n), "bash", "completed",
		`,"input":{"command":"ls"},"output":"a.txt\n","metadata":{"exit":0}`,
	)

	w.done(session, a, u, "tool-calls")
	w.message(session, b, "assistant", `,"modelID":"m","mode":"build"`)
	w.text(session, b, fmt.Sprintf("prt_%04dc", n), "")
	w.text(session, b, fmt.Sprintf("prt_%04dc", n), fmt.Sprintf("answer %d", n))
	w.done(session, b, u, "stop")
}

// readFrom reads on from a cursor until nothing is left, with a new reader for each Read, as after a restart.
func readFrom(t testing.TB, src agent.Source, from checkpoint.Cursor, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	var all checkpoint.Batch
	for first := true; ; first = false {
		r := openTranscript(src)
		b, err := r.Read(context.Background(), from, opt)
		if err := r.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		if err != nil {
			t.Fatalf("read from %q: %v", from, err)
		}

		all.Entries = append(all.Entries, b.Entries...)
		all.Losses.Add(b.Losses)
		all.Cursor = b.Cursor
		if first {
			all.First, all.Skipped = b.First, b.Skipped
		}
		if !b.More {
			return all
		}
		if b.Cursor == from {
			t.Fatalf("there is more after %q, and the cursor stands still", from)
		}

		from = b.Cursor
	}
}

func (w *writer) source() agent.Source { return agent.Source{Path: w.path, Session: ses} }

// show writes entries as one line each: what a reader of a failure wants to see. Records that come again are left out.
func show(entries []checkpoint.Entry) string {
	var list []string
	for _, e := range entries {
		s := string(e.Kind)
		if e.Op != checkpoint.Upsert {
			s = string(e.Op) + " " + e.ID
		}

		for _, f := range []struct{ key, value string }{{"", e.Text}, {"", e.Name}, {"in=", e.Input}, {"out=", e.Output}} {
			if f.value != "" {
				s += " " + f.key + f.value
			}
		}

		for _, f := range []struct {
			key string
			on  bool
		}{{"failed", e.Failed}, {"madeup", e.MadeUp}, {"aside", e.Aside}, {"background", e.Background}} {
			if f.on {
				s += " !" + f.key
			}
		}

		if !slices.Contains(list, s) || e.Op != checkpoint.Upsert {
			list = append(list, s)
		}
	}

	return strings.Join(list, "\n")
}

// digest tells what a session came to, in one line.
func digest(b checkpoint.Batch) string {
	last := map[string]checkpoint.Entry{}
	var order []string
	for _, e := range b.Entries {
		if _, ok := last[e.ID]; !ok {
			order = append(order, e.ID)
		}
		last[e.ID] = e
	}

	kinds, open, text := map[string]int{}, map[string]bool{}, ""
	for _, id := range order {
		e := last[id]
		kinds[string(e.Kind)]++
		switch e.Kind {
		case checkpoint.EntryUser, checkpoint.EntryAssistant:
			text = e.Text
		case checkpoint.EntryCall:
			open[e.Call] = true
		case checkpoint.EntryResult:
			delete(open, e.Call)
		}
	}

	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%s=%d", k, kinds[k]))
	}

	return fmt.Sprintf(
		"records=%d %s open=%d bad=%d last=%.8x", len(order), strings.Join(parts, " "), len(open),
		b.Losses.BadLines, sha256.Sum256([]byte(text)),
	)
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
