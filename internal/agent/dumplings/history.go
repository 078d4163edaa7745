package dumplings

import (
	"encoding/json"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/wholefile"
)

// history turns the messages of a conversation, in the form of either API, into items.
type history struct {
	give    func(wholefile.Item) error
	session func() string
	names   *wholefile.Names
	about   wholefile.About
}

func newHistory(give func(wholefile.Item) error, session func() string) *history {
	return &history{give: give, session: session, names: wholefile.NewNames()}
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
	if len(line) == 0 || line[0] != '{' || lines.Decode(line, &m) != nil {
		h.about.Losses.BadLines++
		return nil
	}

	h.about.Losses.Replaced += lines.Broken(line)
	id := h.names.Of(m.Role, string(line))
	text, blocks := content(m.Content)
	it := wholefile.Item{
		ID:     id,
		Hash:   checkpoint.Hash(string(line)),
		Size:   len(line),
		Prompt: m.Role == "user" && strings.TrimSpace(text) != "",
	}

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

	if lines.Decode(raw, &blocks) != nil {
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
		list = wholefile.Said(id, "", time.Time{}, text)
		for _, b := range blocks {
			if b.Type == "tool_result" {
				words, _ := content(b.Content)
				list = append(
					list,
					checkpoint.Entry{
						ID:     "end:" + wholefile.Ident(b.Call),
						Kind:   checkpoint.EntryResult,
						Call:   wholefile.Ident(b.Call),
						Output: wholefile.ToolWords(words),
						Failed: b.Failed,
					},
				)
			}
		}

	case "assistant":
		if said, _ := wholefile.Words(text); said != "" {
			list = append(list, checkpoint.Entry{ID: id, Kind: checkpoint.EntryAssistant, Text: said})
		}
		calls := calls(m, blocks)
		if list = append(list, calls...); len(calls) == 0 {
			list = append(list, checkpoint.Entry{ID: "turn:" + id, Kind: checkpoint.EntryTurnEnd})
		}

	case "tool":
		words, _ := content(m.Content)
		list = append(
			list,
			checkpoint.Entry{
				ID:     "end:" + wholefile.Ident(m.Call),
				Kind:   checkpoint.EntryResult,
				Call:   wholefile.Ident(m.Call),
				Name:   wholefile.Ident(m.Name),
				Output: wholefile.ToolWords(words),
			},
		)
	}
	return list
}

// calls are those that a message asks for, in the form of either API. One without an id cannot be told of.
func calls(m message, blocks []block) (list []checkpoint.Entry) {
	for _, c := range m.Calls {
		if c.ID != "" {
			list = append(
				list,
				checkpoint.Entry{
					ID:    "call:" + wholefile.Ident(c.ID),
					Kind:  checkpoint.EntryCall,
					Call:  wholefile.Ident(c.ID),
					Name:  wholefile.Ident(c.Function.Name),
					Input: wholefile.ToolText(c.Function.Arguments),
				},
			)
		}
	}

	for _, b := range blocks {
		if b.Type == "tool_use" && b.ID != "" {
			list = append(
				list,
				checkpoint.Entry{
					ID:    "call:" + wholefile.Ident(b.ID),
					Kind:  checkpoint.EntryCall,
					Call:  wholefile.Ident(b.ID),
					Name:  wholefile.Ident(b.Name),
					Input: wholefile.ToolText(b.Input),
				},
			)
		}
	}

	return list
}
