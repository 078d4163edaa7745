package codex

import "belay/internal/agent/kit/tools"

var toolbox = tools.Table{
	"read_file": tools.Reads(), "view_image": tools.Reads(), "web_search": tools.Reads(),

	"bash": tools.Shell("command", "cmd"),

	"apply_patch": tools.Writes("path"),
}

// Tools says what the tools of Codex, by the names that hooks give them (toolName), do.
func (*Agent) Tools() tools.Table { return toolbox }
