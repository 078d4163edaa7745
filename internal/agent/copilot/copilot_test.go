package copilot

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
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
)

const (
	handmade = "testdata/events.handmade.jsonl"
	session  = "4de47255-3d43-4938-b8fa-000000000001"
)

func read(t testing.TB, path string, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	r := New(agent.Host{}).Open(agent.Source{Path: path, Session: session})
	defer r.Close() // read only
	b, err := r.Read(context.Background(), "", opt)
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// show writes entries as words.
func show(list []checkpoint.Entry) []string {
	var out []string
	for _, e := range list {
		s := string(e.Kind)
		for _, v := range []string{e.Call, e.Name, e.Input, e.Output, e.Text, e.Workspace, e.Child, e.Session} {
			if v != "" {
				s += " " + v
			}
		}

		if e.Failed {
			s += " failed"
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
	b := read(t, handmade, checkpoint.ReadOptions{Whole: true})
	const call = `call toolu_01 bash {"command":"echo hello"}`
	same(t, handmade, show(b.Entries), []string{"meta /home/user/project", "user run echo hello", call, call,
		"result toolu_01 hello\n<exited with exit code 0>", "assistant It printed hello.", "turn-end"})
	if b.Entries[2].ID != b.Entries[3].ID {
		t.Errorf("the two records of one call give entries %s and %s, want one", b.Entries[2].ID, b.Entries[3].ID)
	}
	if want := time.Date(2026, 7, 12, 12, 59, 9, 0, time.UTC); !b.Entries[5].At.Equal(want) {
		t.Errorf("the answer is of %v, want %v", b.Entries[5].At, want)
	}

	state := checkpoint.NewState(checkpoint.NewKey(name, "", session, ""))
	state.Apply(checkpoint.Event{Seq: 1, Key: state.Key, Kind: checkpoint.EventEntries, Entries: b.Entries})
	if state.Rounds != 1 || len(state.InDoubt()) != 0 || state.InTurn() {
		t.Errorf(
			"%d rounds, %d in doubt, in turn %v; want 1, 0, false", state.Rounds, len(state.InDoubt()),
			state.InTurn(),
		)
	}
}

// TestRecords: each kind of record that belay reads, and those that mean nothing.
func TestRecords(t *testing.T) {
	var b strings.Builder
	for i, r := range []string{
		`"type":"session.start","data":{"sessionId":"another","copilotVersion":"1"}`,
		`"type":"user.message","data":{"content":"go","transformedContent":"<belay-record k=\"0123456789ab\">x</belay-record k=\"0123456789ab\">go"}`,
		`"type":"assistant.message","ephemeral":true,"data":{"content":"a piece"}`,
		`"type":"assistant.message","data":{"content":"I start.","toolRequests":[{"toolCallId":"c1","name":"task"}]}`,
		`"type":"assistant.message","data":{"content":"of the sub-agent","toolRequests":[],"parentToolCallId":"c1"}`,
		`"type":"assistant.turn_end","data":{"parentToolCallId":"c1"}`,
		`"type":"assistant.turn_end","data":{}`,
		`"type":"tool.execution_complete","data":{"toolCallId":"c1","success":false,"error":{"message":"no such file"}}`,
		`"type":"session.compaction_complete","data":{"success":true,"summaryContent":"what was"}`,
		`"type":"session.compaction_complete","data":{"success":false}`,
		`"type":"abort","data":{"reason":"user"}`,
		`"type":"something.new","data":[1]`,
		`"type":7,"data":"x"`,
	} {
		fmt.Fprintf(&b, `{%s,"id":"r%d"}`+"\n", r, i)
	}

	path := filepath.Join(t.TempDir(), eventsFile)
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	got := read(t, path, checkpoint.ReadOptions{Whole: true})
	same(
		t,
		"records",
		show(got.Entries),
		[]string{
			"user go another",
			"own another",
			"assistant I start. another",
			"call c1 task another",
			"assistant of the sub-agent c1 another",
			"result c1 no such file another failed",
			"compaction what was another",
			"interrupt another",
		},
	)

	if got.Losses.BadLines != 0 {
		t.Errorf("%d bad lines, want none: kinds that are not known are no fault", got.Losses.BadLines)
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
	for _, c := range []struct{ event, payload, want string }{
		{"userPromptSubmitted", list[0], "prompt run echo hello"},
		{"sessionStart", list[1], "start startup"},
		{"sessionStart", strings.Replace(list[1], `"new"`, `"resume"`, 1), "start resume"},
		{"agentStop", list[2], "stop end_turn"},
		{"sessionEnd", list[3], "end complete"},
		{"preCompact", list[3], "compacting"},
		{"preToolUse", list[3], ""},
	} {
		in, err := New(
			agenttest.Host("/home/user"),
		).Decode(
			t.Context(), agent.Hook{Event: c.event, Payload: []byte(c.payload)},
		)

		if err != nil {
			t.Errorf("%s: %v", c.payload, err)
			continue
		}

		got := ""
		for _, e := range in.Events {
			if e.Key.Session != session || e.Workspace != "/home/user/project" ||
				e.Transcript != "/home/user/.copilot/session-state/"+session+"/events.jsonl" {
				t.Errorf("%s: %+v; want that session, workspace and transcript", c.payload, e)
			}
			words := []string{string(e.Kind), e.Text, e.Source, e.Reason}
			got = strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " ")
		}

		if got != c.want || (in.Ask == agent.AskStart) != (c.event == "sessionStart") {
			t.Errorf("%s %s: %q, ask %v; want %q", c.event, c.payload, got, in.Ask, c.want)
		}
	}

	for payload, want := range map[string]error{
		"": payload.ErrNoObject, "null": payload.ErrNoObject, `{"cwd":"/x"}`: ErrNoSession,
	} {
		if _, err := New(
			agent.Host{},
		).Decode(
			t.Context(), agent.Hook{Event: "agentStop", Payload: []byte(payload)},
		); !errors.Is(
			err, want,
		) {
			t.Errorf("%q: %v, want %v", payload, err, want)
		}
	}
}

// The program tells the first prompt before the start of its session: that is one turn, and no death.
func TestPromptBeforeStart(t *testing.T) {
	list := payloads(t)
	var state *checkpoint.State
	proc := &checkpoint.Proc{PID: 7, Start: 1}
	for i, event := range []string{"userPromptSubmitted", "sessionStart", "agentStop"} {
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: event, Payload: []byte(list[i])})
		if err != nil {
			t.Fatal(err)
		}

		e := in.Events[0]
		if state == nil {
			state = checkpoint.NewState(e.Key)
		}

		e.Seq, e.At, e.Proc = uint64(i+1), time.Unix(int64(i), 0), proc
		state.Apply(e)
	}

	if state.Rounds != 1 || state.Deaths != 0 {
		t.Errorf("%d rounds, %d deaths; want 1 and 0", state.Rounds, state.Deaths)
	}
}

func TestReply(t *testing.T) {
	for _, c := range []struct{ event, text, want string }{
		{"sessionStart", "<belay-record>", `{"additionalContext":"<belay-record>"}`},
		{"sessionStart", "", ""},
		{"userPromptSubmitted", "x", ""},
	} {
		if got := string(New(agent.Host{}).Reply(c.event, c.text)); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.event, c.text, got, c.want)
		}
	}
}

func TestLocate(t *testing.T) {
	home := t.TempDir()
	text, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(home, ".copilot/session-state", session, eventsFile)
	for file, data := range map[string][]byte{path: text, filepath.Join(home, ".copilot/session-state/other", eventsFile): []byte("{}\n")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, data, 0o400)); err != nil {
			t.Fatal(err)
		}
	}

	for q, want := range map[agent.Query]int{{}: 1, {Session: session}: 1, {Workspace: "/home/user/project"}: 1, {Workspace: "/home/user"}: 0, {Session: "absent"}: 0} {
		found, err := New(agenttest.Host(home)).Locate(context.Background(), q)
		if err != nil || len(found) != want {
			t.Errorf("%+v: %v %v, want %d", q, found, err, want)
		}
		if len(found) > 0 &&
			(found[0].Path != path || found[0].Session != session || found[0].Workspace != "/home/user/project") {
			t.Errorf("%+v: %+v", q, found[0])
		}
	}
}

func TestRecognise(t *testing.T) {
	text, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	for head, want := range map[string]bool{string(text): true, `{"type":"session","version":3}`: false, "": false} {
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

	f.Fuzz(func(t *testing.T, data []byte) {
		New(agent.Host{}).Recognise(data)
		if len(data) == 0 {
			return
		}

		said := format(session)
		said.Learn(lines.NewSeen(2), lines.Line{Data: data})
		for _, e := range said.Entries(t.Context(), state{}, lines.Line{Data: data}) {
			if len(e.Text) > checkpoint.CutText || len(e.Input) > checkpoint.CutTool ||
				len(e.Output) > checkpoint.CutTool ||
				len(e.ID) > 300 {
				t.Errorf("an entry over its bounds: %+v", e)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	for i, event := range []string{"userPromptSubmitted", "sessionStart", "agentStop", "sessionEnd"} {
		f.Add(event, []byte(payloads(f)[i]))
	}
	f.Fuzz(func(t *testing.T, event string, data []byte) {
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: event, Payload: data})
		if err != nil && len(in.Events) > 0 {
			t.Errorf("%v, and %d events", err, len(in.Events))
		}
	})
}
