package lab

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

func postChat(t *testing.T, m *Model, body string) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)))
	if w.Code != 200 {
		t.Fatalf("got status %d, want 200: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestChatAnswersWhole(t *testing.T) {
	m := new(Model)
	m.Script(Turn{Text: "first", Calls: []Call{{"bash", map[string]any{"command": "ls"}}}})
	var got struct {
		Choices []struct {
			Message struct {
				Content string
				Calls   []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Finish string `json:"finish_reason"`
		}
	}

	if err := json.Unmarshal(
		[]byte(postChat(t, m, `{`+tools+`"messages":[{"role":"user","content":"go"}]}`)), &got,
	); err != nil {
		t.Fatal(err)
	}

	if len(got.Choices) != 1 || got.Choices[0].Message.Content != "first" || got.Choices[0].Finish != "tool_calls" {
		t.Fatalf("got %+v, want one choice with the text and a call", got)
	}
	if c := got.Choices[0].Message.Calls; len(c) != 1 || c[0].Function.Name != "bash" ||
		c[0].Function.Arguments != `{"command":"ls"}` {
		t.Errorf("got calls %+v, want bash", c)
	}
}

func TestChatStreams(t *testing.T) {
	m := new(Model)
	m.Script(Turn{Text: "some words", Calls: []Call{{"bash", map[string]any{"command": "ls"}}}})
	got := postChat(t, m, `{`+tools+`"stream":true,"model":"m","messages":[]}`)
	var text, arguments, finish string
	for _, line := range strings.Split(got, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}

		var e struct {
			Choices []struct {
				Delta struct {
					Content string
					Calls   []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
		}

		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}

		c := e.Choices[0]
		text, finish = text+c.Delta.Content, c.Finish
		for _, call := range c.Delta.Calls {
			arguments += call.Function.Arguments
		}
	}

	if text != "some words" || arguments != `{"command":"ls"}` || finish != "tool_calls" ||
		!strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("got text %q, arguments %q, finish %q from\n%s", text, arguments, finish, got)
	}
}

func TestChatKnowsWhatReachedIt(t *testing.T) {
	m := new(Model)
	postChat(
		t,
		m,
		`{`+tools+`"messages":[{"role":"system","content":"needle"},{"role":"user","content":[{"type":"text","text":"a needle"}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"bash","arguments":"{\"command\":\"find needle\"}"}}]},
		{"role":"tool","tool_call_id":"1","content":"needle"}]}`,
	)

	if got := m.Main()[0].Count("needle"); got != 4 {
		t.Errorf("got %d, want 4: system, prompt, call and result", got)
	}
}

func FuzzChat(f *testing.F) {
	f.Add(
		[]byte(
			`{"stream":true,"tools":[1],"messages":[{"role":"user","content":[null,{"text":1},"x"],"tool_calls":[{"a":{"b":[1]}}]}]}`,
		),
	)

	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, in []byte) {
		w := httptest.NewRecorder()
		m := new(Model)
		m.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(string(in))))
		if json.Valid(in) || w.Code == 400 {
			for _, r := range m.Main() { // must not panic
				r.Count("x")
			}
			return
		}

		t.Errorf("%q: got status %d, want 400", in, w.Code)
	})
}
