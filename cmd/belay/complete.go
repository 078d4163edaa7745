package main

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"belay/internal/agent/all"
	"belay/internal/state"
	"belay/internal/state/query"
)

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

func completeFlag(cmd *cobra.Command, name string, fn completer) {
	if err := cmd.RegisterFlagCompletionFunc(name, fn); err != nil {
		panic(err) // no such flag: a broken invariant
	}
}

// bashAlone makes the script work in a bash without the package bash-completion, as on macOS and in small images: there
// a Tab would say that a function is missing.
const bashAlone = `
__belay_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local line="${COMP_LINE:0:COMP_POINT}"
    read -ra words <<<"$line"
    if [[ "$line" == *[[:space:]] ]]; then
        words+=("")
    fi
    cword=$((${#words[@]} - 1))
    cur="${words[cword]}"
    if ((cword > 0)); then
        prev="${words[cword-1]}"
    fi
}

__belay_filedir()
{
    if declare -F _filedir >/dev/null 2>&1; then
        _filedir "$@"
        return
    fi
    local IFS=$'\n' kind=-f
    if [[ "${1:-}" == -d ]]; then
        kind=-d
    fi
    if [[ $(type -t compopt) == builtin ]]; then
        compopt -o filenames 2>/dev/null
    fi
    COMPREPLY+=($(compgen "$kind" -- "$cur"))
}
`

func bashCompletion(root *cobra.Command, w io.Writer) error {
	var b strings.Builder
	if err := root.GenBashCompletionV2(&b, true); err != nil {
		return err
	}
	_, err := io.WriteString(w, strings.ReplaceAll(b.String(), "_filedir", "__belay_filedir")+bashAlone)
	return err
}

// completeRest gives every command and flag that takes a value and has no completion of its own the one that is right
// for most. The shell would offer files everywhere else, and belay takes few.
func (a *app) completeRest(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.completeRest(sub)
	}

	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}

	for _, name := range []string{
		"child", "copy", "id", "input", "max-bytes", "max-messages", "max-sessions", "name", "since", "text",
	} {
		completeWith(cmd, name, cobra.NoFileCompletions)
	}

	completeWith(cmd, "workspace", completeFolders)
	completeWith(cmd, "session", a.completeSessions)
	completeWith(cmd, "number", a.completeNumbers)
}

func completeWith(cmd *cobra.Command, name string, fn completer) {
	if _, has := cmd.GetFlagCompletionFunc(name); !has && cmd.Flags().Lookup(name) != nil {
		completeFlag(cmd, name, fn)
	}
}

func completeFolders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func completeFiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

func completeAgents(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return agentNames(), cobra.ShellCompDirectiveNoFileComp
}

// completePrograms offers belay run the agents' programs that are on PATH; a path is completed as a file, and what
// follows the program is its own.
func completePrograms(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || strings.ContainsRune(word, os.PathSeparator) {
		return nil, cobra.ShellCompDirectiveDefault
	}

	var found []string
	for _, g := range all.All(host("")) {
		name, _, _ := strings.Cut(g.ResumeCommand("x"), " ")
		if agentOf(name) != g.Name() {
			name = g.Name()
		}
		if _, err := exec.LookPath(name); err == nil {
			found = append(found, name)
		}
	}

	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeCommands offers the commands below those that stand there already.
func completeCommands(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	above, _, err := cmd.Root().Find(args)
	if err != nil || above == cmd.Root() && len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	var names []string
	for _, c := range above.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name()+"\t"+c.Short)
		}
	}

	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeSessions offers the ids of known sessions to the shell.
func (a *app) completeSessions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	f, err := a.folder()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	all, err := f.All(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	var ids []string
	for _, s := range query.Listed(all, state.Name{}, 50, false, time.Now()) {
		ids = append(ids, printable(s.SessionID)+"\t"+printable(s.Agent+": "+s.Title))
	}

	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeNumbers offers the checkpoints of the session that the line names, the newest first.
func (a *app) completeNumbers(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	given := func(flag string) string { return cmd.Flag(flag).Value.String() }
	f := sessionFlags{
		agent:     given("agent"),
		session:   given("session"),
		child:     given("child"),
		workspace: given("workspace"),
	}

	name, nerr := f.name()
	folder, ferr := a.folder()
	if nerr != nil || ferr != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	s, err := folder.Show(cmd.Context(), name, 0)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	var numbers []string
	for _, c := range s.Checkpoints {
		numbers = append(numbers, strconv.FormatUint(c.Number, 10)+"\t"+string(c.Level)+", "+ago(c.At))
	}

	return numbers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
