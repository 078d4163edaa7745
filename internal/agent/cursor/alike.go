package cursor

import (
	"encoding/json"
	"strings"

	"belay/checkpoint"
)

// kinds are the tools that are known by one argument: hooks and file may call them by different names.
var kinds = map[string]string{
	"shell": "run", "run_terminal_cmd": "run",
	"read": "read", "read_file": "read",
	"write": "write", "strreplace": "write", "edit": "write", "edit_file": "write", "search_replace": "write",
}

// alike is equal for a call in the file and the same call in a hook, which have no id in common. A command is known by
// its text and the reading or writing of a file by its path; any other call by its name and all of its arguments, in
// whatever order they stand.
func alike(tool string, input json.RawMessage) uint64 {
	tool = strings.ToLower(tool)
	var args map[string]any
	if json.Unmarshal(input, &args) != nil {
		return checkpoint.Hash(tool + "\x00" + string(input))
	}

	for _, key := range []string{"command", "file_path", "path", "target_file"} {
		if text, ok := args[key].(string); ok && kinds[tool] != "" {
			return checkpoint.Hash(kinds[tool] + "\x00" + strings.TrimSpace(text))
		}
	}

	sorted, _ := json.Marshal(args) // what was read as JSON always encodes
	return checkpoint.Hash(tool + "\x00" + string(sorted))
}
