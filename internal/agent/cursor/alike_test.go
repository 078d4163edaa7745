package cursor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
)

func TestAlike(t *testing.T) {
	type call struct{ tool, input string }
	for _, c := range []struct {
		name string
		a, b call
		want bool
	}{
		{"the same", call{"Shell", `{"command":"make"}`}, call{"Shell", `{"command":"make"}`}, true},
		{"a folder beside the command", call{"Shell", `{"command":"make","cwd":"/p"}`}, call{"Shell", `{"command":"make\n","description":"build"}`}, true},
		{"another command", call{"Shell", `{"command":"make"}`}, call{"Shell", `{"command":"make all"}`}, false},
		{"an edit", call{"Write", `{"file_path":"/p/a","content":"x"}`}, call{"StrReplace", `{"path":"/p/a","old_string":"y","new_string":"x"}`}, true},
		{"a read is no edit", call{"Read", `{"path":"/p/a"}`}, call{"StrReplace", `{"path":"/p/a"}`}, false},
		{"another file", call{"Read", `{"path":"/p/a"}`}, call{"Read", `{"path":"/p/b"}`}, false},
		{"arguments in another order", call{"Grep", `{"pattern":"x", "path":"/p"}`}, call{"grep", `{"path":"/p","pattern":"x"}`}, true},
		{"another pattern in the same place", call{"Grep", `{"pattern":"x","path":"/p"}`}, call{"Grep", `{"pattern":"y","path":"/p"}`}, false},
		{"no object", call{"x", `"a"`}, call{"x", `"b"`}, false},
		{"nothing", call{"x", ``}, call{"x", ``}, true},
	} {
		a, b := alike(c.a.tool, json.RawMessage(c.a.input)), alike(c.b.tool, json.RawMessage(c.b.input))
		if got := a == b; got != c.want || a == 0 {
			t.Errorf("%s: alike %v, want %v", c.name, got, c.want)
		}
	}
}

// TestCallsCountOnce: hooks and file tell of the same two calls, in whichever order they come.
func TestCallsCountOnce(t *testing.T) {
	const head = `{"conversation_id":"` + session + `","generation_id":"g1","workspace_roots":["/home/user/project"],"transcript_path":null,"hook_event_name":`
	hooks := []string{
		head + `"beforeSubmitPrompt","prompt":"add a greeting"}`,
		head + `"preToolUse","tool_name":"Read","tool_input":{"file_path":"/home/user/project/a.txt"},"tool_use_id":"call_1\nctc_1"}`,
		head + `"postToolUse","tool_name":"Read","tool_input":{"file_path":"/home/user/project/a.txt"},"tool_output":"hi","tool_use_id":"call_1\nctc_1"}`,
		head + `"preToolUse","tool_name":"Write","tool_input":{"file_path":"/home/user/project/a.txt","content":"hello"},"tool_use_id":"call_2\nctc_2"}`,
		head + `"postToolUseFailure","tool_name":"Write","tool_input":{"file_path":"/home/user/project/a.txt"},"error_message":"no such text","tool_use_id":"call_2\nctc_2"}`,
		head + `"stop","status":"completed"}`,
	}

	file := read(t, handmade, "", checkpoint.ReadOptions{Whole: true}).Entries
	for _, c := range []struct{ name, order, want string }{ // h: the next hook, f: the next entry of the file
		{"hooks first", "hhhhhh fffffff", "1 rounds, read done, write failed"},
		{"file first, and the hooks waited in the spool", "fffffff hhhhhh", "1 rounds, read done, write done"},
		{"the record before its call", "h fff hh ff hh f h", "1 rounds, read done, write failed"},
		{"the record after its call", "hh fff h h ff hh f", "1 rounds, read done, write failed"},
		{"killed before the record", "hh fff hh", "0 rounds, read done, write open"},
		{"killed after it", "h fff hh ff h", "0 rounds, read done, write open"},
		{"hooks alone", "hhhhhh", "1 rounds, read done, write failed"},
	} {
		s := checkpoint.NewState(checkpoint.NewKey(name, "", session, "/home/user/project"))
		now, hook, entry := time.Unix(1_000_000, 0), hooks, file
		for _, next := range strings.ReplaceAll(c.order, " ", "") {
			now = now.Add(time.Second)
			e := checkpoint.Event{Kind: checkpoint.EventEntries, Cursor: "c"}
			if next == 'f' {
				e.Entries, entry = entry[:1], entry[1:]
			} else {
				in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Payload: []byte(hook[0])})
				if err != nil {
					t.Fatal(err)
				}
				e, hook = in.Events[0], hook[1:]
			}

			if e.At = now; next == 'h' && len(entry) == 0 {
				e.At = time.Unix(999_000, 0)
			}

			e.Seq, e.Key = s.Seq+1, s.Key
			s.Apply(e)
		}

		got := fmt.Sprintf("%d rounds", s.Rounds)
		for _, call := range s.Calls {
			got += ", " + kinds[strings.ToLower(call.Name)] + " " + string(call.State)
		}

		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
