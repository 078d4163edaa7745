// Package copilot knows GitHub's Copilot CLI: hook payloads, a hooks file of belay's own, and the sessions'
// events.jsonl.
//
// It promises:
//   - Payloads are decoded once, here; text comes out redacted, cut and valid; an event that belay does not know means
//     nothing.
//   - events.jsonl is only read. Words of the model and of a person, calls and their results count under the ids that
//     the file gives them; lines that are marked as passing, and records of kinds that belay does not know, mean
//     nothing.
//   - The one file that is ever written is belay.json in the program's folder of hooks, by Install and Uninstall.
//
// Tool calls are known from the file alone: its records have the calls' ids and the hooks' payloads have none, so
// that a hook could only tell the same call a second time under another name.
//
// What it cannot do: what the file does not hold yet when the program dies is known from no other place, but for the
// prompt. All this is known from the program's documentation and from files: it was not run with belay, and that a
// command hook's additionalContext reaches the model is documented for the SDK only.
package copilot

import (
	"context"
	"path/filepath"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
	"belay/internal/transcript/lines"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "copilot"

// Agent is Copilot CLI as the rest of belay sees it. The zero value is not ready: use New.
type Agent struct {
	home  string // ~/.copilot; empty when there is no home folder
	path  string // where the program is looked for, as in $PATH
	hooks settings.Spec
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Installer  = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
)

// New gives Copilot CLI as it is on a machine.
func New(h agent.Host) *Agent {
	home := h.Below(".copilot")
	return &Agent{home: home, path: h.Var("PATH"), hooks: settings.Spec{
		Agent: name, Home: home, File: filepath.Join("hooks", "belay.json"), State: h.State, FS: h.FS,
		Flat: true, Bash: true, Type: "command", Unit: time.Second, Events: hookEvents(),
	}}
}

// Name is "copilot".
func (a *Agent) Name() string { return name }

// hookEvents are those that belay wants. Each hook holds the program up, so that it gets less time than without a
// timeout.
func hookEvents() []settings.Event {
	var list []settings.Event
	for _, event := range []string{"sessionStart", "userPromptSubmitted", "agentStop", "preCompact", "sessionEnd"} {
		list = append(list, settings.Event{
			Name: event, Timeout: 5 * time.Second, Waits: event == "sessionStart",
		})
	}
	return list
}

// Events lists the hook events that belay wants.
func (a *Agent) Events() []agent.EventSpec { return settings.Specs(hookEvents()) }

// Limits of Copilot CLI: no cut of an injected text is documented; it is the model's attention that is spared.
func (a *Agent) Limits() agent.Limits { return agent.Limits{BriefBytes: 9000} }

// Open gives the reader of one session's events.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript {
	return lines.NewReader(src.Path, format(src.Session))
}

// ResumeCommand is what a person types to go on with a session. Ids are UUIDs; any other is not put on a command line.
func (a *Agent) ResumeCommand(session string) string {
	if !checkpoint.IsUUID(session) {
		return "copilot --resume"
	}
	return "copilot --resume " + session
}

// Present says whether Copilot CLI is on this machine. Its version stands in its transcripts only.
func (a *Agent) Present() (string, bool) {
	return settings.Present(a.hooks.FS, a.path, a.home, nil, "copilot")
}

// Install writes belay's hooks into a file of their own.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.hooks.Install(p, dryRun, nil)
}

// Uninstall takes them out again.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) ([]agent.Change, error) {
	return a.hooks.Uninstall(dryRun)
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) []string { return a.hooks.Check(p) }
