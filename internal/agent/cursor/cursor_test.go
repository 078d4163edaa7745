package cursor

import (
	"bufio"
	"context"
	"errors"
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

const (
	handmade = "testdata/agent-transcript-tool-use.handmade.jsonl"
	session  = "c0000000-0000-4000-8000-000000000001"
)

func read(t testing.TB, path string, from checkpoint.Cursor, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	r := New(agent.Host{}).Open(agent.Source{Path: path, Session: session})
	defer r.Close() // read only
	b, err := r.Read(context.Background(), from, opt)
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// show writes entries as words: calls with a number in the order in which they are first seen.
func show(list []checkpoint.Entry) []string {
	var out, calls []string
	for _, e := range list {
		s := string(e.Kind)
		if e.Op != checkpoint.Upsert {
			s = string(e.Op)
		}

		if e.Call != "" {
			if !slices.Contains(calls, e.Call) {
				calls = append(calls, e.Call)
			}
			s += fmt.Sprint(" #", slices.Index(calls, e.Call)+1)
		}

		for _, v := range []string{e.Name, e.Input, e.Output, e.Text} {
			if v != "" {
				s += " " + v
			}
		}

		if e.MadeUp {
			s += " (unknown)"
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

func TestGolden(t *testing.T) {
	same(t, handmade, show(read(t, handmade, "", checkpoint.ReadOptions{Whole: true}).Entries), []string{
		"user add a greeting",
		"assistant I will read the file first.",
		`call #1 Read {"path":"/home/user/project/a.txt"}`,
		"result #1",
		`call #2 StrReplace {"path":"/home/user/project/a.txt","old_string":"hi","new_string":"hello"}`,
		"result #2",
		"assistant Done.",
	})
}

// TestCalls: a call is open while it is the newest thing, ended when the model goes on, and in doubt when a person
// does; and its name is the same for each reader, from wherever it reads.
func TestCalls(t *testing.T) {
	const (
		ask   = `{"role":"user","message":{"content":[{"type":"text","text":"deploy"}]}}` + "\n"
		two   = `{"role":"assistant","message":{"content":[{"type":"tool_use","name":"Shell","input":{"command":"a"}},{"type":"tool_use","name":"Shell","input":{"command":"b"}}]}}` + "\n"
		done  = `{"role":"assistant","message":{"content":"Deployed."}}` + "\n"
		again = `{"role":"user","message":{"content":"<user_query>go on</user_query>"}}` + "\n"
	)

	open := []string{"user deploy", `call #1 Shell {"command":"a"}`, `call #2 Shell {"command":"b"}`}
	for _, c := range []struct {
		rest string
		want []string
	}{
		{"", nil},
		{done, []string{"result #1", "result #2", "assistant Deployed."}},
		{again + done, []string{"result #1 (unknown)", "result #2 (unknown)", "user go on", "assistant Deployed."}},
	} {
		path := filepath.Join(t.TempDir(), session+".jsonl")
		if err := os.WriteFile(path, []byte(ask+two), 0o600); err != nil {
			t.Fatal(err)
		}

		first := read(t, path, "", checkpoint.ReadOptions{})
		if err := os.WriteFile(path, []byte(ask+two+c.rest), 0o600); err != nil {
			t.Fatal(err)
		}

		rest := read(t, path, first.Cursor, checkpoint.ReadOptions{})
		same(
			t, "in two reads", show(append(slices.Clone(first.Entries), rest.Entries...)),
			append(slices.Clone(open), c.want...),
		)

		whole := read(t, path, "", checkpoint.ReadOptions{Whole: true})
		if both := append(first.Entries, rest.Entries...); !slices.Equal(both, whole.Entries) {
			t.Errorf("%q: in two reads %v, at once %v", c.rest, both, whole.Entries)
		}

		state := checkpoint.NewState(checkpoint.NewKey(name, "", session, ""))
		state.Apply(checkpoint.Event{Seq: 1, Key: state.Key, Kind: checkpoint.EventEntries, Entries: whole.Entries})
		state.Apply(checkpoint.Event{Seq: 2, Key: state.Key, Kind: checkpoint.EventExit})
		if got, want := len(state.InDoubt()), map[string]int{"": 2, again + done: 2}[c.rest]; got != want {
			t.Errorf("%q: %d calls in doubt, want %d", c.rest, got, want)
		}
	}
}

func payloads(t testing.TB) (list []string) {
	t.Helper()
	file, err := os.Open("testdata/hook-stdin.handmade.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	defer file.Close() // read only
	for lines := bufio.NewScanner(file); lines.Scan(); {
		list = append(list, lines.Text())
	}

	return list
}

func TestDecode(t *testing.T) {
	list := payloads(t)
	head := strings.TrimSuffix(list[0], "}")
	other := func(event, rest string) string {
		return strings.Replace(head, `"sessionStart"`, `"`+event+`"`, 1) + rest + "}"
	}
	for _, c := range []struct{ payload, want string }{
		{list[0], "start ask=1"},
		{list[1], "tool-end call_1+ctc_1 Write {\"file_path\":\"/home/user/project/b.txt\",\"content\":\"x\"} {\"success\":true}"},
		{list[2], "stop"},
		{other("beforeSubmitPrompt", `,"prompt":"add a greeting"`), "prompt add a greeting"},
		{other("preToolUse", `,"tool_name":"Shell","tool_input":{"command":"ls"},"tool_use_id":"c9"`), `tool-start c9 Shell {"command":"ls"}`},
		{other("postToolUseFailure", `,"tool_name":"Shell","tool_use_id":"c9","error_message":"timed out"`), "tool-end c9 Shell timed out failed"},
		{other("preCompact", `,"trigger":"auto"`), "compacting auto"},
		{other("stop", `,"status":"aborted"`), "stop interrupted"},
		{other("stop", `,"status":"error"`), "stop failed"},
		{other("sessionEnd", `,"reason":"user_close"`), "end user_close"},
		{other("afterAgentThought", `,"text":"hm"`), ""},
	} {
		in, err := New(
			agent.Host{},
		).Decode(
			t.Context(), agent.Hook{Event: "from the command line", Payload: []byte(c.payload)},
		)

		if err != nil {
			t.Errorf("%s: %v", c.payload, err)
			continue
		}

		got := ""
		for _, e := range in.Events {
			if e.Key.Session != session || e.Workspace != "/home/user/project" ||
				strings.Contains(fmt.Sprintf("%+v", e), "example.com") {
				t.Errorf("%s: %+v; want that session and workspace, and no mail address", c.payload, e)
			}

			words := []string{string(e.Kind), e.Call, e.Name, e.Input, e.Output, e.Text, e.Reason, string(e.Outcome)}
			got = strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " ")
			if e.Failed {
				got += " failed"
			}
		}

		if in.Ask == agent.AskStart {
			got += " ask=1"
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.payload, got, c.want)
		}
	}

	for payload, want := range map[string]error{
		"": payload.ErrNoObject, "[]": payload.ErrNoObject, `{"a":`: payload.ErrNoObject,
		`{"hook_event_name":"stop"}`: ErrNoSession,
	} {
		if _, err := New(
			agent.Host{},
		).Decode(
			t.Context(), agent.Hook{Event: "stop", Payload: []byte(payload)},
		); !errors.Is(
			err, want,
		) {
			t.Errorf("%q: %v, want %v", payload, err, want)
		}
	}

	cut, err := New(
		agent.Host{},
	).Decode(
		t.Context(), agent.Hook{Payload: []byte(list[1][:len(list[1])-100]), Cut: true},
	)

	if err != nil || len(cut.Events) != 1 || cut.Events[0].Name != "Write" {
		t.Errorf("a payload that was cut: %+v, %v; want what stands whole in it", cut, err)
	}
}

func TestReply(t *testing.T) {
	for _, c := range []struct{ event, text, want string }{
		{"sessionStart", "<belay-record>", `{"additional_context":"<belay-record>"}`},
		{"sessionStart", "", ""},
		{"stop", "x", ""},
	} {
		if got := string(New(agent.Host{}).Reply(c.event, c.text)); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.event, c.text, got, c.want)
		}
	}
}

// TestLocate finds a session by id and by workspace, in both places, and takes no other workspace whose folder has the
// same name. The hooks of the command line, which name no transcript, find it too.
func TestLocate(t *testing.T) {
	home := t.TempDir()
	text, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	const second = "d0000000-0000-4000-8000-000000000002"
	dir := filepath.Join(home, ".cursor/projects/home-user-project/agent-transcripts")
	flat, nested := filepath.Join(dir, session+".jsonl"), filepath.Join(dir, second, second+".jsonl")
	for _, path := range []string{flat, nested, filepath.Join(dir, "notes.jsonl")} {
		data := text
		if filepath.Base(path) == "notes.jsonl" {
			data = []byte("{}\n")
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o400)); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct {
		q    agent.Query
		want []string
	}{
		{agent.Query{Session: second}, []string{nested}},
		{agent.Query{Session: session, Workspace: "/home/user/project"}, []string{flat}},
		{agent.Query{Workspace: "/home/user/project"}, []string{flat, nested}},
		{agent.Query{Workspace: "/home/user-project"}, nil},
		{agent.Query{Session: "absent"}, nil},
	} {
		found, err := New(agenttest.Host(home)).Locate(context.Background(), c.q)
		var got []string
		for _, f := range found {
			got = append(got, f.Path)
		}

		slices.Sort(got)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v %v, want %v", c.q, got, err, c.want)
		}
	}

	in, err := New(agenttest.Host(home)).Decode(t.Context(), agent.Hook{Payload: []byte(payloads(t)[0])})
	if err != nil || in.Events[0].Transcript != flat {
		t.Errorf("a hook without a path: %+v %v, want %s", in, err, flat)
	}
}

func TestRecognise(t *testing.T) {
	text, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	for head, want := range map[string]bool{
		string(text):       true,
		string(text[:120]): true, // a part of the file, from its beginning
		`{"type":"message","message":{"role":"user","content":[]}}`: false,
		`{"role":"user","content":"x"}`:                             false,
		`{"role":"user","message":{"content":[]},"uuid":"x"}`:       false,
		"": false, "role": false, `{"role":"x","message":`: false,
	} {
		if got := New(agent.Host{}).Recognise([]byte(head)) == agent.Mine; got != want {
			t.Errorf("%.80q: %v, want %v", head, got, want)
		}
	}
}

func FuzzLine(f *testing.F) {
	data, err := os.ReadFile(handmade)
	if err != nil {
		f.Fatal(err)
	}

	for l := range strings.Lines(string(data)) {
		f.Add([]byte(l))
	}

	path := filepath.Join(f.TempDir(), "t.jsonl")
	f.Fuzz(func(t *testing.T, data []byte) {
		New(agent.Host{}).Recognise(data)
		if len(data) == 0 {
			return
		}

		twice := slices.Concat(data, []byte("\n"), data, []byte("\n")) // the second closes what the first left open
		if err := os.WriteFile(path, twice, 0o600); err != nil {
			t.Fatal(err)
		}

		r := lines.NewReader(path, format)
		defer r.Close()
		b, err := r.Read(t.Context(), "", checkpoint.ReadOptions{Whole: true})
		if err != nil {
			t.Fatal(err)
		}

		for _, e := range b.Entries {
			if len(e.Text) > checkpoint.CutText || len(e.Input) > checkpoint.CutTool || len(e.ID) > 300 {
				t.Errorf("an entry over its bounds: %+v", e)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, p := range payloads(f) {
		f.Add([]byte(p), false)
		f.Add([]byte(p[:len(p)/2]), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut bool) {
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: "stop", Payload: data, Cut: cut})
		if err != nil && len(in.Events) > 0 {
			t.Errorf("%v, and %d events", err, len(in.Events))
		}
	})
}
