package pi

import (
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/vfs"
)

// Program is pi itself: its transcripts, the events of belay's extension for it, and the installer of that extension.
type Program struct {
	*Agent
	home string // pi's own folder: $PI_CODING_AGENT_DIR, else ~/.pi/agent; empty when there is no home folder
	path string // where the pi program is looked for, as in $PATH
	fsys vfs.FS
}

var (
	_ agent.Agent     = (*Program)(nil)
	_ agent.Installer = (*Program)(nil)
)

// Pi gives the agent "pi" as it is on a machine. It waits for before_agent_start without a limit; the extension does not wait
// longer than a second.
func Pi(h agent.Host) *Program {
	return &Program{
		Agent: &Agent{
			name: "pi",
			events: []agent.EventSpec{
				{Name: "session_start"},
				{Name: "before_agent_start", Waits: true},
				{Name: "tool_execution_start"},
				{Name: "tool_execution_end"},
				{Name: "agent_end"},
				{Name: "agent_settled"},
				{Name: "session_before_compact"},
				{Name: "session_compact"},
				{Name: "session_shutdown"},
			},
			limits: agent.Limits{BriefBytes: briefBytes},
			resume: func(session string) string { return "pi --session " + payload.ShellWord(session) },
			list:   func() []candidate { return piFiles(h) },
		},
		home: piHome(h),
		path: h.Var("PATH"),
		fsys: h.FS,
	}
}

// piHome is pi's own folder; empty when nothing says where it is.
func piHome(h agent.Host) string {
	if dir := h.Var("PI_CODING_AGENT_DIR"); dir != "" {
		return expandHome(h, dir)
	}
	return expandHome(h, "~/.pi/agent")
}

// expandHome reads a folder's name as pi does: ~ is the user's home. A relative one means another folder in each workspace
// and is none here.
func expandHome(h agent.Host, dir string) string {
	if dir == "~" || strings.HasPrefix(dir, "~/") {
		return h.Below(dir[1:])
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Clean(dir)
}
