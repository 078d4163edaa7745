package droid

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/wholefile"
)

// state is what is remembered from one record to the next.
type state struct {
	lines.Pos
	Session string `json:"s,omitempty"` // the file's own, when it was opened for another
	Model   string `json:"m,omitempty"` // of the newest answer
}

// record is one line. Its type says which fields count.
type record struct {
	Type    string  `json:"type"`
	ID      string  `json:"id"`
	Stamp   string  `json:"timestamp"`
	Message message `json:"message"`

	Cwd    string `json:"cwd"`              // session_start
	Caller string `json:"callingSessionId"` // of a sub-agent's session: the session that started it

	Turn   string `json:"turnId"` // agent_turn_outcome: the prompt's id
	Reason string `json:"reason"`

	Summary string `json:"summaryText"` // compaction_state
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Seen    string          `json:"visibility"`
	Hook    string          `json:"hookEventName"`
	Results json.RawMessage `json:"hookResults"` // what the hooks printed: belay's own blocks among it
	Model   string          `json:"modelId"`
}

type block struct {
	Type   string          `json:"type"`
	Text   string          `json:"text"`
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Call   string          `json:"tool_use_id"`
	Failed bool            `json:"is_error"`
	Result json.RawMessage `json:"content"`
}

// format says what the lines of a session mean; asked is the session that the file was opened for.
func format(asked string) lines.Format[state] {
	return lines.Format[state]{
		Keys: []string{"type"},
		Learn: func(seen *lines.Seen, l lines.Line) {
			var rec struct{ ID string }
			if lines.Decode(l.Data, &rec) == nil && rec.ID != "" {
				seen.Add(rec.ID)
			}
		},
		Record: func(_ context.Context, p *lines.Page[state], r lines.Record) error {
			var rec record
			if err := lines.Decode(r.Data, &rec); err != nil {
				return err
			}
			if rec.ID != "" && !p.Once(rec.ID) {
				return nil
			}

			for _, e := range p.State.entries(rec, asked) {
				e.At, e.Session = rec.at(), p.State.Session
				p.Add(e)
			}

			return nil
		},
	}
}

// at is the record's stamp, or zero.
func (r record) at() time.Time {
	t, err := time.Parse(time.RFC3339, r.Stamp)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// entries gives what a record comes to.
func (s *state) entries(rec record, asked string) []checkpoint.Entry {
	id := wholefile.Ident(rec.ID)
	switch rec.Type {
	case "session_start":
		if id != asked {
			s.Session = id
		}
		return []checkpoint.Entry{{ID: id, Kind: checkpoint.EntryMeta, Workspace: payload.RealPath(rec.Cwd)}}

	case "compaction_state":
		text, _ := wholefile.Words(rec.Summary)
		return []checkpoint.Entry{{ID: id, Kind: checkpoint.EntryCompaction, Text: text}}
	case "agent_turn_outcome":
		turn := wholefile.Ident(rec.Turn)
		end := checkpoint.Entry{ID: "end:" + turn, Kind: checkpoint.EntryTurnEnd, Turn: turn}
		if rec.Reason == "cancelled" {
			end.Kind = checkpoint.EntryInterrupt
		}
		return []checkpoint.Entry{end}

	case "message":
		return s.message(id, rec.Message)
	}

	return nil
}

// message gives the words, calls and results of one message. What Droid tells the model in a person's name stands
// between tags of its own, or is hidden from the person.
func (s *state) message(id string, m message) (list []checkpoint.Entry) {
	if m.Hook != "" {
		for _, marker := range payload.Markers(string(m.Results)) {
			list = append(list, checkpoint.Entry{ID: marker, Kind: checkpoint.EntryOwn})
		}
		return list
	}

	if model := wholefile.Ident(m.Model); model != "" && model != s.Model {
		s.Model = model
		list = append(list, checkpoint.Entry{ID: "model:" + id, Kind: checkpoint.EntryMeta, Model: model})
	}

	var said []string
	for _, b := range m.blocks() {
		switch b.Type {
		case "text":
			if m.Seen != "llm_only" && !strings.HasPrefix(b.Text, "<system-reminder>") {
				said = append(said, b.Text)
			}

		case "tool_use":
			list = append(list, b.call())
		case "tool_result":
			list = append(list, b.result())
		}
	}

	if m.Role == "user" {
		return append(list, wholefile.Said(id, id, time.Time{}, strings.Join(said, "\n"))...)
	}
	if text, _ := wholefile.Words(strings.Join(said, "\n")); text != "" {
		list = append([]checkpoint.Entry{{ID: id, Kind: checkpoint.EntryAssistant, Text: text}}, list...)
	}

	return list
}

// blocks are a content's, which may be a text alone.
func (m message) blocks() (list []block) {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	_ = lines.Decode(m.Content, &list) // a content of another form says nothing
	return list
}

func (b block) call() checkpoint.Entry {
	id := wholefile.Ident(b.ID)
	return checkpoint.Entry{
		ID:    "call:" + id,
		Kind:  checkpoint.EntryCall,
		Call:  id,
		Name:  wholefile.Ident(b.Name),
		Input: wholefile.ToolText(b.Input),
	}
}

func (b block) result() checkpoint.Entry {
	id := wholefile.Ident(b.Call)
	return checkpoint.Entry{
		ID:     "result:" + id,
		Kind:   checkpoint.EntryResult,
		Call:   id,
		Output: wholefile.ToolText(b.Result),
		Failed: b.Failed,
	}
}

// Recognise knows a session's file by its first record.
func (*Agent) Recognise(head []byte) agent.Score {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if bytes.HasPrefix(first, []byte(`{"type":"session_start"`)) && bytes.Contains(first, []byte(`"owner"`)) {
		return agent.Mine
	}
	return agent.NotMine
}
