package pi

import "belay/internal/agent/kit/tools"

var toolbox = tools.Table{
	"read": tools.Reads(), "grep": tools.Reads(), "find": tools.Reads(), "ls": tools.Reads(),

	"bash": tools.Shell("command"),

	"write": tools.Writes("path"), "edit": tools.Writes("path"),
}

// Tools says what the tools of pi do.
func (*Agent) Tools() tools.Table { return toolbox }
