package openclaw

import "belay/internal/agent/kit/tools"

var toolbox = tools.Table{
	"read":             tools.Reads(),
	"grep":             tools.Reads(),
	"find":             tools.Reads(),
	"ls":               tools.Reads(),
	"image":            tools.Reads(),
	"web_fetch":        tools.Reads(),
	"web_search":       tools.Reads(),
	"memory_search":    tools.Reads(),
	"memory_get":       tools.Reads(),
	"sessions_list":    tools.Reads(),
	"sessions_history": tools.Reads(),
	"session_status":   tools.Reads(),

	"exec": tools.Shell("command"),
	"bash": tools.Shell("command"),

	"write": tools.Writes("path", "file_path"),
	"edit":  tools.Writes("path", "file_path"),
}

// Tools says what the tools of OpenClaw do.
func (*Agent) Tools() tools.Table { return toolbox }
