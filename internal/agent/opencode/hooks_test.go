package opencode

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
)

const who = `"session_id":"` + ses + `","directory":"/home/user/proj","database":"/data/opencode.db","model":"m","message_id":"msg_0001a"`

// showEvent writes what an event says in one line.
func showEvent(e checkpoint.Event) string {
	s := string(e.Kind)
	for _, f := range []struct{ key, value string }{
		{" ", e.Source}, {" ", string(e.Outcome)}, {" ", e.Text}, {" ", e.Reason}, {" call=", e.Call}, {" ", e.Name}, {" in=", e.Input}, {" out=", e.Output},
		{" child=", e.Child}, {" name=", e.ChildName}, {" parent=", e.Parent}, {" of=", e.Key.Child},
	} {
		if f.value != "" {
			s += f.key + f.value
		}
	}

	for _, f := range []struct {
		key string
		on  bool
	}{{" !failed", e.Failed}, {" !background", e.Background}, {fmt.Sprintf(" %d", e.Count), e.Count > 0}} {
		if f.on {
			s += f.key
		}
	}

	return s
}

func TestDecode(t *testing.T) {
	const child = `"session_id":"ses_child","root_id":"` + ses + `","agent":"general","directory":"/home/user/proj"`
	tool := func(state string) string {
		return `{` + who + `,"part":{"id":"prt_1","tool":"bash","state":` + state + `}}`
	}
	for _, c := range []struct{ event, payload, want string }{
		{eventStart, `{` + who + `,"source":"startup"}`, "start startup; owed"},
		{eventStart, `{` + who + `,"source":"resume"}`, "start resume; owed"},
		{eventStart, `{` + who + `,"source":"clear"}`, "start clear"},
		{eventStart, `{` + who + `,"source":"nonsense"}`, "start; owed"},
		{eventStart, `{` + child + `,"source":"startup"}`, "child-start child=ses_child name=general; start name=general parent=" + ses + " of=ses_child"},
		{eventPrompt, `{` + who + `,"parts":[{"type":"text","text":"do it"},{"type":"text","synthetic":true,"text":"not mine"},{"type":"file","filename":"a.png"}]}`, "prompt do it\n[file a.png]"},
		{eventToolStart, tool(`{"status":"running","input":{"command":"ls"}}`), `tool-start call=prt_1 bash in={"command":"ls"}`},
		{eventToolEnd, tool(`{"status":"completed","input":{},"output":"a","metadata":{"exit":0}}`), "tool-end call=prt_1 bash out=a"},
		{eventToolEnd, tool(`{"status":"completed","input":{},"output":"a","metadata":{"exit":2}}`), "tool-end call=prt_1 bash out=a !failed"},
		{eventToolEnd, tool(`{"status":"completed","input":{},"output":"a","metadata":{"exit":null}}`), "tool-end call=prt_1 bash out=a !failed"},
		{eventToolEnd, tool(`{"status":"completed","input":{},"output":"a","metadata":{}}`), "tool-end call=prt_1 bash out=a"},
		{eventToolEnd, tool(`{"status":"error","input":{},"error":"Tool execution aborted"}`), "tool-end call=prt_1 bash out=Tool execution aborted !failed"},
		{eventIdle, `{` + who + `,"text":"done"}`, "stop done"},
		{eventIdle, `{` + who + `,"text":"half","error":{"name":"MessageAbortedError"}}`, "stop interrupted"},
		{eventIdle, `{` + who + `,"error":{"name":"APIError","data":{"message":"Bad Request"}}}`, "stop failed APIError: Bad Request"},
		{eventIdle, `{` + child + `,"text":"done"}`, "stop done of=ses_child; child-end child=ses_child; end parent=" + ses + " of=ses_child"},
		{eventCompacting, `{` + who + `}`, "compacting"},
		{eventCompacted, `{` + who + `}`, "compacted"},
		{eventDispose, `{` + who + `}`, "end dispose"},
		{eventDropped, `{` + who + `,"count":7}`, "dropped 7"},
		{"wake", ``, ""},
		{"something.new", `{` + who + `}`, ""},
	} {
		in, err := New(
			agent.Host{},
		).Decode(
			t.Context(), agent.Hook{Event: c.event, Payload: []byte(c.payload), Cwd: "/elsewhere"},
		)

		if err != nil {
			t.Errorf("%s: %v", c.event, err)
			continue
		}

		var got []string
		for _, e := range in.Events {
			got = append(got, showEvent(e))
			if e.Key.Session != ses || e.Key.Workspace != folder {
				t.Errorf("%s: key %+v, want the session in its folder", c.event, e.Key)
			}
		}

		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s %s: got %q, want %q", c.event, c.payload, s, c.want)
		}
		if carries := in.Ask == agent.AskCarry; carries != (c.event == eventPrompt) {
			t.Errorf("%s: carries a brief: %v", c.event, carries)
		}
	}

	for payload, want := range map[string]error{
		"": ErrBadPayload, "null": ErrBadPayload, "[]": ErrBadPayload, "{": ErrBadPayload, "{}": ErrNoSession,
		`{"session_id":7}`: ErrNoSession,
	} {
		if _, err := New(
			agent.Host{},
		).Decode(
			t.Context(), agent.Hook{Event: eventIdle, Payload: []byte(payload)},
		); !errors.Is(
			err, want,
		) {
			t.Errorf("%q: got %v, want %v", payload, err, want)
		}
	}
}

// TestBothWitnesses: a turn that plugin and database tell of, in either order, is one round with one call and one
// answer.
func TestBothWitnesses(t *testing.T) {
	w := newWriter(t, true)
	w.session(ses, "", folder)
	w.turn(ses, 1)
	b := readFrom(t, w.source(), "", checkpoint.ReadOptions{Whole: true})
	var hooks []checkpoint.Event
	for _, h := range []struct{ event, rest string }{
		{eventStart, `,"source":"startup"`},
		{eventPrompt, `,"parts":[{"type":"text","text":"prompt 1"}]`},
		{eventToolStart, `,"part":{"id":"prt_0001b","tool":"bash","state":{"status":"running","input":{"command":"ls"}}}`},
		{eventToolEnd, `,"part":{"id":"prt_0001b","tool":"bash","state":{"status":"completed","output":"a.txt\n","metadata":{"exit":0}}}`},
		{eventIdle, `,"text":"answer 1"`},
	} {
		in, err := New(
			agent.Host{},
		).Decode(
			t.Context(), agent.Hook{Event: h.event, Payload: []byte("{" + who + h.rest + "}")},
		)

		if err != nil {
			t.Fatal(err)
		}

		hooks = append(hooks, in.Events...)
	}

	key := hooks[0].Key
	file := checkpoint.Event{Key: key, Kind: checkpoint.EventEntries, Entries: b.Entries, Cursor: b.Cursor}
	for name, list := range map[string][]checkpoint.Event{
		"plugin first":   append(append([]checkpoint.Event{}, hooks...), file),
		"database first": append([]checkpoint.Event{hooks[0], file}, hooks[1:]...),
		"plugin alone":   hooks,
		"database alone": {hooks[0], file},
	} {
		s := checkpoint.NewState(key)
		at := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)
		for i, e := range list {
			e.Seq, e.At = uint64(i+1), at.Add(time.Duration(i)*time.Second)
			s.Apply(e)
		}

		var said []string
		for _, m := range s.Messages {
			said = append(said, string(m.Role)+" "+m.Text)
		}

		if got := strings.Join(
			said, "; ",
		); s.Rounds != 1 || got != "user prompt 1; assistant answer 1" || len(s.Calls) > 1 ||
			s.Chain {
			t.Errorf(
				"%s: got %d rounds, %q, %d calls, chain %v, want one round with its words and its call", name,
				s.Rounds, got, len(s.Calls), s.Chain,
			)
		}
	}
}

func TestAgentWords(t *testing.T) {
	a := New(agent.Host{})
	if got := string(a.Reply(eventPrompt, "text")); got != "text" {
		t.Errorf("Reply: got %q, want the text", got)
	}
	if got := a.Reply(eventIdle, "text"); got != nil {
		t.Errorf("Reply at an event that carries nothing: got %q", got)
	}
	if got, want := a.ResumeCommand("it's"), `opencode --session 'it'\''s'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := a.Watch("/d/opencode.db"); len(got) != 2 || got[1] != "/d/opencode.db-wal" {
		t.Errorf("Watch: got %v, want the database and its log", got)
	}
}

// FuzzDecode: no payload stops the daemon, and what comes out is fit to keep.
func FuzzDecode(f *testing.F) {
	for _, e := range New(agent.Host{}).Events() {
		f.Add(
			e.Name,
			`{`+who+`,"part":{"id":"p","state":{"status":"error"}},"parts":[{"type":"text","text":"x"}],"error":{"name":"n"}}`,
		)
	}
	f.Fuzz(func(t *testing.T, event, data string) {
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: event, Payload: []byte(data)})
		if err != nil && len(in.Events) > 0 {
			t.Errorf("an error and events: %v", err)
		}

		for _, e := range in.Events {
			if len(e.Text) > checkpoint.CutText || len(e.Input) > checkpoint.CutTool ||
				len(e.Output) > checkpoint.CutTool ||
				e.Key.Session == "" {
				t.Errorf("%+v", e)
			}
			if _, err := json.Marshal(e); err != nil {
				t.Error(err)
			}
		}
	})
}
