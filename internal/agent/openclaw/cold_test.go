package openclaw

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
)

const schemaCold = schema23 + `create table session_transcript_cold_archives (session_id text not null primary key, generation text not null,
	archive_name text not null unique, archive_sha256 text not null, event_count integer not null, raw_bytes integer not null, archive_bytes integer not null,
	last_seq integer not null, archived_at integer not null, storage text not null, archive_blob blob) strict;`

// pack makes an archive of records, as OpenClaw does.
func pack(t testing.TB, records ...string) []byte {
	t.Helper()
	var lines bytes.Buffer
	lines.WriteString(`{"kind":"header","version":1,"sessionId":"s1","generation":"one"}` + "\n")
	for i, rec := range records {
		data, err := json.Marshal(
			map[string]any{"kind": "event", "row": map[string]any{"seq": i, "event_json": rec, "created_at": 1000 + i}},
		)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s\n{\"kind\":\"active\",\"row\":{\"active_position\":%d,\"event_seq\":%d}}\n", data, i, i)
	}

	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}

	defer w.Close() // nothing is written through it
	return w.EncodeAll(lines.Bytes(), nil)
}

// freeze moves the rows of a session into an archive: a file, or a blob.
func (s *store) freeze(session string, packed []byte, blob bool) (file string) {
	s.t.Helper()
	sum := sha256.Sum256(packed)
	name := hex.EncodeToString(sum[:]) + ".jsonl.zst"
	file = filepath.Join(filepath.Dir(filepath.Dir(s.path)), "sessions", "cold", name)
	storage, content := "file", []byte(nil)
	if blob {
		storage, content = "sqlite", packed
	} else if err := errors.Join(
		os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, packed, 0o600),
	); err != nil {
		s.t.Fatal(err)
	}

	s.exec(
		"insert into session_transcript_cold_archives values (?, 'one', ?, ?, 1, 1, ?, 1, 5000, ?, ?)", session,
		name, hex.EncodeToString(sum[:]), len(packed), storage, content,
	)

	s.exec("delete from transcript_events where session_id = ?", session)
	return file
}

// TestColdArchive: a session whose rows were moved out is found and read as before, and a cursor means the same place.
func TestColdArchive(t *testing.T) {
	for _, blob := range []bool{false, true} {
		state := filepath.Join(t.TempDir(), ".openclaw")
		host := agenttest.Host("", "OPENCLAW_STATE_DIR="+state)
		s := newStore(t, filepath.Join(state, "agents", "main", "agent", databaseName), schemaCold)
		s.exec("insert into session_windows values ('s1', 'agent:main:main', 1, 2000)")
		s.generation("s1", "one")
		records := []string{header, ask1, reply1, ask2}
		s.add("s1", 0, header, false)
		s.add("s1", 1, ask1, false)
		half := whole(t, s.path, "s1", "").Cursor
		s.add("s1", 2, reply1, false)
		s.add("s1", 3, ask2, false)
		hot := whole(t, s.path, "s1", "")
		s.freeze("s1", pack(t, records...), blob)
		cold := whole(t, s.path, "s1", "")
		if got, want := said(cold), said(hot); got != want || cold.Cursor != hot.Cursor {
			t.Errorf("blob %v: got %q at %s, want %q at %s", blob, got, cold.Cursor, want, hot.Cursor)
		}
		if got, want := said(whole(t, s.path, "s1", half)), "assistant:first answer user:second question"; got != want {
			t.Errorf("blob %v: from a cursor of before: got %q, want %q", blob, got, want)
		}

		r := New(agent.Host{}).Open(agent.Source{Path: s.path, Session: "s1"})
		first, err := r.Read(context.Background(), "", checkpoint.ReadOptions{})
		if err = errors.Join(err, r.Close()); err != nil || said(first) != said(hot) {
			t.Errorf("blob %v: first sight: got %q, %v, want %q", blob, said(first), err, said(hot))
		}

		for _, q := range []agent.Query{{}, {Session: "s1"}, {Workspace: "/home/u/proj"}} {
			found, err := New(host).Locate(context.Background(), q)
			if err != nil || len(found) != 1 || found[0].Session != "s1" || found[0].Workspace != "/home/u/proj" ||
				found[0].Changed.UnixMilli() != 2000 {
				t.Errorf("blob %v: %+v: got %+v, %v, want the session", blob, q, found, err)
			}
		}

		if found, err := New(
			host,
		).Locate(
			context.Background(), agent.Query{Workspace: "/other"},
		); err != nil ||
			len(found) != 0 {
			t.Errorf("blob %v: another workspace: got %+v, %v, want none", blob, found, err)
		}
	}
}

// TestColdArchiveBroken: nothing is made up of an archive that is damaged or gone, and the cursor stays.
func TestColdArchiveBroken(t *testing.T) {
	for name, c := range map[string]struct {
		hurt func(file string) error
		want error
	}{
		"gone":      {os.Remove, fs.ErrNotExist},
		"damaged":   {func(file string) error { return os.WriteFile(file, pack(t, header, ask2), 0o600) }, errColdArchive},
		"cut short": {func(file string) error { return os.Truncate(file, 20) }, errColdArchive},
	} {
		s := newStore(t, filepath.Join(t.TempDir(), "agent", databaseName), schemaCold)
		for i, rec := range []string{header, ask1} {
			s.add("s1", i, rec, false)
		}

		cursor := whole(t, s.path, "s1", "").Cursor
		if err := c.hurt(s.freeze("s1", pack(t, header, ask1, reply1), false)); err != nil {
			t.Fatal(err)
		}

		r := New(agent.Host{}).Open(agent.Source{Path: s.path, Session: "s1"})
		b, err := r.Read(context.Background(), cursor, checkpoint.ReadOptions{})
		if !errors.Is(err, c.want) || b.Cursor != cursor || len(b.Entries) != 0 {
			t.Errorf(
				"%s: got %d entries, %v at %s, want %v and the cursor as it was", name, len(b.Entries), err,
				b.Cursor, c.want,
			)
		}

		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzCold: no bytes crash the reader of archives, and no row has a number below zero.
func FuzzCold(f *testing.F) {
	f.Add(pack(f, header, ask1))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd})
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		err := coldRows(data, func(w row) bool {
			if w.seq < 0 {
				t.Errorf("row %d", w.seq)
			}
			return true
		})
		if err != nil && !errors.Is(err, errColdArchive) {
			t.Errorf("got %v, want a damaged archive", err)
		}
	})
}
