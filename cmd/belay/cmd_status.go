package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"belay/internal/daemon"
	"belay/internal/state"
	"belay/internal/state/query"
	"belay/internal/wire"
)

func (a *app) statusCmd() *cobra.Command {
	var f sessionFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status",
		GroupID: groupSessions,
		Short:   "Show the daemon, its sessions and what is at risk now",
		Long: `Shows what would be lost if the machine died now: rounds and seconds that no checkpoint holds,
bytes of the transcript that the mirror does not hold. With --session (or BELAY_SESSION) it is
that session alone; its JSON is flat and has the names of the original scripts. Without a daemon
it shows what the state folder holds, and says so.

  belay status
  belay status --session 3f0c... --json

Exit codes: 0 shown, 1 failed, 2 wrong flags, 3 no such session, 4 no daemon answers (what is
known is shown all the same).`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.session == "" {
				f.session = os.Getenv("BELAY_SESSION")
			}
			if f.session != "" {
				return a.sessionStatus(cmd, f, asJSON)
			}
			return a.wholeStatus(cmd, f, asJSON)
		},
	}

	f.add(cmd, a)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) sessionStatus(cmd *cobra.Command, f sessionFlags, asJSON bool) error {
	name, err := f.name()
	if err != nil {
		return err
	}

	var st query.SessionStatus
	r, _, err := a.request(
		cmd.Context(), false,
		wire.Request{Op: "status", Agent: f.agent, Session: f.session, Child: f.child, Workspace: name.Workspace},
	)

	noDaemon := errors.Is(err, wire.ErrNoDaemon)
	switch {
	case err == nil:
		if err := json.Unmarshal(r.Body, &st); err != nil {
			return fmt.Errorf("read the daemon's answer: %w", err)
		}

	case noDaemon:
		var ferr error
		if st, ferr = a.savedStatus(cmd.Context(), name); ferr != nil {
			return a.elsewhere(cmd.Context(), f, ferr)
		}

	default:
		return a.elsewhere(cmd.Context(), f, err)
	}

	if folder, ferr := a.folder(); ferr == nil {
		if found, _, ferr := folder.Dir.Find(cmd.Context(), name); ferr == nil && len(found) > 0 {
			warnPlanted(cmd.ErrOrStderr(), folder.Planted(found[0]))
		}
	}

	if asJSON {
		return errors.Join(printJSON(cmd.OutOrStdout(), st), err)
	}

	printSession(cmd.OutOrStdout(), st)
	return err
}

// savedStatus is what the state folder holds of a session.
func (a *app) savedStatus(ctx context.Context, name state.Name) (query.SessionStatus, error) {
	folder, err := a.folder()
	if err != nil {
		return query.SessionStatus{}, err
	}

	list, err := folder.Sessions(ctx, name, 1)
	if err != nil {
		return query.SessionStatus{}, err
	}
	if len(list) == 0 {
		return query.SessionStatus{}, fmt.Errorf("session %s: %w", name.Session, query.ErrNotFound)
	}

	return list[0], nil
}

func (a *app) wholeStatus(cmd *cobra.Command, f sessionFlags, asJSON bool) error {
	want := state.Name{Agent: f.agent, Workspace: realFolder(f.workspace)}
	r, _, err := a.request(cmd.Context(), false, wire.Request{Op: "status"})
	if errors.Is(err, wire.ErrNoDaemon) {
		folder, ferr := a.folder()
		if ferr != nil {
			return ferr
		}

		list, ferr := folder.Sessions(cmd.Context(), want, 20)
		if ferr != nil {
			return ferr
		}

		if asJSON {
			ferr = printJSON(cmd.OutOrStdout(), map[string]any{"daemon": nil, "sessions": list})
		} else {
			fmt.Fprintln(cmd.OutOrStdout(), "daemon    not running; this is what the state folder holds")
			printSessions(cmd.OutOrStdout(), list)
		}

		return errors.Join(ferr, err)
	}

	if err != nil {
		return err
	}

	var st daemon.Status
	if err := json.Unmarshal(r.Body, &st); err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}

	st.Sessions = slices.DeleteFunc(st.Sessions, func(s query.SessionStatus) bool {
		return want.Agent != "" && s.Agent != want.Agent || want.Workspace != "" && s.Workspace != want.Workspace
	})
	if asJSON {
		return printJSON(cmd.OutOrStdout(), st)
	}

	printStatus(cmd.OutOrStdout(), st)
	return nil
}
