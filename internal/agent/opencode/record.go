package opencode

import (
	"encoding/json"
	"errors"
)

// What opencode writes, as far as belay reads it. Every object comes whole with each change of it.

type sessionInfo struct {
	ID        string `json:"id"`
	ParentID  string `json:"parentID"` // of a sub-agent's session
	Directory string `json:"directory"`
	Model     struct {
		ID string `json:"id"`
	} `json:"model"`
	Time struct {
		Created float64 `json:"created"`
	} `json:"time"`
}

type messageInfo struct {
	ID       string          `json:"id"`
	Role     string          `json:"role"`
	ParentID string          `json:"parentID"` // of an answer: the prompt
	ModelID  string          `json:"modelID"`
	Mode     string          `json:"mode"`
	Finish   string          `json:"finish"`
	Error    *messageError   `json:"error"`
	Summary  json.RawMessage `json:"summary"` // true for the answer that is a compaction's summary
	Time     struct {
		Created   float64 `json:"created"`
		Completed float64 `json:"completed"`
	} `json:"time"`
}

// summarises says that the message is the summary of a compaction.
func (m messageInfo) summarises() bool { return string(m.Summary) == "true" }

type messageError struct {
	Name string `json:"name"`
	Data struct {
		Message string `json:"message"`
	} `json:"data"`
}

// aborted is the error of a turn that the person interrupted.
const aborted = "MessageAbortedError"

type part struct {
	ID        string    `json:"id"`
	MessageID string    `json:"messageID"`
	Type      string    `json:"type"`
	Text      string    `json:"text"`
	Synthetic bool      `json:"synthetic"` // put in by the program or a plugin
	Ignored   bool      `json:"ignored"`   // shown, and not given to the model
	Filename  string    `json:"filename"`
	Prompt    string    `json:"prompt"`
	Command   string    `json:"command"`
	Tool      string    `json:"tool"`
	State     toolState `json:"state"`
	Time      struct {
		Start float64 `json:"start"`
	} `json:"time"`
}

type toolState struct {
	Status   string          `json:"status"` // pending, running, completed, error
	Input    json.RawMessage `json:"input"`
	Output   string          `json:"output"`
	Error    string          `json:"error"`
	Metadata struct {
		Exit       json.RawMessage `json:"exit"` // of the shell tool; null when it was killed
		Background bool            `json:"background"`
	} `json:"metadata"`
	Time struct {
		Start float64 `json:"start"`
		End   float64 `json:"end"`
	} `json:"time"`
}

// interrupted is what opencode tells the model of a call that was running when it died. It does not write it down: were
// it ever in a record, nobody would know how the call ended.
const interrupted = "[Tool execution was interrupted]"

// envelope is the data of one row of the event table.
type envelope struct {
	Info      json.RawMessage `json:"info"`
	Part      json.RawMessage `json:"part"`
	MessageID string          `json:"messageID"` // of what was removed
	PartID    string          `json:"partID"`
}

// decode reads an object and forgives members of another type than expected: they count as absent.
func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return nil
	}
	return err
}
