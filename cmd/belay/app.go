package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/agent/all"
	"belay/internal/config"
	"belay/internal/redact"
	"belay/internal/state/index"
	"belay/internal/state/query"
	"belay/internal/wire"
	"belay/internal/wire/intake"
)

// Groups of commands in the help.
const (
	groupSessions = "sessions"
	groupEvents   = "events"
	groupSetUp    = "set-up"
)

// app is what all commands share: the flags that hold for every one.
type app struct {
	stateDir string
	socket   string
}

func newRoot() *cobra.Command {
	a := &app{}
	var showVersion bool
	root := &cobra.Command{
		Use:   "belay",
		Short: "Keeps what an AI agent was doing, and tells its next session",
		Long: `belay runs beside an AI agent. It keeps a durable record of what the agent is doing, and after a
crash, a restart or a compaction it gives the next session what it needs to go on.

  belay install                  wire the agents of this machine; their hooks start the daemon
  belay run -- claude            run an agent, see how it ends, and say how to go on
  belay status                   what is watched, and what is at risk now
  belay recover                  what a new session in this folder would be told

Exit codes: 0 it worked, 1 failed, 2 wrong use, 3 no such session, 4 no daemon, 5 degraded, 6
doctor found something.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // words that are no command come to RunE, which knows how to complain
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return unknownCommand(cmd, args[0])
			case showVersion:
				_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
				return err
			}
			return cmd.Help()
		},
	}

	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	root.PersistentFlags().StringVar(
		&a.stateDir, "state-dir", "",
		"state folder (default: BELAY_STATE_DIR, the setting state_dir, or ~/.local/state/belay)",
	)

	root.PersistentFlags().StringVar(&a.socket, "socket", "", "the daemon's socket, when it is at no usual place")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usage{what: err.Error()} })
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddGroup(&cobra.Group{ID: groupSessions, Title: "Sessions:"}, &cobra.Group{ID: groupSetUp, Title: "Set-up:"},
		&cobra.Group{ID: groupEvents, Title: "Events, for agents without an installer:"})
	root.SetHelpCommand(helpCmd())
	root.AddCommand(
		a.runCmd(), a.daemonCmd(), a.statusCmd(), a.listCmd(), a.searchCmd(), a.showCmd(), a.recoverCmd(),
		a.checkpointCmd(), a.markCmd(), a.eventCmd(), a.resetCmd(), a.configCmd(), a.doctorCmd(),
		a.installCmd(), a.uninstallCmd(), a.intakeCmd(), completionCmd(),
	)

	root.AddCommand(a.verbCmds()...)
	a.completeRest(root)
	completeFlag(root, "state-dir", completeFolders)
	return root
}

func unknownCommand(root *cobra.Command, word string) error {
	u := &usage{what: fmt.Sprintf("no command %q", word), hint: "belay --help lists the commands."}
	if word == "version" { // many programs have one
		u.hint = "Did you mean: belay --version"
	} else if near := root.SuggestionsFor(word); len(near) > 0 {
		u.hint = "Did you mean: belay " + near[0]
	}
	return u
}

// noArgs is cobra's, in words that help: most who give an argument mean a session.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}

	u := &usage{what: fmt.Sprintf("%s takes no argument: %q", cmd.CommandPath(), args[0])}
	if cmd.Flags().Lookup("session") != nil {
		u.hint = "A session is named by a flag: " + cmd.CommandPath() + " --session " + shellWord(redact.Text(args[0]))
	}

	return u
}

// settings loads them; strict makes every fault an error.
func (a *app) settings(strict bool) (*config.Config, error) {
	file, must := config.FilePath(os.Getenv)
	flags := map[string]string{}
	if a.stateDir != "" {
		abs, err := filepath.Abs(a.stateDir)
		if err != nil {
			return nil, err
		}
		flags["state_dir"] = abs
	}

	return config.Load(
		config.Options{File: file, MustExist: must, Env: os.Environ(), Flags: flags, Strict: strict, Check: checks()},
	)
}

// root is the state folder. A bad setting of it is an error here, because the answer would come from another folder.
func (a *app) root() (string, error) {
	c, err := a.settings(false)
	if err != nil {
		return "", &coded{err, exitUsage, "belay config --check lists every fault."}
	}

	for _, w := range c.Warnings {
		if f := (*config.Fault)(nil); errors.As(w, &f) && f.Key == "state_dir" {
			return "", &coded{w, exitUsage, "belay config --check lists every fault."}
		}
	}

	return config.StateDir(c.StateDir, os.Getenv)
}

func (a *app) folder() (query.Folder, error) {
	root, err := a.root()
	if err != nil {
		return query.Folder{}, err
	}

	f := query.Open(root, all.All(host(root)))
	if err := f.Dir.Own(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return f, err
	}

	f.All = func(ctx context.Context) (map[checkpoint.Key]*checkpoint.State, error) {
		if files, err := f.Dir.Files(ctx); err == nil && len(files) <= fewSessions {
			states, _, err := f.Dir.States(ctx, nil)
			return states, err
		}
		return index.Of(f.Dir).States(ctx)
	}

	return f, nil
}

// fewSessions are read in less time than the index takes to be opened.
const fewSessions = 16

// dial connects to the daemon; with start it starts one when none answers.
func (a *app) dial(ctx context.Context, start bool) (*wire.Conn, error) {
	root, err := a.root()
	if err != nil {
		return nil, err
	}

	place := a.socket
	if place == "" {
		place = wire.SocketPlaces(root)[0]
	}

	c, err := wire.Dial(ctx, root, a.socket)
	if err == nil {
		return c, nil
	}
	if !start || a.socket != "" {
		return nil, noDaemon(place, err)
	}

	exe, xerr := os.Executable()
	if xerr != nil {
		return nil, errors.Join(noDaemon(place, err), xerr)
	}
	if serr := intake.StartDetached(exe, []string{"daemon", "--from-hook"}, root); serr != nil {
		return nil, errors.Join(noDaemon(place, err), serr)
	}

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		if c, err = wire.Dial(ctx, root, ""); err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, &coded{
				fmt.Errorf("%w; one was started and is not there after 5s", noDaemon(place, err)),
				exitNoDaemon,
				"belay daemon, in a terminal, shows what it says.",
			}
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// noDaemon leaves out the usual reasons, which say nothing more.
func noDaemon(place string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w at %s", wire.ErrNoDaemon, place)
	}
	return err
}

// request sends one request and makes an error of a reply that is none.
func (a *app) request(ctx context.Context, start bool, req wire.Request) (wire.Reply, []byte, error) {
	c, err := a.dial(ctx, start)
	if err != nil {
		return wire.Reply{}, nil, err
	}

	defer c.Close() // the answer is here
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, body, err := c.Do(ctx, req, nil)
	if err != nil {
		return r, body, err
	}

	return r, body, replyError(r)
}

func replyError(r wire.Reply) error {
	if r.OK {
		return nil
	}

	codes := map[string]int{
		wire.CodeNotFound:     exitNotFound,
		wire.CodeDegraded:     exitDegraded,
		wire.CodeBadRequest:   exitUsage,
		wire.CodeUnknownOp:    exitUsage,
		wire.CodeUnknownAgent: exitUsage,
	}

	code, ok := codes[r.Code]
	if !ok {
		code = exitFailed
	}

	err := errors.New(r.Message)
	if code == exitNotFound {
		err = fmt.Errorf("%s%w", withoutEnd(r.Message, query.ErrNotFound.Error()), query.ErrNotFound)
	}

	return &coded{err, code, r.Hint}
}

// withoutEnd prepares a message of the daemon's to be wrapped again around the error that it ends in.
func withoutEnd(message, end string) string {
	if n := len(message) - len(end); n >= 0 && message[n:] == end {
		return message[:n]
	}
	return message + ": "
}

// printJSON writes one document, indented. What a terminal would obey, or people would not see, is written as its
// number: to a program that is the same text.
func printJSON(w io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}

	_, err := io.WriteString(w, escapeHidden(b.String()))
	return err
}

func helpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		Long: `Shows what a command does, an example, its exit codes and its flags.

  belay help recover

Exit codes: 0 shown, 2 no such command.`,
		GroupID:           groupSetUp,
		ValidArgsFunction: completeCommands,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, _, err := cmd.Root().Find(args)
			if err != nil || len(args) > 0 && target == cmd.Root() {
				return unknownCommand(cmd.Root(), args[0])
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

func completionCmd() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:     "completion bash|zsh|fish",
		GroupID: groupSetUp,
		Short:   "Print the completion script of a shell",
		Long: `Prints a script with which the shell completes commands, flags, agents and session ids.

  source <(belay completion bash)
  belay completion zsh > "${fpath[1]}/_belay"
  belay completion fish > ~/.config/fish/completions/belay.fish

Exit codes: 0 printed, 1 failed, 2 no such shell.`,
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			if len(args) == 1 {
				switch args[0] {
				case "bash":
					return bashCompletion(root, out)
				case "zsh":
					return root.GenZshCompletion(out)
				case "fish":
					return root.GenFishCompletion(out, true)
				}
			}

			return &usage{what: "which shell?", hint: "For example: belay completion bash   (or zsh, fish)"}
		},
	}
}
