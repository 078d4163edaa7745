package copilot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
)

// TestCallsCountOnce: hooks and file tell of the same round, in whichever order they come. A hook of a tool, from
// another's settings, has no id of its call and adds none.
func TestCallsCountOnce(t *testing.T) {
	list := payloads(t)
	tool := func(rest string) string {
		return `{"timestamp":1771480083000,"cwd":"/home/user/project","sessionId":"` + session + `","toolName":"bash","toolArgs":"{\"command\":\"echo hello\"}"` + rest + `}`
	}
	hooks := [][2]string{
		{"userPromptSubmitted", list[0]},
		{"sessionStart", list[1]},
		{"preToolUse", tool("")},
		{
			"postToolUse",
			tool(`,"toolResult":{"resultType":"success","textResultForLlm":"hello"}`),
		},
		{"agentStop", list[2]},
		{"sessionEnd", list[3]},
	}

	file := read(t, handmade, checkpoint.ReadOptions{Whole: true}).Entries
	for _, c := range []struct{ name, order, want string }{ // h: the next hook, f: the next entry of the file
		{"hooks first", "hhhhhh fffffff", "1 rounds, toolu_01 done"},
		{"file first", "fffffff hhhhhh", "1 rounds, toolu_01 done"},
		{"together", "h f h ff h ff h f h f h", "1 rounds, toolu_01 done"},
		{"killed in the call", "hh ffff h", "0 rounds, toolu_01 open"},
	} {
		s := checkpoint.NewState(checkpoint.NewKey(name, "", session, "/home/user/project"))
		now, hook, entry := time.Unix(1_771_480_081, 0), hooks, file
		for _, next := range strings.ReplaceAll(c.order, " ", "") {
			e := checkpoint.Event{Kind: checkpoint.EventEntries, Cursor: "c"}
			if next == 'f' {
				e.Entries, entry = entry[:1], entry[1:]
			} else {
				in, err := New(
					agent.Host{},
				).Decode(
					t.Context(), agent.Hook{Event: hook[0][0], Payload: []byte(hook[0][1])},
				)

				if err != nil {
					t.Fatal(err)
				}
				if hook = hook[1:]; len(in.Events) == 0 {
					continue
				}

				e = in.Events[0]
			}

			now = now.Add(time.Second)
			e.At, e.Seq, e.Key = now, s.Seq+1, s.Key
			s.Apply(e)
		}

		got := fmt.Sprintf("%d rounds", s.Rounds)
		for _, call := range s.Calls {
			got += ", " + call.ID + " " + string(call.State)
		}

		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
