package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/state"
	"belay/internal/state/query"
)

// otherAgent is the agent of an event that names none.
const otherAgent = "other"

// sessionFlags are the flags that name a session.
type sessionFlags struct {
	agent, session, child, workspace string
}

func (f *sessionFlags) add(cmd *cobra.Command, a *app) {
	cmd.Flags().StringVar(&f.agent, "agent", "", "agent, for example claude-code")
	cmd.Flags().StringVar(&f.session, "session", "", "session id")
	cmd.Flags().StringVar(&f.child, "child", "", "sub-agent id")
	cmd.Flags().StringVar(&f.workspace, "workspace", "", "folder that the agent works in (default: the current one)")
	completeFlag(cmd, "agent", completeAgents)
	completeFlag(cmd, "session", a.completeSessions)
}

func agentNames() []string {
	var names []string
	for _, g := range all.All(host("")) {
		names = append(names, g.Name())
	}
	return names
}

// name gives the session that the flags mean. Without a session id it is one of this folder.
func (f *sessionFlags) name() (state.Name, error) {
	n := state.Name{
		Agent:     agent.Text(f.agent),
		Session:   agent.Text(f.session),
		Child:     agent.Text(f.child),
		Workspace: f.workspace,
	}

	if n.Workspace == "" {
		wd, err := os.Getwd()
		if err != nil {
			return n, fmt.Errorf("find the current folder: %w", err)
		}
		n.Workspace = wd
	}

	n.Workspace = realFolder(n.Workspace)
	return n, nil
}

// realFolder is the real path of a folder, as keys hold it; of one that is not there (any more) it is the absolute
// name. Empty stays empty.
func realFolder(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return agent.Text(target)
	}

	return agent.Text(path)
}

// elsewhere adds to "no such session" where there is one: an id that is no UUID belongs to a folder.
func (a *app) elsewhere(ctx context.Context, f sessionFlags, err error) error {
	if !errors.Is(err, query.ErrNotFound) && !errors.Is(err, checkpoint.ErrNotFound) || f.session == "" ||
		f.workspace != "" {
		return err
	}

	folder, ferr := a.folder()
	if ferr != nil {
		return err
	}

	list, ferr := folder.Sessions(ctx, state.Name{Agent: f.agent, Session: f.session, Child: f.child}, 1)
	if ferr != nil || len(list) == 0 || list[0].Workspace == "" {
		return err
	}

	return &coded{
		err,
		exitNotFound,
		"There is one of that id in another folder: --agent " + shellWord(
			list[0].Agent,
		) + " --workspace " + shellWord(
			list[0].Workspace,
		),
	}
}
