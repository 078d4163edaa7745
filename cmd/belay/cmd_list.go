package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"belay/internal/lookup"
	"belay/internal/statedir"
)

func (a *app) listCmd() *cobra.Command {
	var agentName, workspace string
	var most int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sessions that are known, newest first",
		Long: `Lists sessions from the state folder; it needs no daemon.

  belay list
  belay list --agent claude-code --json

Exit codes: 0 listed, 1 failed, 2 wrong flags.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := a.folder()
			if err != nil {
				return err
			}
			list, err := folder.Sessions(cmd.Context(), statedir.Name{Agent: agentName, Workspace: workspace}, most)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"sessions": list})
			}
			printSessions(cmd.OutOrStdout(), list)
			return nil
		},
	}
	cmd.Flags().StringVar(&agentName, "agent", "", "of this agent only")
	cmd.Flags().StringVar(&workspace, "workspace", "", "of this folder only")
	cmd.Flags().IntVar(&most, "most", 0, "at most so many (0: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) showCmd() *cobra.Command {
	var f sessionFlags
	var number uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show a session's checkpoint as it was written",
		Long: `Shows the newest whole checkpoint of a session, or the one with --number, and lists the others.

  belay show --session 3f0c...
  belay show --session 3f0c... --number 41 --json

Exit codes: 0 shown, 1 failed, 2 wrong flags, 3 no such session or checkpoint.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := a.folder()
			if err != nil {
				return err
			}
			name, err := f.name()
			if err != nil {
				return err
			}
			s, err := folder.Show(cmd.Context(), name, number)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), s)
			}
			return printShown(cmd, s)
		},
	}
	f.add(cmd)
	cmd.Flags().Uint64Var(&number, "number", 0, "checkpoint number (default: the newest whole one)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("session", a.completeSessions)
	return cmd
}

func printShown(cmd *cobra.Command, s lookup.Shown) error {
	out := cmd.OutOrStdout()
	printSession(out, s.Session)
	for _, d := range s.Damaged {
		fmt.Fprintf(out, "%-12s%s\n", "damaged", d)
	}
	fmt.Fprintf(out, "%-12s", "checkpoints")
	for i, m := range s.Checkpoints {
		if i == 20 {
			fmt.Fprintf(out, " and %d older", len(s.Checkpoints)-i)
			break
		}
		fmt.Fprintf(out, " %d(%s)", m.Number, m.Level)
	}
	fmt.Fprintln(out)
	if s.Text == "" {
		fmt.Fprintln(out, "\nno checkpoint yet; belay recover shows what the journal and the transcript hold")
		return nil
	}
	_, err := fmt.Fprintf(out, "\n%s", s.Text)
	return err
}
