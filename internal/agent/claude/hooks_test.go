package claude

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/vfs"
)

// ofUser is Claude Code for the user in whose home the payloads were captured.
func ofUser(home string) *Agent {
	return &Agent{home: home + "/.claude", plain: home + "/.claude", fsys: vfs.OS{}}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "hooks", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func jsonLines(t *testing.T, name string) [][]byte {
	t.Helper()
	var list [][]byte
	sc := bufio.NewScanner(bytes.NewReader(readFile(t, name)))
	for sc.Scan() {
		list = append(list, bytes.Clone(sc.Bytes()))
	}

	if len(list) == 0 {
		t.Fatalf("%s has no lines", name)
	}

	return list
}

func decode(t *testing.T, payload []byte) agent.Incoming {
	t.Helper()
	in, err := ofUser("/home/u").Decode(t.Context(), agent.Hook{Payload: payload})
	if err != nil {
		t.Fatalf("Decode(%.200s): %v", payload, err)
	}
	return in
}

// say writes what an event says, without what all events of a session share.
func say(e checkpoint.Event) string {
	parts := []string{string(e.Kind)}
	for _, f := range []struct{ name, value string }{
		{"on", e.Key.Child}, {"source", e.Source}, {"reason", e.Reason}, {"outcome", string(e.Outcome)}, {"call", e.Call},
		{"name", e.Name}, {"in", e.Input}, {"out", e.Output}, {"child", e.Child}, {"as", e.ChildName}, {"text", e.Text},
		{"model", e.Model}, {"mode", e.Mode},
	} {
		if f.value != "" {
			parts = append(parts, fmt.Sprintf("%s=%q", f.name, f.value))
		}
	}

	if e.Failed {
		parts = append(parts, "failed")
	}
	if e.Background {
		parts = append(parts, "background")
	}
	if e.Aside {
		parts = append(parts, "aside")
	}

	return strings.Join(parts, " ")
}

func sayAll(in agent.Incoming) string {
	var all []string
	for _, e := range in.Events {
		all = append(all, say(e))
	}
	return strings.Join(all, "\n")
}

// capturedEvents is what each captured call of the real program means, by event.
func capturedEvents() map[string][]string {
	return map[string][]string{
		"PostCompact":   {`compacted reason="manual" text="<summary>SUMMARY-OF-THE-SESSION</summary>"`},
		"PostToolBatch": {"", ""},
		"PostToolUse": {
			`tool-end call="toolu_lab000100" name="Read" in="{\"file_path\":\"/home/u/proj/notes.txt\"}" out="{\"type\":\"text\",\"file\":{\"filePath\":\"/home/u/proj/notes.txt\",\"content\":\"first line of the notes\\nsecond line\\n\",\"numLines\":3,\"startLine\":1,\"totalLines\":3}}" mode="default"`,
			`tool-end call="toolu_lab000200" name="Bash" in="{\"command\":\"echo hello-from-tool && ls\",\"description\":\"lab command\"}" out="{\"stdout\":\"hello-from-tool\\nnotes.txt\",\"stderr\":\"\",\"interrupted\":false,\"isImage\":false,\"noOutputExpected\":false}" mode="default"`,
			`tool-end call="toolu_lab000300" name="Write" in="{\"file_path\":\"/home/u/proj/out.txt\",\"content\":\"made by the lab\\n\"}" out="{\"type\":\"create\",\"filePath\":\"/home/u/proj/out.txt\",\"content\":\"made by the lab\\n\",\"structuredPatch\":[],\"originalFile\":null,\"userModified\":false}" mode="default"`,
			`tool-end call="toolu_lab000100" name="Agent" in="{\"description\":\"a helper\",\"prompt\":\"SUBTASK please run a command\",\"subagent_type\":\"general-purpose\"}" out="{\"isAsync\":true,\"status\":\"async_launched\",\"agentId\":\"ae80bb419862657dc\",\"description\":\"a helper\",\"resolvedModel\":\"claude-sonnet-4-5\",\"prompt\":\"SUBTASK please run a command\",\"outputFile\":\"/tmp/claude-0/-home-u-proj/5d5a94f9-f17b-421e-be8c-24e04c38f6d8/tasks/ae80bb419862657dc.output\",\"canReadOutputFile\":true,\"canContinueAgent\":true}" mode="default" background`,
			`tool-end on="ae80bb419862657dc" call="toolu_lab000200" name="Bash" in="{\"command\":\"echo in-sub\",\"description\":\"lab command\"}" out="{\"stdout\":\"in-sub\",\"stderr\":\"\",\"interrupted\":false,\"isImage\":false,\"noOutputExpected\":false}" mode="default"`,
		},
		"PostToolUseFailure": {
			`tool-end call="toolu_lab000400" name="Bash" in="{\"command\":\"echo to-stderr >&2; exit 3\",\"description\":\"lab command\"}" out="Exit code 3\nto-stderr" mode="default" failed`,
		},
		"PreCompact": {`compacting reason="manual"`},
		"PreToolUse": {
			`tool-start call="toolu_lab000100" name="Read" in="{\"file_path\":\"/home/u/proj/notes.txt\"}" mode="default"`,
			`tool-start call="toolu_lab000200" name="Bash" in="{\"command\":\"echo hello-from-tool && ls\",\"description\":\"lab command\"}" mode="default"`,
			`tool-start call="toolu_lab000300" name="Write" in="{\"file_path\":\"/home/u/proj/out.txt\",\"content\":\"made by the lab\\n\"}" mode="default"`,
			`tool-start call="toolu_lab000100" name="Agent" in="{\"description\":\"a helper\",\"prompt\":\"SUBTASK please run a command\",\"subagent_type\":\"general-purpose\"}" mode="default"`,
			`tool-start on="ae80bb419862657dc" call="toolu_lab000200" name="Bash" in="{\"command\":\"echo in-sub\",\"description\":\"lab command\"}" mode="default"`,
		},
		"SessionEnd": {
			`end reason="other"`,
			`end reason="prompt_input_exit"`,
			`end reason="prompt_input_exit"`,
			`end reason="clear"`,
		},
		"SessionStart": {
			`start source="startup"`,
			`start source="resume"`,
			`start source="resume"`,
			`start source="compact" model="claude-sonnet-4-5"`,
			`start source="startup" model="claude-sonnet-4-5"`,
			`start source="clear"`,
		},
		"Stop": {`stop text="Round one is done: notes read, out.txt written." mode="default"`},
		"SubagentStart": {
			"child-start child=\"ae80bb419862657dc\" as=\"general-purpose\"\nstart on=\"ae80bb419862657dc\" as=\"general-purpose\"",
		},
		"SubagentStop": {""}, // the compaction's own helper
		"UserPromptSubmit": {
			`prompt text="please start the work" mode="default"`,
		},
	}
}

// TestDecodeCaptured: every call that the real program made, version 2.1.328.
func TestDecodeCaptured(t *testing.T) {
	want := capturedEvents()
	files, err := filepath.Glob("testdata/hooks/*.json")
	if err != nil {
		t.Fatal(err)
	}

	seen := 0
	for _, file := range files {
		event := strings.TrimSuffix(filepath.Base(file), ".json")
		wants, ok := want[event]
		if !ok {
			continue
		}

		seen++
		var calls []struct {
			Case  string
			Stdin json.RawMessage
		}

		if err := json.Unmarshal(readFile(t, event+".json"), &calls); err != nil {
			t.Fatal(err)
		}
		if len(calls) != len(wants) {
			t.Errorf("%s: %d captured calls, want %d", event, len(calls), len(wants))
		}

		for i, c := range calls {
			in := decode(t, c.Stdin)
			if got := sayAll(in); got != wants[i] {
				t.Errorf("%s %d (%s):\ngot  %s\nwant %s", event, i, c.Case, got, wants[i])
			}

			wantAsk := map[string]agent.Ask{"SessionStart": agent.AskStart, "UserPromptSubmit": agent.AskCarry}[event]
			if in.Ask != wantAsk {
				t.Errorf("%s %d: asks %d, want %d", event, i, in.Ask, wantAsk)
			}

			for _, e := range in.Events {
				checkShared(t, c.Stdin, e)
			}
		}
	}

	if seen != len(want) {
		t.Errorf("%d captured files, want %d", seen, len(want))
	}
}

// checkShared holds what every event of a captured call must carry.
func checkShared(t *testing.T, payload []byte, e checkpoint.Event) {
	t.Helper()
	var p struct {
		Session    string `json:"session_id"`
		Prompt     string `json:"prompt_id"`
		Transcript string `json:"transcript_path"`
	}

	if err := json.Unmarshal(payload, &p); err != nil {
		t.Fatal(err)
	}
	if e.Key.Agent != "claude-code" || e.Key.Session != p.Session || e.Key.Account != "" || e.Key.Workspace != "" {
		t.Errorf("key %+v, want claude-code, session %s, nothing else", e.Key, p.Session)
	}
	if e.Turn != p.Prompt || e.Workspace != "/home/u/proj" {
		t.Errorf("turn %q workspace %q, want %q /home/u/proj", e.Turn, e.Workspace, p.Prompt)
	}

	wantFile := p.Transcript
	if e.Key.Child != "" {
		wantFile = "" // the payload names the parent's file
	}
	if e.Transcript != wantFile {
		t.Errorf("%s: transcript %q, want %q", e.Kind, e.Transcript, wantFile)
	}
}

// TestDecodeDocumented: one session as the documentation has it, with the events that the lab did not see.
func TestDecodeDocumented(t *testing.T) {
	want := []string{
		`start source="startup" model="claude-sonnet-5"`,
		`prompt text="Count the files, then read a.txt" mode="default"`,
		`tool-start call="toolu_01" name="Bash" in="{\"command\":\"ls | wc -l\"}" mode="default"`,
		`tool-end call="toolu_01" name="Bash" in="{\"command\":\"ls | wc -l\"}" out="{\"stdout\":\"1\",\"stderr\":\"\",\"interrupted\":false,\"isImage\":false}" mode="default"`,
		`tool-end call="toolu_02" name="Read" in="{\"file_path\":\"/home/user/project/a.txt\"}" out="File does not exist." mode="default" failed`,
		``,
		"child-start child=\"abc123\" as=\"Explore\"\nstart on=\"abc123\" as=\"Explore\"",
		"child-end child=\"abc123\" as=\"Explore\" mode=\"default\"\nend on=\"abc123\" as=\"Explore\" text=\"Found 3 files.\" mode=\"default\"",
		`compacting reason="auto"`,
		`compacted reason="auto" text="The user wants ..."`,
		`start source="compact"`,
		`stop text="There is one file, but a.txt is not there." mode="default"`,
		`stop reason="overloaded: 529: API Error: 529 Overloaded" outcome="failed"`,
		``,
		`end reason="prompt_input_exit"`,
	}
	for i, line := range jsonLines(t, "hook-stdin.handmade.jsonl") {
		in, err := ofUser("/home/user").Decode(t.Context(), agent.Hook{Payload: line})
		if err != nil {
			t.Fatal(err)
		}
		if got := sayAll(in); got != want[i] {
			t.Errorf("line %d:\ngot  %s\nwant %s", i+1, got, want[i])
		}

		for _, e := range in.Events {
			if e.Key.Child != "" && e.Parent != e.Key.Session {
				t.Errorf("line %d: parent %q, want %q", i+1, e.Parent, e.Key.Session)
			}
			if e.Kind == checkpoint.EventEnd && e.Key.Child != "" &&
				!strings.HasSuffix(e.Transcript, "/subagents/agent-abc123.jsonl") {
				t.Errorf("line %d: child's transcript %q", i+1, e.Transcript)
			}
		}
	}
}

func TestH13AllSources(t *testing.T) {
	want := []string{"startup", "resume", "clear", "compact", "fork", "some_future_source", ""}
	for i, line := range jsonLines(t, "H13-sources.jsonl") {
		in := decode(t, line)
		if len(in.Events) != 1 || in.Events[0].Kind != checkpoint.EventStart || in.Events[0].Source != want[i] ||
			in.Ask != agent.AskStart {
			t.Errorf(
				"payload %d: %s asks %d, want a start with source %q that asks for a brief", i+1, sayAll(in),
				in.Ask, want[i],
			)
		}
	}
}

// TestH06DoubledEvents: doubles decode to equal events, so that a later stage can tell them.
func TestH06DoubledEvents(t *testing.T) {
	var got []string
	for _, line := range jsonLines(t, "H06-double-events.jsonl") {
		got = append(got, sayAll(decode(t, line)))
	}

	start, prompt, stop := `start source="startup"`, `prompt text="go"`, `stop text="done"`
	want := []string{start, start, prompt, prompt, stop, stop, prompt, stop}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestH09EventWithoutPath(t *testing.T) {
	in := decode(t, readFile(t, "H09-precompact-no-path.json"))
	if len(in.Events) != 1 {
		t.Fatalf("%d events, want 1", len(in.Events))
	}

	e := in.Events[0]
	want := checkpoint.Key{Agent: name, Session: "11111111-1111-4111-8111-111111111111"}
	if e.Kind != checkpoint.EventCompacting || e.Key != want || e.Transcript != "" || e.Workspace != "" {
		t.Errorf(
			"got %s of %+v, file %q, workspace %q; want compacting of %+v and nothing else", say(e), e.Key,
			e.Transcript, e.Workspace, want,
		)
	}
}

func TestH07StopCarriesTheLastWords(t *testing.T) {
	if got, want := sayAll(
		decode(t, readFile(t, "H07-stop-event.json")),
	), `stop text="The final answer is 42 retries."`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestS02ForkCarriesParentID: the hook of a fork names its parent; belay says what it was told, the record decides.
func TestS02ForkCarriesParentID(t *testing.T) {
	var file struct{ Event json.RawMessage }
	if err := json.Unmarshal(readFile(t, "S02-fork-event.json"), &file); err != nil {
		t.Fatal(err)
	}

	in := decode(t, file.Event)
	if got, want := sayAll(in), `start source="resume"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := in.Events[0].Transcript, "store/11111111-1111-4111-8111-111111111111.jsonl"; got != want {
		t.Errorf("transcript %q, want %q", got, want)
	}
}

// TestS07EventsAlone: no transcript, and all words are in the events.
func TestS07EventsAlone(t *testing.T) {
	var got []string
	for _, line := range jsonLines(t, "S07-events.jsonl") {
		got = append(got, sayAll(decode(t, line)))
	}

	want := []string{
		`start source="startup"`, `prompt text="fix the uploader"`,
		`tool-end name="Edit" in="{\"file_path\":\"uploader.go\"}" out="{\"ok\":true}"`,
		`stop text="Changed one line in uploader.go."`, `prompt text="now add a test"`, `stop text="Test added."`,
	}

	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestP07AnyPath(t *testing.T) {
	var paths []string
	if err := json.Unmarshal(readFile(t, "P07-paths.json"), &paths); err != nil {
		t.Fatal(err)
	}
	if len(paths) != 24 {
		t.Fatalf("%d paths, want 24", len(paths))
	}

	dirs := map[string]string{}
	for _, path := range paths {
		payload, err := json.Marshal(map[string]string{
			"session_id": "no-uuid", "hook_event_name": "UserPromptSubmit", "prompt": "hello", "cwd": path,
		})
		if err != nil {
			t.Fatal(err)
		}

		e := decode(t, payload).Events[0]
		if e.Workspace != path || e.Key.Workspace != path {
			t.Errorf("workspace %q, key's %q, want %q", e.Workspace, e.Key.Workspace, path)
		}
		if other, taken := dirs[e.Key.Dir()]; taken {
			t.Errorf("%q and %q share folder %s", path, other, e.Key.Dir())
		}

		dirs[e.Key.Dir()] = path
	}
}

func TestP03WorkspaceIsTheRealPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	folder, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}

	for _, h := range []agent.Hook{
		{Payload: []byte(`{"session_id":"s","hook_event_name":"Stop","cwd":"` + link + `"}`)},
		{Payload: []byte(`{"session_id":"s","hook_event_name":"Stop"}`), Cwd: link},
	} {
		in, err := ofUser("/home/u").Decode(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if got := in.Events[0].Workspace; got != folder {
			t.Errorf("workspace %q, want %q", got, folder)
		}
	}
}

func TestAccountTellsConfigHomesApart(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, ".claude"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, ".claude"), filepath.Join(dir, "same")); err != nil {
		t.Fatal(err)
	}

	for transcript, want := range map[string]string{
		dir + "/.claude/projects/-p/s.jsonl":              "",
		dir + "/same/projects/-p/s.jsonl":                 "",
		dir + "/acct/projects/-p/s.jsonl":                 dir + "/acct",
		dir + "/projects/x/.claude/projects/-p/s.jsonl":   dir + "/projects/x/.claude",
		dir + "/acct/projects/projects/s.jsonl":           dir + "/acct",
		"store/s.jsonl":                                   "",
		"work/projects/-p/s.jsonl":                        "",
		"":                                                "",
		dir + "/somewhere/s.jsonl":                        "",
		"/projects/-p/s.jsonl":                            "/",
		dir + "/.claude/projects/-p/../../../x/s.jsonl\n": "",
	} {
		if got := ofUser(dir).account(transcript); got != want {
			t.Errorf("account(%q) = %q, want %q", transcript, got, want)
		}
	}
}
