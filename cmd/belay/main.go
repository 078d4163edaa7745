// Command belay is the sidecar daemon and the commands around it. Flags, signals, hints and exit codes are here; all
// else lies in the packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/daemon/socket"
	"belay/internal/redact"
	"belay/internal/state"
	"belay/internal/state/query"
	"belay/internal/wire"
	"belay/recovery"
)

// Exit codes. They stand in the help of each command that can give them.
const (
	exitOK       = 0
	exitFailed   = 1 // it did not work
	exitUsage    = 2 // wrong flags or arguments
	exitNotFound = 3 // no such session or checkpoint
	exitNoDaemon = 4 // no daemon answers
	exitDegraded = 5 // the store cannot be written now
	exitFindings = 6 // doctor found something
)

// errUsage: wrong flags or arguments.
var errUsage = errors.New("wrong use")

// coded is an error with its exit code and a line that says what to do.
type coded struct {
	err  error
	code int
	hint string
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// usage is a complaint about the command line. Without a hint, the command's help is named.
type usage struct{ what, hint string }

func (u *usage) Error() string        { return u.what }
func (u *usage) Is(target error) bool { return target == errUsage }

func main() {
	var ends []os.Signal
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(sig) { // a job in the background of a script: it stays so, for the agent of belay run too
			ends = append(ends, sig)
		}
	}

	ctx, stop := context.WithCancel(context.Background())
	if len(ends) > 0 { // none would mean all
		ctx, stop = signal.NotifyContext(ctx, ends...)
	}

	// so that a write to a reader that is gone is an error, and not our end
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	code := runMain(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// runMain is the whole program.
func runMain(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if other := exited(0); errors.As(err, &other) {
		return int(other)
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitOK // `belay list | head`: the reader has what it wanted
	}

	code, hint := explain(err, cmd)
	for line := range strings.SplitSeq(redact.Text(err.Error()), "\n") { // several faults are several lines
		fmt.Fprintf(errOut, "belay: %s\n", printable(line))
	}

	if hint != "" {
		fmt.Fprintln(errOut, printableText(redact.Text(hint)))
	}

	return code
}

// explain gives an error its exit code and the line that says what to do.
func explain(err error, cmd *cobra.Command) (code int, hint string) {
	var c *coded
	if errors.As(err, &c) {
		return c.code, c.hint
	}

	var u *usage
	if errors.As(err, &u) && u.hint != "" {
		return exitUsage, u.hint
	}

	switch {
	case errors.Is(err, errUsage):
		return exitUsage, cmd.CommandPath() + " --help shows what it takes."
	case errors.Is(err, wire.ErrNoDaemon):
		return exitNoDaemon, "Start it: belay daemon &   (an agent's hook starts it by itself)"
	case errors.Is(err, socket.ErrRunning):
		return exitFailed, "One is enough for all agents of a user: belay status"
	case errors.Is(err, query.ErrNotFound), errors.Is(err, checkpoint.ErrNotFound):
		return exitNotFound, "belay list shows the sessions that are known; --agent and --workspace narrow it."
	case errors.Is(err, query.ErrSeveral):
		return exitNotFound, "Say which: --agent, --workspace."
	case errors.Is(err, query.ErrBadSince):
		return exitUsage, "For example: --since 42   --since 2h   --since 2026-04-01T21:45:00Z"
	case errors.Is(err, recovery.ErrTooSmall):
		return exitUsage, fmt.Sprintf("Give at least --max-bytes %d.", recovery.MinBytes)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return exitFailed, "The daemon is there and does not answer: belay.log in its state folder says what it does."
	case errors.Is(err, state.ErrForeign):
		return exitFailed, "belay reads and writes only in a folder of your own; see BELAY_STATE_DIR."
	}

	return exitFailed, ""
}
