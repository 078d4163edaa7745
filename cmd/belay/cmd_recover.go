package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/state/query"
	"belay/recovery"
)

// starts are the reasons for a start that are answered differently.
var starts = []string{
	recovery.StartUp,
	recovery.StartResume,
	recovery.StartFork,
	recovery.StartClear,
	recovery.StartCompact,
	recovery.StartManual,
}

// recoverFlags are the flags of recover.
type recoverFlags struct {
	sessionFlags
	transcript, since, format, start string
	maxBytes, maxMessages            int
	roles                            []string
	json                             bool
}

func (a *app) recoverCmd() *cobra.Command {
	var f recoverFlags
	cmd := &cobra.Command{
		Use:     "recover",
		GroupID: groupSessions,
		Short:   "Print what the next session needs to go on",
		Long: `Prints the brief of a session: what it was doing, what is in doubt, the last answer, the user's
words. It is a pure read: it marks nothing as told, needs no daemon and no checkpoint, and reads
the agent's transcript from where the last checkpoint ended. Without --session it takes this
folder's newest session that did not end cleanly. --max-bytes caps all that is printed.

  belay recover
  belay recover --agent claude-code --session 3f0c...  --json
  belay recover --transcript ~/session.jsonl --format delta --max-bytes 2048

Exit codes: 0 printed (also when there is nothing to say), 1 failed, 2 wrong flags, 3 no such session.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.recover(cmd, f) },
	}

	f.add(cmd, a)
	fl := cmd.Flags()
	fl.StringVar(&f.transcript, "transcript", "", "read this transcript, whatever the session names")
	fl.StringVar(
		&f.since, "since", "",
		"border of the delta: a checkpoint's number, a time or an age (default: the last checkpoint)",
	)

	fl.IntVar(&f.maxBytes, "max-bytes", 0, "cap of all that is printed, in bytes (default 9000, delta 2048)")
	fl.IntVar(&f.maxMessages, "max-messages", 0, "cap of messages (default 5 for the delta)")
	fl.StringSliceVar(
		&f.roles, "roles", nil,
		"whose messages: user, assistant, tool (default: both; assistant for the delta)",
	)

	fl.StringVar(&f.format, "format", "brief", "brief or delta")
	fl.StringVar(
		&f.start, "start", recovery.StartManual,
		"answer as for this start: startup, resume, fork, clear, compact, manual",
	)

	fl.BoolVar(&f.json, "json", false, "print JSON")
	completeFlag(cmd, "format", cobra.FixedCompletions([]string{"brief", "delta"}, cobra.ShellCompDirectiveNoFileComp))
	completeFlag(cmd, "start", cobra.FixedCompletions(starts, cobra.ShellCompDirectiveNoFileComp))
	completeFlag(
		cmd, "roles",
		cobra.FixedCompletions([]string{"user", "assistant", "tool"}, cobra.ShellCompDirectiveNoFileComp),
	)

	return cmd
}

func (a *app) recover(cmd *cobra.Command, f recoverFlags) error {
	folder, err := a.folder()
	if err != nil {
		return err
	}

	q, err := a.question(cmd, f)
	if err != nil {
		return err
	}

	q.Planted = func(list []string) { warnPlanted(cmd.ErrOrStderr(), list) }
	r, err := folder.Recover(cmd.Context(), q)
	if errors.Is(err, query.ErrNotFound) && f.transcript != "" && f.session == "" {
		return &coded{err, exitNotFound, "Name the agent: --agent " + strings.Join(agentNames(), ", ") + "."}
	}
	if err != nil {
		return a.elsewhere(cmd.Context(), f.sessionFlags, err)
	}

	switch {
	case f.json:
		return printJSON(cmd.OutOrStdout(), r)
	case r.Text == "":
		fmt.Fprintln(cmd.ErrOrStderr(), "Nothing to tell: "+nothing(r))
		return nil
	}

	_, err = io.WriteString(cmd.OutOrStdout(), endLine(r.Text, q.Options.MaxBytes))
	return err
}

// question is what the flags ask.
func (a *app) question(cmd *cobra.Command, f recoverFlags) (query.Question, error) {
	name, err := f.name()
	if err != nil {
		return query.Question{}, err
	}

	q := query.Question{Name: name, Since: f.since}
	if f.transcript != "" {
		const without = "Without --transcript, belay finds the one that the session names."
		if q.Transcript, err = transcriptFile(f.transcript, without); err != nil {
			return q, err
		}
		if f.session == "" && f.workspace == "" {
			q.Name.Workspace = "" // the file says whose it is
		}
	}

	q.Options, err = a.recoverOptions(cmd, f)
	return q, err
}

// transcriptFile checks that the file is there: an answer about another one would be wrong.
func transcriptFile(path, hint string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}

	info, err := os.Stat(abs)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("no regular file")
	}
	if err != nil {
		return "", &coded{fmt.Errorf("read the transcript: %w", err), exitNotFound, hint}
	}

	return abs, nil
}

// endLine ends the text's last line where the cap has room for that.
func endLine(text string, most int) string {
	if strings.HasSuffix(text, "\n") || len(text) >= most {
		return text
	}
	return text + "\n"
}

// recoverOptions checks the caps and fills them from the settings.
func (a *app) recoverOptions(cmd *cobra.Command, f recoverFlags) (recovery.Options, error) {
	opt := recovery.Options{
		Start:       f.start,
		Format:      recovery.Format(f.format),
		MaxBytes:    f.maxBytes,
		MaxMessages: f.maxMessages,
	}

	if opt.Format != recovery.Brief && opt.Format != recovery.Delta {
		return opt, &usage{what: fmt.Sprintf("--format %q: brief or delta", f.format)}
	}
	if !slices.Contains(starts, f.start) {
		return opt, &usage{what: fmt.Sprintf("--start %q: one of %s", f.start, strings.Join(starts, ", "))}
	}
	if f.maxMessages < 0 {
		return opt, &usage{what: fmt.Sprintf("--max-messages %d: cannot be negative", f.maxMessages)}
	}
	if cmd.Flags().Changed("max-bytes") && f.maxBytes < recovery.MinBytes {
		return opt, fmt.Errorf("--max-bytes %d: %w", f.maxBytes, recovery.ErrTooSmall)
	}

	c, err := a.settings(false)
	if err != nil {
		return opt, err
	}

	if opt.MaxBytes == 0 {
		opt.MaxBytes = c.Recovery.MaxBytes
		if opt.Format == recovery.Delta {
			opt.MaxBytes = c.Recovery.DeltaBytes
		}
	}

	if opt.Format == recovery.Delta && f.maxMessages == 0 {
		opt.MaxMessages = c.Recovery.MaxMessages
	}

	roles := f.roles
	if len(roles) == 0 && opt.Format == recovery.Delta {
		roles = c.Recovery.Roles
	}

	for _, r := range roles {
		role := checkpoint.Role(strings.ToLower(strings.TrimSpace(r)))
		if !slices.Contains(
			[]checkpoint.Role{checkpoint.RoleUser, checkpoint.RoleAssistant, checkpoint.RoleTool}, role,
		) {
			return opt, &usage{what: fmt.Sprintf("--roles %q: user, assistant or tool", r)}
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
