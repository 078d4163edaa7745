package cursor

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/jsontext"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/wholefile"
)

// format says what the lines of an agent transcript mean. They have no ids: nobody can tell a copy from the same words
// said twice.
var format = lines.Format[state]{
	Keys:   []string{"role"},
	Record: entries,
	Gap:    func(s *state) { s.pending = pending{} },
}

// state is what is remembered from one record to the next.
type state struct {
	lines.Pos
	pending `json:"s,omitzero"`
}

// pending are the calls of the newest record, which the file does not show to have ended.
type pending struct {
	Record string `json:"r,omitempty"` // its name
	Calls  int    `json:"n,omitempty"`
}

// maxCalls bounds how many calls of one record count.
const maxCalls = 1000

// record is one line.
type record struct {
	Role    string `json:"role"` // user, assistant
	Message struct {
		Content content `json:"content"`
	} `json:"message"`
}

// block is one piece of a message.
type block struct {
	Type  string          `json:"type"` // text, tool_use
	Text  string          `json:"text"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// content is a list of blocks; a string stands for one of text, and anything else for none.
type content []block

func (c *content) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '"':
		one := block{Type: "text"}
		err := json.Unmarshal(b, &one.Text)
		*c = content{one}
		return err
	case '[':
		var list []block
		err := lines.Decode(b, &list)
		*c = list
		return err
	}

	*c = nil
	return nil
}

func (c content) text() string {
	var parts []string
	for _, b := range c {
		if b.Type == "text" && b.Text != "" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// entries gives the entries of one record. A record of another kind means nothing.
func entries(_ context.Context, p *lines.Page[state], r lines.Record) error {
	var rec record
	if err := lines.Decode(r.Data, &rec); err != nil {
		return err
	}

	id := "l" + strconv.FormatInt(r.Off, 36) + "." + strconv.FormatUint(checkpoint.Hash(string(r.Data)), 36)
	switch rec.Role {
	case "user":
		p.Add(p.State.end(true)...)
		p.Add(wholefile.Said(id, "", time.Time{}, asked(rec.Message.Content.text()))...)
	case "assistant":
		p.Add(p.State.end(false)...)
		p.Add(p.State.answer(id, rec.Message.Content)...)
	}

	return nil
}

// end closes the calls before a record. When it is a person's words that follow them, nobody knows how they ended: they
// were stopped, or the program died and the person came back.
func (p *pending) end(unknown bool) []checkpoint.Entry {
	var list []checkpoint.Entry
	for i := range min(p.Calls, maxCalls) {
		call := callID(p.Record, i)
		list = append(list, checkpoint.Entry{ID: "end:" + call, Kind: checkpoint.EntryResult, Call: call,
			MadeUp: unknown})
	}

	*p = pending{}
	return list
}

func callID(record string, i int) string { return record + "." + strconv.Itoa(i+1) }

// answer gives the model's words and the calls that it asked for.
func (p *pending) answer(id string, c content) []checkpoint.Entry {
	text, markers := wholefile.Words(c.text())
	var list []checkpoint.Entry
	for _, m := range markers {
		list = append(list, checkpoint.Entry{ID: m, Kind: checkpoint.EntryOwn})
	}

	if text != "" {
		list = append(list, checkpoint.Entry{ID: id, Kind: checkpoint.EntryAssistant, Text: text})
	}

	p.Record = id
	for _, b := range c {
		if b.Type != "tool_use" || p.Calls == maxCalls {
			continue
		}

		call := callID(id, p.Calls)
		p.Calls++
		list = append(list, checkpoint.Entry{ID: call, Kind: checkpoint.EntryCall, Call: call,
			Name: wholefile.Ident(b.Name), Input: wholefile.ToolText(b.Input),
			Alike: alike(b.Name, b.Input)})
	}

	return list
}

// asked takes a person's words out of what Cursor puts around them.
func asked(s string) string {
	const open, closing = "<user_query>", "</user_query>"
	if _, rest, ok := strings.Cut(s, open); ok {
		if i := strings.LastIndex(rest, closing); i >= 0 {
			return rest[:i]
		}
		return rest
	}

	return s
}

// Recognise knows a transcript by its first record, which has a role and a message and nothing else.
func (*Agent) Recognise(head []byte) agent.Score {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte(jsontext.BOM)), " \t\r\n\x00")
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if len(first) == 0 || first[0] != '{' {
		return agent.NotMine
	}

	members := jsontext.Read(first, 0).Items
	if len(members) != 2 || members[0].Key != "role" || members[1].Key != "message" {
		return agent.NotMine
	}

	message := first[members[1].Value:]
	return agent.MineIf(bytes.HasPrefix(message, []byte("{")) && bytes.Contains(message, []byte(`"content"`)))
}
