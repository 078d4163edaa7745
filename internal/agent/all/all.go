// Package all is the one place where the agents that belay knows are registered. The rest of belay knows an agent by
// its name and through the interface only; a new agent is a new folder and a line here.
package all

import (
	"belay/internal/agent"
	"belay/internal/agent/agentzero"
	"belay/internal/agent/chatsession"
	"belay/internal/agent/claude"
	"belay/internal/agent/codex"
	"belay/internal/agent/copilot"
	"belay/internal/agent/cursor"
	"belay/internal/agent/droid"
	"belay/internal/agent/dumplings"
	"belay/internal/agent/gemini"
	"belay/internal/agent/ohmypi"
	"belay/internal/agent/openclaw"
	"belay/internal/agent/opencode"
	"belay/internal/agent/pi"
)

// All gives every agent as it is on a machine, in the order in which they are shown.
func All(h agent.Host) []agent.Agent {
	return []agent.Agent{
		claude.New(h),
		codex.New(h),
		gemini.New(h),
		openclaw.New(h),
		opencode.New(h),
		pi.Pi(h),
		ohmypi.New(h),
		droid.New(h),
		cursor.New(h),
		copilot.New(h),
		agentzero.New(h),
		dumplings.New(h),
		chatsession.New(h),
	}
}

// ByName finds an agent by its word on the command line.
func ByName(h agent.Host, name string) (agent.Agent, bool) {
	for _, a := range All(h) {
		if a.Name() == name {
			return a, true
		}
	}
	return nil, false
}
