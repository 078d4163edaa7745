// Package docs holds the one page that belay itself reads: what was run with which agent, as the lab wrote it.
package docs

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed agents.md
var agents string

// Tried gives the versions of an agent with which every case of the page passed, in the page's order.
func Tried(agent string) []string { return tried(agents, agent) }

func tried(page, agent string) []string {
	var versions, failed []string
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ") // agent, version, case, result, day
		if len(cells) != 5 || cells[0] != agent {
			continue
		}
		if cells[3] != "passed" {
			failed = append(failed, cells[1])
		}
		if !slices.Contains(versions, cells[1]) {
			versions = append(versions, cells[1])
		}
	}

	return slices.DeleteFunc(versions, func(v string) bool { return slices.Contains(failed, v) })
}
