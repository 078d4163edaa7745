package pi

import (
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/vfs"
)

// Kin is what a program has of its own whose transcripts have pi's form and whose extensions are pi's.
type Kin struct {
	Name      string          // its word on belay's command line
	Program   string          // its name on the PATH, in a package called pi-coding-agent
	Home      string          // its own folder; empty when nothing says where it is
	Sessions  func() []string // the folders in which it keeps transcripts, by workspace or not
	Extension string          // belay's extension for it
	Events    []agent.EventSpec
	Resume    func(session string) string
}

// Program is pi itself, or its kin: its transcripts, the events of belay's extension for it, and the installer of that
// extension.
type Program struct {
	*Agent
	kin  Kin
	path string // where the program is looked for, as in $PATH
	fsys vfs.FS
}

var (
	_ agent.Agent     = (*Program)(nil)
	_ agent.Installer = (*Program)(nil)
)

// New gives a program as it is on a machine.
func New(h agent.Host, k Kin) *Program {
	return &Program{
		Agent: &Agent{
			name: k.Name, events: k.Events, limits: agent.Limits{BriefBytes: briefBytes}, resume: k.Resume,
			list: func() []candidate { return filesIn(k.Sessions()) },
		},
		kin: k, path: h.Var("PATH"), fsys: h.FS,
	}
}

// Pi gives the agent "pi" as it is on a machine. It waits for before_agent_start without a limit; the extension does
// not wait longer than a second.
func Pi(h agent.Host) *Program {
	return New(h, Kin{
		Name: "pi", Program: "pi", Home: piHome(h), Extension: extension,
		Sessions: func() []string { return piSessionDirs(h) },
		Events: []agent.EventSpec{
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
		Resume: func(session string) string { return "pi --session " + payload.ShellWord(session) },
	})
}

// piHome is pi's own folder; empty when nothing says where it is.
func piHome(h agent.Host) string {
	if dir := h.Var("PI_CODING_AGENT_DIR"); dir != "" {
		return expandHome(h, dir)
	}
	return expandHome(h, "~/.pi/agent")
}

// expandHome reads a folder's name as pi does: ~ is the user's home. A relative one means another folder in each
// workspace and is none here.
func expandHome(h agent.Host, dir string) string {
	if dir == "~" || strings.HasPrefix(dir, "~/") {
		return h.Below(dir[1:])
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Clean(dir)
}
