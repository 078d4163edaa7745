package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/agent/all"
	"belay/internal/host/run"
	"belay/internal/wire"
	"belay/internal/wire/intake"
)

// Exit codes of a program that could not be run, as shells have them.
const (
	exitNotExecutable = 126
	exitNoProgram     = 127
)

// exited ends belay with another program's exit code, and says nothing.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// madeUp begins the ids of sessions that belay run made up.
const madeUp = "run-"

func (a *app) runCmd() *cobra.Command {
	var agentName, session string
	cmd := &cobra.Command{
		Use:     "run [--agent NAME] [--session ID] -- AGENT [ARG...]",
		GroupID: groupSessions,
		Short:   "Run an agent, see how it ends, and say how to go on",
		Long: `Runs an agent as if belay were not there: the terminal, stdin, signals and the exit code are its
own. The daemon is started when none runs. When the agent ends, its sessions are told how (exit
code, signal, out of memory), and a checkpoint is taken; when it died, belay says on stderr how to
go on. Its verbs and events find their session in BELAY_SESSION: the one that is given, else one
made up.

  belay run -- claude
  belay run --agent mine --session nightly -- ./agent.sh --all

Exit codes: 0 and all others are the agent's, 128 and the signal's number when one ended it; 2
wrong flags, 126 the program cannot be run, 127 there is no such program.`,
		Args:                  cobra.ArbitraryArgs,
		DisableFlagsInUseLine: true, // behind the agent's name they are the agent's
		ValidArgsFunction:     completePrograms,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usage{what: "run: which agent?", hint: "For example: belay run -- claude"}
			}
			r := a.newRun(args, agentName, session)
			return r.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}

	cmd.Flags().SetInterspersed(false) // what follows the program's name is its own
	cmd.Flags().StringVar(
		&agentName, "agent", "", "whose sessions they are (default: known by the program's name, else other)",
	)

	cmd.Flags().StringVar(
		&session, "session", "",
		"session id for its verbs and events (default: BELAY_SESSION, else one made up)",
	)

	completeFlag(cmd, "agent", completeAgents)
	return cmd
}

// agentRun is one run of an agent.
type agentRun struct {
	app    *app
	args   []string
	marker run.Marker
	given  bool // the session's id was, so a person means it
}

func (a *app) newRun(args []string, agentName, session string) *agentRun {
	r := &agentRun{app: a, args: args, marker: run.Marker{Agent: agentName, Session: session}}

	// another run's made-up id is not ours
	if env := os.Getenv("BELAY_SESSION"); session == "" && !strings.HasPrefix(env, madeUp) {
		r.marker.Session = env
	}

	r.given = r.marker.Session != ""
	if !r.given {
		r.marker.Session = madeUp + strings.ToLower(rand.Text()[:12])
	}
	if agentName == "" {
		r.marker.Agent = agentOf(args[0])
	}
	if wd, err := os.Getwd(); err == nil {
		r.marker.Workspace = realFolder(wd)
	}

	return r
}

// agentOf knows an agent by its program's name.
func agentOf(program string) string {
	base := filepath.Base(program)
	for _, g := range all.All(host("")) {
		word, _, _ := strings.Cut(g.ResumeCommand("x"), " ") // of some agents that is advice, and no program
		if g.Name() == base ||
			word == base && (strings.HasPrefix(g.Name(), base) || strings.HasPrefix(base, g.Name())) {
			return g.Name()
		}
	}

	return otherAgent
}

func (r *agentRun) run(ctx context.Context, errOut io.Writer) error {
	ctx = context.WithoutCancel(ctx)                    // Ctrl-C is the agent's
	if _, err := exec.LookPath(r.args[0]); err != nil { // before a daemon is started for nothing
		return notRun(r.args[0], err)
	}

	w := run.Witness{Marker: r.marker, Began: time.Now().UTC(), ID: eventID}
	if err := r.prepare(ctx, w); err != nil {
		fmt.Fprintf(errOut, "belay: the agent runs without a daemon: %s\n", said(err.Error()))
	}

	agent, err := run.Start(r.args, r.env())
	if err != nil {
		return notRun(r.args[0], err)
	}

	w.Family = run.NewFamily(agent.Proc)
	following, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		w.Family.Follow(following, func(ctx context.Context) (*wire.Conn, error) { return r.app.dial(ctx, false) })
	})
	end, err := agent.Wait()
	stop()
	wait.Wait()
	if err != nil {
		return err
	}

	r.goOn(errOut, end, r.tell(ctx, w, end))
	return exited(end.ExitCode())
}

// notRun says why a program was not run, with the exit codes of shells.
func notRun(program string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &coded{
			fmt.Errorf("run %s: there is no such program", program),
			exitNoProgram,
			"Is it installed, and its folder on PATH? " +
				"What comes after -- is the agent's own command: belay run -- claude",
		}
	}
	return &coded{
		fmt.Errorf("run %s: %w", program, err),
		exitNotExecutable,
		"See whether you may execute it: ls -l " + shellWord(program),
	}
}

// prepare starts the daemon. A session that a person named, of an agent without hooks, begins before the agent does.
func (r *agentRun) prepare(ctx context.Context, w run.Witness) error {
	if _, hooks := all.ByName(host(""), r.marker.Agent); !r.given || hooks {
		return r.app.wakeDaemon(ctx)
	}

	ctx, cancel := context.WithTimeout(ctx, daemonBudget)
	defer cancel()
	c, err := r.app.dial(ctx, true)
	if err != nil {
		return err
	}

	defer c.Close() // the answer is here
	return w.Begin(ctx, c)
}

// wakeDaemon starts a daemon when none answers, and does not wait for it.
func (a *app) wakeDaemon(ctx context.Context) error {
	c, err := a.dial(ctx, false)
	if err == nil {
		return c.Close()
	}
	if a.socket != "" || !errors.Is(err, wire.ErrNoDaemon) {
		return err
	}

	root, err := a.root()
	if err != nil {
		return err
	}

	exe, err := os.Executable()
	if err != nil {
		return err
	}

	return intake.StartDetached(exe, []string{"daemon", "--from-hook"}, root)
}

// env is ours with the session's marker, and with the state folder when that was a flag.
func (r *agentRun) env() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "BELAY_SESSION=") })
	env = append(env, "BELAY_SESSION="+r.marker.Session)
	if r.app.stateDir == "" {
		return env
	}

	if dir, err := filepath.Abs(r.app.stateDir); err == nil {
		env = append(
			slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "BELAY_STATE_DIR=") }),
			"BELAY_STATE_DIR="+dir,
		)
	}

	return env
}

// daemonBudget bounds what a person waits for the daemon, before the agent and after it.
const daemonBudget = 3 * time.Second

// tell reports the end. Without a daemon nobody needs to be told: the next one sees that the process is gone.
func (r *agentRun) tell(ctx context.Context, w run.Witness, end run.End) []*checkpoint.State {
	ctx, cancel := context.WithTimeout(ctx, daemonBudget)
	defer cancel()
	folder, err := r.app.folder()
	if err != nil {
		return nil
	}

	w.Folder = folder
	c, err := r.app.dial(ctx, false)
	if err != nil {
		return nil
	}

	defer c.Close()                  // the answers are here
	states, _ := w.Tell(ctx, c, end) // what it could not tell, the daemon's own watch does
	return states
}

// goOn says after a death what a person can do.
func (r *agentRun) goOn(w io.Writer, end run.End, states []*checkpoint.State) {
	states = slices.DeleteFunc(states, func(s *checkpoint.State) bool {
		return s.Live || s.Ending == nil || s.Ending.Clean || end.Signal == 0 && !s.Ending.InTurn
	})
	if len(states) == 0 && (end.Signal == 0 || end.Signal == syscall.SIGINT) {
		return
	}

	fmt.Fprintf(w, "belay: %s: %s\n", printable(filepath.Base(r.args[0])), end)
	for _, s := range states {
		how := "while it was idle"
		if s.Ending.InTurn {
			how = "in the middle of its work"
		}

		fmt.Fprintf(
			w, "Session %s of %s stopped %s. To go on:\n", printable(s.Key.Session), printable(s.Key.Agent),
			how,
		)

		if g, ok := all.ByName(host(""), s.Key.Agent); ok {
			if command := g.ResumeCommand(s.Key.Session); command != "" {
				fmt.Fprintf(w, "  %s\n", printable(command))
			}
		}

		fmt.Fprintf(
			w, "  belay recover --agent %s --session %s   (what a new session is told)\n",
			printable(shellWord(s.Key.Agent)), printable(shellWord(s.Key.Session)),
		)
	}
}
