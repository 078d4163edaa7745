package daemon

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"belay/checkpoint"
	"belay/internal/state/check"
	"belay/internal/state/mirror"
	"belay/internal/wire"
)

// TestDatabaseTranscript: what is new in a database stands in its log beside it; that is noticed, and no mirror is
// kept.
func TestDatabaseTranscript(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "oc", "agents", "main", "agent", "openclaw-agent.sqlite")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}

	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=wal_autocheckpoint(0)")
	if err != nil {
		t.Fatal(err)
	}

	defer db.Close() // a test's own
	add := func(seq int, record string) {
		t.Helper()
		if _, err := db.Exec("insert into transcript_events values (?, ?, ?, 1)", sessionA, seq, record); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := db.Exec(
		"create table transcript_events (session_id text, seq integer, event_json text, created_at integer)",
	); err != nil {
		t.Fatal(err)
	}

	add(0, `{"type":"session","version":4,"id":"`+sessionA+`","cwd":"/w"}`)
	r := start(t, dir)
	r.excused = []check.Rule{check.Known} // the agent's own folder lies there
	body := mustJSON(
		t,
		payload{"session_id": sessionA, "agent_id": "main", "workspace": "/w", "database": path, "source": "startup"},
	)

	if reply, _ := r.do(
		wire.Request{Op: "hook", Agent: "openclaw", Event: "session_open", PID: os.Getpid()}, body,
	); !reply.OK {
		t.Fatalf("session_open: %+v", reply)
	}

	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}

	before := size()
	for seq, task := range []string{
		1: "the first words in the log", 2: "the second words in the log", 3: "the third words in the log",
	} {
		if task == "" {
			continue
		}

		add(
			seq,
			fmt.Sprintf(
				`{"type":"message","id":"m%d","message":{"role":"user","content":%q,"timestamp":%d}}`, seq,
				task, seq,
			),
		)

		until(t, task+" are read", func() bool { return r.session("openclaw", sessionA).CurrentTask == task })
	}

	if now := size(); now != before {
		t.Fatalf("the database grew from %d to %d bytes: this proves nothing of the log", before, now)
	}

	account := filepath.Join(dir, "oc")
	key := checkpoint.NewKey("openclaw", account, sessionA, "")
	if _, err := os.Stat(filepath.Join(r.l.dir.Session(key), mirror.FileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a mirror of the database: %v, want none", err)
	}
	if _, err := os.Stat(r.l.dir.Session(key)); err != nil {
		t.Errorf("the session's folder: %v", err)
	}
}
