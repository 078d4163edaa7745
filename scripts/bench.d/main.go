//go:build linux

// Command bench.d measures belay against yardsticks of the same run (scripts/bench starts it).
//
// Variants of one comparison are run in random order, round after round, so that other work on the machine hits all
// alike. It writes only below a folder of its own, which it removes, and ends every program that it started.
//
// It does not judge a machine by absolute times, and it fails no build: a missed goal is printed, not an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is one run.
type bench struct {
	dir    string // own folder
	bin    string // programs
	quick  bool
	noC    string // why there are no C programs
	report report
	show   *progress
	launch *launcher
}

var errUsage = errors.New("wrong use")

// part is one group of measurements.
type part struct {
	name, what string
	run        func(*bench, context.Context) error
}

func parts() []part {
	return []part{
		{"hook", "hook client, spawn to exit", (*bench).hook},
		{"ack", "acknowledgements on the socket", (*bench).ack},
		{"write", "checkpoint write", (*bench).write},
		{"recover", "belay recover on big transcripts", (*bench).recover},
		{"scan", "reading and mirroring a transcript", (*bench).scan},
		{"memory", "memory and idle wake-ups", (*bench).memory},
		{"start", "start of the daemon", (*bench).start},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	fl := flag.NewFlagSet("bench", flag.ContinueOnError)
	fl.SetOutput(errOut)
	quick := fl.Bool("quick", false, "less of everything: under two minutes")
	asJSON := fl.Bool("json", false, "print JSON")
	only := fl.String("only", "", "some parts only, with commas between")
	parent := fl.String("dir", os.TempDir(), "folder for files; on a real disk")
	if fl.Parse(args) != nil {
		return errUsage
	}

	chosen, err := choose(*only)
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp(*parent, "belay-bench.")
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{dir: dir, bin: filepath.Join(dir, "bin"), quick: *quick, show: newProgress(errOut)}
	begin := time.Now()
	if err := b.build(ctx); err != nil {
		return err
	}
	if b.launch, err = startLauncher(b.program("launch")); err != nil {
		return err
	}

	defer func() { err = errors.Join(err, b.launch.close()) }()
	for _, p := range chosen {
		b.report.section(p.what)
		if err := p.run(b, ctx); err != nil {
			return fmt.Errorf("measure %s: %w", p.name, err)
		}
		b.show.done()
	}

	b.report.Machine = machine(dir)
	b.report.Skipped, b.report.Quick, b.report.Seconds = b.noC, *quick, time.Since(begin).Seconds()
	if *asJSON {
		return b.report.json(out)
	}

	return b.report.print(out)
}

func choose(only string) ([]part, error) {
	all := parts()
	if only == "" {
		return all, nil
	}

	var chosen []part
	for word := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(p part) bool { return p.name == word })
		if i < 0 {
			return nil, fmt.Errorf("%w: --only %q", errUsage, word)
		}
		chosen = append(chosen, all[i])
	}

	return chosen, nil
}

// pick is n, or less of it in a quick run.
func (b *bench) pick(n, quick int) int {
	if b.quick {
		return quick
	}
	return n
}

// variant is one of the things that are compared. Its round gives what it measured.
type variant struct {
	name  string
	round func(ctx context.Context) (float64, error)
	got   sample
}

// compare runs the rounds of all variants, in random order within each round.
func (b *bench) compare(ctx context.Context, what string, rounds int, list []*variant) error {
	b.show.begin(what, rounds*len(list))
	for range rounds {
		for _, i := range rand.Perm(len(list)) {
			if err := ctx.Err(); err != nil {
				return err
			}

			v := list[i]
			x, err := v.round(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}

			v.got.add(x)
			b.show.step()
		}
	}

	return nil
}
