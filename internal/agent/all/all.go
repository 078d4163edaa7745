// Package all is the one place where the agents that belay knows are registered. The rest of belay knows an agent by its
// name and through the interface only; a new agent is a new folder and a line here.
package all

import (
	"belay/internal/agent"
	"belay/internal/agent/agentzero"
	"belay/internal/agent/chatsession"
	"belay/internal/agent/claude"
	"belay/internal/agent/codex"
	"belay/internal/agent/copilot"
	"belay/internal/agent/cursor"
	"belay/internal/agent/dumplings"
	"belay/internal/agent/gemini"
	"belay/internal/agent/openclaw"
	"belay/internal/agent/opencode"
	"belay/internal/agent/pi"
)

// All gives every agent, in the order in which they are shown. Each call makes them anew, from the environment.
func All() []agent.Agent {
	return []agent.Agent{claude.New(), codex.New(), gemini.New(), openclaw.New(), opencode.New(), pi.Pi(), cursor.New(), copilot.New(), agentzero.New(), dumplings.New(), chatsession.New()}
}

// ByName finds an agent by its word on the command line.
func ByName(name string) (agent.Agent, bool) {
	for _, a := range All() {
		if a.Name() == name {
			return a, true
		}
	}
	return nil, false
}
