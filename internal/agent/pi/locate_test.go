package pi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
)

func TestF07OnlyLiveNames(t *testing.T) {
	data, err := os.ReadFile("testdata/F07-dir-listing.txt")
	if err != nil {
		t.Fatal(err)
	}

	state := t.TempDir()
	dir := filepath.Join(state, "agents", "main", "sessions")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	others := []string{
		"11111111-1111-4111-8111-111111111111.checkpoint.22222222-2222-4222-8222-222222222222.jsonl",
		"11111111-1111-4111-8111-111111111111.trajectory.jsonl",
		"11111111-1111-4111-8111-111111111111.jsonl.corrupt-2026-01-05T10-00-00-000Z-0123abcd.jsonl",
		"11111111-1111-4111-8111-111111111111-topic-5.trajectory.jsonl",
		"2026-01-05T10-00-00-000Z_x.jsonl.corrupt-2026-01-05T10-00-00-000Z-0123abcd.jsonl",
		"11111111-1111-4111-8111-111111111111.jsonl.bak-4711-1767607200",
	}

	for _, name := range append(strings.Fields(string(data)), others...) {
		put(t, filepath.Join(dir, name), headLine+"\n")
	}

	found, err := OpenClaw(
		agenttest.Host("", "OPENCLAW_STATE_DIR="+state),
	).Locate(
		context.Background(), agent.Query{Most: 100},
	)

	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, f := range found {
		got = append(got, filepath.Base(f.Path))
	}

	if len(got) != 2 || !strings.HasPrefix(got[0]+got[1], "1") && !strings.HasPrefix(got[0]+got[1], "2") {
		t.Errorf("got %q, want the two plain ones", got)
	}
}

func TestSessionOfName(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"7f0c2d3e-1111-4222-8333-444455556666.jsonl", "7f0c2d3e-1111-4222-8333-444455556666"},
		{"7f0c2d3e-1111-4222-8333-444455556666-topic-355.jsonl", "7f0c2d3e-1111-4222-8333-444455556666"},
		{"7f0c2d3e-1111-4222-8333-444455556666-topic-1700000000.123456.jsonl", "7f0c2d3e-1111-4222-8333-444455556666"},
		{"2026-11-30T15-09-47-095Z_crash-kill9.jsonl", "crash-kill9"},
		{"2026-11-30T15-09-47-095Z_01a22d01-42d0-77b4-a7b4-4dd6e806cfef.jsonl", "01a22d01-42d0-77b4-a7b4-4dd6e806cfef"},
		{"history.jsonl", ""}, {"sessions.json", ""}, {"a/7f0c2d3e-1111-4222-8333-444455556666.jsonl", ""},
	} {
		if got, ok := SessionOfName(c.file); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: got %q %v, want %q", c.file, got, ok, c.want)
		}
	}
}

// TestLocate lays out a home with the sessions of both programs first.
func TestLocate(t *testing.T) {
	home := t.TempDir()
	work := filepath.Join(home, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}

	link := filepath.Join(home, "link")
	if err := os.Symlink(work, link); err != nil {
		t.Fatal(err)
	}

	host := agenttest.Host(home)
	at := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	place := func(dir, name, session, cwd string) {
		path := filepath.Join(home, dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		put(t, path, `{"type":"session","version":3,"id":"`+session+`","cwd":"`+cwd+`"}`+"\n")
		at = at.Add(time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}

	place(".pi/agent/sessions/--work--", "2026-01-05T10-00-00-000Z_one.jsonl", "one", work)
	place(".pi/agent/sessions/--link--", "2026-01-05T10-01-00-000Z_two.jsonl", "two", link)
	place(".pi/agent/sessions/--other--", "2026-01-05T10-02-00-000Z_three.jsonl", "three", "/other")
	place("chosen", "2026-01-05T10-03-00-000Z_chosen.jsonl", "chosen", "/chosen")
	put(t, filepath.Join(home, ".pi/agent/settings.json"), `{"sessionDir":"~/chosen"}`)
	place(
		".openclaw/agents/main/sessions", "7f0c2d3e-1111-4222-8333-444455556666.jsonl",
		"7f0c2d3e-1111-4222-8333-444455556666", work,
	)

	place(".openclaw-test/agents/a/sessions", "named-by-the-index.jsonl", "named", work)
	put(
		t,
		filepath.Join(home, ".openclaw-test/agents/a/sessions/sessions.json"),
		`{"agent:a:main":{"sessionId":"named","sessionFile":"`+
			filepath.Join(
				home, ".openclaw-test/agents/a/sessions/named-by-the-index.jsonl",
			)+`"},"x":{"sessionId":"later","sessionFile":"sqlite:a:later:x"},"y":7}`,
	)

	for _, c := range []struct {
		agent agent.Agent
		q     agent.Query
		want  string
	}{
		{Pi(host), agent.Query{}, "chosen three two one"},
		{Pi(host), agent.Query{Most: 1}, "chosen"},
		{Pi(host), agent.Query{Session: "one"}, "one"},
		{Pi(host), agent.Query{Workspace: work}, "two one"},
		{Pi(host), agent.Query{Session: "none"}, ""},
		{Pi(host), agent.Query{Session: "chosen"}, "chosen"},
		{OpenClaw(host), agent.Query{}, "named 7f0c2d3e-1111-4222-8333-444455556666"},
		{OpenClaw(host), agent.Query{Session: "named"}, "named"},
	} {
		found, err := c.agent.Locate(context.Background(), c.q)
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, f := range found {
			got = append(got, f.Session)
		}

		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %+v: got %q, want %q", c.agent.Name(), c.q, got, c.want)
		}
	}
}

func TestHandmadeIndex(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile("testdata/openclaw-sessions.handmade.json")
	if err != nil {
		t.Fatal(err)
	}

	put(t, filepath.Join(dir, "sessions.json"), string(data))
	got := map[string]string{}
	for _, c := range indexed(dir) {
		got[c.session] = filepath.Base(c.path)
	}

	if len(got) != 3 ||
		got["7f0c2d3e-1111-4222-8333-444455556666"] != "7f0c2d3e-1111-4222-8333-444455556666-topic-355.jsonl" ||
		got["88888888-aaaa-4bbb-8ccc-000000000008"] != "88888888-aaaa-4bbb-8ccc-000000000008.jsonl" {
		t.Errorf("got %v, want three sessions, one of a topic and one without a file named", got)
	}
}

func TestAgentWords(t *testing.T) {
	if _, err := OpenClaw(
		agent.Host{},
	).Decode(
		t.Context(), agent.Hook{Payload: []byte("{}")},
	); !errors.Is(
		err, agent.ErrNotOurs,
	) {
		t.Errorf("OpenClaw: Decode gives %v, want ErrNotOurs", err)
	}

	if got := string(OpenClaw(agent.Host{}).Reply("before_prompt_build", "text")); got != "text" {
		t.Errorf("OpenClaw: Reply gives %q, want the text", got)
	}

	for _, a := range []agent.Agent{Pi(agent.Host{}), OpenClaw(agent.Host{})} {
		if len(a.Events()) == 0 || a.Limits().BriefBytes < checkpoint.CutTool {
			t.Errorf("%s: no events or no room for a brief", a.Name())
		}
	}

	if got, want := Pi(agent.Host{}).ResumeCommand("it's"), `pi --session 'it'\''s'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
