package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"belay/internal/agent/all"
	"belay/internal/config"
	"belay/internal/intake"
	"belay/internal/lookup"
	"belay/internal/statedir"
	"belay/internal/wire"
)

// app is what all commands share: the flags that hold for every one.
type app struct {
	stateDir string
	socket   string
	json     bool
}

func newRoot() *cobra.Command {
	a := &app{}
	root := &cobra.Command{
		Use:   "belay",
		Short: "Keeps what an AI agent was doing, and tells its next session",
		Long: `belay runs beside an AI agent. It keeps a durable record of what the agent is doing, and after a crash, a restart or a
compaction it gives the next session what it needs to go on.

  belay install claude-code      wire an agent; its hooks start the daemon
  belay status                   what is watched, and what is at risk now
  belay recover                  what a new session in this folder would be told`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&a.stateDir, "state-dir", "", "state folder (default: BELAY_STATE_DIR, the setting state_dir, or ~/.local/state/belay)")
	root.PersistentFlags().StringVar(&a.socket, "socket", "", "the daemon's socket, when it is at no usual place")
	root.AddCommand(a.daemonCmd(), a.statusCmd(), a.listCmd(), a.showCmd(), a.recoverCmd(), a.checkpointCmd(), a.markCmd(), a.eventCmd(), a.resetCmd(),
		a.configCmd(), a.doctorCmd(), a.installCmd(), a.uninstallCmd(), a.intakeCmd())
	root.AddCommand(a.verbCmds()...)
	return root
}

// settings loads them; strict makes every fault an error.
func (a *app) settings(strict bool, flags map[string]string) (*config.Config, error) {
	file, must := config.FilePath(os.Getenv)
	if a.stateDir != "" {
		abs, err := filepath.Abs(a.stateDir)
		if err != nil {
			return nil, err
		}
		if flags == nil {
			flags = map[string]string{}
		}
		flags["state_dir"] = abs
	}
	return config.Load(config.Options{File: file, MustExist: must, Env: os.Environ(), Flags: flags, Strict: strict, Check: checks()})
}

// root is the state folder.
func (a *app) root() (string, error) {
	c, err := a.settings(false, nil)
	if err != nil {
		return "", err
	}
	return config.StateDir(c.StateDir, os.Getenv)
}

func (a *app) folder() (lookup.Folder, error) {
	root, err := a.root()
	if err != nil {
		return lookup.Folder{}, err
	}
	f := lookup.Open(root, all.All())
	if err := f.Dir.Own(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	return f, nil
}

// dial connects to the daemon; with start it starts one when none answers.
func (a *app) dial(ctx context.Context, start bool) (*wire.Conn, error) {
	root, err := a.root()
	if err != nil {
		return nil, err
	}
	c, err := wire.Dial(ctx, root, a.socket)
	if err == nil || !start || a.socket != "" {
		return c, err
	}
	exe, xerr := os.Executable()
	if xerr != nil {
		return nil, errors.Join(err, xerr)
	}
	if serr := intake.StartDetached(exe, []string{"daemon", "--from-hook"}, root); serr != nil {
		return nil, errors.Join(err, serr)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		if c, err = wire.Dial(ctx, root, ""); err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
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
	codes := map[string]int{wire.CodeNotFound: exitNotFound, wire.CodeDegraded: exitDegraded, wire.CodeBadRequest: exitUsage, wire.CodeUnknownOp: exitUsage, wire.CodeUnknownAgent: exitUsage}
	code, ok := codes[r.Code]
	if !ok {
		code = exitFailed
	}
	return &coded{errors.New(r.Message), code, r.Hint}
}

// printJSON writes one document, indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// sessionFlags are the flags that name a session.
type sessionFlags struct {
	agent, session, child, workspace string
}

func (f *sessionFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.agent, "agent", "", "agent, for example claude-code")
	cmd.Flags().StringVar(&f.session, "session", "", "session id")
	cmd.Flags().StringVar(&f.child, "child", "", "sub-agent id")
	cmd.Flags().StringVar(&f.workspace, "workspace", "", "folder that the agent works in (default: the current one)")
	_ = cmd.RegisterFlagCompletionFunc("agent", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, g := range all.All() {
			names = append(names, g.Name())
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// name gives the session that the flags mean. Without a session id it is one of this folder.
func (f *sessionFlags) name() (statedir.Name, error) {
	n := statedir.Name{Agent: f.agent, Session: f.session, Child: f.child, Workspace: f.workspace}
	if n.Workspace == "" {
		wd, err := os.Getwd()
		if err != nil {
			return n, fmt.Errorf("the current folder: %w", err)
		}
		n.Workspace = wd
	}
	if real, err := filepath.EvalSymlinks(n.Workspace); err == nil {
		n.Workspace = real
	}
	return n, nil
}

// completeSessions offers the ids of known sessions to the shell.
func (a *app) completeSessions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	f, err := a.folder()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := f.Sessions(cmd.Context(), statedir.Name{}, 50)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, s := range list {
		ids = append(ids, s.SessionID+"\t"+s.Agent+": "+s.Title)
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
