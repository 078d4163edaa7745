package claude

import (
	"encoding/json"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/jsontext"
)

// Errors of reading a settings file. Nothing is written after any of them.
var (
	// ErrBadSettings: the file is no JSON object. Claude Code ignores such a file as a whole; a person must mend it.
	ErrBadSettings = jsontext.ErrNoObject
	// ErrForeignForm: "hooks" is there in a form that Claude Code does not describe.
	ErrForeignForm = jsontext.ErrForeignForm
)

// group and handler are Claude Code's form of a hook, in the order in which people write it.
type group struct {
	Matcher string    `json:"matcher,omitempty"`
	Hooks   []handler `json:"hooks"`
}

type handler struct {
	Type    string   `json:"type"`
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	Timeout int      `json:"timeout"` // seconds
}

// wanted is what belay writes for each event. From execForm on no shell is needed; before, the command line replaces its
// shell by the hook (exec), so that the hook's parent is the agent in both. A version that is not known gets the command
// line, which all understand, and every event: names that it does not know do not hurt since namesForgiven.
func wanted(p agent.Paths, v version, known bool) map[string]group {
	want := map[string]group{}
	for _, e := range hookEvents() {
		if known && v.before(e.since) && v.before(namesForgiven) {
			continue
		}
		var args []string
		if p.Socket != "" {
			args = append(args, "--socket", p.Socket)
		}
		args = append(args, name, e.name)
		h := handler{Type: "command", Command: p.Hook, Args: args, Timeout: e.timeout}
		if !known || v.before(execForm) {
			line := "exec " + payload.ShellWord(p.Hook)
			for _, a := range args {
				line += " " + payload.ShellWord(a)
			}
			h.Command, h.Args = line, nil
		}
		want[e.name] = group{Matcher: e.matcher, Hooks: []handler{h}}
	}
	return want
}

// argvOf is what a command hook starts.
func argvOf(raw []byte) ([]string, bool) {
	var h struct {
		Type    string   `json:"type"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	if json.Unmarshal(raw, &h) != nil || h.Type != "command" {
		return nil, false
	}
	if len(h.Args) > 0 {
		return append([]string{h.Command}, h.Args...), true
	}
	argv := payload.ShellWords(h.Command)
	if len(argv) > 0 && argv[0] == "exec" {
		argv = argv[1:]
	}
	return argv, true
}
