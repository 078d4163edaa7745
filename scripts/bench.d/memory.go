//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"belay/internal/wire"
)

// memory measures private memory and idle wake-ups.
func (b *bench) memory(ctx context.Context) error {
	yard, err := b.atRest(ctx, b.program("netonly"))
	if err != nil {
		return err
	}

	var c sample
	if b.noC == "" {
		if c, err = b.atRest(ctx, b.program("serve")); err != nil {
			return err
		}
	}

	dir, env, err := b.folder()
	if err != nil {
		return err
	}

	d, err := b.daemon(ctx, dir, env)
	if err != nil {
		return err
	}

	defer func() { _ = d.stop() }() // all was measured
	pid := d.cmd.Process.Pid
	idle := b.pick(20, 5)
	b.show.begin("idle", 2*idle)
	time.Sleep(2 * time.Second) // what a start leaves to do is over
	rest, heap := sample{private(pid)}, sample{anonymous(pid)}
	wakes, err := b.wakes(ctx, pid, idle)
	if err != nil {
		return err
	}

	r := &b.report
	r.add("private memory, C accept loop", "MB", c)
	r.add("private memory, Go net only", "MB", yard)
	r.add("private memory, belay daemon, no session", "MB", rest).over("Go net only", yard).most("E1", 4)
	r.add("of it without the program's file", "MB", heap)
	r.add("wake-ups in a second, no session", "", wakes).worth("E1: none", wakes.median() == 0)
	if err := b.oneSession(ctx, d, dir, yard, idle); err != nil {
		return err
	}

	return b.manySessions(ctx, d, idle)
}

// atRest is the private memory of a yardstick daemon that answered once.
func (b *bench) atRest(ctx context.Context, program string) (sample, error) {
	dir, env, err := b.folder()
	if err != nil {
		return nil, err
	}

	s, err := b.serve(ctx, dir, env, program, socketOf(dir))
	if err != nil {
		return nil, err
	}

	time.Sleep(200 * time.Millisecond) // as for belay: what a start leaves goes away
	own := private(s.cmd.Process.Pid)
	return sample{own}, s.stop()
}

// oneSession plays one session with a transcript of 10 MB and lets it rest.
func (b *bench) oneSession(ctx context.Context, d *server, dir string, yard sample, idle int) error {
	path := filepath.Join(dir, session+".jsonl")
	f := forms()[0]
	n, err := f.grow(path, 1, 10<<20)
	if err != nil {
		return err
	}

	for i, event := range []string{"SessionStart", "UserPromptSubmit", "Stop"} {
		if _, err := f.grow(path, n+i, sizeOf(path)+1); err != nil {
			return err
		}

		payload := fmt.Sprintf(
			`{"session_id":"%s","transcript_path":"%s","cwd":"%s","hook_event_name":"%s","source":"startup","prompt":"go on","last_assistant_message":"done"}`,
			session, path, dir, event,
		)

		if _, err := ask(
			ctx, d.socket, wire.Request{Op: "hook", Agent: f.agent, Event: event}, []byte(payload),
		); err != nil {
			return err
		}
	}

	time.Sleep(3 * time.Second) // the mirror fills, the checkpoint is written
	pid := d.cmd.Process.Pid
	r := &b.report
	r.add("private memory, one active session, 10 MB mirrored", "MB", sample{private(pid)}).over("Go net only", yard)
	r.add("peak RSS until then", "MB", sample{field(fmt.Sprintf("/proc/%d/status", pid), "VmHWM") / 1024})
	wakes, err := b.wakes(ctx, pid, idle)
	if err != nil {
		return err
	}

	r.add("wake-ups in a second, one session used just now", "", wakes)
	return nil
}

// manySessions touches 10,000 sessions once.
func (b *bench) manySessions(ctx context.Context, d *server, idle int) error {
	const count = 10_000
	pid := d.cmd.Process.Pid
	before := private(pid)
	b.show.begin("10,000 sessions", count/100)
	c, err := net.Dial("unix", d.socket)
	if err != nil {
		return err
	}

	defer c.Close()
	in := bufio.NewReader(c)
	start := time.Now()
	for i := range count {
		line := fmt.Sprintf(
			`{"op":"event","agent":"bench","session":"3f0c2a9e-2f7d-4c7e-9a11-%012d","workspace":"/proj/demo","body":{"kind":"prompt","text":"prompt of session %d: go on with the parser"}}`+"\n",
			i+1000, i,
		)

		if _, err := c.Write([]byte(line)); err != nil {
			return err
		}
		if i%100 != 99 { // a hundred in flight
			continue
		}

		for range 100 {
			answer, err := in.ReadString('\n')
			if err != nil || !strings.HasPrefix(answer, `{"ok":true`) {
				return fmt.Errorf("session %d: %s %w", i, answer, err)
			}
		}

		b.show.step()
	}

	took := time.Since(start)
	time.Sleep(3 * time.Second) // their files are written
	after := private(pid)
	r := &b.report
	r.add("10,000 new sessions, one event each", "ev/s", sample{count / took.Seconds()})
	r.add("private memory, 10,000 sessions, all used just now", "MB", sample{after})
	each := (after - before) * 1024 / count
	r.add("for each session used just now", "KB", sample{each}) // idle ones (E2) are on disk alone after ten minutes
	wakes, err := b.wakes(ctx, pid, idle)
	if err != nil {
		return err
	}

	r.add("wake-ups in a second, 10,000 sessions", "", wakes)
	return nil
}

// wakes counts how often a process was woken in each of some seconds, all threads together, while nobody asked it
// anything.
func (b *bench) wakes(ctx context.Context, pid, seconds int) (got sample, err error) {
	before, err := switches(pid)
	for range seconds {
		select {
		case <-time.After(time.Second):
			b.show.step()
		case <-ctx.Done():
			return nil, ctx.Err()
		}

		after, aerr := switches(pid)
		got.add(float64(after - before))
		before, err = after, errors.Join(err, aerr)
	}

	return got, err
}

func switches(pid int) (sum int64, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		return 0, errors.Join(err, fmt.Errorf("no tasks of process %d", pid))
	}

	for _, t := range tasks {
		sum += int64(field(t, "voluntary_ctxt_switches"))
	}

	return sum, nil
}

// private is how much memory of a process no other process shares, in MB. Pages of the program's file count while this
// process alone runs it, although the system can drop them at any time: anonymous leaves them out.
func private(pid int) float64 {
	rollup := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	return (field(rollup, "Private_Clean") + field(rollup, "Private_Dirty")) / 1024
}

func anonymous(pid int) float64 {
	return field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Anonymous") / 1024
}

func field(path, name string) float64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0 // a thread that ended meanwhile
	}

	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			x, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				return 0
			}
			return x
		}
	}

	return 0
}

// started is a program that listens, and when it did what after its spawn.
type started struct {
	words  []string
	answer sample
}

// start measures from the spawn until a client can connect, and until it has its first answer.
func (b *bench) start(ctx context.Context) error {
	programs := map[string]*started{
		"belay":       {words: []string{b.program("belay"), "daemon"}},
		"Go net only": {words: []string{b.program("netonly")}},
	}

	if b.noC == "" {
		programs["C"] = &started{words: []string{b.program("serve")}}
	}

	var list []*variant
	for name, p := range programs {
		dir, env, err := b.folder()
		if err != nil {
			return err
		}
		if len(p.words) == 1 {
			p.words = append(p.words, socketOf(dir))
		}

		list = append(list, &variant{name: name, round: func(ctx context.Context) (float64, error) {
			begin := time.Now()
			s, err := b.spawn(dir, env, p.words...)
			if err != nil {
				return 0, err
			}

			c, err := dialUntil(ctx, s.socket, 10*time.Second)
			open := ms(time.Since(begin))
			if err == nil {
				_, err = hello(c)
				p.answer.add(ms(time.Since(begin)))
				_ = c.Close() // the answer came
			}

			return open, errors.Join(err, s.stop())
		}})
	}

	if err := b.compare(ctx, "start to accept", b.pick(40, 15), list); err != nil {
		return err
	}

	opened := map[string]sample{}
	for _, v := range list {
		opened[v.name] = v.got
	}

	var c sample
	if b.noC == "" {
		c = programs["C"].answer
	}

	r := &b.report
	for _, name := range []string{"C", "Go net only", "belay"} {
		if programs[name] == nil {
			continue
		}

		r.add(name+", spawn to connect", "ms", opened[name]).over("C", opened["C"])
		w := r.add(name+", spawn to first answer", "ms", programs[name].answer).over("C", c)
		if name == "belay" {
			w.most("F1", 5)
		}
	}

	return nil
}
