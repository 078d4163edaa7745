// Package agenttest makes machines for the tests of agents. Only tests import it.
package agenttest

import (
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/vfs"
)

// Host is a machine with a real disk, on which belay's state folder is where it is by default. Vars are what stands in
// its environment, as NAME=value. An empty home is none.
func Host(home string, vars ...string) agent.Host {
	h := agent.Host{Home: home, FS: vfs.OS{}, Env: func(name string) string {
		for _, v := range vars {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}}

	if home != "" {
		h.State = filepath.Join(home, ".local", "state", "belay")
	}

	return h
}
