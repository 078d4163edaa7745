package copilot

import (
	"context"
	"encoding/json"

	"belay/internal/agent"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/repair"
)

var _ agent.Examiner = (*Agent)(nil)

// Examine looks into a session's events.jsonl: records that follow one another by their ids. The program itself was not
// run: what its loader needs is not known.
func (*Agent) Examine(ctx context.Context, src agent.Source, seen func(int64)) (*repair.Examined, error) {
	return repair.Lines(ctx, src.Path, repair.Form{
		Agent: name, Keys: []string{"data"}, Fact: fact, ParentKey: "parentId", Chained: true, Close: closeCall,
	}, seen)
}

func fact(data []byte) (repair.Fact, bool) {
	var rec struct {
		record
		Parent string `json:"parentId"`
	}

	if lines.Decode(data, &rec) != nil {
		return repair.Fact{}, false
	}

	f := repair.Fact{Key: rec.ID, Node: rec.ID, Parent: rec.Parent, Header: rec.Type == "session.start"}
	switch rec.Type {
	case "user.message":
		f.Talk = true
	case "assistant.message":
		f.Talk = true
		for _, t := range rec.Data.Requests {
			f.Calls = append(f.Calls, repair.Call{ID: t.Call, Name: t.Name})
		}

	case "tool.execution_start":
		f.Calls = []repair.Call{{ID: rec.Data.Call, Name: rec.Data.Tool}}
	case "tool.execution_complete":
		f.Results = []repair.Result{{Call: rec.Data.Call}}
	}

	return f, true
}

// closeCall writes the end of a call.
func closeCall(from []byte, c repair.Call, parent string) ([]byte, string) {
	id := repair.Name("result " + c.ID)
	data := repair.NewObject(nil).Set("toolCallId", c.ID).Set("success", false).
		Set("error", map[string]string{"message": repair.Interrupted}).Bytes()
	return repair.NewObject(from).Set("type", "tool.execution_complete").Set("data", json.RawMessage(data)).
		Set("id", id).Keep("timestamp").Set("parentId", parent).Bytes(), id
}
