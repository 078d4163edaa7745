package droid

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
)

var update = flag.Bool("update", false, "write the golden file again")

func read(t testing.TB, path, session string) checkpoint.Batch {
	t.Helper()
	r := New(agent.Host{}).Open(agent.Source{Path: path, Session: session})
	defer r.Close() // read only
	b, err := r.Read(context.Background(), "", checkpoint.ReadOptions{Whole: true})
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// show writes entries as words.
func show(list []checkpoint.Entry) string {
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "%s %s", e.Kind, e.ID)
		for _, v := range []string{e.Turn, e.Name, e.Input, e.Output, e.Text, e.Workspace, e.Model, e.Session} {
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

// TestGolden: what files of Droid 0.225.2 come to, entry by entry.
func TestGolden(t *testing.T) {
	const golden = "testdata/golden.txt"
	files, err := filepath.Glob("testdata/[a-gi-z]*.captured.jsonl")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d files, %v, want 4", len(files), err)
	}

	var got strings.Builder
	for _, file := range files {
		b := read(t, file, headOf(file).ID)
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

// TestRecords: what no captured file holds.
func TestRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	put(t, path, `{"type":"session_start","id":"another","cwd":"/home/user"}
{"type":"message","id":"m1","message":{"role":"user","content":"as a text"}}
{"type":"message","id":"m2","message":{"role":"user","content":[{"type":"text","text":"hidden"}],"visibility":"llm_only"}}
{"type":"message","id":"m3","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"I see."}]}}
{"type":"message","id":"m3","message":{"role":"assistant","content":"once more"}}
{"type":"message","id":"m4","message":{"role":"user","content":{"of":"another form"}}}
{"type":"agent_turn_outcome","turnId":"m1","reason":"error","resultKind":"null"}
{"type":"something_new","id":"n"}
`)

	want := `meta another "/home/user" "another"
user m1 "m1" "as a text" "another"
assistant m3 "I see." "another"
turn-end end:m1 "m1" "another"
`

	if b := read(t, path, "asked"); show(b.Entries) != want || b.Losses.BadLines != 0 || b.Losses.Repeats != 1 {
		t.Errorf("got\n%s%+v\nwant\n%swith one repeat", show(b.Entries), b.Losses, want)
	}
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func payloads(t testing.TB) (list []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/hook-stdin.captured.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		list = append(list, s.Text())
	}

	return list
}

func TestDecode(t *testing.T) {
	list := payloads(t)
	for i, c := range []struct {
		event, want string
		ask         agent.Ask
	}{
		{"SessionStart", "start startup off", agent.AskStart},
		{"UserPromptSubmit", "prompt 33545c5e-0f1b-44c4-aa49-36a72bceac8a please start the work off", agent.AskCarry},
		{"PreToolUse", "", agent.AskNothing},
		{"Stop", "stop off", agent.AskNothing},
		{"PreCompact", "compacting auto auto-high", agent.AskNothing},
		{"SessionEnd", "end other off", agent.AskNothing},
	} {
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: c.event, Payload: []byte(list[i])})
		var got []string
		for _, e := range in.Events {
			for _, v := range []string{string(e.Kind), e.Turn, e.Text, e.Source, e.Reason, e.Mode} {
				if v != "" {
					got = append(got, v)
				}
			}
			if e.Workspace != "/home/user/proj" || !strings.HasSuffix(e.Transcript, e.Key.Session+".jsonl") {
				t.Errorf("%s: workspace %q, transcript %q", c.event, e.Workspace, e.Transcript)
			}
		}

		if strings.Join(got, " ") != c.want || in.Ask != c.ask || err != nil {
			t.Errorf("%s: got %q, ask %v, %v, want %q, %v", c.event, got, in.Ask, err, c.want, c.ask)
		}
	}

	for text, want := range map[string]error{
		"": payload.ErrNoObject, "null": payload.ErrNoObject, `{"cwd":"/x"}`: ErrNoSession,
	} {
		if _, err := New(
			agent.Host{},
		).Decode(
			t.Context(), agent.Hook{Event: "Stop", Payload: []byte(text)},
		); !errors.Is(
			err, want,
		) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

// TestSubAgent: a session that another one started is nobody's: it is not told of the dead, and nobody is told of it.
func TestSubAgent(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, ".factory", "sessions", "-x", "child.jsonl")
	put(
		t, path,
		`{"type":"session_start","id":"child","cwd":"/x","callingSessionId":"parent","callingToolUseId":"call_1"}`+"\n",
	)

	a := New(agenttest.Host(home))
	hook := agent.Hook{
		Event:   "SessionStart",
		Payload: fmt.Appendf(nil, `{"session_id":"child","transcript_path":%q,"source":"startup"}`, path),
	}

	if in, err := a.Decode(t.Context(), hook); err != nil || len(in.Events) != 0 || in.Ask != agent.AskNothing {
		t.Errorf("got %+v, %v, want nothing", in, err)
	}
	if found, err := a.Locate(t.Context(), agent.Query{}); err != nil || len(found) != 0 {
		t.Errorf("located %v, %v, want none", found, err)
	}
}

func TestReply(t *testing.T) {
	for _, c := range []struct{ event, text, want string }{
		{"SessionStart", "a <b>", `{"hookSpecificOutput":{"hookEventName":"SessionStart","additionalContext":"a <b>"}}`},
		{"UserPromptSubmit", "x", `{"hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":"x"}}`},
		{"SessionStart", "", ""},
		{"Stop", "x", ""},
	} {
		if got := string(New(agent.Host{}).Reply(c.event, c.text)); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.event, c.text, got, c.want)
		}
	}
}

func TestLocate(t *testing.T) {
	home := t.TempDir()
	text, err := os.ReadFile("testdata/told.captured.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	dir := filepath.Join(home, ".factory", "sessions", "-home-user-proj")
	session := headOf("testdata/told.captured.jsonl").ID
	put(t, filepath.Join(dir, session+".jsonl"), string(text))
	put(t, filepath.Join(dir, "broken.jsonl"), "x\n")
	for q, want := range map[agent.Query]int{
		{}: 1, {Session: session}: 1, {Workspace: "/home/user/proj"}: 1, {Workspace: "/home/user"}: 0, {Session: "absent"}: 0,
	} {
		found, err := New(agenttest.Host(home)).Locate(t.Context(), q)
		if err != nil || len(found) != want {
			t.Errorf("%+v: %v %v, want %d", q, found, err, want)
		}
	}

	if found, err := New(agent.Host{}).Locate(t.Context(), agent.Query{}); err != nil || len(found) != 0 {
		t.Errorf("without a home: %v, %v, want nothing", found, err)
	}
}

func TestRecognise(t *testing.T) {
	text, err := os.ReadFile("testdata/told.captured.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	for head, want := range map[string]bool{string(text): true, `{"type":"session","version":3}`: false, "": false} {
		if got := New(agent.Host{}).Recognise([]byte(head)) == agent.Mine; got != want {
			t.Errorf("%.80q: %v, want %v", head, got, want)
		}
	}
}

func TestResumeCommand(t *testing.T) {
	const session = "35ba6a62-6c19-4428-a9cd-08d82c97a11f"
	for id, want := range map[string]string{session: "droid --resume " + session, "$(x)": "droid --resume"} {
		if got := New(agent.Host{}).ResumeCommand(id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// TestInstall: each hook goes into the file from which Droid reads its event, a second install changes nothing, and
// what was there before comes back byte for byte.
func TestInstall(t *testing.T) {
	const (
		mine  = "{ // mine\n  \"model\": \"x\",\n  \"hooks\": {\"SessionEnd\": [ ]} }\n\n"
		alone = "{ \"Stop\" : [ {\"hooks\":[{\"type\":\"command\",\"command\":\"say done\"}]} ] }\n"
	)
	for name, files := range map[string]map[string]string{
		"nothing":                {},
		"settings":               {"settings.json": mine},
		"hooks.json":             {"settings.json": mine, "hooks.json": alone},
		"in the folder":          {"hooks/hooks.json": alone},
		"the folder's is hidden": {"hooks.json": alone, "hooks/hooks.json": `{"SessionStart":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			folder := filepath.Join(home, ".factory")
			for file, text := range files {
				put(t, filepath.Join(folder, file), text)
			}

			hook := filepath.Join(home, "belay-hook")
			put(t, hook, "#!/bin/sh\n")
			if err := os.Chmod(hook, 0o755); err != nil {
				t.Fatal(err)
			}

			a, p := New(agenttest.Host(home)), agent.Paths{Hook: hook}
			if _, err := a.Install(t.Context(), p, false); err != nil {
				t.Fatal(err)
			}
			if found := a.Check(t.Context(), p); len(found) != 0 {
				t.Errorf("after install: %q", found)
			}

			again, err := a.Install(t.Context(), p, false)
			if err != nil || slices.ContainsFunc(again, func(c agent.Change) bool { return c.Action != "keep" }) {
				t.Errorf("second install: %+v, %v, want nothing changed", again, err)
			}

			for file := range files {
				data, err := os.ReadFile(filepath.Join(folder, file))
				has := bytes.Contains(data, []byte(hook)) && bytes.Contains(data, []byte("--wait droid SessionStart"))
				stops := bytes.Contains(data, []byte("droid Stop"))
				hidden := file == "hooks/hooks.json" && files["hooks.json"] != ""
				if err != nil || has != (file == "settings.json") ||
					stops != (files[file] == alone && !hidden || files["hooks.json"]+files["hooks/hooks.json"] == "") {
					t.Errorf("%s: start %v, stop %v, %v\n%s", file, has, stops, err, data)
				}
			}

			if _, err := a.Uninstall(p, false); err != nil {
				t.Fatal(err)
			}

			for file, text := range files {
				if data, err := os.ReadFile(filepath.Join(folder, file)); err != nil || string(data) != text {
					t.Errorf("%s after uninstall: %q, %v, want %q", file, data, err, text)
				}
			}

			if left, _ := os.ReadDir(folder); len(files) == 0 && len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// FuzzLine: no line of a file is a panic.
func FuzzLine(f *testing.F) {
	text, err := os.ReadFile("testdata/terminal.captured.jsonl")
	if err != nil {
		f.Fatal(err)
	}

	for l := range strings.Lines(string(text)) {
		f.Add([]byte(l))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		New(agent.Host{}).Recognise(data)
		if len(data) == 0 {
			return
		}

		said := format("s")
		for _, e := range said.Entries(t.Context(), state{}, lines.Line{Data: data}) {
			if len(e.Text) > checkpoint.CutText+100 || len(e.Input) > checkpoint.CutTool+100 ||
				len(e.Output) > checkpoint.CutTool+100 {
				t.Errorf("%s: a text of %d bytes is not cut", e.Kind, len(e.Text)+len(e.Input)+len(e.Output))
			}
		}
	})
}

// FuzzDecode: no payload is a panic, and none that is an error means anything.
func FuzzDecode(f *testing.F) {
	for i, event := range []string{
		"SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "PreCompact", "SessionEnd",
	} {
		f.Add(event, []byte(payloads(f)[i]))
	}
	f.Fuzz(func(t *testing.T, event string, data []byte) {
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: event, Payload: data})
		if err != nil && len(in.Events) > 0 {
			t.Errorf("%v, and %d events", err, len(in.Events))
		}
	})
}
