package gemini

import "belay/internal/agent/kit/tools"

var toolbox = tools.Table{
	"read_file": tools.Reads(), "read_many_files": tools.Reads(), "list_directory": tools.Reads(),
	"glob": tools.Reads(), "search_file_content": tools.Reads(), "web_fetch": tools.Reads(),
	"google_web_search": tools.Reads(),

	"run_shell_command": tools.Shell("command"),

	"write_file": tools.Writes("file_path"), "replace": tools.Writes("file_path"),
}

// Tools says what the tools of Gemini CLI do.
func (*Agent) Tools() tools.Table { return toolbox }
