// Package cursor knows Cursor, the editor's agent and the one on the command line: hook payloads, hooks.json, and the
// agent transcripts (lines of JSON) below ~/.cursor/projects. Its databases are not read.
//
// It promises:
//   - Payloads are decoded once, here; text comes out redacted, cut and valid; the person's mail address is never
//     kept; an event that belay does not know means nothing.
//   - Transcripts are only read. Records have no ids and calls neither: both are named by the place and the bytes of
//     their record, so that each reader of the same file names them alike.
//   - A call of the file has ended once the model went on after it. When a person's words follow it instead, its
//     outcome is unknown.
//   - A call that a hook tells of too counts once. Nothing but its arguments joins the two (alike.go).
//   - The one file of Cursor's that is ever written is hooks.json, by Install and Uninstall.
//
// What it cannot do: the file has no times, no results and no end of a turn, so that a session without hooks counts
// its last turn when the next begins. A call whose arguments hooks and file give in different words stands in the
// ledger twice, with the hook's outcome under the hook's id. In print mode Cursor calls no hook for prompts and ends
// of turns; the file alone tells them. All this is known from documentation and from files: the program itself was
// not run with belay. That a session's start can put text into the context is documented; the name of the field is
// not, and is taken from what others write there.
package cursor

import (
	"context"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
	"belay/internal/transcript/lines"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "cursor"

// Agent is Cursor as the rest of belay sees it. The zero value is not ready: use New.
type Agent struct {
	home  string // ~/.cursor; empty when there is no home folder
	path  string // where the program is looked for, as in $PATH
	hooks settings.Spec
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Installer  = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
)

// New gives Cursor as it is on a machine.
func New(h agent.Host) *Agent {
	home := h.Below(".cursor")
	return &Agent{home: home, path: h.Var("PATH"), hooks: settings.Spec{
		Agent: name, Home: home, File: "hooks.json", State: h.State, FS: h.FS,
		Flat: true, Unit: time.Second, Events: hookEvents(),
	}}
}

// Name is "cursor".
func (a *Agent) Name() string { return name }

// budget is what belay writes as the timeout: Cursor's own default is not documented.
const budget = 5 * time.Second

// hookEvents are those that belay wants. Those of single kinds of tools (shell, MCP, files) say what the general ones
// do; the thoughts and the pieces of an answer are not kept.
func hookEvents() []settings.Event {
	var list []settings.Event
	for _, event := range []string{
		"sessionStart", "beforeSubmitPrompt", "preToolUse", "postToolUse", "postToolUseFailure",
		"preCompact", "stop", "sessionEnd",
	} {
		list = append(list, settings.Event{Name: event, Timeout: budget, Waits: event == "sessionStart"})
	}

	return list
}

// Events lists the hook events that belay wants.
func (a *Agent) Events() []agent.EventSpec { return settings.Specs(hookEvents()) }

// Limits of Cursor: no cut of an injected text is documented; it is the model's attention that is spared. Its stop
// hook does not tell the last answer, so that there is nothing to wait for in the file.
func (a *Agent) Limits() agent.Limits { return agent.Limits{BriefBytes: 9000} }

// Open gives the reader of one agent transcript.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript {
	return lines.NewReader(src.Path, format)
}

// ResumeCommand is what a person types to go on with a session. Ids are UUIDs; any other is not put on a command line.
func (a *Agent) ResumeCommand(session string) string {
	if !checkpoint.IsUUID(session) {
		return "cursor-agent resume"
	}
	return "cursor-agent --resume " + session
}

// Present says whether Cursor is on this machine. Its version is not told by any file that is known.
func (a *Agent) Present() (string, bool) {
	return settings.Present(a.hooks.FS, a.path, a.home, nil, "cursor-agent", "cursor")
}

// Install writes belay's hooks into the user's hooks.json.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.hooks.Install(p, dryRun, nil)
}

// Uninstall takes them out again.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.hooks.Uninstall(dryRun)
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string { return a.hooks.Check(p) }
