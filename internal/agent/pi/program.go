package pi

import (
	"os"
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

// Pi gives the agent "pi" as the environment of this process describes it. It waits for before_agent_start without a limit;
// the extension does not wait longer than a second.
func Pi() *Program {
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
			list:   piFiles,
		},
		home: piHome(),
		path: os.Getenv("PATH"),
		fsys: vfs.OS{},
	}
}

// piHome is pi's own folder; empty when nothing says where it is.
func piHome() string {
	if dir := os.Getenv("PI_CODING_AGENT_DIR"); dir != "" {
		return expandHome(dir)
	}
	return expandHome("~/.pi/agent")
}

// expandHome reads a folder's name as pi does: ~ is the user's home. A relative one means another folder in each workspace
// and is none here.
func expandHome(dir string) string {
	if dir == "~" || strings.HasPrefix(dir, "~/") {
		user, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(user, dir[1:])
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Clean(dir)
}
