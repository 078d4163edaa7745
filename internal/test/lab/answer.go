package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// answer is one turn on its way to a client.
type answer struct {
	n     int // of the request, for ids
	turn  Turn
	model string
	input int // tokens, about
}

func (a answer) stop() string {
	if len(a.turn.Calls) > 0 {
		return "tool_use"
	}
	return "end_turn"
}

func (a answer) usage() map[string]any {
	return map[string]any{
		"input_tokens":                a.input,
		"output_tokens":               len(a.turn.Text)/4 + 20,
		"cache_creation_input_tokens": 0,
		"cache_read_input_tokens":     0,
	}
}

// block is a call as a content block.
func (a answer) block(i int, input any) map[string]any {
	return map[string]any{
		"type":  "tool_use",
		"id":    fmt.Sprintf("toolu_lab%04d%02d", a.n, i),
		"name":  a.turn.Calls[i].Name,
		"input": input,
	}
}

// message is the answer's envelope.
func (a answer) message(content []any, stop any) map[string]any {
	return map[string]any{
		"id":            fmt.Sprintf("msg_lab%04d", a.n),
		"type":          "message",
		"role":          "assistant",
		"model":         a.model,
		"content":       content,
		"stop_reason":   stop,
		"stop_sequence": nil,
		"usage":         a.usage(),
	}
}

// whole is the answer to a request that asked for no stream.
func (a answer) whole() map[string]any {
	content := []any{}
	if a.turn.Text != "" {
		content = append(content, map[string]any{"type": "text", "text": a.turn.Text})
	}

	for i, c := range a.turn.Calls {
		content = append(content, a.block(i, c.Input))
	}

	return a.message(content, a.stop())
}

// stream sends the answer as server-sent events.
func (m *Model) stream(w http.ResponseWriter, r *http.Request, a answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(event string, v map[string]any) {
		v["type"] = event
		data, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("event %s has no JSON form: %v", event, err)) // plain data always has one
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data)
		_ = http.NewResponseController(w).Flush() // a client that is gone needs no answer
	}

	send("message_start", map[string]any{"message": a.message([]any{}, nil)})
	index := 0
	block := func(start map[string]any, deltas ...map[string]any) {
		send("content_block_start", map[string]any{"index": index, "content_block": start})
		for _, d := range deltas {
			send("content_block_delta", map[string]any{"index": index, "delta": d})
		}
	}

	end := func() {
		send("content_block_stop", map[string]any{"index": index})
		index++
	}

	if text := a.turn.Text; text != "" {
		half := len(text) / 2
		block(map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": text[:half]})
		if a.turn.Hold {
			m.hold(r)
			return
		}

		send(
			"content_block_delta",
			map[string]any{"index": index, "delta": map[string]any{"type": "text_delta", "text": text[half:]}},
		)

		end()
	}

	for i, c := range a.turn.Calls {
		input, err := json.Marshal(c.Input)
		if err != nil {
			panic(fmt.Sprintf("input of %s has no JSON form: %v", c.Name, err))
		}
		block(a.block(i, map[string]any{}), map[string]any{"type": "input_json_delta", "partial_json": string(input)})
		end()
	}

	send(
		"message_delta",
		map[string]any{"delta": map[string]any{"stop_reason": a.stop(), "stop_sequence": nil}, "usage": a.usage()},
	)

	send("message_stop", map[string]any{})
}

// hold stands still until the client is gone.
func (m *Model) hold(r *http.Request) {
	m.mu.Lock()
	m.mu.holding++
	m.mu.Unlock()
	<-r.Context().Done()
	m.mu.Lock()
	m.mu.holding--
	m.mu.Unlock()
}
