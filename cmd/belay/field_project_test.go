package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// put writes a file and makes its folders.
func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// P01: two projects whose names the agent makes the same: the project comes from the records, and recover for one never
// shows the other's.
func TestP01OneFolderTwoProjects(t *testing.T) {
	h := newHome(t)
	for i, c := range []struct{ file, session, workspace, words string }{
		{"a", "11111111-1111-4111-8111-111111111111", "/w/외주/app", "the first project's own words"},
		{"b", "22222222-2222-4222-8222-222222222222", "/w/개인/app", "the second project's own words"},
	} {
		data, err := os.ReadFile("testdata/P01-" + c.file + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}

		said := fmt.Sprintf(
			`{"type":"user","uuid":"u%d","sessionId":%q,"cwd":%q,"message":{"role":"user","content":%q}}`+"\n",
			i, c.session, c.workspace, c.words,
		)

		put(t, filepath.Join(string(h), ".claude", "projects", "-w----app", c.session+".jsonl"), append(data, said...))
	}

	check := func(when string) {
		t.Helper()
		for workspace, c := range map[string][2]string{"/w/외주/app": {"first", "second"}, "/w/개인/app": {"second", "first"}} {
			text, r := h.recovered(t, "--workspace", workspace)
			if !strings.Contains(text, "the "+c[0]+" project's") || strings.Contains(text, "the "+c[1]+" project's") {
				t.Errorf(
					"%s, %s: session %s, want the %s project's words alone:\n%s", when, workspace, r.Session,
					c[0], text,
				)
			}
		}

		if out, code := h.belay(
			t, string(h), "recover", "--workspace", "/w/중간/app",
		); code != exitNotFound ||
			out != "" {
			t.Errorf(
				"%s: a third project of that name: exit code %d, want %d and no text: %s", when, code,
				exitNotFound, out,
			)
		}
	}

	check("nothing known")

	// And when both were seen: their stores are two.
	for session, workspace := range map[string]string{
		"11111111-1111-4111-8111-111111111111": "/w/외주/app", "22222222-2222-4222-8222-222222222222": "/w/개인/app",
	} {
		path := filepath.Join(string(h), ".claude", "projects", "-w----app", session+".jsonl")
		h.ok(
			t, "event", "--agent", "claude-code", "--session", session, "--workspace", workspace,
			fmt.Sprintf(`{"kind":"start","transcript":%q}`, path),
		)
	}

	check("both known")
}

// P05: an event from a sub-folder that is no repository, and recover from both folders: one function finds the project
// for both sides.
func TestP05SubfolderIsTheSameProject(t *testing.T) {
	h := newHome(t)
	project := filepath.Join(string(h), "project")
	sub := filepath.Join(project, "sub")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ dir, event string }{{project, `{"kind":"prompt","text":"survey the reeds"}`}, {sub, `{"kind":"stop","text":"forty reeds"}`}} {
		if out, code := h.belay(t, c.dir, "event", "--agent", "mine", "--session", "s1", c.event); code != exitOK {
			t.Fatalf("event in %s: exit code %d: %s", c.dir, code, out)
		}
	}

	for _, dir := range []string{project, sub} {
		for _, args := range [][]string{{"recover", "--session", "s1"}, {"recover"}} {
			out, code := h.belay(t, dir, args...)
			if code != exitOK || !strings.Contains(out, "survey the reeds") || !strings.Contains(out, "forty reeds") {
				t.Errorf("belay %q in %s: exit code %d, want both messages:\n%s", args, dir, code, out)
			}
		}
	}

	if got := h.listed(t); len(got) != 1 {
		t.Errorf("listed %q, want one session", got)
	}
}

// P03: a home behind a link: the event comes by the link, the records have the real path, and it is one project.
func TestP03HomeBehindALink(t *testing.T) {
	h := newHome(t)
	target, link := filepath.Join(string(h), "real"), filepath.Join(string(h), "link")
	if err := os.MkdirAll(filepath.Join(target, "proj"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}

	const session = "33333333-3333-4333-8333-333333333333"
	record := fmt.Sprintf(
		`{"type":"user","uuid":"u1","sessionId":%q,"cwd":%q,"message":{"role":"user","content":"words of the file"}}`+"\n",
		session, filepath.Join(target, "proj"),
	)

	linked := home(link) // the agent's and belay's HOME
	path := filepath.Join(link, ".claude", "projects", "-proj", session+".jsonl")
	put(t, path, []byte(record))
	t.Cleanup(func() { stopDaemon(linked.state()) })
	out, code := linked.belay(
		t, filepath.Join(link, "proj"), "event", "--agent", "claude-code", "--session", session, "--workspace",
		filepath.Join(link, "proj"),
		fmt.Sprintf(`{"kind":"stop","text":"words of the event","transcript":%q}`, path),
	)

	if code != exitOK {
		t.Fatalf("event: exit code %d: %s", code, out)
	}

	for _, dir := range []string{filepath.Join(link, "proj"), filepath.Join(target, "proj")} {
		text, code := linked.belay(t, dir, "recover", "--workspace", dir)
		if code != exitOK || !strings.Contains(text, "words of the file") ||
			!strings.Contains(text, "words of the event") {
			t.Errorf("recover in %s: exit code %d, want the words of both:\n%s", dir, code, text)
		}
	}

	if got := linked.listed(t); len(got) != 1 {
		t.Errorf("listed %q, want one session", got)
	}
}

// N05: the agent files a session under another project: its id still finds it, in each agent that keeps folders of
// projects.
func TestN05ProjectKeyChanged(t *testing.T) {
	const session = "44444444-4444-4444-8444-444444444444"
	says := `{"type":"user","uuid":"u1","sessionId":"` + session + `","cwd":"/proj/a","message":{"role":"user","content":"find me again"}}` + "\n"
	piSays := `{"type":"session","version":3,"id":"` + session + `","timestamp":"2026-01-05T10:00:00.000Z","cwd":"/proj/a"}` + "\n" +
		`{"type":"message","id":"m1","parentId":null,"timestamp":"2026-01-05T10:00:07.000Z","message":{"role":"user","content":[{"type":"text","text":"find me again"}]}}` + "\n"
	geminiSays := `{"sessionId":"` + session + `","projectHash":"ab","startTime":"2026-01-05T10:00:00.000Z","kind":"main"}` + "\n" +
		`{"id":"m1","timestamp":"2026-01-05T10:00:07.000Z","type":"user","content":[{"text":"find me again"}]}` + "\n"
	for _, c := range []struct{ agent, from, to, text string }{
		{"claude-code", ".claude/projects/-proj-a/" + session + ".jsonl", ".claude/projects/-elsewhere/" + session + ".jsonl", says},
		{"pi", ".pi/agent/sessions/--proj-a--/2026-01-05T10-00-00-000Z_" + session + ".jsonl", ".pi/agent/sessions/--b--/2026-01-05T10-00-00-000Z_" + session + ".jsonl", piSays},
		{"gemini", ".gemini/tmp/ab/chats/session-2026-01-05T10-00-44444444.jsonl", ".gemini/tmp/cd/chats/session-2026-01-05T10-00-44444444.jsonl", geminiSays},
	} {
		t.Run(c.agent, func(t *testing.T) {
			h := newHome(t)
			put(t, filepath.Join(string(h), c.from), []byte(c.text))
			for _, when := range []string{"as it was", "filed elsewhere", "gone after it was seen"} {
				switch when {
				case "filed elsewhere":
					put(t, filepath.Join(string(h), c.to), []byte(c.text))
					if err := os.RemoveAll(filepath.Dir(filepath.Join(string(h), c.from))); err != nil {
						t.Fatal(err)
					}
				case "gone after it was seen":
					h.ok(
						t, "event", "--agent", c.agent, "--session", session,
						fmt.Sprintf(`{"kind":"start","transcript":%q}`, filepath.Join(string(h), c.to)),
					)

					h.ok(t, "checkpoint", "--agent", c.agent, "--session", session)
					if err := os.Remove(filepath.Join(string(h), c.to)); err != nil {
						t.Fatal(err)
					}
				}

				text, r := h.recovered(t, "--session", session)
				if r.Agent != c.agent || !strings.Contains(text, "find me again") {
					t.Errorf("%s: agent %q, want the words of %s:\n%s", when, r.Agent, c.agent, text)
				}
			}
		})
	}
}
