package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"belay/internal/config"
	"belay/internal/intake"
	"belay/internal/redact"
	"belay/internal/spool"
)

// intakeCmd is started, detached, by belay-hook for an event that no daemon took. It never fails: nobody would see it.
func (a *app) intakeCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "intake",
		Short:  "Take in an event that found no daemon (belay-hook starts this)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = a.intake(cmd.Context(), cmd.InOrStdin()) // the event is safe in the spool, or its loss is counted there
			return nil
		},
	}
}

func (a *app) intake(ctx context.Context, in io.Reader) error {
	c, err := a.settings(false, nil)
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
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second) // an intake's own bounds are smaller: 10 s for a slow writer, 2 s
	defer cancel()
	return intake.Run(ctx, in, intake.Options{
		StateDir: root, Socket: a.socket,
		Limits:      spool.Limits{Bytes: int64(c.Spool.Bytes), Age: c.Spool.Age},
		StartDaemon: func() error { return intake.StartDetached(exe, []string{"daemon", "--from-hook"}, root) },
		Redact:      func(_, _ string, payload []byte) []byte { return redact.Bytes(nil, payload) },
	})
}
