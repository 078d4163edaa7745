package gemini

import (
	"encoding/json"
	"strings"

	"belay/internal/transcript/lines"
)

// record is what belay reads of one line. Which kind it is, its keys tell, in the order of the fields. Whatever has an
// unexpected type is as if it were absent.
type record struct {
	RewindTo string `json:"$rewindTo"`
	message
	Set *struct {
		Messages *[]message `json:"messages"`
	} `json:"$set"`
	header
	Messages []message `json:"messages"` // an old whole-file document on one line
}

// header is a transcript's first record.
type header struct {
	SessionID   string   `json:"sessionId"`
	ProjectHash string   `json:"projectHash"`
	Kind        string   `json:"kind"`
	StartTime   string   `json:"startTime"`
	Directories []string `json:"directories"`
}

type message struct {
	ID        string          `json:"id"`
	Timestamp string          `json:"timestamp"`
	Type      string          `json:"type"`
	Content   json.RawMessage `json:"content"`
	Model     string          `json:"model"`
	ToolCalls []toolCall      `json:"toolCalls"`
}

type toolCall struct {
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Args    json.RawMessage `json:"args"`
	Result  json.RawMessage `json:"result"`
	Status  string          `json:"status"`
	Display json.RawMessage `json:"resultDisplay"`
	AgentID string          `json:"agentId"` // the sub-agent that worked for the call
}

// Types of messages.
const (
	typeUser   = "user"
	typeGemini = "gemini"
)

// talks says whether the message is of a type that the program writes.
func (m message) talks() bool {
	switch m.Type {
	case typeUser, typeGemini, "info", "error", "warning":
		return m.ID != ""
	}
	return false
}

// part is one piece of a message's content.
type part struct {
	Text             string          `json:"text"`
	Thought          bool            `json:"thought"`
	FunctionResponse json.RawMessage `json:"functionResponse"`
}

// parts are the pieces of a content: a string, one part, or a list of parts and strings.
func parts(raw json.RawMessage) []part {
	if len(raw) == 0 {
		return nil
	}

	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return []part{{Text: s}}
		}

	case '{':
		var p part
		if lines.Decode(raw, &p) == nil {
			return []part{p}
		}

	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return nil
		}

		var all []part
		for _, e := range list {
			if len(e) > 0 && e[0] != '[' { // no list in a list
				all = append(all, parts(e)...)
			}
		}

		return all
	}

	return nil
}

// text is what a message says: the words of its parts as the program itself joins them, thoughts left out.
func (m message) text() string {
	var b strings.Builder
	for _, p := range parts(m.Content) {
		if !p.Thought {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// output is the text of a call's result. A rewritten message may carry the results of all calls in each of them.
func (t toolCall) output() string {
	var list []part
	for _, p := range parts(t.Result) {
		if len(p.FunctionResponse) > 0 || p.Text != "" {
			list = append(list, p)
		}
	}

	for _, p := range list {
		var r struct {
			ID       string `json:"id"`
			Response struct {
				Output json.RawMessage `json:"output"`
				Error  json.RawMessage `json:"error"`
			} `json:"response"`
		}

		if lines.Decode(p.FunctionResponse, &r) != nil || r.ID != t.ID && len(list) > 1 {
			continue
		}
		if s := toolText(r.Response.Output); s != "" {
			return s
		}
		if s := toolText(r.Response.Error); s != "" {
			return s
		}
	}

	return toolText(t.Display)
}

// ended says whether a call is over, and whether it failed.
func (t toolCall) ended() (over, failed bool) {
	switch t.Status {
	case "success":
		return true, commandFailed(t.Name, t.output())
	case "error", "cancelled":
		return true, true
	}
	return false, false
}
