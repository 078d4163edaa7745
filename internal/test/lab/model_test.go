package lab

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// post sends one request and gives the whole answer.
func post(t *testing.T, h http.Handler, body string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/messages?beta=true", strings.NewReader(body)))
	if w.Code != http.StatusOK {
		t.Fatalf("got status %d, want 200: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

const tools = `"tools":[{"name":"Bash"}],`

func TestModelAnswersInOrder(t *testing.T) {
	m := new(Model)
	m.Script(
		Turn{When: "SUB", Text: "to the helper"}, Turn{Text: "first", Calls: []Call{Bash("ls")}},
		Turn{Text: "second"},
	)

	tests := []struct{ name, body, want string }{
		{"a question of the program's own", `{"messages":[{"role":"user","content":"title?"}]}`, "Lab session"},
		{"first", `{` + tools + `"messages":[{"role":"user","content":"go"}]}`, "first"},
		{
			"the words in a tool result are not asked",
			`{` + tools + `"messages":[{"role":"user","content":[{"type":"tool_result","content":"SUB"}]}]}`,
			"second",
		},
		{
			"a turn of its own",
			`{` + tools + `"messages":[{"role":"user","content":[{"type":"text","text":"SUB"}]}]}`,
			"to the helper",
		},
		{"over", `{` + tools + `"messages":[]}`, "The script is over."},
	}

	for _, tt := range tests {
		var got struct {
			Content []struct {
				Text  string
				Name  string
				Input struct{ Command string }
			}
		}

		if err := json.Unmarshal([]byte(post(t, m, tt.body)), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Content) == 0 || got.Content[0].Text != tt.want {
			t.Errorf("%s: got %+v, want %q", tt.name, got.Content, tt.want)
		}
		if tt.name == "first" &&
			(len(got.Content) != 2 || got.Content[1].Name != "Bash" || got.Content[1].Input.Command != "ls") {
			t.Errorf("%s: got %+v, want a call of Bash", tt.name, got.Content)
		}
	}

	if n := len(m.Main()); n != 4 {
		t.Errorf("got %d main requests, want 4", n)
	}
}

func TestModelStreams(t *testing.T) {
	m := new(Model)
	m.Script(Turn{Text: "some words", Calls: []Call{Bash("ls")}})
	got := post(t, m, `{`+tools+`"stream":true,"model":"m","messages":[]}`)
	var kinds, text []string
	for _, line := range strings.Split(got, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}

		var e struct {
			Type  string
			Delta struct {
				Text string
				Part string `json:"partial_json"`
			}
		}

		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}

		kinds, text = append(
			kinds, strings.TrimPrefix(e.Type, "content_block_"),
		), append(
			text, e.Delta.Text+e.Delta.Part,
		)
	}

	const want = "message_start start delta delta stop start delta stop message_delta message_stop"
	if s := strings.Join(kinds, " "); s != want {
		t.Errorf("got events %s, want %s", s, want)
	}
	if s := strings.Join(text, ""); s != `some words{"command":"ls","description":"a command of the lab"}` {
		t.Errorf("got %s, want the text and the call's input", s)
	}
}

// TestModelHolds: an answer that stands half-way ends with its client.
func TestModelHolds(t *testing.T) {
	m := new(Model)
	server := httptest.NewServer(m)
	defer server.Close()
	m.Script(Turn{Text: "some words", Hold: true})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(
		ctx, "POST", server.URL+"/v1/messages", strings.NewReader(`{`+tools+`"stream":true,"messages":[]}`),
	)

	if err != nil {
		t.Fatal(err)
	}

	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}

	defer resp.Body.Close()
	var got strings.Builder
	for part := make([]byte, 512); !strings.Contains(got.String(), "some "); {
		n, err := resp.Body.Read(part)
		got.Write(part[:n])
		if err != nil {
			t.Fatal(err)
		}
	}

	cancel()
	if rest, err := io.ReadAll(resp.Body); err == nil || strings.Contains(got.String()+string(rest), "words") {
		t.Errorf("got %q and %q, %v, want half of the answer", got.String(), rest, err)
	}

	for end := time.Now().Add(30 * time.Second); m.Holding() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got %d answers that stand half-way after the client went, want 0", m.Holding())
		}
	}
}

func TestModelKnowsWhatReachedIt(t *testing.T) {
	m := new(Model)
	post(t, m, `{`+tools+`"system":[{"type":"text","text":"needle"}],"messages":[
		{"role":"user","content":"a needle"},
		{"role":"assistant","content":[{"type":"tool_use","name":"Bash","input":{"command":"find needle"}}]},
		{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"needle"}]}]}]}`)

	if got := m.Main()[0].Count("needle"); got != 4 {
		t.Errorf("got %d, want 4: system, prompt, call and result", got)
	}
}

func FuzzModel(f *testing.F) {
	f.Add(
		[]byte(
			`{"stream":true,"tools":[1],"system":{"text":[1,{"a":"b"}]},"messages":[{"role":"user","content":[null,{"text":1},"x"]}]}`,
		),
	)

	f.Add([]byte(`{"messages":[{"role":"user","content":{"content":{"input":null}}}]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, in []byte) {
		w := httptest.NewRecorder()
		m := new(Model)
		m.ServeHTTP(w, httptest.NewRequest("POST", "/v1/messages", strings.NewReader(string(in))))
		if json.Valid(in) || w.Code == http.StatusBadRequest {
			for _, r := range m.Main() { // must not panic
				r.Count("x")
			}
			return
		}

		t.Errorf("%q: got status %d, want 400", in, w.Code)
	})
}
