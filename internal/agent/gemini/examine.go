package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/repair"
)

var _ agent.Examiner = (*Agent)(nil)

// Examine looks into a transcript of either form.
func (*Agent) Examine(ctx context.Context, src agent.Source, seen func(int64)) (*repair.Examined, error) {
	if isDocument(src.Path) {
		return examineDocument(ctx, src.Path)
	}
	return repair.Lines(ctx, src.Path, form, seen)
}

// form says what a file of lines is like: a header, then messages, of which one may come again, richer, under its id.
// Results stand beside their calls. The symptoms were seen in Gemini CLI 0.61.0.
var form = repair.Form{
	Agent: name, Keys: []string{"type", "$set", "$rewindTo", "projectHash"},
	Fact: fact, Header: makeHeader, Close: closeCall,
	Symptoms: map[repair.Action]string{
		repair.MakeHeader: unlisted,
		repair.TrimMark:   unlisted,
		repair.CutStub:    unreadable,
		repair.Split:      unreadable,
		repair.TrimBefore: unreadable,
		repair.TrimAfter:  unreadable,
	},
}

const (
	unlisted   = "it does not list the session: its first record is no header"
	unreadable = "it cannot read this line: what is on it is lost to the model, when no later record says it again"
)

func fact(data []byte) (repair.Fact, bool) {
	var rec record
	if lines.Decode(data, &rec) != nil {
		return repair.Fact{}, false
	}

	f := repair.Fact{Header: rec.ProjectHash != ""}
	list := rec.Messages
	if rec.Set != nil && rec.Set.Messages != nil {
		list = *rec.Set.Messages
	}
	if rec.ID != "" {
		list = []message{rec.message}
	}

	for _, m := range list {
		f.Talk = f.Talk || talk(m)
		f.Compaction = f.Compaction || m.Type == typeUser && isSummary(m.text())
		for _, t := range m.ToolCalls {
			if rec.ID != "" { // a list repeats what was said, and may tell how it ended
				f.Calls = append(f.Calls, repair.Call{ID: t.ID, Name: t.Name})
			}
			if over, _ := t.ended(); over {
				f.Results = append(f.Results, repair.Result{Call: t.ID, Name: t.Name})
			}
		}
	}

	return f, true
}

// talk says that a message is one for which the program keeps a session: others it put there itself.
func talk(m message) bool {
	text := strings.TrimSpace(m.text())
	switch m.Type {
	case typeUser:
		return text != "" && !strings.HasPrefix(text, "<session_context>") && !strings.HasPrefix(text, "<hook_context>")
	case typeGemini:
		return text != "" || len(m.ToolCalls) > 0
	}

	return false
}

// makeHeader makes the first record from the next one of its kind, from its stub, and from where the file lies.
func makeHeader(path string, stub []byte, first [][]byte) ([]byte, error) {
	old := repair.Salvage(stub)
	id, hash, stamp := old["sessionId"], old["projectHash"], old["startTime"]
	for _, data := range first {
		var rec struct {
			header
			Timestamp string `json:"timestamp"`
			Set       struct {
				SessionID string `json:"sessionId"`
			} `json:"$set"`
		}

		if lines.Decode(data, &rec) != nil {
			continue
		}

		id = either(id, rec.SessionID, rec.Set.SessionID)
		hash, stamp = either(hash, rec.ProjectHash), either(stamp, rec.Timestamp)
	}

	if root := projectRoot(path); hash == "" && root != "" {
		hash = hashOfPath(root)
	}
	if m := fileName().FindStringSubmatch(filepath.Base(path)); id == "" && m != nil && len(m[1]) == 8 {
		id = m[1] + repair.Name(m[1])[8:] // the program finds a session by the part that the name keeps
	}

	switch {
	case id == "":
		return nil, errors.New("neither the name of the file nor another record tells the session's id")
	case hash == "":
		return nil, errors.New("nothing tells whose project it is")
	}

	return repair.NewObject(nil).Set("sessionId", id).Set("projectHash", hash).Set("startTime", stamp).
		Set("lastUpdated", stamp).Set("kind", "main").Bytes(), nil
}

func either(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// closeCall writes the message again, as the program does when calls end: those that had not are cancelled.
func closeCall(from []byte, _ repair.Call, _ string) ([]byte, string) {
	var m struct {
		ToolCalls []json.RawMessage `json:"toolCalls"`
	}
	if lines.Decode(from, &m) != nil {
		return nil, ""
	}

	var calls []json.RawMessage
	for _, raw := range m.ToolCalls {
		var t toolCall
		if lines.Decode(raw, &t) != nil {
			continue
		}
		if over, _ := t.ended(); over {
			calls = append(calls, raw)
			continue
		}

		part := map[string]any{"functionResponse": map[string]any{"id": t.ID, "name": t.Name,
			"response": map[string]string{"error": repair.Interrupted}}}
		calls = append(calls, repair.NewObject(raw).Keep("id", "name", "args").Set("result", []any{part}).
			Set("status", "cancelled").
			Keep("timestamp", "agentId", "displayName", "description").Set("resultDisplay", repair.Interrupted).Bytes())
	}

	return repair.NewObject(from).Keep("id", "timestamp", "type", "content", "displayContent", "thoughts", "tokens",
		"model").Set("toolCalls", calls).Bytes(), ""
}
