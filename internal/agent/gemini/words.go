package gemini

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/lazyre"
	"belay/internal/redact"
	"belay/internal/transcript/lines"
)

// Bounds of what the program names. Nothing longer is real.
const (
	maxName = 200
	maxID   = 256
	maxPath = 4096
)

// Blocks that the program puts into a user message. What a hook gave is escaped in it (< is &lt;), so that its end is
// always the real one.
const (
	hookOpen     = "<hook_context>"
	hookClose    = "</hook_context>"
	sessionOpen  = "<session_context>"
	snapshotOpen = "<state_snapshot>"
	scratchOpen  = "<scratchpad>"
	loopNotice   = "System: Potential loop detected. Details: "
	fileContents = "\n--- Content from referenced files ---"
)

// Words of the program's own in the model's role.
const (
	thanksForSummary = "Got it. Thanks for the additional context!"
	interruptedReply = "[The previous response was interrupted before it completed.]"
)

// environmentID is the id of the message in which the program tells the model where it runs, in every session.
const environmentID = "d04923d38bb0f6017037e74183378ef4"

// command is a line that the program carries out itself and the model never sees.
var command = lazyre.New(`^[/?][A-Za-z][A-Za-z0-9:_-]*(?:\s|$)`)

// personal is what a person said in a user message; aside is set for a command to the program. Hook and transcript go
// through it alike, so that both tell of one prompt with the same words.
func personal(raw string) (said string, aside bool) {
	for {
		before, rest, found := strings.Cut(raw, hookOpen)
		if !found {
			break
		}

		_, after, closed := strings.Cut(rest, hookClose)
		if raw = before + after; !closed {
			raw = before // cut short: the block goes to the end
		}
	}

	raw, _, _ = strings.Cut(raw, fileContents)
	raw = strings.TrimSpace(raw)
	if strings.HasPrefix(raw, sessionOpen) || strings.HasPrefix(raw, loopNotice) ||
		strings.HasPrefix(raw, "Here is the user's editor context as a JSON") ||
		strings.HasPrefix(raw, "Here is a summary of changes in the user's editor context") {
		return "", false
	}

	said = strings.TrimSpace(words(raw, checkpoint.CutText))
	return said, command().MatchString(said)
}

// words makes text fit to keep: without blocks of belay's own, control characters and secrets, and cut to most bytes.
func words(s string, most int) string { return redact.Cut(lines.Clean(payload.WithoutOwn(s)), most) }

// ident makes a name that the file gives safe to keep, and of a bounded length.
func ident(s string) string {
	s = lines.Clean(s)
	if len(s) <= maxID {
		return s
	}
	return strings.ToValidUTF8(s[:64], "") + "#" + strconv.FormatUint(checkpoint.Hash(s), 16)
}

// toolText is a tool's input or output as text: a string's words, any other value as compact JSON.
func toolText(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}

	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return words(s, checkpoint.CutTool)
	}

	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return words(string(raw), checkpoint.CutTool)
	}

	return words(compact.String(), checkpoint.CutTool)
}

// What the shell tool writes of a command that did not end well; the program itself calls such a call a success. The
// line of an exit code stands at the end, before the process group.
var (
	exitCode     = lazyre.New(`(?m)^(?:Exit Code: [1-9][0-9]*|Exit Code: -[0-9]+|Signal: \S+)$`)
	cutShort     = lazyre.New(`(?m)^Command was (?:automatically )?cancelled `)
	inBackground = lazyre.New(`(?m)^Command moved to background \(PID: `)
)

const shellTool = "run_shell_command"

// commandFailed says whether a shell tool's output tells of a failure.
func commandFailed(tool, output string) bool {
	return tool == shellTool &&
		(exitCode().MatchString(output[max(len(output)-512, 0):]) ||
			cutShort().MatchString(output[:min(len(output), 512)]))
}

// commandGoesOn says whether a shell tool's output tells that the command runs on.
func commandGoesOn(tool, output string) bool {
	return tool == shellTool && inBackground().MatchString(output[:min(len(output), 512)])
}

// stamp is a time of the program's, or zero.
func stamp(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
