package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/state"
	"belay/internal/state/mirror"
	"belay/internal/state/query"
	"belay/internal/transcript/repair"
	"belay/internal/vfs"
)

// transcriptFlags are the flags of doctor transcript.
type transcriptFlags struct {
	agent, session, repair string
	json                   bool
}

func (a *app) doctorTranscriptCmd() *cobra.Command {
	var f transcriptFlags
	cmd := &cobra.Command{
		Use:   "transcript FILE",
		Short: "Look into an agent's transcript, and repair a copy of it",
		Long: `Says what a transcript holds, what is damaged in it and where, which calls are open, and whether
the agent itself would take the session up again. It changes nothing. With --repair it writes a
copy that the agent takes: what is torn is cut, records on one line get their own, open calls get
a result (interrupted, outcome not known), broken parents are mended; all else stays byte for
byte. Put the copy in the place of the original yourself, while the agent does not run, and keep
the original.

  belay doctor transcript session.jsonl
  belay doctor transcript session.jsonl --agent pi --json
  belay doctor transcript session.jsonl --repair repaired.jsonl

Exit codes: 0 it is whole and can be resumed (with --repair: the copy), 1 something is wrong with
it or it cannot be read, 2 wrong flags, or there is something at OUT, 3 no such file, or a file of
no agent that belay knows.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usage{what: fmt.Sprintf("doctor transcript takes one file, got %d", len(args))}
			}
			return nil
		},
		ValidArgsFunction: completeFiles,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.doctorTranscript(cmd, args[0], f) },
	}

	fl := cmd.Flags()
	fl.StringVar(&f.agent, "agent", "", "whose it is (default: what its first records tell)")
	fl.StringVar(&f.session, "session", "", "session id, for a database that holds several")
	fl.StringVar(&f.repair, "repair", "", "write a repaired copy to this new file")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	completeFlag(cmd, "agent", completeAgents)
	completeFlag(cmd, "session", a.completeSessions)
	return cmd
}

func (a *app) doctorTranscript(cmd *cobra.Command, path string, f transcriptFlags) error {
	path, err := transcriptFile(path, "belay status --session ID names the transcript of a session.")
	if err != nil {
		return err
	}

	g, err := transcriptAgent(path, f.agent)
	if err != nil {
		return err
	}

	if f.repair != "" {
		if err := repair.Free(vfs.OS{}, path, f.repair); err != nil {
			return &coded{err, exitUsage, "The copy goes into a new file: name one that is not there."}
		}
	}

	ctx, screen := cmd.Context(), cmd.ErrOrStderr()
	src := agent.Source{Path: path, Session: f.session}
	if src.Session == "" {
		src.Session = sessionIn(ctx, g, path)
	}

	x, err := examined(ctx, screen, g, src)
	if err != nil {
		return fmt.Errorf("examine %s: %w", path, err)
	}

	defer x.Close() // what was unpacked; nothing of the user's
	if err := withoutSecrets(&x.Report); err != nil {
		return err
	}

	x.Generations += a.olderCopies(ctx, path)
	if f.repair != "" {
		return writeRepaired(cmd, g, x, f)
	}

	if f.json {
		err = printJSON(cmd.OutOrStdout(), x.Report)
	} else {
		printReport(cmd.OutOrStdout(), x)
	}

	if err == nil && !(x.Whole() && x.Resumable) {
		err = &coded{errors.New("doctor transcript: " + troubles(x)), exitFailed, repairHint(x)}
	}

	return err
}

// transcriptAgent is the agent that is named, or whose first records these are.
func transcriptAgent(path, name string) (agent.Agent, error) {
	if name == "" {
		name = query.Folder{Agents: all.All(host(""))}.Guess(path)
	} else if _, ok := all.ByName(host(""), name); !ok {
		return nil, &usage{
			what: fmt.Sprintf("--agent %q: no such agent", name),
			hint: "One of: " + strings.Join(agentNames(), ", "),
		}
	}

	g, ok := all.ByName(host(""), name)
	if !ok {
		return nil, &coded{
			fmt.Errorf("examine %s: its first records are of no agent that belay knows", path),
			exitNotFound,
			"Name the agent: --agent " + strings.Join(agentNames(), ", ") + ".",
		}
	}

	return g, nil
}

// sessionIn is the newest session that an agent itself finds in a file; empty when it finds none.
func sessionIn(ctx context.Context, g agent.Agent, path string) string {
	if _, ok := g.(agent.Watched); !ok {
		return ""
	}

	found, err := g.Locate(ctx, agent.Query{Most: 1000})
	if err != nil {
		return "" // then the reader says what it misses
	}

	for _, f := range found {
		if realFolder(f.Path) == realFolder(path) {
			return f.Session
		}
	}

	return ""
}

// examined looks into the transcript, with a bar for a large one.
func examined(ctx context.Context, screen io.Writer, g agent.Agent, src agent.Source) (*repair.Examined, error) {
	if e, ok := g.(agent.Examiner); ok {
		at, done := byteBar(screen, src.Path, "reading")
		defer done()
		return e.Examine(ctx, src, at)
	}

	t := g.Open(src)
	defer t.Close() // read only
	return repair.Entries(ctx, g.Name(), src.Path, t)
}

// olderCopies counts what belay's mirror keeps of the transcript's earlier lives.
func (a *app) olderCopies(ctx context.Context, path string) int {
	root, err := a.root()
	if err != nil {
		return 0 // no state folder, no copies
	}

	dir := state.Dir{Root: root, FS: vfs.Within(vfs.OS{}, root)}
	states, _, err := dir.Find(ctx, state.Name{})
	if err != nil {
		return 0
	}

	for _, s := range states {
		if s.Transcript == "" || realFolder(s.Transcript) != realFolder(path) {
			continue
		}

		list, err := mirror.Generations(dir.FS, dir.Session(s.Key))
		if err != nil {
			return 0
		}

		older := 0
		for _, g := range list {
			if g.Number > 0 {
				older++
			}
		}

		return older
	}

	return 0
}

// writeRepaired writes the copy and looks into it.
func writeRepaired(cmd *cobra.Command, g agent.Agent, x *repair.Examined, f transcriptFlags) error {
	ctx, screen := cmd.Context(), cmd.ErrOrStderr()
	at, done := byteBar(screen, x.File, "writing")
	err := x.Repair(ctx, vfs.OS{}, f.repair, at)
	done()
	if errors.Is(err, repair.ErrReportOnly) {
		return &coded{fmt.Errorf("repair %s: %w", x.File, err), exitFailed, "Without --repair it is examined."}
	}
	if err == nil {
		err = withoutSecrets(&x.Changes)
	}
	if err != nil {
		return fmt.Errorf("repair %s: %w", x.File, err)
	}

	y, err := examined(ctx, screen, g, agent.Source{Path: f.repair})
	if err != nil {
		return fmt.Errorf("examine %s: %w", f.repair, err)
	}

	defer y.Close() // as above
	if err := withoutSecrets(&y.Report); err != nil {
		return err
	}

	if f.json {
		err = printRepair(cmd.OutOrStdout(), x, y)
	} else {
		printMended(cmd.OutOrStdout(), x, y)
	}

	if err == nil && !(y.Whole() && y.Resumable) {
		err = &coded{
			errors.New("doctor transcript: the copy still is not what the agent takes: " + troubles(y)),
			exitFailed,
			"",
		}
	}

	return err
}

// printRepair prints the report of the original, what was changed, and how the copy is.
func printRepair(w io.Writer, x, y *repair.Examined) error {
	data, err := json.Marshal(x.Report)
	if err != nil {
		return err
	}

	report := map[string]any{}
	if err := json.Unmarshal(data, &report); err != nil {
		return err
	}

	changes := x.Changes
	if changes == nil {
		changes = []repair.Change{}
	}

	report["changes"], report["repaired"] = changes, y.Report
	return printJSON(w, report)
}

// troubles is all that is wrong, in a line.
func troubles(x *repair.Examined) string {
	switch {
	case !x.Resumable && len(x.Changes) == 0:
		return "the agent would not take it up"
	case !x.Resumable:
		return "the agent would not take it up whole, " + count(len(x.Changes), "change") + " to make"
	}
	return "it is not whole, " + count(max(len(x.Changes), 1), "change") + " to make"
}

func repairHint(x *repair.Examined) string {
	if !x.Repairable() || len(x.Changes) == 0 {
		return ""
	}
	return "A copy that is: belay doctor transcript " + shellWord(x.File) + " --repair OUT"
}

const listed = 12 // of each kind of thing that a person is shown

func printReport(w io.Writer, x *repair.Examined) {
	line := func(k, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", k, printable(fmt.Sprintf(format, args...)))
	}
	line(x.Agent, "%s", x.File)
	line(
		"holds", "%s, %s, %s", count(x.Records, "record"), count(int(x.Bytes), "byte"),
		count(x.Compactions, "compaction"),
	)

	if x.Generations > 1 {
		line("", "%s of it: belay's mirror keeps the older ones", count(x.Generations, "generation"))
	}

	some(w, x.Bad, func(b checkpoint.BadLine) {
		line("BAD", "line %d, offset %d, %s: %s", b.Line, b.Offset, count(int(b.Bytes), "byte"), b.Why)
	})
	if x.TornBytes > 0 {
		line("TORN", "%s of a last line that was never finished", count(int(x.TornBytes), "byte"))
	}

	some(w, x.Holes, func(h repair.Hole) {
		line("HOLE", "line %d, offset %d, %s of NUL", h.Line, h.Offset, count(int(h.Bytes), "byte"))
	})
	if x.Repeats > 0 {
		line("REPEATS", "%s that stand before", count(x.Repeats, "record"))
	}
	if x.Rescued > 0 {
		line("RESCUED", "%s from lines that do not parse", count(x.Rescued, "record"))
	}

	some(
		w, x.OpenCalls,
		func(c repair.OpenCall) { line("OPEN CALL", "line %d: %s %s has no result", c.Line, c.Name, c.ID) },
	)

	if x.Resumable {
		line("resumable", "yes")
		return
	}

	line("resumable", "NO")
	some(w, x.WhyNot, func(why string) { line("", "%s", why) })
}

// some shows the first of a list, and counts the rest.
func some[T any](w io.Writer, list []T, show func(T)) {
	for _, e := range list[:min(len(list), listed)] {
		show(e)
	}
	if more := len(list) - listed; more > 0 {
		fmt.Fprintf(w, "%10s and %d more: --json lists them\n", "", more)
	}
}

func printMended(w io.Writer, x, y *repair.Examined) {
	if len(x.Changes) == 0 {
		fmt.Fprintf(w, "nothing to change: %s is a copy, byte for byte\n", printable(y.File))
		return
	}

	some(w, x.Changes, func(c repair.Change) {
		fmt.Fprintln(
			w,
			printable(
				fmt.Sprintf(
					"line %d, offset %d: %s, %s: %s", c.Line, c.Offset, c.Action, count(int(c.Bytes), "byte"),
					c.What,
				),
			),
		)
	})

	fmt.Fprintf(
		w, "%s made, %s in %s\n", count(len(x.Changes), "change"), count(y.Records, "record"),
		printable(y.File),
	)
}

// byteBar shows a bar for a file that takes a while, on a terminal.
func byteBar(w io.Writer, path, what string) (at func(int64), done func()) {
	const long = 64 << 20
	size := fileSize(path)
	if width(w) == 0 || size < long {
		return nil, func() {}
	}

	bar := progressbar.NewOptions64(
		size,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what+" "+filepath.Base(path)),
		progressbar.OptionShowBytes(
			true,
		),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)

	// A bar that cannot be drawn does not stop the work.
	return func(n int64) { _ = bar.Set64(n) }, func() { _ = bar.Finish() }
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
