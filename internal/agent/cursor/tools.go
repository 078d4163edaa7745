package cursor

import "belay/internal/agent/kit/tools"

var toolbox = tools.Table{
	"read": tools.Reads(), "grep": tools.Reads(), "glob": tools.Reads(), "ls": tools.Reads(),
	"webfetch": tools.Reads(), "websearch": tools.Reads(),

	"shell": tools.Shell("command"),

	"write": tools.Writes("path", "file_path"), "strreplace": tools.Writes("path", "file_path"),
}

// Tools says what the tools of Cursor do.
func (*Agent) Tools() tools.Table { return toolbox }
