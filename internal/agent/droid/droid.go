// Package droid knows Factory's Droid: hook payloads, its settings, and the .jsonl files of its sessions.
//
// It promises:
//   - The transcript is only read. Words, calls and results count under the ids that the file gives them; what Droid
//     tells the model in a person's name, what its hooks printed, and records that belay does not know are no words of
//     anybody's.
//   - A sub-agent has a session of its own, which names the one that started it: it is told nothing, and is not listed.
//   - Belay's hooks stand where Droid reads them: hooks.json, when it names an event, hides what settings.json says of
//     it.
//
// Tool calls are known from the file alone: its records have the calls' ids and the hooks' payloads have none. A run
// without a terminal (droid exec) has no hook for prompts: they too come from the file.
//
// What it does not do: a sub-agent's calls are not told in its caller's brief.
package droid

import (
	"path/filepath"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
	"belay/internal/transcript/lines"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "droid"

// Agent is Droid as the rest of belay sees it. The zero value is not ready: use New.
type Agent struct {
	host agent.Host
	home string // ~/.factory; empty when there is no home folder
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Installer  = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
)

// New gives Droid as it is on a machine.
func New(h agent.Host) *Agent {
	home := h.Below(".factory")
	if dir := h.Dir("FACTORY_HOME_OVERRIDE"); dir != "" {
		home = filepath.Join(dir, ".factory")
	}
	return &Agent{host: h, home: home}
}

// Name is "droid".
func (a *Agent) Name() string { return name }

// hookEvents are those that belay wants.
func hookEvents() []settings.Event {
	var list []settings.Event
	for _, event := range []string{"SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"} {
		list = append(list, settings.Event{
			Name: event, Timeout: 5 * time.Second, Waits: event == "SessionStart",
		})
	}
	return list
}

// Events lists the hook events that belay wants.
func (a *Agent) Events() []agent.EventSpec { return settings.Specs(hookEvents()) }

// Limits of Droid: no cut of an injected text is known; it is the model's attention that is spared.
func (a *Agent) Limits() agent.Limits { return agent.Limits{BriefBytes: 9000} }

// Open gives the reader of one session's file.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript {
	return lines.NewReader(src.Path, format(src.Session))
}

// ResumeCommand is what a person types to go on with a session. Ids are UUIDs; any other is not put on a command line.
func (a *Agent) ResumeCommand(session string) string {
	if !checkpoint.IsUUID(session) {
		return "droid --resume"
	}
	return "droid --resume " + session
}
