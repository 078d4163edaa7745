package pi

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/transcript/repair"
)

var _ agent.Examiner = (*Agent)(nil)

// Examine looks into a .jsonl transcript.
func (a *Agent) Examine(ctx context.Context, src agent.Source, seen func(int64)) (*repair.Examined, error) {
	return repair.Lines(ctx, src.Path, a.form(), seen)
}

// form says what both programs' files are like: a header, then a tree of records. The symptoms were seen in pi 1.6.0
// and OpenClaw 2026.7.35, which makes itself a header when it is lost.
func (a *Agent) form() repair.Form {
	heals := a.name == openclaw
	headless := "it refuses the file: its first record is no session header"
	circle := "it ends with an error: the parents of a record go in a circle"
	if heals {
		headless = "it does not know the session's id any more: it makes another header"
		circle = "all before it is lost to the model: the parents of a record go in a circle"
	}

	const unreadable = "it cannot read this line: what is on it is lost to the model, and all before it"
	f := repair.Form{
		Agent: a.name, Keys: []string{"type"}, Fact: fact, ParentKey: "parentId", Chained: true,
		Close: closeCall, Recall: recall,
		Header: func(path string, stub []byte, first [][]byte) ([]byte, error) {
			return makeHeader(heals, path, stub, first)
		},
		Symptoms: map[repair.Action]string{
			repair.MakeHeader: headless,
			repair.TrimMark:   headless,
			repair.Relink:     "all before it is lost to the model: it follows a record that is not in the file",
			repair.Uncycle:    circle,
			repair.CutStub:    unreadable,
			repair.Split:      unreadable,
			repair.TrimBefore: unreadable,
			repair.TrimAfter:  unreadable,
			repair.DropRepeat: "what came after the first copy of this record is lost to the model",
		},
	}

	if a.name != "pi" && !heals {
		f.Symptoms = nil // what another program does is not known
	}

	return f
}

func fact(data []byte) (repair.Fact, bool) {
	rec, ok := parse(data, 0)
	if !ok || !json.Valid(data) {
		return repair.Fact{}, false
	}

	switch rec.typ {
	case "text", "thinking", "toolCall", "image":
		return repair.Fact{}, false // a block of a message that was cut short
	}

	f := repair.Fact{Header: rec.typ == typeHeader || rec.typ == typeTitle, Compaction: rec.typ == typeCompaction}
	if !f.Header {
		f.Key, f.Node, f.Parent = rec.id, rec.id, text(rec.parent)
	}
	if rec.typ != typeMessage {
		return f, true
	}

	msg := parseMessage(rec.message)
	f.Talk = msg.role == "user" || msg.role == "assistant"
	for _, c := range msg.calls {
		f.Calls = append(f.Calls, repair.Call{ID: c.id, Name: c.name})
	}

	if msg.role == "toolResult" {
		f.Results = []repair.Result{{Call: msg.callID, Name: msg.tool}}
	}

	return f, true
}

// makeHeader makes one of version 3. What stood in the lost one is taken from its stub, the file's name and the
// folder's. OpenClaw's folder does not tell; its own header is as good as one without the place.
func makeHeader(heals bool, path string, stub []byte, first [][]byte) ([]byte, error) {
	if len(first) == 0 {
		return nil, errors.New("there is no record")
	}

	old := repair.Salvage(stub)
	id, ok := SessionOfName(filepath.Base(path))
	if !ok {
		id = old["id"]
	}

	cwd := old["cwd"]
	if cwd == "" {
		cwd = folderOf(filepath.Base(filepath.Dir(path)))
	}
	if heals && (id == "" || cwd == "") {
		return nil, repair.ErrNoHeader
	}
	if id == "" {
		return nil, errors.New("neither the name of the file nor what is left of the record tells the session's id")
	}
	if cwd == "" {
		return nil, errors.New("neither the name of the folder nor what is left of the record tells " +
			"where the session worked")
	}

	stamp := old["timestamp"]
	if rec, ok := parse(first[0], 0); ok && stamp == "" {
		stamp = text(rec.stamp)
	}

	return repair.NewObject(nil).Set("type", typeHeader).Set("version", 3).Set("id", id).Set("timestamp", stamp).
		Set("cwd", cwd).Bytes(), nil
}

// folderOf finds the folder that a name like --home-me-proj-- stands for. A dash in it may be a slash or itself: the
// folder that is there tells which, the one with fewer levels first.
func folderOf(name string) string {
	inner, ok := strings.CutPrefix(name, "--")
	if ok {
		inner, ok = strings.CutSuffix(inner, "--")
	}
	if !ok || inner == "" {
		return ""
	}

	looks := 1000 // a name of dashes alone has very many readings
	var try func(dir, rest string) string
	try = func(dir, rest string) string {
		for i := len(rest); i > 0; i-- {
			if i < len(rest) && rest[i] != '-' {
				continue
			}
			if looks--; looks < 0 {
				return ""
			}

			path := filepath.Join(dir, rest[:i])
			if info, err := os.Stat(path); err != nil || !info.IsDir() {
				continue
			}
			if i == len(rest) {
				return path
			}
			if found := try(path, rest[i+1:]); found != "" {
				return found
			}
		}
		return ""
	}

	return try("/", inner)
}

// closeCall writes the result of a call in the form of every other.
func closeCall(from []byte, c repair.Call, parent string) ([]byte, string) {
	id := repair.Name("result " + c.ID)[:8]
	message := repair.NewObject(memberRaw(from, "message"))
	message.Set("role", "toolResult").Set("toolCallId", c.ID).Set("toolName", c.Name).
		Set("content", []map[string]string{{"type": "text", "text": repair.Interrupted}}).Set("isError", true).
		Keep("timestamp")
	return recordWith(from, id, parent, message.Bytes()), id
}

const noUsage = `{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,` +
	`"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}`

// recall writes a call without its arguments. The tool's name is in the result.
func recall(from []byte, r repair.Result, id, parent string) []byte {
	call := repair.NewObject(nil).Set("type", "toolCall").Set("id", r.Call).Set("name", r.Name).
		Set("arguments", struct{}{}).Bytes()
	message := repair.NewObject(memberRaw(from, "message"))
	message.Set("role", "assistant").Set("content", []json.RawMessage{call}).Set("api", "unknown").
		Set("provider", "unknown").Set("model", "unknown").
		Set("usage", json.RawMessage(noUsage)).
		Set("stopReason", "toolUse").Keep("timestamp")

	return recordWith(from, id, parent, message.Bytes())
}

// recordWith wraps a message like the one of another record. Version 1 has neither ids nor parents.
func recordWith(from []byte, id, parent string, message []byte) []byte {
	o := repair.NewObject(from).Set("type", typeMessage)
	if member(from, "id") != "" {
		o.Set("id", id)
		if parent == "" {
			o.Set("parentId", nil)
		} else {
			o.Set("parentId", parent)
		}
	}

	return o.Keep("timestamp").Set("message", json.RawMessage(message)).Bytes()
}
