package codex

import (
	"bytes"
	"encoding/json"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/lazyre"
	"belay/internal/redact"
	"belay/internal/transcript/lines"
)

// Bounds of single fields. Nothing longer is real; over the bound a name is shortened and a path or id dropped.
const (
	maxName = 200
	maxID   = 256
	maxPath = 4096
)

// words makes text fit to keep: without blocks of belay's own, control characters and secrets, and cut to most bytes.
func words(s string, most int) string { return redact.Cut(lines.Clean(payload.WithoutOwn(s)), most) }

// said is a text of the conversation, in the one form in which hooks and transcript give it.
func said(s string) string {
	return strings.TrimSpace(words(strings.TrimSpace(s), checkpoint.CutText))
}

// toolName gives the name that Codex's hooks give to a tool of the transcript: every shell is "Bash" there.
func toolName(s string) string {
	switch s {
	case "exec_command", "shell", "shell_command", "local_shell", "container.exec":
		return "Bash"
	}
	return words(s, maxName)
}

// toolInput is a call's arguments as JSON text, cut. A patch, which comes as plain text or as a command, also tells the
// first file that it changes.
func toolInput(name string, args []byte) string {
	var one struct {
		Command string `json:"command"`
		Input   string `json:"input"`
	}

	if name == "apply_patch" && lines.Decode(args, &one) == nil {
		if one.Command == "" {
			one.Command = one.Input
		}
		if one.Command != "" {
			return patchInput(one.Command)
		}
	}

	var compact bytes.Buffer

	// Of a huge value only the ends are kept, and it is not read once more for a space.
	if len(args) > 1<<20 || json.Compact(&compact, args) != nil {
		return words(string(args), checkpoint.CutTool)
	}

	return words(compact.String(), checkpoint.CutTool)
}

var patchFile = lazyre.New(`(?m)^\*\*\* (?:Add|Update|Delete) File: (.{1,512})$`)

// patchInput wraps a patch. It is cut first, so that the whole stays JSON.
func patchInput(patch string) string {
	in := struct {
		Command string `json:"command"`
		Path    string `json:"path,omitempty"`
	}{Command: words(patch, checkpoint.CutTool/2)}

	if m := patchFile().FindStringSubmatch(patch[:min(len(patch), checkpoint.CutTool)]); m != nil {
		in.Path = words(m[1], maxPath)
	}

	b, _ := json.Marshal(in) // two strings always encode
	return redact.Cut(string(b), checkpoint.CutTool)
}

// toolOutput is a result's text: a string's words, those of a list of items, else JSON.
func toolOutput(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}

	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return words(s, checkpoint.CutTool)
	}

	var list []item
	if raw[0] == '[' && lines.Decode(raw, &list) == nil && len(list) > 0 {
		var parts []string
		for _, it := range list {
			switch {
			case it.Text != "":
				parts = append(parts, it.Text)
			case it.Type != "":
				parts = append(parts, "["+it.Type+"]")
			}
		}

		return words(strings.Join(parts, "\n"), checkpoint.CutTool)
	}

	return words(string(raw), checkpoint.CutTool)
}

// workspaceOf is the real path of a working directory; empty for what cannot be one.
func workspaceOf(cwd string) string {
	if len(cwd) > maxPath || strings.IndexByte(cwd, 0) >= 0 {
		return ""
	}
	return strings.ToValidUTF8(payload.RealPath(cwd), "\uFFFD")
}
