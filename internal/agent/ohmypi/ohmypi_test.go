package ohmypi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/agent/kit/plugin"
	"belay/internal/agent/pi"
)

var update = flag.Bool("update", false, "write the golden file again")

const stamp = "2026-12-01T10-21-05-893Z_"

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, src agent.Source, from checkpoint.Cursor) checkpoint.Batch {
	t.Helper()
	r := New(agent.Host{}).Open(src)
	defer r.Close() // read only
	b, err := r.Read(context.Background(), from, checkpoint.ReadOptions{Whole: true})
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// show writes entries as words.
func show(list []checkpoint.Entry) string {
	var b strings.Builder
	for _, e := range list {
		b.WriteString(string(e.Op) + string(e.Kind))
		for _, v := range []string{e.Call, e.Name, e.Input, e.Output, e.Text, e.Workspace, e.Model, e.Session} {
			if v != "" {
				fmt.Fprintf(&b, " %q", v)
			}
		}

		if e.Failed {
			b.WriteString(" failed")
		}

		b.WriteByte('\n')
	}

	return b.String()
}

// TestGolden: what files of oh-my-pi 18.2.3 come to, entry by entry.
func TestGolden(t *testing.T) {
	const golden = "testdata/golden.txt"
	files, err := filepath.Glob("testdata/*.captured.jsonl")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d files, %v, want 4", len(files), err)
	}

	var got strings.Builder
	for _, file := range files {
		b := read(t, agent.Source{Path: file}, "")
		if b.Losses.BadLines != 0 {
			t.Errorf("%s: %d bad lines, want none", file, b.Losses.BadLines)
		}
		fmt.Fprintf(&got, "%s\n%s\n", filepath.Base(file), show(b.Entries))
	}

	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(golden)
	if err != nil || got.String() != string(want) {
		t.Errorf("got\n%swant (%v)\n%s", &got, err, want)
	}
}

// TestTitle: a title that oh-my-pi writes over the first line is no other past: what was read is not read again.
func TestTitle(t *testing.T) {
	text, err := os.ReadFile("testdata/compacted.captured.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), stamp+"s.jsonl")
	at := bytes.Index(text, []byte(`{"type":"message","id":"5f21c78d"`)) // the second prompt
	put(t, path, string(text[:at]))
	first := read(t, agent.Source{Path: path}, "")

	title := bytes.Replace(text[:256], []byte(`"title":""`), []byte(`"title":"A name"`), 1)
	title = bytes.Replace(title, []byte("      "), nil, 1)
	if len(title) != 256 {
		t.Fatalf("the title's line has %d bytes, want 256", len(title))
	}

	put(t, path, string(title)+string(text[256:]))
	next := read(t, agent.Source{Path: path}, first.Cursor)
	if len(next.Entries) == 0 || next.Entries[0].Op != checkpoint.Upsert || next.Entries[0].Text != "the second" {
		t.Errorf("after the title: got\n%swant the second prompt and what follows", show(next.Entries))
	}
}

// TestReset: oh-my-pi's /clear keeps the file, and nothing before it is ever given.
func TestReset(t *testing.T) {
	path := filepath.Join(t.TempDir(), stamp+"s.jsonl")
	put(t, path, `{"type":"session","version":3,"id":"s","cwd":"/x"}
{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"one","attribution":"user","timestamp":1}}
{"type":"reset_boundary","id":"b","parentId":"a","timestamp":"2026-12-01T10:40:50.423Z"}
{"type":"message","id":"c","parentId":"b","message":{"role":"user","content":"two","attribution":"user","timestamp":2}}
`)

	if got, want := show(
		read(t, agent.Source{Path: path}, "").Entries,
	), "meta \"/x\"\nuser \"one\"\nclear\nuser \"two\"\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestNeitherIsTheOther: pi and oh-my-pi each know their own files and folders only.
func TestNeitherIsTheOther(t *testing.T) {
	home := t.TempDir()
	host := agenttest.Host(home)
	own, err := filepath.Glob("testdata/*.captured.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	pis, err := filepath.Glob("../pi/testdata/pi/*.jsonl")
	if err != nil || len(pis) < 5 {
		t.Fatalf("%d files of pi, %v", len(pis), err)
	}

	for _, file := range append(own, pis...) {
		head, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		mine := slices.Contains(own, file)
		if (New(host).Recognise(head) == agent.Mine) != mine || mine && pi.Pi(host).Recognise(head) != agent.NotMine {
			t.Errorf(
				"%s: oh-my-pi %v, pi %v, want %v for oh-my-pi alone", file, New(host).Recognise(head),
				pi.Pi(host).Recognise(head), mine,
			)
		}
	}

	older := `{"type":"session","version":3,"id":"s","cwd":"/x"}` + "\n" + `{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"x","attribution":"user"}}`
	if New(host).Recognise([]byte(older)) != agent.Mine || pi.Pi(host).Recognise([]byte(older)) != agent.NotMine {
		t.Error("a file without a title is not oh-my-pi's alone")
	}

	text, err := os.ReadFile(own[0])
	if err != nil {
		t.Fatal(err)
	}

	put(t, filepath.Join(home, ".omp", "agent", "sessions", "-proj", stamp+"one.jsonl"), string(text))
	put(t, filepath.Join(home, ".omp", "agent", "sessions", "-proj", stamp+"one", "Helper.jsonl"), string(text))
	put(
		t, filepath.Join(home, ".pi", "agent", "sessions", "--x--", stamp+"two.jsonl"),
		`{"type":"session","version":3,"id":"two","cwd":"/x"}`+"\n",
	)

	for a, want := range map[agent.Agent]string{New(host): ".omp", pi.Pi(host): ".pi"} {
		found, err := a.Locate(t.Context(), agent.Query{})
		if err != nil || len(found) != 1 || !strings.Contains(found[0].Path, want) {
			t.Errorf("%s: located %v, %v, want the one below %s", a.Name(), found, err, want)
		}
	}
}

func TestFolder(t *testing.T) {
	for vars, want := range map[string]string{
		"":                       "/h/.omp/agent",
		"PI_CODING_AGENT_DIR=/y": "/y",
		"PI_CONFIG_DIR=.other":   "/h/.other/agent",
		"OMP_PROFILE=day":        "/h/.omp/profiles/day/agent",
		"OMP_PROFILE=default":    "/h/.omp/agent",
		"OMP_PROFILE=../x":       "",
	} {
		if got := folder(agenttest.Host("/h", vars)); got != want {
			t.Errorf("%s: got %q, want %q", vars, got, want)
		}
	}
	if got := folder(agent.Host{}); got != "" {
		t.Errorf("without a home: got %q, want none", got)
	}
}

// words writes events as words.
func words(in agent.Incoming) string {
	var list []string
	for _, e := range in.Events {
		s := string(e.Kind)
		for _, v := range []string{e.Key.Session, e.Key.Child, e.Parent, e.ChildName, e.Source, e.Text, e.Reason} {
			if v != "" {
				s += " " + v
			}
		}
		list = append(list, s)
	}

	return strings.Join(list, ", ")
}

func TestDecode(t *testing.T) {
	const main, child = "/s/" + stamp + "root.jsonl", "/s/" + stamp + "root/Helper.jsonl"
	for _, c := range []struct {
		event, file, more, want string
		ask                     agent.Ask
	}{
		{"session_start", main, ``, "start id startup, owed id", agent.AskNothing},
		{"session_start", main, `,"reason":"new"`, "start id clear", agent.AskNothing},
		{"before_agent_start", main, `,"prompt":"go"`, "prompt id go", agent.AskCarry},
		{"agent_end", main, `,"message":{"role":"assistant","stopReason":"stop","content":"Done."}`, "stop id Done.", agent.AskNothing},
		{"session_shutdown", main, ``, "end id", agent.AskNothing},
		{"session_start", child, ``, "child-start root Helper, start root id root Helper startup", agent.AskNothing},
		{"before_agent_start", child, `,"prompt":"go"`, "prompt root id go", agent.AskNothing},
		{"session_shutdown", child, ``, "child-end root Helper, end root id", agent.AskNothing},
		{"session_stop", main, ``, "", agent.AskNothing},
	} {
		body := fmt.Sprintf(`{"session_id":"id","session_file":%q,"cwd":"/x"%s}`, c.file, c.more)
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: c.event, Payload: []byte(body)})
		if got := words(in); got != c.want || in.Ask != c.ask || err != nil {
			t.Errorf("%s %s: got %q, ask %v, %v, want %q, %v", c.event, body, got, in.Ask, err, c.want, c.ask)
		}
	}
}

// TestExtension runs belay's extension in node, where no daemon answers: what it holds at the end goes to belay-hook.
func TestExtension(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not here: it runs the extension")
	}

	dir := t.TempDir()
	hook := filepath.Join(dir, "belay-hook")
	put(t, hook, "#!/bin/sh\necho \"$2 $(cat)\" >>"+dir+"/hooked\n")
	text, err := plugin.OneFile(extension, agent.Paths{Hook: hook})
	if err != nil {
		t.Fatal(err)
	}

	drive, err := os.ReadFile("testdata/drive.mjs")
	if err != nil {
		t.Fatal(err)
	}

	put(t, filepath.Join(dir, "belay.mjs"), text)
	put(t, filepath.Join(dir, "drive.mjs"), string(drive))
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(node, "drive.mjs", `[
		{"name": "session_start", "session": "none", "kept": false},
		{"name": "session_start", "session": "one"},
		{"name": "before_agent_start", "session": "one", "event": {"prompt": "please start"}},
		{"name": "tool_execution_start", "session": "one", "event": {"toolCallId": "c1", "toolName": "bash", "args": {"command": "ls"}}},
		{"name": "tool_execution_end", "session": "one", "event": {"toolCallId": "c1", "toolName": "bash", "result": {"content": []}}},
		{"name": "agent_end", "session": "one", "event": {"messages": [], "willContinue": true}},
		{"name": "agent_end", "session": "one", "event": {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "Done."}]}]}},
		{"name": "session_switch", "session": "two", "event": {"reason": "new"}},
		{"name": "session_shutdown", "session": "two"}]`)

	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}

	want := []string{
		"prompt one please start",
		"stop one Done.",
		"end one new",
		"start two clear",
		"end two",
		"start one startup, owed one",
		"tool-start one",
		"tool-end one",
	}

	slices.Sort(want)
	var got []string
	end := time.Now().Add(20 * time.Second)
	for ; len(got) < len(want) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		data, _ := os.ReadFile(filepath.Join(dir, "hooked")) // not there yet
		got = nil
		for line := range strings.Lines(string(data)) {
			event, body, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !json.Valid([]byte(body)) {
				continue // the call that starts a daemon
			}

			in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: event, Payload: []byte(body)})
			if err != nil {
				t.Fatal(err)
			}

			got = append(got, strings.ReplaceAll(words(in), "end one new", "end one new"))
		}

		slices.Sort(got)
	}

	for i := range got {
		got[i] = strings.Replace(got[i], "end one clear", "end one new", 1)
	}

	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInstall(t *testing.T) {
	home := t.TempDir()
	hook := filepath.Join(home, "belay-hook")
	put(t, hook, "#!/bin/sh\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}

	a, p := New(agenttest.Host(home)), agent.Paths{Hook: hook}
	file := filepath.Join(home, ".omp", "agent", "extensions", "belay.ts")
	for _, want := range []string{"create", "keep"} {
		list, err := a.Install(t.Context(), p, false)
		if err != nil || len(list) != 1 || list[0].Action != want || list[0].Path != file {
			t.Errorf("install: got %+v, %v, want one change: %s %s", list, err, want, file)
		}
	}

	if found := a.Check(t.Context(), p); len(found) != 0 {
		t.Errorf("after install: %q", found)
	}
	if _, ok := a.Present(); !ok {
		t.Error("it has a folder and is not present")
	}
	if _, err := a.Uninstall(p, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(home, ".omp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}
