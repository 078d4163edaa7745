package lab

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

func postGemini(t *testing.T, m *Model, verb, body string) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("POST", "/v1beta/models/gemini-x:"+verb, strings.NewReader(body)))
	if w.Code != 200 {
		t.Fatalf("got status %d, want 200: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestGeminiAnswers(t *testing.T) {
	m := new(Model)
	turn := Turn{Text: "some words", Calls: []Call{{"run_shell_command", map[string]any{"command": "ls"}}}}
	m.Script(turn, turn)
	const body = `{"systemInstruction":{"parts":[{"text":"be good"}]},"tools":[{}],"contents":[{"role":"user","parts":[{"text":"&lt;go&gt;"}]},
{"role":"model","parts":[{"functionCall":{"name":"x","args":{"a":"asked"}}}]},{"role":"user","parts":[{"functionResponse":{"response":{"output":"got"}}}]}]}`
	for _, verb := range []string{"generateContent", "streamGenerateContent"} {
		got := postGemini(t, m, verb, body)
		var text, finish, command string
		for _, doc := range strings.Split(strings.TrimSpace(got), "\n\n") {
			var e struct {
				Candidates []struct {
					Content struct {
						Parts []struct {
							Text         string
							FunctionCall struct{ Args struct{ Command string } }
						}
					}
					FinishReason string
				}
			}

			if err := json.Unmarshal([]byte(strings.TrimPrefix(doc, "data: ")), &e); err != nil {
				t.Fatalf("%s: %v", doc, err)
			}

			for _, p := range e.Candidates[0].Content.Parts {
				text, command = text+p.Text, command+p.FunctionCall.Args.Command
			}

			finish += e.Candidates[0].FinishReason
		}

		if text != "some words" || command != "ls" || finish != "STOP" {
			t.Errorf("%s: got %q, %q, %q, want the words, the command and one end", verb, text, command, finish)
		}
	}

	list := m.Main()
	if len(list) != 2 {
		t.Fatalf("got %d main requests, want 2", len(list))
	}

	for _, want := range []string{"be good", "<go>", "asked", "got"} {
		if n := list[0].Count(want); n != 1 {
			t.Errorf("%q stands %d times in the request, want once", want, n)
		}
	}

	if got := postGemini(t, m, "countTokens", body); !strings.Contains(got, "totalTokens") {
		t.Errorf("got %s, want a count", got)
	}
}
