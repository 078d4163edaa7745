// Package claude knows Claude Code: its hook payloads, its settings file, its transcripts and the forms that it makes up
// itself after a crash.
//
// Payloads are decoded once, here: every field but the session id may be absent or of another type than expected, all
// text comes out redacted, cut and valid, and an event that belay does not know means nothing. Transcripts are only
// read. The one file of Claude Code's that is ever written is its settings.json, by Install and Uninstall: as an edit of
// the text, so that everything of the user's stays as it is, and so that Uninstall can put the very same bytes back.
//
// It does not know what belay does with an event, and it starts no session of the agent.
package claude

import (
	"context"
	"runtime"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/vfs"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "claude-code"

// Agent is Claude Code as the rest of belay sees it. The zero value is not ready: use New.
type Agent struct {
	home    string // config home: $CLAUDE_CONFIG_DIR, else ~/.claude; empty when there is no home folder
	plain   string // ~/.claude whatever the environment says: sessions of this home have no account
	state   string // belay's state folder, for the original bytes of changed settings
	path    string // where the claude program is looked for, as in $PATH
	managed string // the administrator's settings, which can turn ours off
	fsys    vfs.FS
}

var (
	_ agent.Agent     = (*Agent)(nil)
	_ agent.Installer = (*Agent)(nil)
)

// New gives Claude Code as it is on a machine.
func New(h agent.Host) *Agent {
	a := &Agent{
		home:    h.Dir("CLAUDE_CONFIG_DIR"),
		plain:   h.Below(".claude"),
		state:   h.State,
		path:    h.Var("PATH"),
		managed: "/etc/claude-code/managed-settings.json",
		fsys:    h.FS,
	}
	if runtime.GOOS == "darwin" {
		a.managed = "/Library/Application Support/ClaudeCode/managed-settings.json"
	}
	if a.home == "" {
		a.home = a.plain
	}
	return a
}

// Name is "claude-code".
func (a *Agent) Name() string { return name }

// Limits of Claude Code. A longer text than 10,000 characters reaches the model as a 2 kB preview and a path; Stop
// comes before the last answer is in the transcript.
func (a *Agent) Limits() agent.Limits {
	return agent.Limits{BriefBytes: 9000, LateText: true}
}

// Open gives the reader of one transcript, main or sub-agent.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript { return openTranscript(src) }

// Locate finds transcripts of this user, newest first.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	return locate(ctx, a.home, q)
}

// ResumeCommand is what a person types to go on with a session.
func (a *Agent) ResumeCommand(session string) string {
	return "claude --resume " + payload.ShellWord(session)
}

// hookEvent is one event that belay registers for.
type hookEvent struct {
	name    string
	matcher string        // in the settings; empty matches all
	budget  time.Duration // how long Claude Code waits when no timeout is set
	timeout int           // what belay writes into the settings, in seconds
	waits   bool
	since   version // the first version that knows the name; older ones may refuse the whole file over it
}

// hookEvents are the events belay lives from. PostToolBatch, MessageDisplay and the rest say nothing that these do not.
func hookEvents() []hookEvent {
	const long = 600 * time.Second
	return []hookEvent{
		{"SessionStart", "startup|resume|clear|compact|fork", long, 5, true, version{1, 0, 62}},
		{"UserPromptSubmit", "", 30 * time.Second, 5, true, version{1, 0, 54}},
		{"PreToolUse", "", long, 5, false, version{1, 0, 38}},
		{"PostToolUse", "", long, 5, false, version{1, 0, 38}},
		{"PostToolUseFailure", "", long, 5, false, version{2, 1, 33}},
		{"PreCompact", "", long, 5, false, version{1, 0, 48}},
		{"PostCompact", "", long, 5, false, version{2, 1, 76}},
		{"SubagentStart", "", long, 5, false, version{2, 0, 43}},
		{"SubagentStop", "", long, 5, false, version{1, 0, 41}},
		{"Stop", "", long, 5, false, version{1, 0, 38}},
		{"StopFailure", "", long, 5, false, version{2, 1, 78}},
		// All SessionEnd hooks share 1.5 s; a larger timeout would raise that and make the agent's exit slower.
		{"SessionEnd", "", 1500 * time.Millisecond, 1, false, version{1, 0, 85}},
	}
}

// Events lists the hook events that belay wants.
func (a *Agent) Events() []agent.EventSpec {
	var specs []agent.EventSpec
	for _, e := range hookEvents() {
		specs = append(specs, agent.EventSpec{Name: e.name, Budget: e.budget, Waits: e.waits})
	}
	return specs
}
