//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"belay/checkpoint"
	"belay/internal/state/mirror"
	"belay/internal/transcript/lines"
	"belay/internal/vfs"
)

// trial is one way to recover one transcript.
type trial struct {
	*recorded
	name  string
	where string // folder
	with  []string
	seen  *variant
	cost  []cost
}

// The ways.
const (
	at99       = "checkpoint at 99 %"
	late       = "checkpoint 100 KB back"
	firstSight = "first sight"
)

// trials lists the ways; dir is a folder that knows nothing.
func (r *recorded) trials(dir string, env []string) []*trial {
	return []*trial{
		{recorded: r, name: at99, where: r.dir, with: r.env},
		{recorded: r, name: late, where: r.lateDir, with: r.lateEnv},
		{recorded: r, name: firstSight, where: dir, with: env},
	}
}

// recover measures the whole `belay recover` process.
func (b *bench) recover(ctx context.Context) error {
	sizes := []int64{1 << 20, 10 << 20, 100 << 20, 1 << 30}
	if b.quick {
		sizes = sizes[:3]
	}

	dir, env, err := b.folder()
	if err != nil {
		return err
	}

	floor, stop, err := b.floor(ctx, dir, env)
	if err != nil {
		return err
	}

	defer stop()
	help := b.process("belay --help", dir, "", env, nil, b.program("belay"), "--help")
	list := []*variant{floor, help}
	var trials []*trial
	b.show.begin("write transcripts", 2*len(sizes))
	for _, f := range forms() {
		for _, size := range sizes {
			r, err := b.record(ctx, f, size)
			if err != nil {
				return err
			}

			b.show.step()
			defer os.RemoveAll(r.dir) // a gigabyte need not stay until the end of the run
			defer os.RemoveAll(r.lateDir)
			for _, t := range r.trials(dir, env) {
				words := []string{b.program("belay"), "recover", "--agent", f.agent, "--transcript", r.path}
				if t.name != firstSight {
					words = append(words[:4:4], "--session", session)
				}
				t.seen = b.process(t.name, t.where, "", t.with, &t.cost, words...)
				trials, list = append(trials, t), append(list, t.seen)
			}
		}
	}

	if err := b.compare(ctx, "belay recover", b.pick(15, 7), list); err != nil {
		return err
	}

	b.recoverRows(trials, floor, help)
	return b.lastFive(ctx, trials)
}

// floor is the C client of a C server; without a compiler a variant that measures nothing.
func (b *bench) floor(ctx context.Context, dir string, env []string) (*variant, func(), error) {
	if b.noC != "" {
		return &variant{name: "no C", round: func(context.Context) (float64, error) { return 0, nil }}, func() {}, nil
	}

	s, err := b.serve(ctx, dir, env, b.program("serve"), socketOf(dir))
	if err != nil {
		return nil, nil, err
	}

	return b.process("C floor", dir, "", nil, nil, b.program("floor"), s.socket), func() { _ = s.stop() }, nil
}

func (b *bench) recoverRows(trials []*trial, floor, help *variant) {
	r := &b.report
	r.add("C floor", "ms", floor.got)
	r.add("belay --help: its start alone", "ms", help.got).over("C floor", floor.got)
	for _, t := range trials {
		name := fmt.Sprintf("%s %s, %s", t.agent, human(t.bytes), t.name)
		r.add(name, "ms", t.seen.got).over("C floor", floor.got).most("D1", 15)
		var rss sample
		for _, c := range t.cost {
			rss.add(c.rss)
		}
		r.add(name+", peak RSS", "MB", rss).worth("D2: at most 20 MB", rss.median() <= 20)
	}

	for _, big := range trials {
		for _, small := range trials {
			if big.bytes == 1<<30 && small.bytes == 10<<20 && big.agent == small.agent && big.name == small.name {
				w := r.add(
					fmt.Sprintf("%s 1 GB, %s", big.agent, big.name),
					"ms",
					big.seen.got,
				).over(
					"10 MB", small.seen.got,
				)

				if big.name == at99 { // its delta is a hundred times as long
					w.worth("M02: under 1 s", w.Median < 1000)
					continue
				}

				w.most("M02", 3)
			}
		}
	}
}

func human(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%d GB", n>>30)
	}
	return fmt.Sprintf("%d MB", n>>20)
}

// lastFive measures what the daemon does for the messages after a cursor: a new reader, one read.
func (b *bench) lastFive(ctx context.Context, trials []*trial) error {
	var list []*variant
	var of []*recorded
	for _, t := range trials {
		if t.name != firstSight {
			continue
		}

		list = append(list, &variant{name: "last five", round: func(ctx context.Context) (float64, error) {
			start := time.Now()
			got, err := t.read(ctx, t.near, checkpoint.ReadOptions{})
			took := us(time.Since(start))
			if err == nil && (len(got.Entries) < 5 || got.First) {
				err = fmt.Errorf(
					"%d entries (first sight: %v) after a cursor in %s", len(got.Entries), got.First, t.path,
				)
			}

			return took, err
		}})

		of = append(of, t.recorded)
	}

	if err := b.compare(ctx, "the last five turns, in process", b.pick(50, 20), list); err != nil {
		return err
	}

	for i, v := range list {
		b.report.add(fmt.Sprintf("%s %s, last five turns, in process", of[i].agent, human(of[i].bytes)), "us", v.got).
			worth("D1: at most 1 ms", v.got.median() <= 1000)
	}

	return nil
}

// scan measures whole files: read and thrown away, split into lines, decoded, mirrored with its secrets removed.
func (b *bench) scan(ctx context.Context) error {
	size := int64(b.pick(100, 32)) << 20
	b.show.begin("write transcripts", 2)
	for _, f := range forms() {
		dir, env, err := b.folder()
		if err != nil {
			return err
		}

		r := &recorded{form: f, dir: dir, env: env, bytes: size, path: dir + "/" + session + ".jsonl"}
		if _, err := f.grow(r.path, 1, size); err != nil {
			return err
		}

		list := []*variant{
			{name: "read", round: r.timed(size, func(context.Context) error { return readOnly(r.path) })},
			{name: "lines", round: r.timed(size, func(context.Context) error { return linesOnly(r.path) })},
			{name: "entries", round: r.timed(size, func(ctx context.Context) error {
				_, err := r.read(ctx, "", checkpoint.ReadOptions{Whole: true})
				return err
			})},
			{name: "mirror", round: r.timed(size, func(ctx context.Context) error { return b.mirrored(ctx, r.path) })},
		}

		if err := b.compare(ctx, "whole file, "+f.agent, b.pick(5, 3), list); err != nil {
			return err
		}

		for i, name := range []string{
			"read() only", "split into lines", "all entries decoded", "mirror, secrets removed",
		} {
			w := b.report.add(
				fmt.Sprintf("%s %s, %s", f.agent, human(size), name),
				"MB/s",
				list[i].got,
			).over(
				"read()", list[0].got,
			)
			switch i {
			case 1:
				w.least("D2", 0.5)
			case 3:
				w.worth("D2: at least 100 MB/s", w.Median >= 100)
			}
		}

		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}

	return nil
}

// timed gives the MB a second of one pass.
func (r *recorded) timed(size int64, pass func(context.Context) error) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		start := time.Now()
		err := pass(ctx)
		return float64(size) / 1e6 / time.Since(start).Seconds(), err
	}
}

func readOnly(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}

	defer f.Close()
	buf := make([]byte, 256<<10)
	for {
		if _, err := f.Read(buf); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func linesOnly(path string) error {
	f := lines.Open(path)
	_, err := f.Read(lines.Pos{}, lines.Options{Max: 1 << 40}, func(lines.Line) bool { return true })
	return errors.Join(err, f.Close())
}

func (b *bench) mirrored(ctx context.Context, path string) error {
	dir, err := os.MkdirTemp(b.dir, "m")
	if err != nil {
		return err
	}

	m, err := mirror.Open(vfs.OS{}, dir, mirror.Options{FirstSight: 1 << 40})
	if err != nil {
		return err
	}

	for done := false; !done && err == nil; {
		var p mirror.Progress
		p, err = m.Sync(ctx, path)
		done = p.Done
	}

	return errors.Join(err, m.Close(), os.RemoveAll(dir))
}
