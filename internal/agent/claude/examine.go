package claude

import (
	"context"
	"encoding/json"
	"strings"

	"belay/internal/agent"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/repair"
)

var _ agent.Examiner = (*Agent)(nil)

// Examine looks into a transcript, main or sub-agent. Records with a uuid are a tree, and all others are notes beside
// it.
func (*Agent) Examine(ctx context.Context, src agent.Source, seen func(int64)) (*repair.Examined, error) {
	return repair.Lines(ctx, src.Path, repair.Form{
		Agent: name, Keys: recordKeys, Fact: fact, ParentKey: "parentUuid",
		Close: closeCall, Recall: recall, Symptoms: symptoms,
	}, seen)
}

// symptoms were seen in Claude Code 2.1.328. A record whose parent is not there goes on behind what was written a few
// seconds before it, if anything was: after a longer pause all before it is lost.
var symptoms = map[repair.Action]string{
	repair.Relink:     "what came before it can be lost to the model: it follows a record that is not in the file",
	repair.Uncycle:    "what came before it can be lost to the model: its parents go in a circle",
	repair.CutStub:    "the record on this line is lost to the model, and what came before it can be",
	repair.TrimBefore: "the record on this line is lost to the model, and what came before it can be",
	repair.DropRepeat: "what came after the first copy of this record is lost to the model",
}

func fact(data []byte) (repair.Fact, bool) {
	rec, err := decodeRecord(data)
	if err != nil {
		return repair.Fact{}, false
	}

	f := repair.Fact{Node: rec.UUID, Parent: rec.ParentUUID, Lane: rec.SessionID, Group: rec.Message.ID}
	switch {
	case rec.UUID != "":
		f.Key = rec.Type + " " + rec.UUID
	case rec.talks():
		f.Key = lines.ContentID(data)
	}

	if rec.IsSidechain {
		f.Lane += "/" + rec.AgentID
	}

	f.Compaction = rec.Type == "system" && rec.Subtype == "compact_boundary"
	if rec.Type != "user" && rec.Type != "assistant" {
		return f, true
	}

	f.Talk = !rec.IsMeta
	for _, b := range rec.Message.Content {
		switch {
		case strings.HasSuffix(b.Type, "tool_use") && b.ID != "":
			f.Calls = append(f.Calls, repair.Call{ID: b.ID, Name: b.Name})
		case strings.HasSuffix(b.Type, "tool_result") && b.ToolUseID != "":
			f.Results = append(f.Results, repair.Result{Call: b.ToolUseID})
		}
	}

	return f, true
}

// trailer is what each record says of where it belongs, in the program's order.
var trailer = []string{"userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "slug", "agentId"}

// closeCall writes the result that the program itself writes when it resumes a session with an open call.
func closeCall(from []byte, c repair.Call, parent string) ([]byte, string) {
	id := repair.Name("result " + c.ID)
	o := repair.NewObject(from)
	o.Set("parentUuid", parent).Keep("isSidechain", "promptId").Set("type", "user")
	o.Set("message", json.RawMessage(repair.NewObject(nil).Set("role", "user").Set("content", []any{
		json.RawMessage(repair.NewObject(nil).Set("type", "tool_result").Set("content", repair.Interrupted).
			Set("is_error", true).Set("tool_use_id", c.ID).Bytes()),
	}).Bytes()))

	o.Set("uuid", id).Keep("timestamp").Set("toolUseResult", repair.Interrupted).Set("toolDenialKind", "interrupted").
		Set("sourceToolAssistantUUID", parent)
	return o.Keep(trailer...).Bytes(), id
}

// recall writes a call of a tool whose name is not known any more.
func recall(from []byte, r repair.Result, id, parent string) []byte {
	use := repair.NewObject(nil).Set("type", "tool_use").Set("id", r.Call).Set("name", "unknown").
		Set("input", struct{}{}).Bytes()
	message := repair.NewObject(nil).Set("id", "msg_"+strings.ReplaceAll(repair.Name("call "+r.Call), "-", "")).
		Set("type", "message").Set("role", "assistant").
		Set("model", syntheticModel).Set("content", []any{json.RawMessage(use)}).Set("stop_reason", "tool_use").
		Set("stop_sequence", nil).
		Set("usage", map[string]int{"input_tokens": 0, "output_tokens": 0}).Bytes()

	o := repair.NewObject(from)
	if parent == "" {
		o.Set("parentUuid", nil)
	} else {
		o.Set("parentUuid", parent)
	}

	return o.Keep("isSidechain").Set("message", json.RawMessage(message)).Set("type", "assistant").Set("uuid", id).
		Keep("timestamp").Keep(trailer...).Bytes()
}
