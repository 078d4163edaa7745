package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// The Responses form of the fake model, for Codex: the same script, the same requests.

// responsesBody is the part of a Responses request that matters here.
type responsesBody struct {
	Model        string `json:"model"`
	Stream       bool   `json:"stream"`
	Tools        []any  `json:"tools"`
	Instructions string `json:"instructions"`
	Input        []struct {
		Role      string `json:"role"`
		Content   any    `json:"content"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
		Output    any    `json:"output"`
	} `json:"input"`
}

// common is the request in the one form that the rest of the lab looks at.
func (b responsesBody) common() (c body, err error) {
	var messages []map[string]any
	for _, it := range b.Input {
		switch {
		case it.Name != "":
			messages = append(messages, map[string]any{"role": "assistant", "content": it.Name + " " + it.Arguments})
		case it.Output != nil:
			messages = append(messages, map[string]any{"role": "tool", "content": it.Output})
		default:
			messages = append(messages, map[string]any{"role": it.Role, "content": it.Content})
		}
	}

	text, err := json.Marshal(
		map[string]any{
			"model":    b.Model,
			"stream":   b.Stream,
			"tools":    b.Tools,
			"system":   b.Instructions,
			"messages": messages,
		},
	)

	if err == nil {
		err = json.Unmarshal(text, &c)
	}

	return c, err
}

// responses answers one request of the Responses API.
func (m *Model) responses(w http.ResponseWriter, r *http.Request, data []byte) {
	req := Request{Body: data}
	var b responsesBody
	err := json.Unmarshal(data, &b)
	if err == nil {
		req.body, err = b.common()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	req.Main = len(b.Tools) > 0
	n, turn := m.take(req)
	a := answer{n: n, turn: turn, model: b.Model, input: len(data)/4 + 1}
	if !b.Stream {
		writeJSON(w, http.StatusOK, a.response("completed", a.items()))
		return
	}

	m.responsesStream(w, r, a)
}

// response is the answer's envelope.
func (a answer) response(status string, output []map[string]any) map[string]any {
	if output == nil {
		output = []map[string]any{}
	}

	out := len(a.turn.Text)/4 + 20
	return map[string]any{
		"id":         fmt.Sprintf("resp_lab%04d", a.n),
		"object":     "response",
		"created_at": 1,
		"status":     status,
		"model":      a.model,
		"output":     output,
		"usage": map[string]any{
			"input_tokens":          a.input,
			"input_tokens_details":  map[string]any{"cached_tokens": 0},
			"output_tokens":         out,
			"output_tokens_details": map[string]any{"reasoning_tokens": 0},
			"total_tokens":          a.input + out,
		},
	}
}

// items are the answer's words and calls, whole.
func (a answer) items() []map[string]any {
	var list []map[string]any
	if a.turn.Text != "" {
		list = append(list, a.words(a.turn.Text, "completed"))
	}

	for i, c := range a.turn.Calls {
		input, err := json.Marshal(c.Input)
		if err != nil {
			panic(fmt.Sprintf("input of %s has no JSON form: %v", c.Name, err)) // plain data always has one
		}

		call := map[string]any{
			"type":      "function_call",
			"id":        fmt.Sprintf("fc_lab%04d%02d", a.n, i),
			"status":    "completed",
			"call_id":   fmt.Sprintf("call_lab%04d%02d", a.n, i),
			"name":      c.Name,
			"arguments": string(input),
		}

		if space, name, ok := strings.Cut(c.Name, "/"); ok { // a tool in a namespace
			call["namespace"], call["name"] = space, name
		}

		list = append(list, call)
	}

	return list
}

func (a answer) words(text, status string) map[string]any {
	content := []any{}
	if text != "" {
		content = append(content, map[string]any{"type": "output_text", "text": text, "annotations": []any{}})
	}

	return map[string]any{
		"type":    "message",
		"id":      fmt.Sprintf("msg_lab%04d", a.n),
		"role":    "assistant",
		"status":  status,
		"content": content,
	}
}

// responsesStream sends the answer as server-sent events.
func (m *Model) responsesStream(w http.ResponseWriter, r *http.Request, a answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	seq := 0
	send := func(kind string, v map[string]any) {
		v["type"], v["sequence_number"] = kind, seq
		seq++
		data, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("event %s has no JSON form: %v", kind, err)) // plain data always has one
		}

		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
		_ = http.NewResponseController(w).Flush() // a client that is gone needs no answer
	}

	send("response.created", map[string]any{"response": a.response("in_progress", nil)})
	items := a.items()
	for i, it := range items {
		added := it
		if it["type"] == "message" {
			added = a.words("", "in_progress")
		}

		send("response.output_item.added", map[string]any{"output_index": i, "item": added})
		if it["type"] == "message" {
			text := a.turn.Text
			delta := func(part string) {
				send(
					"response.output_text.delta",
					map[string]any{"item_id": it["id"], "output_index": i, "content_index": 0, "delta": part},
				)
			}

			delta(text[:len(text)/2])
			if a.turn.Hold {
				m.hold(r)
				return
			}

			delta(text[len(text)/2:])
		}

		send("response.output_item.done", map[string]any{"output_index": i, "item": it})
	}

	send("response.completed", map[string]any{"response": a.response("completed", items)})
}
