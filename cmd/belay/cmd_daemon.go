package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/robfig/cron/v3"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
	"gopkg.in/natefinch/lumberjack.v2"

	"belay/breaker"
	"belay/checkpoint"
	"belay/internal/agent/all"
	"belay/internal/config"
	"belay/internal/daemon"
	"belay/internal/vfs"
	"belay/recovery"
)

func (a *app) daemonCmd() *cobra.Command {
	var fromHook bool
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Run the daemon, in the foreground",
		Long: `Runs the daemon until SIGTERM or Ctrl-C. There is one for each user; hooks start it by themselves when none runs.
SIGTERM takes the last checkpoints; nothing is lost by a restart.

  belay daemon
  BELAY_STATE_DIR=/tmp/try belay daemon

Exit codes: 0 stopped, 1 it could not run (another one runs, no place for the socket), 2 wrong flags or settings.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(false, nil)
			if err != nil {
				return &coded{err, exitUsage, "belay config --check lists every fault."}
			}
			root, err := config.StateDir(c.StateDir, os.Getenv)
			if err != nil {
				return err
			}
			log, closeLog := newLog(c, root, cmd.ErrOrStderr())
			defer closeLog()
			for _, w := range c.Warnings {
				log.Warn("settings", zap.Error(w))
			}
			opt, err := daemonOptions(c, root, log)
			if err != nil {
				return &coded{err, exitUsage, "belay config --check lists every fault."}
			}
			if !fromHook {
				opt.IdleExit = 0
			}
			err = daemon.New(opt).Run(cmd.Context())
			if fromHook && errors.Is(err, daemon.ErrRunning) {
				return nil // several hooks started one each; the first is enough
			}
			if err != nil {
				log.Error("daemon ended", zap.Error(err))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&fromHook, "from-hook", false, "started by a hook: end when no agent lived for long")
	_ = cmd.Flags().MarkHidden("from-hook")
	return cmd
}

// newLog writes JSON to a rotated file, and to stderr for people when that is a terminal.
func newLog(c *config.Config, root string, errOut io.Writer) (*zap.Logger, func()) {
	level, err := zapcore.ParseLevel(c.Log.Level)
	if err != nil {
		level = zapcore.InfoLevel
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	file := &lumberjack.Logger{Filename: filepath.Join(root, "belay.log"), MaxSize: max(int(c.Log.Bytes>>20), 1), MaxBackups: c.Log.Files}
	cores := []zapcore.Core{zapcore.NewCore(zapcore.NewJSONEncoder(enc), zapcore.AddSync(quietWriter{file}), level)}
	if f, ok := errOut.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		cores = append(cores, zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.Lock(f), level))
	}
	log := zap.New(zapcore.NewTee(cores...))
	return log, func() { _ = errors.Join(log.Sync(), file.Close()) } // the last lines of a log on a failing disk
}

// quietWriter keeps zap from writing its own complaints to stderr when the log's disk is full: status says so anyway.
type quietWriter struct{ w io.Writer }

func (q quietWriter) Write(p []byte) (int, error) {
	if _, err := q.w.Write(p); err != nil {
		return len(p), nil
	}
	return len(p), nil
}

// checks are the settings that other packages understand better.
func checks() map[string]func(string) error {
	return map[string]func(string) error{"heartbeat.every": func(v string) error {
		_, err := cron.ParseStandard(v)
		return err
	}}
}

func daemonOptions(c *config.Config, root string, log *zap.Logger) (daemon.Options, error) {
	if _, err := cron.ParseStandard(c.Heartbeat.Every); err != nil {
		return daemon.Options{}, fmt.Errorf("heartbeat.every: %w", err)
	}
	debug.SetGCPercent(50) // a small daemon that lives for weeks: memory matters more than the collector's time
	return daemon.Options{
		StateDir: root, FS: vfs.OS{}, Log: log, Version: version(), Agents: all.All(),
		Gates:     checkpoint.Gates{SparseTime: c.Gates.Sparse.Time, SparseRounds: c.Gates.Sparse.Rounds, FullTime: c.Gates.Full.Time, ForcedTime: c.Gates.Forced.Time},
		Heartbeat: c.Heartbeat.Every,
		Breaker:   breaker.Options{Failures: c.Breaker.Failures, Pause: c.Breaker.Pause, MaxPause: c.Breaker.MaxPause, Manual: c.Breaker.Heal == "manual"},
		Retention: checkpoint.Policy{Count: int64(c.Retention.Count), Bytes: int64(c.Retention.Bytes), Age: c.Retention.Age},
		Adopt:     recovery.Adopt(c.Recovery.Adopt), AdoptWindow: c.Recovery.Window, BriefBytes: c.Recovery.MaxBytes,
		SegmentBytes: int64(c.Journal.Segment), MemoryBytes: int(c.Journal.Memory), SpoolBytes: int64(c.Spool.Bytes), SpoolAge: c.Spool.Age,
		Mirror: c.Mirror.Enabled, WorkTree: c.Worktree.Enabled, Notify: c.Watch.Notify, Poll: c.Watch.Poll, PollMax: c.Watch.PollMax,
		Connections: c.Limits.Connections, SessionsPerMinute: c.Limits.SessionsPerMinute, IdleExit: c.Idle.Exit,
	}, nil
}
