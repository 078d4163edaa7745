//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/state"
	"belay/internal/vfs"
	"belay/recovery"
)

const session = "3f0c2a9e-2f7d-4c7e-9a11-1b1f6f3a2c44"

// prose is half Chinese, as the goals' own file was; output is what tools print.
const (
	prose = "The parser keeps one record per line and moves past a broken one; the next step is to count what was lost. " +
		"行を読み、壊れた行は数えて飛ばす。次の手順は失われた件数を示すことだ。"
	output = `=== RUN   TestTornTail\n--- PASS: TestTornTail (0.01s)\n=== RUN   TestNulRuns\n--- PASS: TestNulRuns (0.02s)\nPASS\nok  \tdemo/parser\t0.213s\n`
)

// form writes the turns of one agent's transcript: a prompt, two tool calls, an answer.
type form struct {
	agent string
	head  string
	turn  func(p *page, n int)
}

func forms() []form {
	return []form{
		{"claude-code", "", claudeTurn},
		{
			"pi",
			`{"type":"session","version":3,"id":"` + session + `","timestamp":"2026-01-05T10:00:00.000Z","cwd":"/proj/demo"}` + "\n",
			piTurn,
		},
	}
}

// page collects text without making garbage.
type page struct{ b []byte }

func (p *page) add(words ...any) {
	for _, w := range words {
		switch w := w.(type) {
		case string:
			p.b = append(p.b, w...)
		case int:
			p.b = strconv.AppendInt(p.b, int64(w), 10)
		}
	}
}

func claudeTurn(p *page, n int) {
	const rest = `,"isSidechain":false,"sessionId":"` + session + `","cwd":"/proj/demo","version":"2.1.328","gitBranch":"main","timestamp":"2026-01-05T10:00:07.000Z"}` + "\n"
	parent := func(kind string, of int) {
		if of == 0 {
			p.add(`{"parentUuid":null`)
			return
		}
		p.add(`{"parentUuid":"`, kind, of, `"`)
	}

	parent("e", n-1)
	p.add(
		`,"type":"user","promptId":"p`, n, `","message":{"role":"user","content":"prompt `, n,
		`: please go on with the parser and run its tests"},"uuid":"u`, n, `"`, rest,
	)

	for c := range 2 {
		from := []any{`{"parentUuid":"u`, n, `"`}
		if c > 0 {
			from = []any{`{"parentUuid":"r`, n, `-`, c - 1, `"`}
		}

		p.add(from...)
		p.add(
			`,"type":"assistant","message":{"content":[{"text":"`, prose, `","type":"text"},{"id":"t`, n, `-`,
			c, `","input":{"command":"go test ./parser -run `, n,
			`","description":"run the tests"},"name":"Bash","type":"tool_use"}],"id":"m`, n, `-`, c,
			`","model":"claude-sonnet-4-5","role":"assistant","stop_reason":"tool_use","type":"message"},"uuid":"a`,
			n, `-`, c, `"`, rest,
		)

		p.add(
			`{"parentUuid":"a`, n, `-`, c, `","type":"user","promptId":"p`, n,
			`","message":{"role":"user","content":[{"tool_use_id":"t`, n, `-`, c,
			`","type":"tool_result","content":"`, output, output, `","is_error":false}]},"uuid":"r`, n, `-`, c,
			`","toolUseResult":{"stdout":"`, output, output, `","stderr":"","interrupted":false}`, rest,
		)
	}

	p.add(
		`{"parentUuid":"r`, n, `-1","type":"assistant","message":{"content":[{"text":"answer `, n, `: `, prose,
		prose, `","type":"text"}],"id":"m`, n,
		`","model":"claude-sonnet-4-5","role":"assistant","stop_reason":"end_turn","type":"message"},"uuid":"e`,
		n, `"`, rest,
	)
}

func piTurn(p *page, n int) {
	const stamp = `"timestamp":"2026-01-05T10:00:07.000Z"`
	up := "null"
	if n > 1 {
		up = `"e` + strconv.Itoa(n-1) + `"`
	}

	p.add(
		`{"type":"message","id":"u`, n, `","parentId":`, up, `,`, stamp,
		`,"message":{"role":"user","content":[{"type":"text","text":"prompt `, n,
		`: please go on with the parser and run its tests"}],"timestamp":1767607200000}}`, "\n",
	)

	last := "u"
	for c := range 2 {
		p.add(
			`{"type":"message","id":"a`, c, `.`, n, `","parentId":"`, last, n, `",`, stamp,
			`,"message":{"role":"assistant","content":[{"type":"text","text":"`, prose,
			`"},{"type":"toolCall","id":"t`, n, `-`, c,
			`","name":"exec","arguments":{"command":"go test ./parser -run `, n,
			`"}}],"api":"messages","provider":"p","model":"m","usage":{"input":1020,"output":20},"stopReason":"toolUse","timestamp":1767607200000}}`,
			"\n",
		)

		p.add(
			`{"type":"message","id":"r`, c, `.`, n, `","parentId":"a`, c, `.`, n, `",`, stamp,
			`,"message":{"role":"toolResult","toolCallId":"t`, n, `-`, c,
			`","toolName":"exec","content":[{"type":"text","text":"`, output, output, output, output,
			`"}],"isError":false,"timestamp":1767607200000}}`, "\n",
		)

		last = `r` + strconv.Itoa(c) + `.`
	}

	p.add(
		`{"type":"message","id":"e`, n, `","parentId":"r1.`, n, `",`, stamp,
		`,"message":{"role":"assistant","content":[{"type":"text","text":"answer `, n, `: `, prose, prose,
		`"}],"api":"messages","provider":"p","model":"m","usage":{"input":1020,"output":20},"stopReason":"stop","timestamp":1767607200000}}`,
		"\n",
	)
}

// grow appends turns until the file has so many bytes; from is the number of the first. It gives that of the next.
func (f form) grow(path string, from int, size int64) (next int, err error) {
	h, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, h.Close()) }()
	info, err := h.Stat()
	if err != nil {
		return 0, err
	}

	w, p, at := bufio.NewWriterSize(h, 1<<20), &page{}, info.Size()
	if at == 0 {
		p.add(f.head)
	}

	for next = from; at < size; next++ {
		f.turn(p, next)
		at += int64(len(p.b))
		if _, err := w.Write(p.b); err != nil {
			return 0, err
		}
		p.b = p.b[:0]
	}

	return next, w.Flush()
}

// recorded is a transcript, and two state folders: with a checkpoint at 99 % of it, and one at lately bytes before its
// end.
type recorded struct {
	form
	path, dir, lateDir string
	env, lateEnv       []string
	bytes              int64
	near               checkpoint.Cursor // five answers before the end
}

const lately = 100 << 10

// record makes one of so many bytes.
func (b *bench) record(ctx context.Context, f form, size int64) (r *recorded, err error) {
	r = &recorded{form: f, bytes: size}
	if r.dir, r.env, err = b.folder(); err != nil {
		return nil, err
	}
	if r.lateDir, r.lateEnv, err = b.folder(); err != nil {
		return nil, err
	}

	r.path = filepath.Join(r.dir, session+".jsonl")
	n, err := f.grow(r.path, 1, size/100*99)
	if err != nil {
		return nil, err
	}
	if err := r.checkpoint(ctx, r.dir); err != nil {
		return nil, err
	}
	if n, err = f.grow(r.path, n, size-lately); err != nil {
		return nil, err
	}
	if err := r.checkpoint(ctx, r.lateDir); err != nil {
		return nil, err
	}
	if n, err = f.grow(r.path, n, size-16<<10); err != nil {
		return nil, err
	}

	last, err := r.read(ctx, "", checkpoint.ReadOptions{})
	if err != nil {
		return nil, err
	}

	r.near = last.Cursor
	for range 5 {
		if n, err = f.grow(r.path, n, sizeOf(r.path)+1); err != nil {
			return nil, err
		}
	}

	return r, nil
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func (r *recorded) open() checkpoint.Transcript {
	for _, a := range all.All(agent.Host{}) {
		if a.Name() == r.agent {
			return a.Open(agent.Source{Path: r.path, Session: session})
		}
	}
	panic("no agent " + r.agent)
}

// read gives all entries from a cursor on, with a reader of its own.
func (r *recorded) read(
	ctx context.Context,
	from checkpoint.Cursor,
	opt checkpoint.ReadOptions,
) (last checkpoint.Batch, err error) {
	t := r.open()
	defer func() { err = errors.Join(err, t.Close()) }()
	for {
		if last, err = t.Read(ctx, from, opt); err != nil || !last.More {
			return last, err
		}
		from = last.Cursor
	}
}

// checkpoint stores what a daemon would have at this moment: a state and a FULL.
func (r *recorded) checkpoint(ctx context.Context, dir string) (err error) {
	now := time.Now().UTC()
	s := checkpoint.NewState(checkpoint.NewKey(r.agent, "", session, ""))
	s.Transcript = r.path
	t := r.open()
	if _, err := recovery.CatchUp(ctx, s, t, checkpoint.ReadOptions{}, now); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}

	store, err := state.Dir{Root: stateOf(dir), FS: vfs.OS{}}.OpenStore()
	if err != nil {
		return err
	}

	c := checkpoint.New(
		s.Clone(), 1, checkpoint.Decision{Take: true, Level: checkpoint.Full, Cause: checkpoint.CauseManual},
		now,
	)

	data, err := c.Encode()
	if err != nil {
		return err
	}
	if err := store.Put(ctx, s.Key, c.Meta(), data); err != nil {
		return err
	}

	taken := c.Taken()
	s.Apply(checkpoint.Event{At: now, Seq: 1, Key: s.Key, Kind: checkpoint.EventCheckpoint, Taken: &taken})
	if len(s.Messages) == 0 || s.Cursor == "" {
		return fmt.Errorf("%s: nothing was read of %s", r.agent, r.path)
	}

	return errors.Join(state.Dir{Root: stateOf(dir), FS: vfs.OS{}}.SaveState(s), store.Close())
}
