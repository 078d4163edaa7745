package claude

import (
	"strconv"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
)

const notice = "<task-notification>\n<task-id>a1</task-id>\n<tool-use-id>toolu_9</tool-use-id>\n<status>completed</status>\n<summary>done</summary>\n</task-notification>"

// A call that went on in the background ends with the program's own notice, by the hook and by the file.
func TestTaskNotificationEndsTheCall(t *testing.T) {
	in, err := New(
		agent.Host{},
	).Decode(
		t.Context(),
		agent.Hook{
			Event: "UserPromptSubmit",
			Payload: []byte(
				`{"session_id":"11111111-1111-4111-8111-111111111111","hook_event_name":"UserPromptSubmit","prompt":` + strconv.Quote(
					notice,
				) + `}`,
			),
		},
	)

	if err != nil {
		t.Fatal(err)
	}

	if len(in.Events) != 2 || !in.Events[0].Aside || in.Events[1].Kind != checkpoint.EventToolEnd ||
		in.Events[1].Call != "toolu_9" ||
		in.Events[1].Failed {
		t.Errorf("got %+v; want an aside prompt and the end of toolu_9", in.Events)
	}

	r, _ := transcript(t, []byte(userLine("u1", strconv.Quote(notice))+"\n"))
	b := all(t, r, "", whole)
	last := b.Entries[len(b.Entries)-1]
	if last.Kind != checkpoint.EntryResult || last.Call != "toolu_9" || last.Failed {
		t.Errorf("got %+v; want the result of toolu_9", last)
	}
}

func TestTaskEnd(t *testing.T) {
	for _, c := range []struct {
		notice, call string
		failed       bool
	}{
		{notice, "toolu_9", false},
		{"<task-notification><tool-use-id>c1</tool-use-id><status>failed</status>", "c1", true},
		{"<task-notification><tool-use-id>c1</tool-use-id><status>running</status>", "", false},
		{"<task-notification><status>completed</status>", "", false},
		{"<task-notification>", "", false},
	} {
		if call, failed := taskEnd(c.notice); call != c.call || failed != c.failed {
			t.Errorf("taskEnd(%q) = %q, %v; want %q, %v", c.notice, call, failed, c.call, c.failed)
		}
	}
}
