package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"belay/internal/config"
	"belay/internal/redact"
	"belay/internal/state/spool"
	"belay/internal/wire/intake"
)

// intakeLife is over intake.Run's own bounds: 2 s for stdin, 10 s for a slow writer, 2 s for a daemon, twice 1 s for
// what hangs.
const intakeLife = 20 * time.Second

// intakeCmd is started, detached, by belay-hook for an event that no daemon took. It never fails: nobody would see it.
func (a *app) intakeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "intake",
		Short: "Take in an event that found no daemon (belay-hook starts this)",
		Long: `Takes one request of belay-hook's from standard input, starts a daemon and hands it over, or keeps
it in the spool.

  belay intake < request

Exit codes: 0 whatever happens.`,
		Hidden:             true,
		Args:               cobra.ArbitraryArgs,                          // a newer belay-hook may say more
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // likewise
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The last line of all: intake.Run ends sooner, whatever hangs, but a disk can hold up the settings before
			// it.
			last := time.AfterFunc(intakeLife, func() { os.Exit(exitOK) })
			defer last.Stop()
			_ = a.intake(cmd.Context(), cmd.InOrStdin()) // the event is safe in the spool, or its loss is counted there
			return nil
		},
	}
}

func (a *app) intake(ctx context.Context, in io.Reader) error {
	c, err := a.settings(false)
	if err != nil {
		return err
	}

	root, err := config.StateDir(c.StateDir, os.Getenv)
	if err != nil {
		return err
	}

	exe, err := os.Executable()
	if err != nil {
		return err
	}

	return intake.Run(ctx, in, intake.Options{
		StateDir: root, Socket: a.socket,
		Limits:      spool.Limits{Bytes: int64(c.Spool.Bytes), Age: c.Spool.Age},
		StartDaemon: func() error { return intake.StartDetached(exe, []string{"daemon", "--from-hook"}, root) },
		Redact:      func(_, _ string, payload []byte) []byte { return redact.Bytes(nil, payload) },
	})
}
