package lab

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestResponses: the script's words and calls come in the Responses form, and the request is counted like the others.
func TestResponses(t *testing.T) {
	m := new(Model)
	server := httptest.NewServer(m)
	defer server.Close()
	for _, stream := range []string{"true", "false"} {
		m.Script(
			Turn{When: "helper", Text: "not this"},
			Turn{Text: "Hello there.", Calls: []Call{{"space/tool", map[string]any{"x": 1}}}},
		)

		body := `{"model":"m","stream":` + stream + `,"tools":[{"name":"tool"}],"instructions":"be good","input":[
			{"type":"message","role":"developer","content":[{"type":"input_text","text":"a record"}]},
			{"type":"message","role":"user","content":[{"type":"input_text","text":"go on"}]},
			{"type":"function_call","name":"tool","arguments":"{\"cmd\":\"ls\"}","call_id":"c"},
			{"type":"function_call_output","call_id":"c","output":"aborted"}]}`

		resp, err := http.Post(server.URL+"/v1/responses", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}

		data, err := io.ReadAll(resp.Body)
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}

		for _, want := range []string{
			`"namespace":"space"`, `"name":"tool"`, `"arguments":"{\"x\":1}"`, `"text":"Hello there."`,
			`"status":"completed"`,
		} {
			if err != nil || !strings.Contains(string(data), want) {
				t.Errorf("stream %s: no %s in %s, %v", stream, want, data, err)
			}
		}

		if n := strings.Count(string(data), "event: response."); (n == 8) != (stream == "true") {
			t.Errorf("stream %s: %d events\n%s", stream, n, data)
		}
	}

	list := m.Main()
	if len(list) != 2 || list[0].Count("a record") != 1 || list[0].Count("aborted") != 1 ||
		list[0].Count("be good") != 1 ||
		!strings.Contains(list[0].Text(), "user: go on") {
		t.Errorf("got %d requests, the first says %q", len(list), list[0].Text())
	}
}
