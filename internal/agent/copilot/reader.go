package copilot

import (
	"bytes"
	"context"
	"encoding/json"
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
	known `json:"s,omitzero"`
}

type known struct {
	Session string `json:"s,omitempty"` // the file's own, when it was opened for another
	Asked   bool   `json:"a,omitempty"` // the model's newest message asked for tools: the turn goes on
}

// record is one line: a chain by parentId, which nothing has to follow as it is never branched.
type record struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Timestamp string `json:"timestamp"`
	Ephemeral bool   `json:"ephemeral"` // of the stream of pieces: the whole follows
	Data      data   `json:"data"`
}

// data holds what belay reads of every kind of record; the record's Type says which fields count.
type data struct {
	Session string          `json:"sessionId"`
	Context payload.Payload `json:"context"` // cwd

	Message     string `json:"messageId"`
	Content     string `json:"content"`
	Transformed string `json:"transformedContent"` // as the model gets it
	Requests    []struct {
		Call string          `json:"toolCallId"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"arguments"`
	} `json:"toolRequests"`

	Call    string          `json:"toolCallId"`
	Tool    string          `json:"toolName"`
	Args    json.RawMessage `json:"arguments"`
	Success *bool           `json:"success"`
	Result  struct {
		Content json.RawMessage `json:"content"`
	} `json:"result"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
	Within string `json:"parentToolCallId"` // of a sub-agent: the call that started it

	Summary string `json:"summaryContent"`
}

// format says what the lines of a session's events mean; asked is the session that the file was opened for.
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
			if rec.ID != "" && !p.Once(rec.ID) || rec.Ephemeral {
				return nil
			}

			for _, e := range p.State.entries(rec, asked) {
				e.At, e.Session, e.Child = lines.Time(rec.Timestamp), p.State.Session, wholefile.Ident(rec.Data.Within)
				p.Add(e)
			}

			return nil
		},
	}
}

// entries gives what a record comes to.
func (k *known) entries(rec record, asked string) []checkpoint.Entry {
	id, d := wholefile.Ident(rec.ID), rec.Data
	one := func(e checkpoint.Entry) []checkpoint.Entry { return []checkpoint.Entry{e} }
	switch rec.Type {
	case "session.start", "session.resume":
		if own := wholefile.Ident(d.Session); own != "" && own != asked {
			k.Session = own
		}
		if work := payload.RealPath(d.Context.Path("cwd")); work != "" {
			return one(checkpoint.Entry{ID: id, Kind: checkpoint.EntryMeta, Workspace: work})
		}

	case "user.message":
		list := wholefile.Said(id, "", time.Time{}, d.Content)
		_, markers := wholefile.Words(d.Transformed)
		for _, m := range markers {
			list = append(list, checkpoint.Entry{ID: m, Kind: checkpoint.EntryOwn})
		}
		return list

	case "assistant.message":
		return k.answer(id, d)
	case "tool.execution_start":
		return call(d.Call, d.Tool, d.Args)
	case "tool.execution_complete":
		if d.Call != "" {
			return one(d.result())
		}

	case "assistant.turn_end":
		// The program counts each answer of the model's as a turn; a round ends with the one that asks for nothing.
		if !k.Asked && d.Within == "" {
			return one(checkpoint.Entry{ID: id, Kind: checkpoint.EntryTurnEnd})
		}

	case "abort":
		return one(checkpoint.Entry{ID: id, Kind: checkpoint.EntryInterrupt})
	case "session.compaction_complete":
		if d.Success == nil || *d.Success {
			text, _ := wholefile.Words(d.Summary)
			return one(checkpoint.Entry{ID: id, Kind: checkpoint.EntryCompaction, Text: text})
		}
	}

	return nil
}

// answer gives the model's words and the calls that it asks for.
func (k *known) answer(id string, d data) []checkpoint.Entry {
	if d.Within == "" {
		k.Asked = len(d.Requests) > 0
	}

	var list []checkpoint.Entry
	text, _ := wholefile.Words(d.Content)
	if text != "" {
		list = append(list, checkpoint.Entry{ID: id, Kind: checkpoint.EntryAssistant, Text: text})
	}

	for _, r := range d.Requests {
		list = append(list, call(r.Call, r.Name, r.Args)...)
	}

	return list
}

// call is the same entry whichever of its two records tells it.
func call(id, tool string, args json.RawMessage) []checkpoint.Entry {
	if id = wholefile.Ident(id); id == "" {
		return nil
	}
	return []checkpoint.Entry{{ID: "call:" + id, Kind: checkpoint.EntryCall, Call: id, Name: wholefile.Ident(tool),
		Input: wholefile.ToolText(args)}}
}

func (d data) result() checkpoint.Entry {
	id := wholefile.Ident(d.Call)
	e := checkpoint.Entry{ID: "result:" + id, Kind: checkpoint.EntryResult, Call: id,
		Output: wholefile.ToolText(d.Result.Content)}
	if e.Failed = d.Success != nil && !*d.Success; e.Failed && e.Output == "" {
		e.Output = wholefile.ToolWords(d.Error.Message)
	}
	return e
}

// Recognise knows a session's file by its first record.
func (*Agent) Recognise(head []byte) agent.Score {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	return agent.MineIf(
		bytes.Contains(first, []byte(`"session.start"`)) && bytes.Contains(first, []byte(`"copilotVersion"`)),
	)
}
