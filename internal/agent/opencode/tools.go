package opencode

import "belay/internal/agent/kit/tools"

var toolbox = tools.Table{
	"read": tools.Reads(), "grep": tools.Reads(), "glob": tools.Reads(), "list": tools.Reads(),
	"webfetch": tools.Reads(), "websearch": tools.Reads(), "codesearch": tools.Reads(), "todoread": tools.Reads(),

	"bash": tools.Shell("command"),

	"write": tools.Writes("filePath"), "edit": tools.Writes("filePath"),
}

// Tools says what the tools of opencode do.
func (*Agent) Tools() tools.Table { return toolbox }
