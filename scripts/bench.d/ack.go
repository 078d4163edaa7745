//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// load is a number of clients with so many events in flight each.
type load struct {
	clients, window int
	early           bool // answered before the record is written
}

func (l load) String() string {
	kept := "kept on disk"
	if l.early {
		kept = "answered early"
	}
	return fmt.Sprintf("%d x %d, %s", l.clients, l.window, kept)
}

// ackRun is a load and what its rounds gave.
type ackRun struct {
	load
	variant
	latency sample // us
}

// ack measures the daemon's replies to events of about 200 bytes, from another process, against round trips in C and
// the bare syncs of one writer.
func (b *bench) ack(ctx context.Context) error {
	dir, env, err := b.folder()
	if err != nil {
		return err
	}

	d, err := b.daemon(ctx, dir, env)
	if err != nil {
		return err
	}

	defer func() { _ = d.stop() }() // all answers were read
	pool, err := dialAll(ctx, d.socket, 64)
	if err != nil {
		return err
	}

	length := time.Duration(b.pick(400, 200)) * time.Millisecond
	runs := map[load]*ackRun{}
	var list []*variant
	for _, early := range []bool{false, true} {
		for _, window := range []int{1, 64} {
			for _, clients := range []int{1, 8, 64} {
				r := &ackRun{load: load{clients, window, early}}
				r.variant = variant{
					name:  r.load.String(),
					round: func(context.Context) (float64, error) { return r.drive(pool[:clients], length) },
				}
				runs[r.load], list = r, append(list, &r.variant)
			}
		}
	}

	sync, err := bareSync(filepath.Join(dir, "bare"), length)
	if err != nil {
		return err
	}

	list = append(list, &sync.variant)
	ping, oneway, stop, err := b.pingPong(ctx)
	if err != nil {
		return err
	}

	defer stop()
	if ping != nil {
		list = append(list, &ping.variant, oneway)
	}

	// each session takes its first checkpoint
	if err := b.compare(ctx, "acknowledgements, warm-up", 1, list); err != nil {
		return err
	}

	for _, v := range list {
		v.got = nil
	}

	for _, r := range runs {
		r.latency = nil
	}

	if err := b.compare(ctx, "acknowledgements", b.pick(5, 3), list); err != nil {
		return err
	}

	b.ackRows(runs, sync, ping, oneway)
	return nil
}

func (b *bench) ackRows(runs map[load]*ackRun, sync, ping *ackRun, oneway *variant) {
	r := &b.report
	r.add("one write and fdatasync", "us", sync.latency)
	r.add("one write and fdatasync, one at a time", "ev/s", sync.got)
	var back, out sample
	if ping != nil {
		back, out = ping.latency, oneway.got
	}

	r.add("C ping-pong, 200 B and 20 B", "us", back)
	r.add("C one way, one write an event", "ev/s", out)
	for _, early := range []bool{false, true} {
		for _, window := range []int{1, 64} {
			for _, clients := range []int{1, 8, 64} {
				l := load{clients, window, early}
				run := runs[l]
				lat := r.add(l.String(), "us", run.latency)
				rate := r.add(l.String(), "ev/s", run.got)
				switch l {
				case load{1, 1, false}:
					lat.over("one fdatasync", sync.latency).most("B1", 2)
				case load{1, 1, true}:
					lat.over("C ping-pong", back).most("B1", 1.5)
				case load{64, 1, false}:
					rate.over("fdatasync one at a time", sync.got).least("B3", 8)
				case load{64, 64, true}:
					rate.over("C one way", out).least("B2", 1.5)
				}
			}
		}
	}
}

// peer is one client: a connection with a session of its own.
type peer struct {
	c     net.Conn
	r     *bufio.Reader
	name  string
	sent  int
	turn  int
	line  []byte
	times []time.Time // when the events in flight were sent
}

func dialAll(ctx context.Context, socket string, n int) ([]*peer, error) {
	var list []*peer
	for i := range n {
		c, err := dialUntil(ctx, socket, 5*time.Second)
		if err != nil {
			return nil, err
		}

		list = append(
			list,
			&peer{c: c, r: bufio.NewReaderSize(c, 64<<10), name: fmt.Sprintf("3f0c2a9e-2f7d-4c7e-9a11-%012d", i)},
		)
	}

	return list, nil
}

// drive sends for so long and gives the events a second.
func (r *ackRun) drive(peers []*peer, length time.Duration) (float64, error) {
	var wg sync.WaitGroup
	took, errs := make([]sample, len(peers)), make([]error, len(peers))
	start := time.Now()
	for i, p := range peers {
		wg.Go(func() { took[i], errs[i] = p.talk(r.window, r.early, start.Add(length)) })
	}

	wg.Wait()
	span, n := time.Since(start), 0
	for _, t := range took {
		n += len(t)
		r.latency.add(t...)
	}

	return float64(n) / span.Seconds(), errors.Join(errs...)
}

// talk keeps the window full until the end, and gives the time to each reply in us.
func (p *peer) talk(window int, early bool, end time.Time) (took sample, err error) {
	if err := p.c.SetDeadline(end.Add(20 * time.Second)); err != nil {
		return nil, err
	}
	for room := window; ; {
		if time.Now().Before(end) {
			if err := p.send(room, early); err != nil {
				return nil, err
			}
		}

		if len(p.times) == 0 {
			return took, nil
		}

		for room = 0; room == 0 || room < len(p.times) && p.whole(); room++ {
			line, err := p.r.ReadSlice('\n')
			if err != nil {
				return nil, err
			}
			if !bytes.HasPrefix(line, []byte(`{"ok":true,"seq":`)) {
				return nil, fmt.Errorf("answer: %s", line)
			}

			took = append(took, us(time.Since(p.times[room])))
		}

		p.times = append(p.times[:0], p.times[room:]...)
	}
}

// whole says whether a whole reply lies in the buffer.
func (p *peer) whole() bool {
	have, err := p.r.Peek(p.r.Buffered())
	return err == nil && bytes.IndexByte(have, '\n') >= 0
}

// send writes so many events at once.
func (p *peer) send(n int, early bool) error {
	p.line = p.line[:0]
	for range n {
		p.event(early)
	}

	now := time.Now()
	for range n {
		p.times = append(p.times, now)
	}

	_, err := p.c.Write(p.line)
	return err
}

// event adds the next of a session's events: turns of a prompt, three tool calls and a stop, in lines of about 200
// bytes.
func (p *peer) event(early bool) {
	start := len(p.line)
	add := func(words ...string) {
		for _, w := range words {
			p.line = append(p.line, w...)
		}
	}

	add(`{"v":1,"op":"event","agent":"bench","session":"`, p.name, `"`)
	if early {
		add(`,"early":true`)
	}

	n := strconv.Itoa(p.sent / 2)
	switch step := p.sent % 8; step {
	case 0:
		p.turn++
		add(`,"body":{"kind":"prompt","turn":"t`, strconv.Itoa(p.turn), `","text":"prompt `, strconv.Itoa(p.turn))
	case 7:
		add(`,"body":{"kind":"stop","turn":"t`, strconv.Itoa(p.turn), `","text":"answer `, strconv.Itoa(p.turn))
	case 1, 3, 5:
		n = strconv.Itoa(p.sent)
		add(`,"body":{"kind":"tool-start","call":"c`, n, `","name":"Bash","input":"go test ./`, n)
	default:
		add(`,"body":{"kind":"tool-end","call":"c`, strconv.Itoa(p.sent-1), `","name":"Bash","output":"ok `, n)
	}

	if room := 200 - 3 - (len(p.line) - start); room > 0 {
		add(strings.Repeat("x", room))
	}

	add("\"}}\n")
	p.sent++
}

// bareSync appends 200 bytes and syncs, again and again: the floor of what is kept on disk one at a time.
func bareSync(path string, length time.Duration) (*ackRun, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}

	r := &ackRun{}
	line := bytes.Repeat([]byte("x"), 200)
	r.variant = variant{name: "bare fdatasync", round: func(context.Context) (float64, error) {
		start, n := time.Now(), 0
		for time.Since(start) < length {
			one := time.Now()
			if _, err := f.Write(line); err != nil {
				return 0, err
			}
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				return 0, err
			}

			r.latency.add(us(time.Since(one)))
			n++
		}

		return float64(n) / time.Since(start).Seconds(), nil
	}}

	return r, nil
}

// pingPong prepares the yardsticks in C; nil without a compiler.
func (b *bench) pingPong(ctx context.Context) (ping *ackRun, oneway *variant, stop func(), err error) {
	if b.noC != "" {
		return nil, nil, func() {}, nil
	}

	dir, env, err := b.folder()
	if err != nil {
		return nil, nil, nil, err
	}

	s, err := b.serve(ctx, dir, env, b.program("serve"), socketOf(dir))
	if err != nil {
		return nil, nil, nil, err
	}

	ping = &ackRun{}
	ping.variant = variant{name: "C ping-pong", round: func(ctx context.Context) (float64, error) {
		out, err := exec.CommandContext(ctx, b.program("pingpong"), s.socket, "5000").Output()
		for word := range strings.FieldsSeq(string(out)) {
			ns, perr := strconv.ParseFloat(word, 64)
			err = errors.Join(err, perr)
			ping.latency.add(ns / 1e3)
		}
		return 0, err
	}}

	const events = 100_000
	oneway = &variant{name: "C one way", round: func(ctx context.Context) (float64, error) {
		out, err := exec.CommandContext(ctx, b.program("oneway"), strconv.Itoa(events)).Output()
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		return events / ns * 1e9, err
	}}

	return ping, oneway, func() { _ = s.stop() }, nil // only its answers count
}
