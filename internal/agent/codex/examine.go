package codex

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"belay/internal/agent"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/repair"
)

var _ agent.Examiner = (*Agent)(nil)

// Examine looks into a rollout. A compressed one is unpacked first; its repaired copy is a plain one, which Codex
// prefers.
func (*Agent) Examine(ctx context.Context, src agent.Source, seen func(int64)) (*repair.Examined, error) {
	if !strings.HasSuffix(src.Path, packed) {
		return repair.Lines(ctx, src.Path, form(src.Path), seen)
	}

	r := &rollout{path: src.Path}
	from, err := r.unpack(ctx, src.Path)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}

	x, err := repair.Lines(ctx, from, form(src.Path), seen)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}

	x.Unpacked(src.Path, r.damage, r.close)
	return x, nil
}

// form says what the rollout at a path is like: a header, then items in order. The path is not always that of the plain
// text.
func form(path string) repair.Form {
	return repair.Form{
		Agent: name, Keys: []string{"payload"}, Fact: fact, Close: closeCall, Recall: recall, Symptoms: symptoms,
		Header: func(_ string, stub []byte, first [][]byte) ([]byte, error) { return makeHeader(path, stub, first) },
	}
}

// symptoms were seen in Codex 0.169.0.
var symptoms = map[repair.Action]string{
	repair.MakeHeader: refused,
	repair.TrimMark:   refused,
	repair.CutStub:    unreadable,
	repair.Split:      unreadable,
	repair.TrimBefore: unreadable,
	repair.TrimAfter:  unreadable,
	repair.RemakeCall: "the result is lost to the model: its call is not in the file",
	repair.DropRepeat: "it is told to the model twice",
}

const (
	refused    = "it refuses the file: its first record is no session_meta"
	unreadable = "it cannot read this line: what is on it is lost to the model"
)

func fact(data []byte) (repair.Fact, bool) {
	rec, err := decodeLine(data)
	if err != nil {
		return repair.Fact{}, false
	}

	var f repair.Fact
	if matters(data) {
		f.Key = lines.ContentID(data)
	}

	p := rec.Payload
	switch rec.Type {
	case "session_meta":
		f.Header = true
	case "":
		f.Header = bareHeader(data)
	case "compacted":
		f.Compaction = true
	case "response_item", "bare_item":
		f.Talk = p.Type == "message" && (p.Role == "user" || p.Role == "assistant")
		switch p.Type {
		case "function_call", "custom_tool_call":
			f.Calls = []repair.Call{{ID: p.CallID, Name: p.Name}}
		case "local_shell_call":
			f.Calls = []repair.Call{{ID: p.CallID, Name: "local_shell"}}
		case "function_call_output", "custom_tool_call_output":
			f.Results = []repair.Result{{Call: p.CallID}}
		}
	}

	return f, true
}

// bareHeader knows the first line of the oldest files, which has no wrapper.
func bareHeader(data []byte) bool {
	var head struct {
		ID        string `json:"id"`
		Timestamp string `json:"timestamp"`
	}
	return lines.Decode(data, &head) == nil && head.ID != "" && head.Timestamp != ""
}

// makeHeader makes a session_meta with what the loader needs: the thread, from the file's name; the folder, from the
// first turn.
func makeHeader(path string, stub []byte, first [][]byte) ([]byte, error) {
	old := repair.Salvage(stub)
	thread, cwd, ordered := threadOfName(path), old["cwd"], false
	if thread == "" {
		thread = old["id"]
	}

	var stamp string
	for _, data := range first {
		rec, err := decodeLine(data)
		if err != nil {
			continue
		}
		if rec.Type == "bare_item" {
			return nil, errors.New("the file is of a version that had another one")
		}
		if stamp == "" {
			stamp = rec.Timestamp
		}
		if cwd == "" && rec.Type == "turn_context" {
			cwd = rec.Payload.Cwd
		}

		ordered = ordered || slices.Contains(keysOf(data), "ordinal")
	}

	switch {
	case thread == "":
		return nil, errors.New("neither the name of the file nor what is left of the record tells the thread's id")
	case cwd == "":
		return nil, errors.New("no turn tells where the session worked")
	}

	meta := repair.NewObject(nil).Set("id", thread).Set("timestamp", stamp).Set("cwd", cwd)
	for _, m := range []struct{ key, usual string }{{"originator", "codex_exec"}, {"cli_version", "0.0.0"},
		{"source", "cli"}, {"model_provider", ""}} {
		if v := old[m.key]; v != "" {
			m.usual = v
		}
		if m.usual != "" {
			meta.Set(m.key, m.usual)
		}
	}

	head := repair.NewObject(nil).Set("timestamp", stamp)
	if ordered { // such files say what history they hold
		head.Set("ordinal", 0)
		meta.Set("session_id", thread).Set("history_mode", "paginated")
	}

	return head.Set("type", "session_meta").Set("payload", json.RawMessage(meta.Bytes())).Bytes(), nil
}

func keysOf(data []byte) (keys []string) {
	var m map[string]json.RawMessage
	if json.Unmarshal(data, &m) != nil {
		return nil
	}

	for k := range m {
		keys = append(keys, k)
	}

	return keys
}

// closeCall writes the output of a call behind it, as Codex itself puts one in its requests.
func closeCall(from []byte, c repair.Call, _ string) ([]byte, string) {
	kind := "function_call_output"
	if rec, err := decodeLine(from); err == nil && rec.Payload.Type == "custom_tool_call" {
		kind = "custom_tool_call_output"
	}
	item := repair.NewObject(nil).Set("type", kind).Set("call_id", c.ID).Set("output", repair.Interrupted).Bytes()
	return wrapped(from, item), ""
}

// recall writes a call of a tool whose name is not known any more: without it Codex leaves the output out.
func recall(from []byte, r repair.Result, _, _ string) []byte {
	item := repair.NewObject(nil).Set("type", "function_call").Set("name", "unknown").Set("arguments", "{}").
		Set("call_id", r.Call)
	if rec, err := decodeLine(from); err == nil && rec.Payload.Type == "custom_tool_call_output" {
		item = repair.NewObject(nil).Set("type", "custom_tool_call").Set("call_id", r.Call).Set("name", "unknown").
			Set("input", "")
	}
	return wrapped(from, item.Bytes())
}

// wrapped puts an item where another one stands. The oldest files have no wrapper.
func wrapped(from, item []byte) []byte {
	if rec, err := decodeLine(from); err == nil && rec.Type == "bare_item" {
		return item
	}
	return repair.NewObject(from).Keep("timestamp", "ordinal", "type").Set("payload", json.RawMessage(item)).Bytes()
}
