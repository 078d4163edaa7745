package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/agent/all"
	"belay/internal/config"
	"belay/internal/daemon"
	"belay/internal/state"
	"belay/internal/state/check"
	"belay/internal/state/query"
	"belay/internal/state/spool"
	"belay/internal/wire"
)

func (a *app) doctorStoreCmd() *cobra.Command {
	var asJSON bool
	var session string
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Check every byte that belay keeps",
		Long: `Reads the whole state folder and tells every rule that is broken in it: modes and owners, foreign
and left-over files, the journal's records and their numbers, saved states, every checkpoint's
checksum, number and chain, the mirrors, the spool and the small files. It only reads, and a
daemon may be at work meanwhile. What a crash left and the next start mends is no finding.

  belay doctor store
  belay doctor store --session 4f7c1d1e-2b7a-4c55-9a0e-6a3c1b8f2d10 --json

Exit codes: 0 the store is whole, 1 it is not or cannot be read, 2 wrong flags or settings, 3 no
such session.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(false)
			if err != nil {
				return &coded{err, exitUsage, "belay config --check lists every fault."}
			}

			root, err := a.root()
			if err != nil {
				return err
			}

			// not as the other commands open it: they close a folder that is open to others
			f := query.Open(root, all.All(host(root)))
			o := a.auditOptions(cmd.Context(), c)
			if session != "" {
				if o.Session, err = folderOf(cmd.Context(), f, session); err != nil {
					return err
				}
			}

			return checkStore(cmd.Context(), f.Dir, o, asJSON, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one document when all is read")
	cmd.Flags().StringVar(&session, "session", "", "check this session and the journal alone")
	return cmd
}

// auditOptions are the bounds that hold, and since when a daemon works.
func (a *app) auditOptions(ctx context.Context, c *config.Config) check.Options {
	o := check.Options{
		Retention: checkpoint.Policy{Count: int64(c.Retention.Count), Bytes: int64(c.Retention.Bytes)},
		Total:     int64(c.Retention.TotalBytes),
		Spool:     spool.Limits{Bytes: int64(c.Spool.Bytes)},
	}

	r, _, err := a.request(ctx, false, wire.Request{Op: "status"})
	if errors.Is(err, wire.ErrNoDaemon) {
		return o
	}

	var st daemon.Status
	if err != nil || json.Unmarshal(r.Body, &st) != nil {
		o.Daemon = time.Now() // one that does not answer may write nevertheless
		return o
	}

	o.Daemon = st.Started
	return o
}

// folderOf accepts the folders of a session, its children's too.
func folderOf(ctx context.Context, f query.Folder, session string) (func(dir string) bool, error) {
	found, _, err := f.Dir.States(ctx, func(k checkpoint.Key) bool { return k.Session == session })
	if err != nil {
		return nil, err
	}

	if len(found) == 0 {
		return nil, &coded{
			fmt.Errorf("session %s: %w", session, query.ErrNotFound),
			exitNotFound,
			"belay list shows the sessions.",
		}
	}

	dirs := map[string]bool{}
	for k := range found {
		dirs[k.Dir()] = true
	}

	return func(dir string) bool { return dirs[dir] }, nil
}

// checkStore prints what is found when all is read; until then a bar is on the screen.
func checkStore(ctx context.Context, d state.Dir, o check.Options, asJSON bool, out, screen io.Writer) error {
	step, done := func() {}, func() {}
	sessions := 0
	o.Step = func(all int) {
		if sessions++; sessions == 1 {
			step, done = progress(screen, all, "checking sessions")
		}
		step()
	}

	list, broken := []check.Finding{}, 0
	for f := range check.Check(ctx, d, o) {
		if list = append(list, f); !f.Note {
			broken++
		}
	}

	done()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("check the store: %w", err)
	}
	if err := withoutSecrets(&list); err != nil {
		return err
	}

	if asJSON {
		report := map[string]any{"whole": broken == 0, "sessions": sessions, "findings": list}
		if err := printJSON(out, report); err != nil {
			return err
		}
	} else {
		for _, f := range list {
			printFinding(out, f)
		}
	}

	if broken > 0 {
		return &coded{
			errors.New("check the store: " + count(broken, "broken rule")),
			exitFailed,
			"Each says what to do about it.",
		}
	}

	if !asJSON {
		_, err := fmt.Fprintf(out, "%s, all whole: %s\n", count(sessions, "session"), d.Root)
		return err
	}

	return nil
}

func printFinding(out io.Writer, f check.Finding) {
	mark := "BROKEN"
	if f.Note {
		mark = "note  "
	}

	where := f.Path
	if where == "" {
		where = "the state folder"
	}

	fmt.Fprintf(
		out, "%s %-10s %s: %s\n%17s -> %s\n", mark, f.Rule, printable(where), printable(f.Said), "",
		printable(f.Do),
	)
}
