package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"belay/internal/config"
	"belay/internal/daemon"
	"belay/internal/wire"
)

// unitText is the unit of `belay daemon --print-unit`. What is not in it, and why: PrivateTmp (the socket's second
// place is in /tmp, and hooks look for it there), ProtectProc and PrivatePIDs (the agents' ends are seen in /proc),
// ProtectHome=yes and RestrictNamespaces for whole mounts (transcripts lie in homes, wherever those are), a socket unit
// (hooks start a daemon by themselves, their events wait in the spool until then, and the lock is taken before the
// socket is there).
const unitText = `# Made by: belay daemon --print-unit
[Unit]
Description=belay: keeps what AI agents were doing, and tells their next session
Documentation=man:systemd.service(5)
StartLimitIntervalSec=10min
StartLimitBurst=20

[Service]
Type=notify
ExecStart=%s daemon
ExecReload=kill -HUP $MAINPID
Environment=%s
# A daemon that a hook started holds the lock until an hour after its last agent: this one tries again.
Restart=on-failure
RestartSec=30s
WatchdogSec=30s
TimeoutStopSec=10s
KillMode=process
UMask=0077
# It reads the agents' files wherever they are, runs git status, and writes its own folder and, for copies of
# databases and the socket's second place, /tmp.
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths=%s
NoNewPrivileges=yes
RestrictAddressFamilies=AF_UNIX
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
CapabilityBoundingSet=
MemoryMax=512M
TasksMax=256

[Install]
WantedBy=default.target
`

// supervisors are those that the daemon can be run by, the one of this system first.
func supervisors() []string {
	if runtime.GOOS == "darwin" {
		return []string{"launchd", "systemd"}
	}
	return []string{"systemd", "launchd"}
}

// printSupervision writes what one of them reads.
func printSupervision(w io.Writer, by string, c *config.Config) error {
	root, err := config.StateDir(c.StateDir, os.Getenv)
	switch {
	case err != nil:
		return err
	case by == "systemd":
		return printUnit(w, c, root)
	case by == "launchd":
		return printAgent(w, root)
	}

	return &usage{what: fmt.Sprintf("--print-unit %q: systemd or launchd", by)}
}

// printUnit writes a systemd user unit for this program and this state folder.
func printUnit(w io.Writer, c *config.Config, root string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}

	writes := []string{unitWord(root), "/tmp"}
	if daemon.Mirror(c.Mirror) == daemon.MirrorExact {
		writes = append(writes, unitWord(config.KeyDir(os.Getenv)))
	}

	_, err = fmt.Fprintf(
		w, unitText, strings.ReplaceAll(unitWord(exe), "$", "$$"), unitWord("BELAY_STATE_DIR="+root),
		strings.Join(writes, " "),
	)

	return err
}

// unitWord is one word in a unit: quoted, and without what systemd would expand. In a command, "$" is to be doubled
// too.
func unitWord(s string) string {
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "\n", `\n`).Replace(s)
	return `"` + s + `"`
}

// tell does nothing where systemd did not start the daemon.
func tell(log *zap.Logger, what string) {
	if _, err := systemd.SdNotify(false, what); err != nil {
		log.Warn("tell systemd", zap.String("what", what), zap.Error(err))
	}
}

func tellStopping(log *zap.Logger) { tell(log, systemd.SdNotifyStopping) }

// supervised tells systemd, where that started the daemon, that it is ready and then, as often as the unit's
// WatchdogSec wants, that it works: each time a client of its own has been answered. A daemon that hangs cannot look
// well.
func supervised(ctx context.Context, root string, log *zap.Logger) {
	tell(log, systemd.SdNotifyReady)
	every, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd's watchdog", zap.Error(err))
	}
	if every <= 0 {
		return
	}

	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := answers(ctx, root, every/3); err == nil {
			tell(log, systemd.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			log.Warn("the daemon does not answer itself", zap.Error(err))
		}
	}
}

// answers asks the daemon of a state folder for a word, the way that all clients do.
func answers(ctx context.Context, root string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c, err := wire.Dial(ctx, root, "")
	if err != nil {
		return err
	}

	defer c.Close() // the answer is here, or none comes
	r, _, err := c.Do(ctx, wire.Request{Op: "hello"}, nil)
	if err != nil {
		return err
	}

	return replyError(r)
}
