package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/lookup"
	"belay/recovery"
)

func (a *app) recoverCmd() *cobra.Command {
	var f sessionFlags
	var transcript, since, format, start string
	var maxBytes, maxMessages int
	var roles []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Print what the next session needs to go on",
		Long: `Prints the brief of a session: what it was doing, what is in doubt, the last answer, the user's words. It is a pure read: it
marks nothing as told, needs no daemon and no checkpoint, and reads the agent's transcript from where the last checkpoint ended.
Without --session it takes this folder's newest session that did not end cleanly.

  belay recover
  belay recover --agent claude-code --session 3f0c...  --json
  belay recover --transcript ~/session.jsonl --format delta --max-bytes 2048

Exit codes: 0 printed (also when there is nothing to say), 1 failed, 2 wrong flags, 3 no such session.`,
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
			q := lookup.Question{Name: name, Since: since}
			if transcript != "" {
				if q.Transcript, err = filepath.Abs(transcript); err != nil {
					return err
				}
				if f.session == "" && f.workspace == "" {
					q.Name.Workspace = ""
				}
			}
			if q.Options, err = a.recoverOptions(cmd, format, start, maxBytes, maxMessages, roles); err != nil {
				return err
			}
			r, err := folder.Recover(cmd.Context(), q)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			if r.Text == "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "Nothing to tell: "+nothing(r))
				return nil
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), r.Text)
			return err
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&transcript, "transcript", "", "read this transcript, whatever the session names")
	fl.StringVar(&since, "since", "", "border of the delta: a checkpoint's number, a time or an age (default: the last checkpoint)")
	fl.IntVar(&maxBytes, "max-bytes", 0, "cap of all that is printed, in bytes (default 9000, delta 2048)")
	fl.IntVar(&maxMessages, "max-messages", 0, "cap of messages (default 5 for the delta)")
	fl.StringSliceVar(&roles, "roles", nil, "whose messages: user, assistant, tool (default: both; assistant for the delta)")
	fl.StringVar(&format, "format", "brief", "brief or delta")
	fl.StringVar(&start, "start", recovery.StartManual, "answer as for this start: startup, resume, fork, clear, compact, manual")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("session", a.completeSessions)
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"brief", "delta"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// recoverOptions checks the caps and fills them from the settings.
func (a *app) recoverOptions(cmd *cobra.Command, format, start string, maxBytes, maxMessages int, roles []string) (recovery.Options, error) {
	opt := recovery.Options{Start: start, Format: recovery.Format(format), MaxBytes: maxBytes, MaxMessages: maxMessages}
	if opt.Format != recovery.Brief && opt.Format != recovery.Delta {
		return opt, fmt.Errorf("%w: --format %q: brief or delta", errUsage, format)
	}
	if maxBytes < 0 || maxMessages < 0 {
		return opt, fmt.Errorf("%w: caps cannot be negative", errUsage)
	}
	if cmd.Flags().Changed("max-bytes") && maxBytes < recovery.MinBytes {
		return opt, fmt.Errorf("--max-bytes %d: %w", maxBytes, recovery.ErrTooSmall)
	}
	c, err := a.settings(false, nil)
	if err != nil {
		return opt, err
	}
	if opt.MaxBytes == 0 {
		opt.MaxBytes = c.Recovery.MaxBytes
		if opt.Format == recovery.Delta {
			opt.MaxBytes = c.Recovery.DeltaBytes
		}
	}
	if opt.Format == recovery.Delta && maxMessages == 0 {
		opt.MaxMessages = c.Recovery.MaxMessages
	}
	if len(roles) == 0 && opt.Format == recovery.Delta {
		roles = c.Recovery.Roles
	}
	for _, r := range roles {
		role := checkpoint.Role(strings.ToLower(strings.TrimSpace(r)))
		if !slices.Contains([]checkpoint.Role{checkpoint.RoleUser, checkpoint.RoleAssistant, checkpoint.RoleTool}, role) {
			return opt, fmt.Errorf("%w: --roles %q: user, assistant or tool", errUsage, r)
		}
		opt.Roles = append(opt.Roles, role)
	}
	return opt, nil
}

func nothing(r recovery.Result) string {
	if r.HowItEnded == "clean" && r.Start != recovery.StartManual {
		return "the session ended cleanly."
	}
	return "nothing was said in this session yet."
}
