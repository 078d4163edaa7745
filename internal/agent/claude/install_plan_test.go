package claude

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
)

// TestInstallLooksLikeTheUsersFile: what is added is set as the rest.
func TestInstallLooksLikeTheUsersFile(t *testing.T) {
	p := agent.Paths{Hook: "/h/belay-hook"}
	hooks := (&Agent{}).hooksOf(execForm, true)
	hooks.Events = slices.DeleteFunc(hooks.Events, func(e settings.Event) bool { return e.Name != "Stop" })
	for _, tt := range []struct{ text, want string }{
		{usersHooks, strings.Replace(usersHooks, `"say done"}]}`, `"say done"}]},
			{
				"hooks": [
					{
						"type": "command",
						"command": "/h/belay-hook",
						"args": [
							"claude-code",
							"Stop"
						],
						"timeout": 5
					}
				]
			}`, 1)},
		{`{"a":1}`, `{"a":1,"hooks":{"Stop":[{"hooks":[{"type":"command","command":"/h/belay-hook","args":["claude-code","Stop"],"timeout":5}]}]}}`},
		{`{ "a": 1 }`, `{ "a": 1, "hooks":{"Stop":[{"hooks":[{"type":"command","command":"/h/belay-hook","args":["claude-code","Stop"],"timeout":5}]}]} }`},
		{"{\r\n \"hooks\": {}\r\n}", "{\r\n \"hooks\": {\r\n  \"Stop\": [\r\n   {\r\n    \"hooks\": [\r\n     {\r\n      \"type\": \"command\",\r\n      \"command\": \"/h/belay-hook\",\r\n      \"args\": [\r\n       \"claude-code\",\r\n       \"Stop\"\r\n      ],\r\n      \"timeout\": 5\r\n     }\r\n    ]\r\n   }\r\n  ]\r\n }\r\n}"},
	} {
		got, err := hooks.Merge([]byte(tt.text), p)
		if err != nil || string(got) != tt.want {
			t.Errorf("merge into %q: %v\ngot  %s\nwant %s", tt.text, err, got, tt.want)
		}

		back, err := hooks.Strip(got)
		if err != nil || !sameMeaning(back, []byte(tt.text)) {
			t.Errorf("strip: %v\ngot  %s\nwant %s", err, back, tt.text)
		}
	}
}

// sameMeaning compares settings; an empty hooks object, or an event with an empty list, means the same as none.
func sameMeaning(a, b []byte) bool {
	value := func(text []byte) map[string]any {
		m := map[string]any{}

		// Both are valid where this is asked.
		_ = json.Unmarshal(bytes.TrimPrefix(text, []byte(jsontext.BOM)), &m)
		if hooks, ok := m["hooks"].(map[string]any); ok {
			for event, groups := range hooks {
				if list, ok := groups.([]any); ok && len(list) == 0 {
					delete(hooks, event)
				}
			}
			if len(hooks) == 0 {
				delete(m, "hooks")
			}
		}

		return m
	}
	return reflect.DeepEqual(value(a), value(b))
}

// FuzzInstall: for any settings that install takes, uninstall gives the same bytes back; and without the record, the
// same meaning.
func FuzzInstall(f *testing.F) {
	for _, seed := range []string{
		usersHooks, "", "{}", `{"hooks":{}}`, `{"hooks":{"Stop":[]}}`, "{\n \"a\": [1,{\"b\":\"\\\"}\"}]\n}",
		"\ufeff{\r\n}\r\n",
		`{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"x"}]},{"hooks":[]}]},"hooks":{}}`,
		`{"a":1e5,"b":null,"":""}`,
	} {
		f.Add([]byte(seed))
	}

	p := agent.Paths{Hook: hookPath}
	hooks := (&Agent{}).hooksOf(execForm, true)
	f.Fuzz(func(t *testing.T, text []byte) {
		next, err := hooks.Merge(text, p)
		if err != nil {
			return
		}
		if bytes.Contains(text, []byte(agent.HookBinary)) {
			return // hooks of belay's were there before: they do not come back
		}
		if back, err := hooks.Strip(text); err != nil || !bytes.Equal(back, text) {
			t.Fatalf("the way back to %q is %q (%v)", text, back, err)
		}
		if again, err := hooks.Merge(next, p); err != nil || !bytes.Equal(again, next) {
			t.Fatalf("second merge of %q: %v\n%s", text, err, again)
		}

		bare, err := hooks.Strip(next)
		if err != nil || !jsontext.JSON.Blank(text) && !sameMeaning(bare, text) {
			t.Fatalf("strip of %q gave %q (%v)", text, bare, err)
		}
	})
}
