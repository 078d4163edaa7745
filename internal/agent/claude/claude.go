// Package claude knows Claude Code: its hook payloads, its settings file, its transcripts and the forms that it makes
// up itself after a crash.
//
// Payloads are decoded once, here: every field but the session id may be absent or of another type than expected, all
// text comes out redacted, cut and valid, and an event that belay does not know means nothing. Transcripts are only
// read. The one file of Claude Code's that is ever written is its settings.json, by Install and Uninstall: as an edit
// of the text, so that everything of the user's stays as it is, and so that Uninstall can put the very same bytes back.
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
	"belay/internal/agent/kit/settings"
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

// hookEvents are the events belay lives from. PostToolBatch, MessageDisplay and the rest say nothing that these do not.
func hookEvents() []settings.Event {
	const usual = 5 * time.Second
	return []settings.Event{
		{Name: "SessionStart", Matcher: "startup|resume|clear|compact|fork", Timeout: usual, Waits: true},
		{Name: "UserPromptSubmit", Timeout: usual},
		{Name: "PreToolUse", Timeout: usual},
		{Name: "PostToolUse", Timeout: usual},
		{Name: "PostToolUseFailure", Timeout: usual},
		{Name: "PreCompact", Timeout: usual},
		{Name: "PostCompact", Timeout: usual},
		{Name: "SubagentStart", Timeout: usual},
		{Name: "SubagentStop", Timeout: usual},
		{Name: "Stop", Timeout: usual},
		{Name: "StopFailure", Timeout: usual},
		// All SessionEnd hooks share 1.5 s; a larger timeout would raise that and make the agent's exit slower.
		{Name: "SessionEnd", Timeout: time.Second},
	}
}

// Events lists the hook events that belay wants.
func (a *Agent) Events() []agent.EventSpec { return settings.Specs(hookEvents()) }
