// Package lab proves belay with real agent programs. It holds a fake model, an http.Handler that speaks as much of the
// Anthropic Messages and the OpenAI Chat Completions API as the agents ask for, and in its tests the runs of the real
// program against it: hooks, transcript, daemon and brief as a user has them, with a kill -9 in between.
//
// The fake model answers from a script and keeps every request, so that a test can say what reached the model. It
// promises nothing to anybody else: it checks no key, knows no limits and forgets nothing. Nothing of belay's program
// links it.
package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

const maxBody = 64 << 20

// Turn is one answer of the model.
type Turn struct {
	When  string // only for a request in which a user message says this; empty for any other
	Text  string
	Side  bool // for a question of the program's own, which offers no tools: needs a When
	Hold  bool // half of Text is streamed, and nothing more until the client goes away
	Calls []Call
}

// Call is one tool call of an answer.
type Call struct {
	Name  string
	Input map[string]any
}

// Bash is a call of Claude Code's shell tool.
func Bash(command string) Call {
	return Call{"Bash", map[string]any{"command": command, "description": "a command of the lab"}}
}

// Model is the fake model. Its zero value answers every request with a few words.
type Model struct {
	mu struct {
		sync.Mutex
		script   []Turn
		requests []Request
		holding  int
	}
}

// Request is one request that reached the model.
type Request struct {
	Main bool // it offers tools: a turn of the agent or of a sub-agent, none of the program's own questions
	Body []byte
	body body
}

// body is the part of a request that matters here.
type body struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Tools    []any  `json:"tools"`
	System   any    `json:"system"`
	Messages []struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
		Calls   any    `json:"tool_calls"` // Chat Completions
	} `json:"messages"`
}

// Script sets the answers to come, in order. What is left of an earlier script is dropped.
func (m *Model) Script(turns ...Turn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.script = append([]Turn(nil), turns...)
}

// Main gives the main requests so far.
func (m *Model) Main() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Request
	for _, r := range m.mu.requests {
		if r.Main {
			list = append(list, r)
		}
	}

	return list
}

// Holding counts the answers that stand half-way.
func (m *Model) Holding() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.holding
}

// Count says how often a text stands in the conversation of a request: system prompt and messages, tool results
// included.
func (r Request) Count(text string) int {
	n := strings.Count(texts(r.body.System), text)
	for _, msg := range r.body.Messages {
		n += strings.Count(texts(msg.Content), text) + strings.Count(texts(msg.Calls), text)
	}
	return n
}

// Text is the conversation of a request, as one text.
func (r Request) Text() string {
	var b strings.Builder
	for _, msg := range r.body.Messages {
		fmt.Fprintf(&b, "%s: %s\n", msg.Role, texts(msg.Content)+texts(msg.Calls))
	}
	return b.String()
}

// texts joins every string of a JSON value.
func texts(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, texts(e))
		}
		return strings.Join(parts, "\n")

	case map[string]any:
		var parts []string
		for _, key := range []string{"text", "content", "input"} {
			if e, ok := v[key]; ok {
				parts = append(parts, texts(e))
			}
		}

		if len(parts) > 0 {
			return strings.Join(parts, "\n")
		}

		for _, e := range v { // the input of a tool call
			parts = append(parts, texts(e))
		}

		return strings.Join(parts, "\n")
	}
	return ""
}

// asked is what the user messages say, tool results left out.
func (b body) asked() string {
	var all strings.Builder
	for _, msg := range b.Messages {
		if msg.Role != "user" {
			continue
		}
		if s, ok := msg.Content.(string); ok {
			all.WriteString(s + "\n")
		}

		blocks, _ := msg.Content.([]any)
		for _, e := range blocks {
			block, _ := e.(map[string]any)
			if s, ok := block["text"].(string); ok {
				all.WriteString(s + "\n")
			}
		}
	}

	return all.String()
}

// take keeps a request and picks its answer.
func (m *Model) take(r Request) (n int, t Turn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.requests = append(m.mu.requests, r)
	n = len(m.mu.requests)
	asked := r.body.asked()
	pick := -1
	for i, t := range m.mu.script {
		if t.Side == r.Main {
			continue
		}
		if t.When != "" && strings.Contains(asked, t.When) {
			pick = i
			break
		}
		if t.When == "" && pick < 0 {
			pick = i
		}
	}

	switch {
	case pick < 0 && !r.Main:
		return n, Turn{Text: "Lab session"}
	case pick < 0:
		return n, Turn{Text: "The script is over."}
	}

	t = m.mu.script[pick]
	m.mu.script = append(m.mu.script[:pick:pick], m.mu.script[pick+1:]...)
	return n, t
}

// ServeHTTP answers one request.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/messages/count_tokens") {
		writeJSON(w, http.StatusOK, map[string]any{"input_tokens": len(data)/4 + 1})
		return
	}
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/chat/completions") {
		m.chat(w, r, data)
		return
	}
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/responses") {
		m.responses(w, r, data)
		return
	}

	if _, verb, ok := strings.Cut(
		r.URL.Path, "/models/",
	); ok && r.Method == http.MethodPost &&
		strings.Contains(verb, ":") {
		m.gemini(w, r, data)
		return
	}

	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/messages") {
		writeJSON(w, http.StatusNotFound, map[string]any{"type": "error",
			"error": map[string]any{"type": "not_found_error", "message": "not in the lab"}})
		return
	}

	req := Request{Body: data}
	if err := json.Unmarshal(data, &req.body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	req.Main = len(req.body.Tools) > 0
	n, turn := m.take(req)
	a := answer{n: n, turn: turn, model: req.body.Model, input: len(data)/4 + 1}
	if !req.body.Stream {
		writeJSON(w, http.StatusOK, a.whole())
		return
	}

	m.stream(w, r, a)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}
