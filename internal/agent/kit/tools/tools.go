// Package tools says what a tool call does: whether it may change something, which file, and which of its arguments
// tells most. Each agent declares its own tools in a Table; programs without a folder of their own have Generic.
//
// It errs on one side only: a call that may change something is never taken for one that reads.
package tools

import (
	"encoding/json"
	"slices"
	"strings"

	"belay/checkpoint"
)

// Table is the tools that an agent has, by their names in lower case. A tool that is not in it may change something.
type Table map[string]Tool

// Tool is what one tool does. The zero value may change something, perhaps a file that an argument of a usual name
// says.
type Tool struct {
	reads    bool
	files    []string // arguments that name the file that it changes
	commands []string // arguments that hold a shell's command
}

// Reads is a tool that changes nothing.
func Reads() Tool { return Tool{reads: true} }

// Writes is a tool that changes the file that one of these arguments names.
func Writes(arguments ...string) Tool { return Tool{files: arguments} }

// Shell is a tool that runs the command that stands in one of these arguments.
func Shell(arguments ...string) Tool { return Tool{commands: arguments} }

// Generic is for programs that nobody has declared the tools of: names that many agents use.
var Generic = Table{
	"read": Reads(), "grep": Reads(), "glob": Reads(), "ls": Reads(), "find": Reads(), "list": Reads(),
	"view": Reads(), "image": Reads(), "webfetch": Reads(), "websearch": Reads(), "web_fetch": Reads(),
	"web_search": Reads(), "google_web_search": Reads(), "codesearch": Reads(), "read_file": Reads(),
	"read_many_files": Reads(), "list_directory": Reads(), "search_file_content": Reads(), "notebookread": Reads(),
	"view_image": Reads(), "todoread": Reads(), "toolsearch": Reads(), "memory_search": Reads(),
	"memory_get": Reads(), "sessions_list": Reads(), "sessions_history": Reads(), "session_status": Reads(),

	"bash": Shell("command", "cmd"), "shell": Shell("command", "cmd"), "sh": Shell("command", "cmd"),
	"exec": Shell("command", "cmd"), "run_shell_command": Shell("command", "cmd"),
	"exec_command": Shell("command", "cmd"), "local_shell": Shell("command", "cmd"),
}

var (
	// telling names the arguments that say most, the best first.
	telling = []string{
		"command", "cmd", "script", "file_path", "filePath", "notebook_path", "path", "pattern", "query", "url",
		"description", "prompt", "name",
	}
	// paths names the arguments in which a tool that is not known may name a file.
	paths = []string{"file_path", "filePath", "path", "notebook_path"}
)

// maxFile is the longest name of a file that is one, in bytes.
const maxFile = 512

// Act says what a call does. Input is its arguments, a JSON text without secrets that may have been cut: of one that
// was cut nothing can be told, and the call may change something.
func (t Table) Act(name, input string) checkpoint.Act {
	tool := t[strings.ToLower(name)]
	var args arguments
	if input == "" || json.Unmarshal([]byte(input), &args) != nil {
		args = nil
	}

	act := checkpoint.Act{Reads: tool.reads, Digest: args.digest()}
	if tool.commands != nil {
		act.Reads = looksOnly(args.command(tool.commands))
	}
	if !act.Reads {
		act.File = args.file(tool.files)
	}

	return act
}

type arguments map[string]json.RawMessage

func (a arguments) digest() string {
	for _, k := range telling {
		if words := a.words(k); len(words) > 0 {
			return checkpoint.Line(strings.Join(words, " "))
		}
	}
	return ""
}

// command is empty where one of the arguments is not a text: what cannot be read whole is not read in part.
func (a arguments) command(names []string) string {
	var command string
	for _, k := range names {
		s, ok := a.text(k)
		if !ok {
			return ""
		}
		command += s
	}

	return command
}

func (a arguments) file(names []string) string {
	if names == nil {
		names = paths
	}

	for _, k := range names {
		if p, ok := a.text(k); ok && p != "" && len(p) <= maxFile {
			return p
		}
	}

	return ""
}

// text is an argument's text, empty where there is no such argument. It is false where there is one of another type.
func (a arguments) text(name string) (string, bool) {
	raw, ok := a[name]
	if !ok {
		return "", true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// words is an argument's text, or its list of words.
func (a arguments) words(name string) []string {
	s, ok := a.text(name)
	if ok {
		return strings.Fields(s)
	}

	var list []string
	if json.Unmarshal(a[name], &list) != nil {
		return nil
	}

	return list
}

// lookers are shell commands that only read, and gitLookers such commands of git.
var (
	lookers = []string{
		"ls", "cat", "head", "tail", "grep", "rg", "wc", "pwd", "which", "stat", "file", "du", "df", "ps", "whoami",
		"uname", "tree", "diff", "cmp", "sleep", "true",
	}
	gitLookers = []string{"status", "log", "diff", "show", "blame", "rev-parse", "ls-files", "describe"}
)

// looksOnly knows the plainest commands alone: one word that only reads, no redirection, no second command, no option
// that could name a file to write or a program to run.
func looksOnly(command string) bool {
	if strings.ContainsAny(command, ">;&|`$\n(") {
		return false
	}

	words := strings.Fields(command)
	if len(words) == 0 {
		return false
	}

	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-o") || strings.HasPrefix(w, "--o") || strings.HasPrefix(w, "--pre") || w == "-C" {
			return false
		}
	}

	if words[0] == "git" && len(words) > 1 {
		return slices.Contains(gitLookers, words[1])
	}

	return slices.Contains(lookers, words[0])
}
