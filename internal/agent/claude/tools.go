package claude

import "belay/internal/agent/kit/tools"

var toolbox = tools.Table{
	"read":         tools.Reads(),
	"grep":         tools.Reads(),
	"glob":         tools.Reads(),
	"ls":           tools.Reads(),
	"toolsearch":   tools.Reads(),
	"webfetch":     tools.Reads(),
	"websearch":    tools.Reads(),
	"notebookread": tools.Reads(),
	"todoread":     tools.Reads(),

	"bash": tools.Shell("command"),

	"write":        tools.Writes("file_path"),
	"edit":         tools.Writes("file_path"),
	"multiedit":    tools.Writes("file_path"),
	"notebookedit": tools.Writes("notebook_path"),
}

// Tools says what the tools of Claude Code do.
func (*Agent) Tools() tools.Table { return toolbox }
