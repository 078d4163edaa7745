package codex

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"belay/internal/agent"
)

// TestLocate: by thread id and by workspace, plain, compressed and archived; sub-agents and other files are left out.
func TestLocate(t *testing.T) {
	home := t.TempDir()
	at := time.Now().Add(-time.Hour)
	put := func(name, text string) string {
		path := filepath.Join(home, name)
		write(t, path, text)
		at = at.Add(time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}

	id := func(n int) string { return fmt.Sprintf("01999999-0000-7000-8000-%012d", n) }
	put(nameOf(id(1)), meta(id(1), "/p"))
	child := fmt.Sprintf(
		`{"id":%q,"session_id":%q,"parent_thread_id":%q,"cwd":"/p","source":{"subagent":{}}}`, id(2), id(1),
		id(1),
	)

	put(nameOf(id(2)), rec("session_meta", child))
	zst := put(nameOf(id(3)), meta(id(3), "/p"))
	pack(t, zst)
	old := put(filepath.Join("archived_sessions", filepath.Base(nameOf(id(4)))), meta(id(4), "/other"))
	both := put(nameOf(id(5)), meta(id(5), "/other"))
	put(nameOf(id(5))+packed, "rubbish")
	put("sessions/2026/11/30/rollout-2026-11-30T15-00-00-nothing.jsonl", meta(id(6), "/p"))
	put("sessions/2026/11/30/"+id(7)+".jsonl", meta(id(7), "/p"))
	reverted := put("sessions/2026/12/01/rollout-2026-12-01T15-00-00-"+id(1)+"_second.jsonl", meta(id(1), "/p"))
	empty := put(nameOf(id(8)), "")

	for _, tt := range []struct {
		name string
		q    agent.Query
		want []string
	}{
		{"all", agent.Query{}, []string{zst, empty, reverted, both, old}},
		{"one thread, the file that goes on", agent.Query{Session: id(1)}, []string{reverted}},
		{"a compressed one under its plain name", agent.Query{Session: id(3)}, []string{zst}},
		{"a sub-agent's is no session", agent.Query{Session: id(2)}, nil},
		{"a folder", agent.Query{Workspace: "/other"}, []string{both, old}},
		{"the newest", agent.Query{Workspace: "/p", Most: 1}, []string{zst}},
		{"none", agent.Query{Session: id(99)}, nil},
	} {
		found, err := locate(context.Background(), home, tt.q)
		var got []string
		for _, f := range found {
			got = append(got, f.Path)
		}

		if err != nil || fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: got %v, %v\nwant %v", tt.name, got, err, tt.want)
		}
	}

	if found, err := locate(
		context.Background(), filepath.Join(home, "none"), agent.Query{},
	); err != nil ||
		len(found) > 0 {
		t.Errorf("no home: got %v, %v, want nothing", found, err)
	}
}

// TestV06NewDayFolders: files in folders that were made a moment ago are found, all of them.
func TestV06NewDayFolders(t *testing.T) {
	home := t.TempDir()
	for i := range 200 {
		id := fmt.Sprintf("01999999-0000-7000-8000-%012d", i)
		write(
			t,
			filepath.Join(home, "sessions", fmt.Sprint(2000+i), "01", "02", "rollout-2026-01-02T00-00-00-"+id+".jsonl"),
			meta(id, "/p"),
		)
	}

	found, err := locate(context.Background(), home, agent.Query{Most: 1000})
	if err != nil || len(found) != 200 {
		t.Errorf("got %d sessions, %v, want 200", len(found), err)
	}
}

func TestRecognise(t *testing.T) {
	for name, path := range goldenFiles(t) {
		text := read(t, path)
		copied := filepath.Join(t.TempDir(), "rollout.jsonl")
		write(t, copied, text)
		pack(t, copied)
		for form, head := range map[string]string{"plain": text, "compressed": read(t, copied+packed)} {
			if New(agent.Host{}).Recognise([]byte(head)) != agent.Mine {
				t.Errorf("%s, %s: not recognised", name, form)
			}
		}
	}
	for _, text := range []string{
		"", "{}", `{"type":"user","sessionId":"x","message":{"content":"session_meta payload"}}`,
		`{"type":"session","version":3,"id":"x"}`,
	} {
		if New(agent.Host{}).Recognise([]byte(text)) != agent.NotMine {
			t.Errorf("%s is taken for a rollout", text)
		}
	}
}
