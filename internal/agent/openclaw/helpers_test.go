package openclaw

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"belay/checkpoint"
	"belay/internal/agent"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tables as OpenClaw has them from schema 23 on, and before it, as far as they matter here.
const (
	schema23 = `create table transcript_events (session_id text not null, seq integer not null, event_json text, created_at integer not null,
		event_zstd blob, event_utf8_bytes integer, navigation_json text, primary key (session_id, seq)) strict;` + schemaRest
	schema19 = `create table transcript_events (session_id text not null, seq integer not null, event_json text not null, created_at integer not null,
		primary key (session_id, seq)) strict;` + schemaRest
	schemaRest = `create table transcript_rewrite_watermarks (session_id text not null primary key, generation text not null, updated_at integer not null) strict;
		create table session_windows (session_id text not null primary key, session_key text not null, created_at integer not null, updated_at integer not null) strict;`
)

// store is a database as OpenClaw keeps one, open for writing.
type store struct {
	t    testing.TB
	path string
	db   *sql.DB
}

func newStore(t testing.TB, path, schema string) *store {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}

	db, err := sql.Open(
		"sqlite",
		"file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(0)",
	)

	if err != nil {
		t.Fatal(err)
	}

	db.SetMaxOpenConns(1)
	s := &store{t, path, db}
	t.Cleanup(s.close)
	s.exec(schema)
	return s
}

func (s *store) close() {
	if err := s.db.Close(); err != nil {
		s.t.Error(err)
	}
}

func (s *store) exec(q string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(q, args...); err != nil {
		s.t.Fatalf("%s: %v", q, err)
	}
}

// add appends a record to a session, packed or not.
func (s *store) add(session string, seq int, record string, pack bool) {
	s.t.Helper()
	if !pack {
		s.exec(
			"insert into transcript_events (session_id, seq, event_json, created_at) values (?, ?, ?, ?)",
			session, seq, record, 1000+seq,
		)
		return
	}

	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		s.t.Fatal(err)
	}

	s.exec(
		"insert into transcript_events (session_id, seq, event_zstd, created_at, event_utf8_bytes, navigation_json) values (?, ?, ?, ?, ?, '{}')",
		session, seq, w.EncodeAll([]byte(record), nil), 1000+seq, len(record),
	)

	if err := w.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) generation(session, word string) {
	s.t.Helper()
	s.exec(
		"insert into transcript_rewrite_watermarks values (?, ?, 1) on conflict do update set generation = excluded.generation",
		session, word,
	)
}

// fromRows makes a database of rows as they were captured, and names its sessions.
func fromRows(t testing.TB, file string) (*store, []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	s := newStore(t, filepath.Join(t.TempDir(), databaseName), schema23)
	seen := map[string]bool{}
	var sessions []string
	for in := bufio.NewScanner(bytes.NewReader(data)); in.Scan(); {
		var row struct {
			Session string          `json:"session_id"`
			Seq     int             `json:"seq"`
			Event   json.RawMessage `json:"event_json"`
		}

		if err := json.Unmarshal(in.Bytes(), &row); err != nil {
			t.Fatal(err)
		}

		s.add(row.Session, row.Seq, string(row.Event), len(row.Event) > 1024)
		if !seen[row.Session] {
			seen[row.Session] = true
			sessions = append(sessions, row.Session)
			s.generation(row.Session, "one")
		}
	}

	return s, sessions
}

// whole reads all of a session, page by page.
func whole(t testing.TB, path, session string, from checkpoint.Cursor) checkpoint.Batch {
	t.Helper()
	r := New(agent.Host{}).Open(agent.Source{Path: path, Session: session})
	defer r.Close() // read only
	return readOn(t, r, from)
}

func readOn(t testing.TB, r checkpoint.Transcript, from checkpoint.Cursor) checkpoint.Batch {
	t.Helper()
	all := checkpoint.Batch{Cursor: from}
	for {
		b, err := r.Read(context.Background(), all.Cursor, checkpoint.ReadOptions{Whole: true})
		if err != nil {
			t.Fatal(err)
		}

		all.Entries = append(all.Entries, b.Entries...)
		all.Cursor = b.Cursor
		all.Losses.Add(b.Losses)
		if !b.More {
			return all
		}
	}
}

// said are the words in a batch, with what they are.
func said(b checkpoint.Batch) string {
	var list []string
	for _, e := range b.Entries {
		switch {
		case e.Op != checkpoint.Upsert:
			list = append(list, string(e.Op))
		case e.Text != "" && !e.Aside:
			list = append(list, string(e.Kind)+":"+e.Text)
		case e.Kind == checkpoint.EntryResult:
			list = append(list, "result:"+e.Output)
		case e.Kind == checkpoint.EntryClear:
			list = append(list, "clear")
		}
	}

	return strings.Join(list, " ")
}

// putFile makes a transcript of the file era.
func putFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(header+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
