package agentzero

import (
	"encoding/json"
	"strings"
	"time"

	"belay/internal/lazyre"
)

// toolResponse is the tool with which the model gives its final answer.
const toolResponse = "response"

// stampless is the time of a message: the history has none, the log may.
var stampless time.Time

// answer is what the model said: JSON with a tool and its arguments, as the program asks for. Thoughts are left out.
type answer struct {
	tool  string
	args  json.RawMessage
	words string // of a final answer, or all of what is no JSON
}

var (
	toolName = lazyre.New(`"tool(?:_name)?"\s*:\s*"([^"\\]{1,200})"`)
	fences   = lazyre.New("^```[a-z]*\\s*|\\s*```$")
)

// parseAnswer reads an answer. The program forgives what is not quite JSON, so that a call in such a text is a call
// too.
func parseAnswer(s string) answer {
	begin, end := strings.IndexByte(s, '{'), strings.LastIndexByte(s, '}')
	if begin < 0 {
		return answer{words: s}
	}

	body := s[begin:]
	if end > begin {
		body = s[begin : end+1]
	}

	var a struct {
		Name string          `json:"tool_name"`
		Tool string          `json:"tool"`
		Args json.RawMessage `json:"tool_args"`
		More json.RawMessage `json:"args"`
	}

	if err := json.Unmarshal([]byte(body), &a); err != nil {
		m := toolName().FindStringSubmatch(body)
		if m == nil {
			return answer{words: s}
		}

		a.Name = m[1]
		if quoted, err := json.Marshal(fences().ReplaceAllString(strings.TrimSpace(s), "")); err == nil {
			a.Args = quoted
		}
	}

	if a.Name == "" {
		a.Name = a.Tool
	}
	if len(a.Args) == 0 {
		a.Args = a.More
	}

	switch a.Name {
	case "":
		return answer{words: s}
	case toolResponse:
		return answer{tool: toolResponse, words: responseText(a.Args)}
	}

	return answer{tool: a.Name, args: a.Args}
}

// responseText is the text of a final answer.
func responseText(args json.RawMessage) string {
	var r struct {
		Text    string `json:"text"`
		Message string `json:"message"`
	}

	if json.Unmarshal(args, &r) == nil && r.Text+r.Message != "" {
		if r.Text != "" {
			return r.Text
		}
		return r.Message
	}

	return text(args)
}

// text is a value as words: a string, or any other value's JSON.
func text(raw json.RawMessage) string {
	var s string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case raw[0] == '"' && json.Unmarshal(raw, &s) == nil:
		return s
	}

	return string(raw)
}
