package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// The Chat Completions form of the fake model, for the agents that know OpenAI's API: the same script, the same
// requests.

// chat answers one request of Chat Completions.
func (m *Model) chat(w http.ResponseWriter, r *http.Request, data []byte) {
	req := Request{Body: data}
	if err := json.Unmarshal(data, &req.body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	req.Main = len(req.body.Tools) > 0
	n, turn := m.take(req)
	a := answer{n: n, turn: turn, model: req.body.Model, input: len(data)/4 + 1}
	if !req.body.Stream {
		writeJSON(w, http.StatusOK, a.chatWhole())
		return
	}

	m.chatStream(w, r, a)
}

// chatCalls are the answer's calls; their arguments are JSON in a string.
func (a answer) chatCalls() []any {
	var calls []any
	for i, c := range a.turn.Calls {
		input, err := json.Marshal(c.Input)
		if err != nil {
			panic(fmt.Sprintf("input of %s has no JSON form: %v", c.Name, err)) // plain data always has one
		}

		calls = append(
			calls,
			map[string]any{"index": i, "id": fmt.Sprintf("call_lab%04d%02d", a.n, i), "type": "function",
				"function": map[string]any{"name": c.Name, "arguments": string(input)}},
		)
	}

	return calls
}

func (a answer) chatFinish() string {
	if len(a.turn.Calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

func (a answer) chatUsage() map[string]any {
	out := len(a.turn.Text)/4 + 20
	return map[string]any{"prompt_tokens": a.input, "completion_tokens": out, "total_tokens": a.input + out}
}

// chatMessage is the answer's envelope around one choice.
func (a answer) chatMessage(object string, choice map[string]any) map[string]any {
	choice["index"] = 0
	return map[string]any{
		"id":      fmt.Sprintf("chatcmpl_lab%04d", a.n),
		"object":  object,
		"created": 1,
		"model":   a.model,
		"choices": []any{choice},
	}
}

// chatWhole is the answer to a request that asked for no stream.
func (a answer) chatWhole() map[string]any {
	message := map[string]any{"role": "assistant", "content": a.turn.Text}
	if calls := a.chatCalls(); len(calls) > 0 {
		message["tool_calls"] = calls
	}
	whole := a.chatMessage("chat.completion", map[string]any{"message": message, "finish_reason": a.chatFinish()})
	whole["usage"] = a.chatUsage()
	return whole
}

// chatStream sends the answer as server-sent events.
func (m *Model) chatStream(w http.ResponseWriter, r *http.Request, a answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(delta map[string]any, finish any) {
		chunk := a.chatMessage("chat.completion.chunk", map[string]any{"delta": delta, "finish_reason": finish})
		if finish != nil {
			chunk["usage"] = a.chatUsage()
		}

		data, err := json.Marshal(chunk)
		if err != nil {
			panic(fmt.Sprintf("chunk has no JSON form: %v", err)) // plain data always has one
		}

		fmt.Fprintf(w, "data: %s\n\n", data)
		_ = http.NewResponseController(w).Flush() // a client that is gone needs no answer
	}

	send(map[string]any{"role": "assistant", "content": ""}, nil)
	if text := a.turn.Text; text != "" {
		half := len(text) / 2
		send(map[string]any{"content": text[:half]}, nil)
		if a.turn.Hold {
			m.hold(r)
			return
		}
		send(map[string]any{"content": text[half:]}, nil)
	}

	if calls := a.chatCalls(); len(calls) > 0 {
		send(map[string]any{"tool_calls": calls}, nil)
	}

	send(map[string]any{}, a.chatFinish())
	fmt.Fprint(w, "data: [DONE]\n\n")
}
