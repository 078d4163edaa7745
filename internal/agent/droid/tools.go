package droid

import "belay/internal/agent/kit/tools"

var toolbox = tools.Table{
	"read": tools.Reads(), "ls": tools.Reads(), "grep": tools.Reads(), "glob": tools.Reads(),
	"websearch": tools.Reads(), "fetchurl": tools.Reads(),

	"execute": tools.Shell("command"),

	"create": tools.Writes("file_path"), "edit": tools.Writes("file_path"), "multiedit": tools.Writes("file_path"),
}

// Tools says what the tools of Droid do.
func (*Agent) Tools() tools.Table { return toolbox }
