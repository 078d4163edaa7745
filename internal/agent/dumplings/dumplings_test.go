package dumplings

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/sqlite"
	"belay/internal/transcript/wholefile"
)

func read(t testing.TB, src agent.Source, from checkpoint.Cursor, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	tr := New(agent.Host{}).Open(src)
	b, err := tr.Read(context.Background(), from, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if len(b.Cursor) > 300 {
		t.Errorf("a cursor of %d bytes", len(b.Cursor))
	}

	return b
}

// show writes entries as words.
func show(list []checkpoint.Entry) []string {
	var out []string
	for _, e := range list {
		s := string(e.Kind)
		if e.Op != checkpoint.Upsert {
			s = string(e.Op)
		}
		if e.Failed {
			s += " failed"
		}

		for _, v := range []string{e.Call, e.Name, e.Input, e.Text, e.Output, e.Model, e.Session} {
			if v != "" {
				s += " " + v
			}
		}

		out = append(out, s)
	}

	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	old := time.Now().Add(-time.Hour) // what was written just now is told in another way: see document
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
}

func TestGolden(t *testing.T) {
	const words = "a44e8e6f" // the beginning of the sha256 of the last words
	for file, want := range map[string][]string{
		"openai":    {"meta small-1", "user list files", `call call_1 shell {"cmd": "ls"}`, "result call_1 shell a.txt", "assistant One file: a.txt", "turn-end"},
		"anthropic": {"meta small-1", "user list files", "assistant Listing.", `call toolu_1 shell {"cmd":"ls"}`, "result toolu_1 a.txt", "assistant One file: a.txt", "turn-end"},
	} {
		path := "testdata/" + file + ".handmade.duas"
		b := read(t, agent.Source{Path: path, Session: file}, "", checkpoint.ReadOptions{Whole: true})
		same(t, file, show(b.Entries), want)
		if again := read(
			t, agent.Source{Path: path, Session: file}, b.Cursor, checkpoint.ReadOptions{},
		); len(
			again.Entries,
		) > 0 {
			t.Errorf("%s: told again: %v", file, show(again.Entries))
		}

		if last := b.Entries[len(b.Entries)-2].Text; fmt.Sprintf("%.4x", sha256.Sum256([]byte(last))) != words {
			t.Errorf("%s: last words %q", file, last)
		}
	}
}

// duas makes a file with these messages.
func duas(count int, lines ...string) string {
	return fmt.Sprintf(
		"[META]\nformat_version = 1\nagent_name = helper # mine\nmessage_count = %d\n[HISTORY]\n%s\n", count,
		strings.Join(lines, "\n"),
	)
}

const (
	hello = `{"role":"user","content":"hello"}`
	yes   = `{"role":"assistant","content":"yes"}`
	more  = `{"role":"user","content":"more"}`
)

func TestRewrites(t *testing.T) {
	type step struct {
		file string
		want []string
	}
	for name, steps := range map[string][]step{
		"messages are added": {{duas(2, hello, yes), []string{
			"user hello", "assistant yes", "turn-end",
		}}, {duas(4, hello, yes, more, yes), []string{"user more", "assistant yes", "turn-end"}}},
		"equal words are said": {{duas(1, hello), []string{
			"user hello",
		}}, {duas(3, hello, yes, hello), []string{"assistant yes", "turn-end", "user hello"}}},
		"a half file": {{duas(1, hello), []string{
			"user hello",
		}}, {duas(3, hello, yes), nil}, {"", nil}, {"[META]\nformat_version = 1\n", nil}, {duas(3, hello, yes, more), []string{"assistant yes", "turn-end", "user more"}}},
		"no end of line": {{strings.TrimSuffix(duas(2, hello, yes), "\n"), []string{
			"user hello", "assistant yes", "turn-end",
		}}},
		"a torn line": {{strings.TrimSuffix(duas(2, hello, yes), "\"}\n"), nil}},
		"a bad line":  {{duas(3, hello, "{no", yes), []string{"user hello", "assistant yes", "turn-end"}}},
		"another conversation": {{duas(2, hello, yes), []string{
			"user hello", "assistant yes", "turn-end",
		}}, {duas(1, more), []string{"reset", "user more"}}},
		"what the system says": {{duas(2, `{"role":"system","content":"You are"}`, hello), []string{"user hello"}}},
		"a failed call and text": {{duas(1, `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","is_error":true,"content":[{"type":"text","text":"no"}]}]}`), []string{
			"result failed c no",
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "helper.duas")
			cur := checkpoint.Cursor("")
			for i, s := range steps {
				put(t, path, s.file)
				b := read(t, agent.Source{Path: path, Session: "helper"}, cur, checkpoint.ReadOptions{})
				same(t, fmt.Sprint("step ", i), show(b.Entries), s.want)
				cur = b.Cursor
			}
		})
	}
}

func TestUnknownVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "helper.duas")
	put(t, path, strings.Replace(duas(1, hello), "version = 1", "version = 2", 1))
	b, err := New(agent.Host{}).Open(agent.Source{Path: path}).Read(context.Background(), "c", checkpoint.ReadOptions{})
	if !errors.Is(err, ErrVersion) || b.Cursor != "c" || len(b.Entries) > 0 {
		t.Errorf("%v, %+v, want ErrVersion and nothing else", err, b)
	}
}

func store(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = db.Close() }) // a test's own
	if _, err := db.Exec(
		`CREATE TABLE IF NOT EXISTS sessions (key TEXT PRIMARY KEY, meta TEXT, config TEXT, state TEXT, history TEXT, saved_at TEXT)`,
	); err != nil {
		t.Fatal(err)
	}

	return db
}

func save(t *testing.T, db *sql.DB, key, at string, lines ...string) {
	t.Helper()
	_, err := db.Exec(
		`insert or replace into sessions values (?, '{"format_version":1,"agent_uuid":"u"}', '{"model_name":"small-1"}', '{}', ?, ?)`,
		key, strings.Join(lines, "\n"), at,
	)

	if err != nil {
		t.Fatal(err)
	}
}

func TestTable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agents.db")
	db := store(t, path)
	save(t, db, "one", "2026-07-21T10:00:00+02:00", hello, yes)
	save(t, db, "two", "2026-07-21T11:00:00+02:00", more)
	src := agent.Source{Path: path, Session: "one"}
	before := hashes(t, dir)
	b := read(t, src, "", checkpoint.ReadOptions{})
	same(t, "first", show(b.Entries), []string{"meta small-1", "user hello", "assistant yes", "turn-end"})
	same(
		t, "the newest", show(read(t, agent.Source{Path: path}, "", checkpoint.ReadOptions{}).Entries),
		[]string{"meta small-1 two", "user more two"},
	)

	same(
		t, "the file's name",
		show(read(t, agent.Source{Path: path, Session: "agents"}, "", checkpoint.ReadOptions{}).Entries),
		[]string{"meta small-1 two", "user more two"},
	)

	if b := read(
		t, agent.Source{Path: path, Session: "absent"}, "", checkpoint.ReadOptions{},
	); len(b.Entries) > 0 ||
		b.Cursor != "" {
		t.Errorf("no such row: %+v", b)
	}

	if after := hashes(t, dir); !slices.Equal(before, after) {
		t.Errorf("reading changed the folder: %v to %v", before, after)
	}

	save(t, db, "one", "2026-07-21T12:00:00+02:00", hello, yes, more)
	same(t, "then", show(read(t, src, b.Cursor, checkpoint.ReadOptions{}).Entries), []string{"user more"})
	head, err := os.ReadFile(path)
	if err != nil || New(agent.Host{}).Recognise(head[:min(len(head), 64<<10)]) != agent.Mine {
		t.Errorf("the database is not recognised (%v)", err)
	}
	if got := New(agent.Host{}).Watch(path); !slices.Equal(got, []string{path, path + "-wal"}) {
		t.Errorf("watched: %v", got)
	}
}

// hashes is what a folder holds.
func hashes(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		info, ierr := e.Info()
		if err != nil || ierr != nil {
			t.Fatal(err, ierr)
		}
		list = append(list, fmt.Sprintf("%s %v %v %x", e.Name(), info.Mode(), info.ModTime(), sha256.Sum256(data)))
	}

	return list
}

func TestReadingChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "helper.duas")
	put(t, path, duas(2, hello, yes))
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}

	before := hashes(t, dir)
	read(t, agent.Source{Path: path}, "", checkpoint.ReadOptions{})
	if found, err := New(
		agent.Host{},
	).Locate(
		context.Background(), agent.Query{Workspace: dir, Session: "helper"},
	); err != nil ||
		len(found) != 1 {
		t.Errorf("locate: %v %v", found, err)
	}

	if after := hashes(t, dir); !slices.Equal(before, after) {
		t.Errorf("reading changed the folder: %v to %v", before, after)
	}

	_, err := New(
		agent.Host{},
	).Open(
		agent.Source{Path: filepath.Join(dir, "absent.duas")},
	).Read(
		context.Background(), "", checkpoint.ReadOptions{},
	)

	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v, want fs.ErrNotExist", err)
	}
}

func TestRecognise(t *testing.T) {
	for head, want := range map[string]bool{
		duas(1, hello):                           true,
		"# a comment\n" + duas(1, hello):         true,
		"[META]\nx = 1\n":                        false,
		"[CONFIG]\n[META]\nformat_version = 1\n": false,
		hello:                                    false,
		"":                                       false,
		sqlite.Header + "...":                    false,
		sqlite.Header + "CREATE TABLE session (id TEXT)": false,
	} {
		if got := New(agent.Host{}).Recognise([]byte(head)) == agent.Mine; got != want {
			t.Errorf("%q: %v, want %v", head, got, want)
		}
	}
}

func TestLocate(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "saved"), 0o700); err != nil {
		t.Fatal(err)
	}

	put(
		t, filepath.Join(dir, "saved", "k1.duas"),
		strings.Replace(duas(1, hello), "agent_name", "agent_uuid = uu-1\nagent_name", 1),
	)

	put(t, filepath.Join(dir, "other.txt"), "x")
	for session, want := range map[string]int{"": 1, "k1": 1, "uu-1": 1, "helper": 1, "k2": 0} {
		found, err := New(agent.Host{}).Locate(context.Background(), agent.Query{Workspace: dir, Session: session})
		if err != nil || len(found) != want || want == 1 && (found[0].Session != "k1" || found[0].Workspace != dir) {
			t.Errorf("session %q: %v %v, want %d", session, found, err, want)
		}
	}
}

func FuzzDuas(f *testing.F) {
	f.Add([]byte(duas(2, hello, yes)))
	f.Add(
		[]byte(
			"[META]\nformat_version=1\n[HISTORY]\n{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\",\"function\":{\"arguments\":1}}]}",
		),
	)

	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := walk("s")(context.Background(), bytes.NewReader(data), func(it wholefile.Item) error {
			for _, e := range it.Entries() {
				if len(e.Text) > checkpoint.CutText || len(e.Input) > checkpoint.CutTool ||
					len(e.Output) > checkpoint.CutTool ||
					len(e.ID) > 300 {
					t.Errorf("an entry over its bounds: %+v", e)
				}
			}
			return nil
		})

		if err != nil && !errors.Is(err, wholefile.ErrBroken) && !errors.Is(err, ErrVersion) {
			t.Errorf("%q: %v", data, err)
		}

		New(agent.Host{}).Recognise(data)
	})
}
