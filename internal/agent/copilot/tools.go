package copilot

import "belay/internal/agent/kit/tools"

var toolbox = tools.Table{
	"view": tools.Reads(), "grep": tools.Reads(), "glob": tools.Reads(), "web_fetch": tools.Reads(),

	"bash": tools.Shell("command"),

	"create": tools.Writes("path"), "edit": tools.Writes("path"),
}

// Tools says what the tools of Copilot CLI do.
func (*Agent) Tools() tools.Table { return toolbox }
