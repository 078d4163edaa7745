package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/wire"
	"belay/recovery"
)

// endless is how an agent's hooks tell of a conversation. end is the event that need never come.
var endless = []struct {
	agent       string
	prompt, end string
	stop        string
	answer      string // the field of the stop that holds the answer
}{
	{"claude-code", "UserPromptSubmit", "SessionEnd", "Stop", "last_assistant_message"},
	{"codex", "UserPromptSubmit", "SessionEnd", "Stop", "last_assistant_message"},
	{"gemini", "BeforeAgent", "SessionEnd", "AfterAgent", "prompt_response"},
}

// N07: an event that an agent does not have, or never sends, is no error: the same conversation with and without the
// end of the session gives the same recovery.
func TestN07TheEndNeverComes(t *testing.T) {
	for _, c := range endless {
		t.Run(c.agent, func(t *testing.T) {
			a, ok := all.ByName(agent.Host{}, c.agent)
			if !ok || !slices.ContainsFunc(a.Events(), func(e agent.EventSpec) bool { return e.Name == c.end }) {
				t.Fatalf("%s has no event %s in its table", c.agent, c.end)
			}

			var got []recovery.Result
			for _, ends := range []bool{true, false} {
				home(t)
				r := start(t, tempDir(t))
				pid, kill := agentProcess(t)
				send := func(event string, more payload) {
					t.Helper()
					p := payload{"hook_event_name": event, "session_id": sessionA, "cwd": "/proj"}
					for k, v := range more {
						p[k] = v
					}

					if reply, _ := r.do(
						wire.Request{Op: "hook", Agent: c.agent, Event: event, PID: pid}, mustJSON(t, p),
					); !reply.OK {
						t.Fatalf("%s: %+v", event, reply)
					}
				}

				send("SessionStart", payload{"source": "startup"})
				for i := range 3 {
					send(c.prompt, payload{"prompt": fmt.Sprint("wish ", i), "turn_id": fmt.Sprint("t", i)})
					send(
						c.stop,
						payload{
							c.answer:  fmt.Sprint("answer ", i),
							"prompt":  fmt.Sprint("wish ", i),
							"turn_id": fmt.Sprint("t", i),
						},
					)
				}

				if ends {
					send(c.end, payload{"reason": "exit"})
				} else {
					kill()
				}

				until(t, "the end is known", func() bool {
					s := r.session(c.agent, sessionA).State
					return s == "ended" || s == "died"
				})

				until(t, "a FULL holds all of it", func() bool {
					list := r.checkpoints(c.agent, sessionA)
					return len(list) > 0 && strings.Contains(string(fileOf(t, r, sessionA, list[0].Number)), "answer 2")
				})

				if n := r.session(c.agent, sessionA).MessageCount; n != 3 {
					t.Errorf("ends %v: %d rounds, want 3", ends, n)
				}

				got = append(got, r.recover(c.agent, sessionA))
			}

			if with, without := wordsOf(
				got[0],
			), wordsOf(
				got[1],
			); with != without || !strings.Contains(with, "wish 0") ||
				!strings.Contains(with, "answer 2") {
				t.Errorf("with an end: %q\nwithout: %q\nwant the same words, all of them", with, without)
			}
		})
	}
}

// wordsOf is all that was said, in order, by whom.
func wordsOf(r recovery.Result) string {
	var list []string
	for _, m := range r.Messages {
		list = append(list, m.Role+": "+m.Text)
	}
	return r.Task + "; " + strings.Join(list, "; ")
}

// N07: every agent that can be wired has a table of its events; and none is named twice.
func TestN07EveryAgentHasItsTableOfEvents(t *testing.T) {
	for _, a := range all.All(agent.Host{}) {
		_, wired := a.(agent.Installer)
		seen := map[string]bool{}
		for _, e := range a.Events() {
			if e.Name == "" || seen[e.Name] {
				t.Errorf("%s: event %+v, want a name of its own", a.Name(), e)
			}
			seen[e.Name] = true
		}

		if wired && len(seen) == 0 {
			t.Errorf("%s can be wired and has no table of events", a.Name())
		}
	}
}
