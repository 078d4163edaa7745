package agentzero

import (
	"encoding/json"
	"strings"

	"belay/checkpoint"
	"belay/internal/lazyre"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/wholefile"
)

// history turns one agent's messages into items. The program runs one tool at a time, and writes a result behind its
// call without an id: the call's id is its message's.
type history struct {
	give    func(wholefile.Item) error
	session func() string
	names   *wholefile.Names
	losses  checkpoint.Losses

	turn string // message id of the prompt
	open []call // without a result yet
}

type call struct{ id, tool string }

func newHistory(give func(wholefile.Item) error, session func() string) history {
	return history{give: give, session: session, names: wholefile.NewNames()}
}

// message is one record of the history.
type message struct {
	ID      string          `json:"id"`
	AI      bool            `json:"ai"`
	Content json.RawMessage `json:"content"`
}

// records goes through a History, Topic or Bulk.
func (h *history) records(j *wholefile.JSON, depth int) error {
	if depth > maxRecords {
		return nil // no such history is real: what lies deeper is skipped
	}
	return j.Object(func(key string) error {
		switch key {
		case "bulks", "topics", "records":
			return j.Array(func() error { return h.records(j, depth+1) })
		case "current":
			return h.records(j, depth+1)
		case "messages":
			return j.Array(func() error { return h.message(j) })
		case "summary":
			raw, over, err := j.Value(checkpoint.CutText * 8)
			var s string
			if err != nil || over || json.Unmarshal(raw, &s) != nil || strings.TrimSpace(s) == "" {
				return err
			}
			return h.summary(s, len(raw))
		}
		return nil
	})
}

// summary gives what stands for older messages.
func (h *history) summary(text string, size int) error {
	hash := checkpoint.Hash(text)
	id := "sum:" + h.names.Of(text)
	return h.give(
		wholefile.Item{ID: id, Hash: hash, Size: size, Past: true, Entries: h.entries(func() []checkpoint.Entry {
			said, _ := wholefile.Words(text)
			return []checkpoint.Entry{{ID: id, Kind: checkpoint.EntryCompaction, Text: said}}
		})},
	)
}

// entries names the session in all entries of an item, as known by then: the id may stand behind the history.
func (h *history) entries(decode func() []checkpoint.Entry) func() []checkpoint.Entry {
	return func() []checkpoint.Entry {
		list := decode()
		for i := range list {
			list[i].Session = h.session()
		}
		return list
	}
}

// message reads one message.
func (h *history) message(j *wholefile.JSON) error {
	raw, over, err := j.Value(wholefile.MaxItem)
	if err != nil {
		return err
	}

	if over {
		h.losses.Oversized++
		h.tooLarge(raw)
		return nil
	}

	var m message
	if lines.Decode(raw, &m) != nil {
		h.losses.BadLines++
		return nil
	}
	if m.ID == "" {
		m.ID = h.names.Of(boolWord(m.AI), string(m.Content))
	}

	m.ID = wholefile.Ident(m.ID)
	it := wholefile.Item{ID: m.ID, Hash: checkpoint.Hash(string(m.Content)), Size: len(raw)}
	h.losses.Replaced += lines.Broken(raw)
	if m.AI {
		it.Entries = h.entries(h.said(m))
	} else {
		h.heard(m, &it)
		it.Entries = h.entries(it.Entries)
	}

	return h.give(it)
}

func boolWord(b bool) string {
	if b {
		return "ai"
	}
	return "user"
}

var toolOfResult = lazyre.New(`"content": ?\{"tool_name": ?"([^"\\]{1,200})", ?"tool_result"`)

// tooLarge ends the call whose result is too large to be read.
func (h *history) tooLarge(raw []byte) {
	if m := toolOfResult().FindSubmatch(raw[:min(len(raw), 4<<10)]); m != nil {
		h.close(string(m[1]))
	}
}

// close gives the call that a result belongs to: the newest open one of that tool.
func (h *history) close(tool string) (call, bool) {
	for i := len(h.open) - 1; i >= 0; i-- {
		if c := h.open[i]; tool == "" || c.tool == tool || plainTool(c.tool) == plainTool(tool) {
			h.open = append(h.open[:i:i], h.open[i+1:]...)
			return c, true
		}
	}
	return call{}, false
}

// plainTool is a tool's name without the method that a model may ask for (memory_load:all).
func plainTool(name string) string {
	name, _, _ = strings.Cut(name, ":")
	return name
}

// said maps a message of the model's: a call, or the final answer, which is a call of the tool "response".
func (h *history) said(m message) func() []checkpoint.Entry {
	a := parseAnswer(text(m.Content))
	turn := h.turn
	switch {
	case a.tool == toolResponse:
		return func() []checkpoint.Entry {
			said, _ := wholefile.Words(a.words)
			end := checkpoint.Entry{ID: "end:" + m.ID, Kind: checkpoint.EntryTurnEnd, Turn: turn}
			if said == "" {
				return []checkpoint.Entry{end}
			}
			return []checkpoint.Entry{{ID: m.ID, Kind: checkpoint.EntryAssistant, Turn: turn, Text: said}, end}
		}
	case a.tool != "":
		if h.open = append(h.open, call{m.ID, a.tool}); len(h.open) > 16 {
			h.open = h.open[1:] // nothing is open so long
		}
		return func() []checkpoint.Entry {
			return []checkpoint.Entry{
				{
					ID:    "call:" + m.ID,
					Kind:  checkpoint.EntryCall,
					Turn:  turn,
					Call:  m.ID,
					Name:  wholefile.Ident(a.tool),
					Input: wholefile.ToolText(a.args),
				},
			}
		}
	}

	return func() []checkpoint.Entry {
		said, _ := wholefile.Words(a.words)
		if said == "" {
			return nil
		}
		return []checkpoint.Entry{{ID: m.ID, Kind: checkpoint.EntryAssistant, Turn: turn, Text: said}}
	}
}

// heard maps a message to the model: a person's words, a tool's result, a warning of the program's, or a summary.
func (h *history) heard(m message, it *wholefile.Item) {
	var c struct {
		User         json.RawMessage `json:"user_message"`
		Intervention json.RawMessage `json:"user_intervention"`
		Tool         string          `json:"tool_name"`
		Result       json.RawMessage `json:"tool_result"`
		Warning      json.RawMessage `json:"system_warning"`
		Summary      json.RawMessage `json:"messages_summary"`
	}

	it.Entries = func() []checkpoint.Entry { return nil }
	if len(m.Content) == 0 || m.Content[0] != '{' || lines.Decode(m.Content, &c) != nil {
		c.Warning = m.Content // a text, or a list with files: what the program says
	}

	said := text(c.User)
	if said == "" {
		said = text(c.Intervention)
	}

	switch {
	case len(c.User)+len(c.Intervention) > 0:
		h.turn = m.ID
		it.Prompt = strings.TrimSpace(said) != ""
		it.Entries = func() []checkpoint.Entry { return wholefile.Said(m.ID, m.ID, stampless, said) }

	case len(c.Result) > 0:
		if open, ok := h.close(c.Tool); ok {
			it.Entries = result(m.ID, open, c.Result, false)
		}

	case len(c.Summary) > 0:
		it.Past = true
		it.Entries = func() []checkpoint.Entry {
			said, _ := wholefile.Words(text(c.Summary))
			return []checkpoint.Entry{{ID: m.ID, Kind: checkpoint.EntryCompaction, Text: said}}
		}

	case len(c.Warning) > 0:
		// The program warns the model when a call could not be made, or broke.
		if open, ok := h.close(""); ok {
			it.Entries = result(m.ID, open, c.Warning, true)
		}
	}
}

func result(id string, open call, raw json.RawMessage, failed bool) func() []checkpoint.Entry {
	return func() []checkpoint.Entry {
		return []checkpoint.Entry{
			{
				ID:     "end:" + id,
				Kind:   checkpoint.EntryResult,
				Call:   open.id,
				Name:   wholefile.Ident(open.tool),
				Output: wholefile.ToolText(raw),
				Failed: failed,
			},
		}
	}
}
