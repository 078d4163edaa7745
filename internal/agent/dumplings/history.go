package dumplings

import (
	"encoding/json"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/document"
	"belay/internal/jsonl"
)

// history turns the messages of a conversation, in the form of either API, into items.
type history struct {
	give    func(document.Item) error
	session func() string
	names   *document.Names
	about   document.About
}

func newHistory(give func(document.Item) error, session func() string) *history {
	return &history{give: give, session: session, names: document.NewNames()}
}

// message is one line.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Calls   []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"` // a text that holds JSON
		} `json:"function"`
	} `json:"tool_calls"`
	Call string `json:"tool_call_id"`
	Name string `json:"name"`
}

// block is one part of a content in Anthropic's form.
type block struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Call    string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
	Failed  bool            `json:"is_error"`
}

// line takes one line of the conversation. A bad one costs that line only.
func (h *history) line(line []byte) error {
	var m message
	if len(line) == 0 || line[0] != '{' || jsonl.Decode(line, &m) != nil {
		h.about.Losses.BadLines++
		return nil
	}
	h.about.Losses.Replaced += jsonl.Broken(line)
	id := h.names.Of(m.Role, string(line))
	text, blocks := content(m.Content)
	it := document.Item{ID: id, Hash: checkpoint.Hash(string(line)), Size: len(line), Prompt: m.Role == "user" && strings.TrimSpace(text) != ""}
	it.Entries = func() []checkpoint.Entry {
		list := entries(m, id, text, blocks)
		for i := range list {
			list[i].Session = h.session()
		}
		return list
	}
	return h.give(it)
}

// content takes a message's words and blocks apart.
func content(raw json.RawMessage) (text string, blocks []block) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] != '[' {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return "", nil // an object: no form that is known
		}
		return s, nil
	}
	if jsonl.Decode(raw, &blocks) != nil {
		return "", nil
	}
	var words []string
	for _, b := range blocks {
		if b.Type == "text" && b.Text != "" {
			words = append(words, b.Text)
		}
	}
	return strings.Join(words, "\n"), blocks
}

// entries maps a message. What the system says (its prompt, results in the older tool mode) is no one's words.
func entries(m message, id, text string, blocks []block) (list []checkpoint.Entry) {
	switch m.Role {
	case "user":
		list = document.Said(id, "", time.Time{}, text)
		for _, b := range blocks {
			if b.Type == "tool_result" {
				words, _ := content(b.Content)
				list = append(list, checkpoint.Entry{ID: "end:" + document.Ident(b.Call), Kind: checkpoint.EntryResult, Call: document.Ident(b.Call), Output: document.ToolWords(words), Failed: b.Failed})
			}
		}
	case "assistant":
		if said, _ := document.Words(text); said != "" {
			list = append(list, checkpoint.Entry{ID: id, Kind: checkpoint.EntryAssistant, Text: said})
		}
		calls := calls(m, blocks)
		if list = append(list, calls...); len(calls) == 0 {
			list = append(list, checkpoint.Entry{ID: "turn:" + id, Kind: checkpoint.EntryTurnEnd})
		}
	case "tool":
		words, _ := content(m.Content)
		list = append(list, checkpoint.Entry{ID: "end:" + document.Ident(m.Call), Kind: checkpoint.EntryResult, Call: document.Ident(m.Call), Name: document.Ident(m.Name), Output: document.ToolWords(words)})
	}
	return list
}

// calls are those that a message asks for, in the form of either API. One without an id cannot be told of.
func calls(m message, blocks []block) (list []checkpoint.Entry) {
	for _, c := range m.Calls {
		if c.ID != "" {
			list = append(list, checkpoint.Entry{ID: "call:" + document.Ident(c.ID), Kind: checkpoint.EntryCall, Call: document.Ident(c.ID), Name: document.Ident(c.Function.Name), Input: document.ToolText(c.Function.Arguments)})
		}
	}
	for _, b := range blocks {
		if b.Type == "tool_use" && b.ID != "" {
			list = append(list, checkpoint.Entry{ID: "call:" + document.Ident(b.ID), Kind: checkpoint.EntryCall, Call: document.Ident(b.ID), Name: document.Ident(b.Name), Input: document.ToolText(b.Input)})
		}
	}
	return list
}
