package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
	"gopkg.in/natefinch/lumberjack.v2"

	"belay/breaker"
	"belay/checkpoint"
	"belay/heartbeat"
	"belay/internal/agent/all"
	"belay/internal/config"
	"belay/internal/daemon"
	"belay/internal/daemon/socket"
	"belay/internal/redact"
	"belay/internal/vfs"
	"belay/recovery"
)

func (a *app) daemonCmd() *cobra.Command {
	var fromHook bool
	var unit string
	cmd := &cobra.Command{
		Use:     "daemon",
		GroupID: groupSetUp,
		Short:   "Run the daemon, in the foreground",
		Long: `Runs the daemon until SIGTERM or Ctrl-C. There is one for each user; hooks start it by themselves
when none runs. SIGTERM takes the last checkpoints; nothing is lost by a restart. SIGHUP reads the
settings again: all of them, or none when one is wrong. The log is belay.log in the state folder.

  belay daemon
  BELAY_STATE_DIR=/tmp/try belay daemon

To have it run always, under systemd and on macOS:

  mkdir -p ~/.config/systemd/user
  belay daemon --print-unit=systemd > ~/.config/systemd/user/belay.service
  systemctl --user enable --now belay

  mkdir -p ~/Library/LaunchAgents
  belay daemon --print-unit=launchd > ~/Library/LaunchAgents/belay.plist
  launchctl bootstrap gui/$UID ~/Library/LaunchAgents/belay.plist

Exit codes: 0 stopped, 1 it could not run (another one runs, no place for the socket), 2 wrong
flags or settings.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(50) // a small daemon that lives for weeks: memory matters more than the collector's time
			c, err := a.settings(false)
			if err != nil {
				return &coded{err, exitUsage, "belay config --check lists every fault."}
			}
			if unit != "" {
				return printSupervision(cmd.OutOrStdout(), unit, c)
			}

			hup := make(chan os.Signal, 1)
			if !signal.Ignored(syscall.SIGHUP) { // nohup stays in force
				signal.Notify(hup, syscall.SIGHUP)
				defer signal.Stop(hup)
			}

			for c != nil && err == nil && cmd.Context().Err() == nil {
				c, err = a.serve(cmd.Context(), c, fromHook, hup, cmd.ErrOrStderr())
			}

			if fromHook && errors.Is(err, socket.ErrRunning) {
				return nil // several hooks started one each; the first is enough
			}

			return err
		},
	}

	cmd.Flags().StringVar(
		&unit, "print-unit", "",
		"print a unit for systemd, or an agent for launchd, and run nothing (alone: what this system has)",
	)

	cmd.Flags().Lookup("print-unit").NoOptDefVal = supervisors()[0]
	completeFlag(cmd, "print-unit", cobra.FixedCompletions(supervisors(), cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&fromHook, "from-hook", false, "started by a hook: end when no agent lived for long")
	if err := cmd.Flags().MarkHidden("from-hook"); err != nil {
		panic(err) // no such flag: a broken invariant
	}

	return cmd
}

// serve runs a daemon to its end. When SIGHUP ended it, because settings changed that it cannot take over, next are the
// settings of the one that follows: a daemon that stops and starts keeps everything.
func (a *app) serve(
	ctx context.Context,
	c *config.Config,
	fromHook bool,
	hup <-chan os.Signal,
	errOut io.Writer,
) (next *config.Config, err error) {
	root, err := config.StateDir(c.StateDir, os.Getenv)
	if err != nil {
		return nil, err
	}

	log, closeLog := newLog(c, root, errOut)
	defer closeLog()
	for _, w := range c.Warnings {
		log.Warn("settings", zap.Error(w))
	}

	opt := daemonOptions(c, root, log)
	if !fromHook {
		opt.IdleExit = 0
	}

	parent := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended, ready := make(chan error, 1), make(chan struct{}, 1)
	opt.Ready = func() {
		select {
		case ready <- struct{}{}:
		default: // it started over
		}
	}

	d := daemon.New(opt)
	go func() { ended <- d.Run(ctx) }()
	var tells sync.WaitGroup
	defer tells.Wait()
	defer stop()
	stopping := parent.Done()
	for {
		select {
		case <-ready:
			ready = nil // a second one is the same to systemd
			tells.Go(func() { supervised(ctx, root, log) })
		case <-stopping:
			stopping = nil
			tellStopping(log)
		case err := <-ended:
			if err != nil && fromHook && !errors.Is(err, socket.ErrRunning) {
				log.Error("daemon ended", zap.Error(err)) // nobody sees the stderr of one that a hook started
			}
			return next, err

		case <-hup:
			fresh, err := a.settings(true)
			if err != nil {
				log.Error("settings not reloaded; the old ones stay", zap.Error(err))
				continue
			}

			restart := needsRestart(c, fresh)
			log.Info("settings reloaded", zap.Bool("restart", restart))
			if c = fresh; restart {
				next = fresh
				stop()
				continue
			}

			d.Reload(daemonOptions(fresh, root, log))
		}
	}
}

// needsRestart says whether a setting changed that a running daemon does not take over (daemon.Daemon.Reload).
func needsRestart(old, fresh *config.Config) bool {
	before := old.Values()
	for i, v := range fresh.Values() {
		section, _, _ := strings.Cut(v.Key, ".")
		if v.Value != before[i].Value &&
			!slices.Contains([]string{"gates", "retention", "recovery", "worktree"}, section) {
			return true
		}
	}

	return false
}

// newLog writes JSON to a rotated file, and to stderr for people when that is a terminal.
func newLog(c *config.Config, root string, errOut io.Writer) (*zap.Logger, func()) {
	level, err := zapcore.ParseLevel(c.Log.Level)
	if err != nil {
		level = zapcore.InfoLevel
	}

	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	file := &lumberjack.Logger{
		Filename:   filepath.Join(root, "belay.log"),
		MaxSize:    max(int(c.Log.Bytes>>20), 1),
		MaxBackups: c.Log.Files,
	}

	var cores []zapcore.Core

	// What is no file of ours is not written to, wherever it leads; doctor store names it.
	if info, err := os.Lstat(file.Filename); err != nil || vfs.Safe(file.Filename, info, false) == nil {
		cores = append(cores, zapcore.NewCore(zapcore.NewJSONEncoder(enc), zapcore.AddSync(quietWriter{file}), level))
	}

	if f, ok := errOut.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		cores = append(
			cores,
			zapcore.NewCore(
				zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()),
				zapcore.Lock(zapcore.AddSync(quietWriter{f})), level,
			),
		)
	}

	log := zap.New(zapcore.NewTee(cores...))
	return log, func() { _ = errors.Join(log.Sync(), file.Close()) } // the last lines of a log on a failing disk
}

// quietWriter takes secrets out of each line, whatever error or path brought them there, and keeps zap from writing its
// own complaints to stderr when the log's disk is full: status says so anyway.
type quietWriter struct{ w io.Writer }

func (q quietWriter) Write(p []byte) (int, error) {
	_, _ = q.w.Write(redact.Bytes(nil, p))
	return len(p), nil
}

// checks are the settings that other packages understand better.
func checks() map[string]func(string) error {
	return map[string]func(string) error{"heartbeat.every": heartbeat.Check}
}

func daemonOptions(c *config.Config, root string, log *zap.Logger) daemon.Options {
	return daemon.Options{
		StateDir: root,
		FS:       vfs.OS{},
		Log:      log,
		Version:  version(),
		Agents:   all.All(host(root)),
		Gates: checkpoint.Gates{
			SparseTime:   c.Gates.Sparse.Time,
			SparseRounds: c.Gates.Sparse.Rounds,
			FullTime:     c.Gates.Full.Time,
			ForcedTime:   c.Gates.Forced.Time,
		},
		Heartbeat: c.Heartbeat.Every,
		Breaker: breaker.Options{
			Failures: c.Breaker.Failures,
			Pause:    c.Breaker.Pause,
			MaxPause: c.Breaker.MaxPause,
			Manual:   c.Breaker.Heal == "manual",
		},
		Retention: checkpoint.Policy{
			Count: int64(c.Retention.Count),
			Bytes: int64(c.Retention.Bytes),
			Age:   c.Retention.Age,
		},
		TotalBytes:   int64(c.Retention.TotalBytes),
		Adopt:        recovery.Adopt(c.Recovery.Adopt),
		AdoptWindow:  c.Recovery.Window,
		BriefBytes:   c.Recovery.MaxBytes,
		SegmentBytes: int64(c.Journal.Segment),
		MemoryBytes:  int(c.Journal.Memory),
		Mirror: daemon.Mirror(
			c.Mirror,
		),
		KeyDir:            config.KeyDir(os.Getenv),
		WorkTree:          c.Worktree.Enabled,
		Notify:            c.Watch.Notify,
		Poll:              c.Watch.Poll,
		PollMax:           c.Watch.PollMax,
		Connections:       c.Limits.Connections,
		SessionsPerMinute: c.Limits.SessionsPerMinute,
		IdleExit:          c.Idle.Exit,
	}
}
