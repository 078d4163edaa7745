package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// The Gemini form of the fake model: the same script, the same requests.

// geminiBody is the part of a request that matters here.
type geminiBody struct {
	System   geminiContent   `json:"systemInstruction"`
	Contents []geminiContent `json:"contents"`
	Tools    []any           `json:"tools"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text     string                  `json:"text"`
	Call     *struct{ Args any }     `json:"functionCall"`
	Response *struct{ Response any } `json:"functionResponse"`
}

// unescape gives a hook's text as the hook gave it: Gemini CLI escapes it in its requests.
var unescape = strings.NewReplacer("&lt;", "<", "&gt;", ">")

// content is a content as the other APIs have it.
func (c geminiContent) content() []any {
	var list []any
	for _, p := range c.Parts {
		if p.Text != "" {
			list = append(list, map[string]any{"type": "text", "text": unescape.Replace(p.Text)})
		}
		if p.Call != nil {
			list = append(list, map[string]any{"type": "tool_use", "input": p.Call.Args})
		}
		if p.Response != nil {
			list = append(list, map[string]any{"type": "tool_result", "content": p.Response.Response})
		}
	}

	return list
}

// gemini answers one request of the Gemini API.
func (m *Model) gemini(w http.ResponseWriter, r *http.Request, data []byte) {
	var body geminiBody
	if err := json.Unmarshal(data, &body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if strings.HasSuffix(r.URL.Path, ":countTokens") {
		writeJSON(w, http.StatusOK, map[string]any{"totalTokens": len(data)/4 + 1})
		return
	}

	req := Request{Body: data, Main: len(body.Tools) > 0}
	messages := []any{}
	for _, c := range body.Contents {
		role := "user"
		if c.Role == "model" {
			role = "assistant"
		}
		messages = append(messages, map[string]any{"role": role, "content": c.content()})
	}

	same, err := json.Marshal(map[string]any{"system": body.System.content(), "messages": messages})
	if err == nil {
		err = json.Unmarshal(same, &req.body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	n, turn := m.take(req)
	a := answer{n: n, turn: turn, input: len(data)/4 + 1}
	if strings.HasSuffix(r.URL.Path, ":generateContent") {
		writeJSON(w, http.StatusOK, a.candidate(append(a.textPart(turn.Text), a.callParts()...), "STOP"))
		return
	}

	m.geminiStream(w, r, a)
}

func (answer) textPart(text string) []any {
	if text == "" {
		return nil
	}
	return []any{map[string]any{"text": text}}
}

// callParts are the answer's calls.
func (a answer) callParts() []any {
	var list []any
	for i, c := range a.turn.Calls {
		list = append(
			list,
			map[string]any{
				"functionCall": map[string]any{
					"id":   fmt.Sprintf("call_lab%04d%02d", a.n, i),
					"name": c.Name,
					"args": c.Input,
				},
			},
		)
	}

	return list
}

// candidate is one piece of an answer, the last one when it names a reason to finish.
func (a answer) candidate(parts []any, finish string) map[string]any {
	if parts == nil {
		parts = []any{map[string]any{"text": ""}}
	}

	c := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	doc := map[string]any{
		"candidates":   []any{c},
		"modelVersion": "lab-model",
		"responseId":   fmt.Sprintf("resp_lab%04d", a.n),
	}

	if finish != "" {
		out := len(a.turn.Text)/4 + 20
		c["finishReason"] = finish
		doc["usageMetadata"] = map[string]any{
			"promptTokenCount":     a.input,
			"candidatesTokenCount": out,
			"totalTokenCount":      a.input + out,
		}
	}

	return doc
}

// geminiStream sends the answer as server-sent events.
func (m *Model) geminiStream(w http.ResponseWriter, r *http.Request, a answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(doc map[string]any) {
		data, err := json.Marshal(doc)
		if err != nil {
			panic(fmt.Sprintf("piece of an answer has no JSON form: %v", err)) // plain data always has one
		}
		fmt.Fprintf(w, "data: %s\n\n", data)
		_ = http.NewResponseController(w).Flush() // a client that is gone needs no answer
	}

	if text := a.turn.Text; text != "" {
		half := len(text) / 2
		send(a.candidate(a.textPart(text[:half]), ""))
		if a.turn.Hold {
			m.hold(r)
			return
		}
		send(a.candidate(a.textPart(text[half:]), ""))
	}

	send(a.candidate(a.callParts(), "STOP"))
}
