package codex

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"belay/checkpoint"
	"belay/internal/jsonl"
	"belay/internal/lazyre"
	"belay/internal/redact"
)

// Bounds of single fields. Nothing longer is real; over the bound a name is shortened and a path or id dropped.
const (
	maxName = 200
	maxID   = 256
	maxPath = 4096
)

// words makes text fit to keep: without blocks of belay's own, control characters and secrets, and cut to most bytes.
func words(s string, most int) string { return redact.Cut(jsonl.Clean(withoutOwn(s)), most) }

// said is a text of the conversation, in the one form in which hooks and transcript give it.
func said(s string) string {
	return strings.TrimSpace(words(strings.TrimSpace(s), checkpoint.CutText))
}

// The frame of belay's own blocks, as checkpoint.Frame writes it and as it looks inside of JSON, at any depth: tools print
// transcripts, and programs print what tools printed.
var (
	ownOpen  = lazyre.New(`(?:<|\\+u003c)belay-record k=\\*"([^"\\<>]{1,64})\\*"(?:>|\\+u003e)`)
	ownClose = lazyre.New(`(?:<|\\+u003c)/belay-record k=\\*"([^"\\<>]{1,64})\\*"(?:>|\\+u003e)`)
)

// withoutOwn takes belay's own blocks out of a text. A block whose end is missing goes to the end of the text: Codex cuts
// the middle out of what is too long.
func withoutOwn(s string) string {
	if !strings.Contains(s, "belay-record") {
		return s
	}
	var kept strings.Builder
	for {
		at := ownOpen().FindStringSubmatchIndex(s)
		if at == nil {
			kept.WriteString(s)
			return kept.String()
		}
		kept.WriteString(s[:at[0]])
		marker := s[at[2]:at[3]]
		for s = s[at[1]:]; ; { // a block holds no closing marker but its own, unless the text was made to mislead
			to := ownClose().FindStringSubmatchIndex(s)
			if to == nil {
				return kept.String()
			}
			closed := s[to[2]:to[3]] == marker
			if s = s[to[1]:]; closed {
				break
			}
		}
	}
}

// ownMarkers finds belay's own blocks in a record, in any string at any depth.
func ownMarkers(data []byte) (markers []string) {
	for _, m := range ownOpen().FindAllSubmatch(data, -1) {
		if marker := string(m[1]); !slices.Contains(markers, marker) {
			markers = append(markers, marker)
		}
	}
	return markers
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
	if name == "apply_patch" && jsonl.Decode(args, &one) == nil {
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
	if raw[0] == '[' && jsonl.Decode(raw, &list) == nil && len(list) > 0 {
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

// realPath follows links where the path leads somewhere on this machine. A relative one is not ours to complete.
func realPath(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// workspaceOf is the real path of a working directory; empty for what cannot be one.
func workspaceOf(cwd string) string {
	if len(cwd) > maxPath || strings.IndexByte(cwd, 0) >= 0 {
		return ""
	}
	return strings.ToValidUTF8(realPath(cwd), "\uFFFD")
}

// shellWord quotes a word for a POSIX shell, where it needs quoting.
func shellWord(s string) string {
	plain := s != ""
	for i := 0; i < len(s) && plain; i++ {
		c := s[i]
		plain = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_./:@+", c) >= 0
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
