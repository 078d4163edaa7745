package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"belay/internal/state"
	"belay/internal/state/query"
)

func (a *app) listCmd() *cobra.Command {
	var agentName, workspace string
	var most int
	var asJSON, children bool
	cmd := &cobra.Command{
		Use:     "list",
		GroupID: groupSessions,
		Short:   "List the sessions that are known, newest first",
		Long: `Lists sessions from the state folder; it needs no daemon. With --children the sessions of their
sub-agents follow each.

  belay list
  belay list --workspace . --max-sessions 10
  belay list --agent claude-code --children --json

Exit codes: 0 listed, 1 failed, 2 wrong flags.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 0 {
				return &usage{what: "--max-sessions cannot be negative"}
			}

			folder, err := a.folder()
			if err != nil {
				return err
			}

			name := state.Name{Agent: agentName, Workspace: realFolder(workspace)}
			all, err := folder.All(cmd.Context())
			if err != nil {
				return err
			}

			list := query.Listed(all, name, most, children, time.Now())

			// a look-up goes up to the next folder with sessions
			list = slices.DeleteFunc(list, func(s query.SessionStatus) bool {
				return name.Workspace != "" && s.Workspace != name.Workspace && s.Child == ""
			})
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"sessions": list})
			}

			printSessions(cmd.OutOrStdout(), list)
			return nil
		},
	}

	cmd.Flags().StringVar(&agentName, "agent", "", "of this agent only")
	cmd.Flags().StringVar(&workspace, "workspace", "", "of this folder only")
	cmd.Flags().IntVar(&most, "max-sessions", 0, "at most so many (0: all)")
	cmd.Flags().BoolVar(&children, "children", false, "the sessions of sub-agents, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	completeFlag(cmd, "agent", completeAgents)
	return cmd
}

func (a *app) showCmd() *cobra.Command {
	var f sessionFlags
	var number uint64
	var asJSON, raw, copied bool
	var copyNumber int
	cmd := &cobra.Command{
		Use:     "show",
		GroupID: groupSessions,
		Short:   "Show a session and its newest checkpoint",
		Long: `Shows a session and its newest whole checkpoint, or the one with --number, and lists the others.
The line with the machine's copy of the state is left out; --raw prints the checkpoint's file,
byte for byte, and nothing else; --mirror prints the copy of the transcript, and an exact one has
its secrets in it. Without --session it takes this folder's newest session that did not end
cleanly.

  belay show --session 3f0c...
  belay show --session 3f0c... --number 41 --json
  belay show --session 3f0c... --raw > 41.md
  belay show --session 3f0c... --mirror > transcript.jsonl

Exit codes: 0 shown, 1 failed, 2 wrong flags, 3 no such session or checkpoint.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if raw && asJSON || copied && (raw || asJSON) {
				return &usage{what: "--raw, --json and --mirror: one of them"}
			}

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
				return a.elsewhere(cmd.Context(), f, err)
			}

			warnPlanted(cmd.ErrOrStderr(), s.Planted)
			switch {
			case asJSON:
				return printJSON(cmd.OutOrStdout(), s)
			case copied:
				return printMirror(cmd.OutOrStdout(), folder, s, copyNumber)
			case raw && s.Text == "":
				return &coded{
					fmt.Errorf("session %s: no whole checkpoint yet", s.Session.SessionID),
					exitNotFound,
					"belay recover shows what the journal and the transcript hold.",
				}

			case raw:
				_, err := io.WriteString(cmd.OutOrStdout(), s.Text)
				return err
			}

			return printShown(cmd.OutOrStdout(), s)
		},
	}

	f.add(cmd, a)
	cmd.Flags().Uint64Var(&number, "number", 0, "checkpoint number (default: the newest whole one)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the checkpoint's file as it is")
	cmd.Flags().BoolVar(&copied, "mirror", false, "print the copy of the transcript")
	cmd.Flags().IntVar(
		&copyNumber, "copy", 0,
		"with --mirror: the older copy of this number, from before the transcript was replaced",
	)

	return cmd
}

func printShown(out io.Writer, s query.Shown) error {
	printSession(out, s.Session)
	for _, d := range s.Damaged {
		fmt.Fprintf(out, "%-12s%s\n", "damaged", printable(d))
	}

	if len(s.Checkpoints) > 0 {
		fmt.Fprintf(out, "%-12s%s\n", "checkpoints", numbers(s, 8))
	}
	if s.Text == "" {
		fmt.Fprintln(out, "\nno checkpoint yet; belay recover shows what the journal and the transcript hold")
		return nil
	}

	text := withoutState(s.Text)
	if width(out) > 0 {
		text = printableText(text)
	}

	_, err := fmt.Fprintf(out, "\n%s", text)
	return err
}

func numbers(s query.Shown, most int) string {
	var words []string
	for i, m := range s.Checkpoints {
		if i == most {
			words = append(words, fmt.Sprintf("and %d older", len(s.Checkpoints)-i))
			break
		}
		words = append(words, fmt.Sprintf("%d %s", m.Number, m.Level))
	}

	return strings.Join(words, ", ")
}

// withoutState leaves out of a checkpoint's head what only programs read, and is most of it.
func withoutState(text string) string {
	head, rest, found := strings.Cut(text, "\nstate: ")
	if !found {
		return text
	}
	_, rest, _ = strings.Cut(rest, "\n")
	return head + "\n" + rest
}
