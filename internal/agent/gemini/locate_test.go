package gemini

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
)

const (
	idA = "aaaaaaaa-1111-4111-8111-111111111111"
	idB = "bbbbbbbb-1111-4111-8111-111111111111"
)

func headOf(id, hash string) string {
	return `{"sessionId":"` + id + `","projectHash":"` + hash + `","kind":"main"}` + "\n"
}

// place writes a transcript that was changed at a minute of a day.
func place(t *testing.T, path, text string, minute int) {
	t.Helper()
	put(t, path, text)
	at := time.Date(2026, 1, 5, 10, minute, 0, 0, time.UTC)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestLocate(t *testing.T) {
	home := payload.RealPath(t.TempDir())
	work, old := filepath.Join(home, "work"), filepath.Join(home, "old")
	for _, dir := range []string{work, old} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	chats := filepath.Join(home, "tmp/slug/chats")
	put(t, filepath.Join(home, "tmp/slug/.project_root"), work)
	context1 := said(environmentID, "user", sessionOpen+"tree") + "\n"
	place(
		t, filepath.Join(chats, "session-2026-01-05T10-00-aaaaaaaa.jsonl"),
		headOf(idA, "x")+context1+said("m1", "user", "one")+"\n", 1,
	)

	// F11: made by a resume
	place(t, filepath.Join(chats, "session-2026-01-05T10-05-aaaaaaaa.jsonl"), headOf(idA, "x")+context1, 5)
	place(t, filepath.Join(chats, "session-2026-01-05T10-06-aaaaaaaa.jsonl.unreadable-1767607200"), headOf(idA, "x"), 6)
	place(t, filepath.Join(chats, "session-2026-01-05T10-02-bbbbbbbb.jsonl"), headOf(idB, "x")+context1, 2)
	place(t, filepath.Join(chats, "session-2026-01-05T10-03-cccccccc.jsonl"), "no header\n", 3)
	place(
		t, filepath.Join(chats, "session-2026-01-05T10-04-eeeeeeee.jsonl"),
		strings.Replace(headOf("eeeeeeee-1", "x"), `"main"`, `"subagent"`, 1)+said("m1", "user", "one")+"\n", 4,
	)

	place(t, filepath.Join(home, "tmp", hashOfPath(old), "chats/session-2025-01-05T10-03-dddddddd.json"),
		`{"sessionId":"dddddddd-1","projectHash":"`+hashOfPath(old)+`","messages":[`+said("m1", "user", "one")+`]}`, 0)
	a := &Agent{home: home}
	for _, tt := range []struct {
		q    agent.Query
		want string
	}{
		{agent.Query{}, "T10-00-aaaaaaaa.jsonl T10-02-bbbbbbbb.jsonl T10-03-dddddddd.json"},
		{agent.Query{Most: 1}, "T10-00-aaaaaaaa.jsonl"},
		{agent.Query{Session: idA}, "T10-00-aaaaaaaa.jsonl"},
		{agent.Query{Session: "aaaaaaaa-other"}, ""},
		{agent.Query{Workspace: work}, "T10-00-aaaaaaaa.jsonl T10-02-bbbbbbbb.jsonl"},
		{agent.Query{Workspace: old}, "T10-03-dddddddd.json"},
		{agent.Query{Workspace: home}, ""},
	} {
		found, err := a.Locate(context.Background(), tt.q)
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, f := range found {
			_, name, _ := strings.Cut(filepath.Base(f.Path), "-05")
			got = append(got, name)
			if tt.q.Workspace != "" && f.Workspace != tt.q.Workspace {
				t.Errorf("%+v: got workspace %q", tt.q, f.Workspace)
			}
		}

		if g := strings.Join(got, " "); g != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.q, g, tt.want)
		}
	}
}

// TestF11OrphanFile: the start of a resumed session names a file in which nothing is said; the session goes on in the
// old.
func TestF11OrphanFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tmp/p/chats")
	old, orphan := filepath.Join(
		dir, "session-2026-11-30T15-23-e427d0ca.jsonl",
	), filepath.Join(
		dir, "session-2026-11-30T15-25-e427d0ca.jsonl",
	)

	for path, name := range map[string]string{
		old: "0.61-tools-then-resume.jsonl", orphan: "0.61-orphan-from-resume.jsonl",
	} {
		data, err := os.ReadFile("testdata/transcripts/" + name)
		if err != nil {
			t.Fatal(err)
		}
		put(t, path, string(data))
	}

	const front = `{"session_id":"e427d0ca-b441-4ccc-9131-a934ecb9926f","hook_event_name":"SessionStart",`
	for _, tt := range []struct{ source, path, want string }{
		{"resume", orphan, old},
		{"startup", old, old},
		{"startup", filepath.Join(dir, "session-2026-11-30T15-30-99999999.jsonl"), filepath.Join(dir, "session-2026-11-30T15-30-99999999.jsonl")},
	} {
		session := "e427d0ca-b441-4ccc-9131-a934ecb9926f"
		if strings.Contains(tt.path, "99999999") {
			session = "99999999-b441-4ccc-9131-a934ecb9926f"
		}

		e, _ := decode(
			t,
			&Agent{},
			strings.Replace(
				front, "e427d0ca-b441-4ccc-9131-a934ecb9926f", session, 1,
			)+`"source":"`+tt.source+`","transcript_path":"`+tt.path+`"}`,
		)

		if e.Transcript != tt.want {
			t.Errorf("%s %s: got %s, want %s", tt.source, tt.path, e.Transcript, tt.want)
		}
	}

	if err := os.Remove(old); err != nil { // the program removes both at times
		t.Fatal(err)
	}
	if got := liveFile(orphan, "e427d0ca-b441-4ccc-9131-a934ecb9926f"); got != orphan {
		t.Errorf("the old file is gone: got %s, want the new one", got)
	}
}

func TestRecognise(t *testing.T) {
	for _, path := range transcriptFiles(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if New(agent.Host{}).Recognise(data[:min(len(data), 64<<10)]) != agent.Mine {
			t.Errorf("%s is not recognised", path)
		}
	}
	for _, head := range []string{
		"", `{"type":"user","uuid":"x","sessionId":"s"}`, `{"type":"session","version":3,"id":"x","cwd":"/"}`,
	} {
		if New(agent.Host{}).Recognise([]byte(head)) != agent.NotMine {
			t.Errorf("%s is recognised, want not", head)
		}
	}
}

func TestResumeCommand(t *testing.T) {
	if got, want := New(agent.Host{}).ResumeCommand("it's"), `gemini --resume 'it'\''s'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
