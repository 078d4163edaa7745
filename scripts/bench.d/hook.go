//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"belay/internal/state"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// stopEvent is what an agent writes to its hook at the end of a turn: 235 bytes, as in the goals' own measurement.
const stopEvent = `{"session_id":"3f0c2a9e-2f7d-4c7e-9a11-1b1f6f3a2c44","transcript_path":"","cwd":"/proj/demo","permission_mode":"default",` +
	`"hook_event_name":"Stop","stop_hook_active":false,"last_assistant_message":"The parser passes all its tests now."}`

// hook measures what an agent waits for. The floor talks to a yardstick that keeps nothing; so does the hook in its
// first row. In the other rows belay's daemon answers after the event is on the disk.
func (b *bench) hook(ctx context.Context) error {
	dirY, envY, err := b.folder()
	if err != nil {
		return err
	}

	dirB, envB, err := b.folder()
	if err != nil {
		return err
	}

	yardstick := []string{b.program("netonly"), socketOf(dirY)}
	if b.noC == "" {
		yardstick[0] = b.program("serve")
	}

	y, err := b.serve(ctx, dirY, envY, yardstick...)
	if err != nil {
		return err
	}

	defer func() { _ = y.stop() }() // only its answers count
	d, err := b.daemon(ctx, dirB, envB)
	if err != nil {
		return err
	}

	defer func() { _ = d.stop() }() // as above
	call := []string{b.program("belay-hook"), "claude-code", "Stop"}
	line := `{"v":1,"op":"event","agent":"bench","session":"floor","body":{"kind":"stop","text":"The parser passes all its tests now.","turn":"t"}}`
	var costs []cost
	floor := &variant{name: "C floor"}
	floorB := &variant{name: "C floor, belay daemon"}
	empty := b.process("empty Go program", dirY, "", envY, nil, b.program("empty"))
	client := b.process("belay-hook, yardstick", dirY, stopEvent, envY, &costs, call...)
	durable := b.process("belay-hook, belay daemon", dirB, stopEvent, envB, nil, call...)
	list := []*variant{empty, client, durable}
	if b.noC == "" {
		floor = b.process(floor.name, dirY, "", nil, nil, b.program("floor"), y.socket)
		floorB = b.process(floorB.name, dirB, "", nil, nil, b.program("floor"), d.socket, line)
		list = append(list, floor, floorB)
	}

	if err := b.compare(ctx, "hook client", b.pick(300, 60), list); err != nil {
		return err
	}

	r := &b.report
	r.add("C floor (yardstick server)", "ms", floor.got)
	r.add("C floor, belay daemon, kept on disk", "ms", floorB.got).over("C floor", floor.got)
	r.add("empty Go program", "ms", empty.got).over("C floor", floor.got)
	r.add("belay-hook, yardstick server", "ms", client.got).over("C floor", floor.got).most("A1", 3)
	r.add("belay-hook, yardstick server", "ms", client.got).over("empty Go", empty.got).most("A1", 1.2)
	r.add(
		"belay-hook, belay daemon, kept on disk",
		"ms",
		durable.got,
	).over(
		"C floor, belay daemon",
		floorB.got,
	).most(
		"A1", 3,
	)

	// the disk's sync is in it
	r.add("belay-hook, belay daemon, kept on disk", "ms", durable.got).over("C floor", floor.got)
	var faults sample
	for _, c := range costs {
		faults.add(c.faults)
	}

	// The fewest count: threads that Go's runtime starts by chance add some.
	r.add("minor faults of belay-hook", "", faults).worth("A3: at most 200, the fewest", faults.at(0) <= 200)
	return b.noDaemon(ctx, dirB, envB)
}

// noDaemon measures a hook that finds no daemon, beside one that finds it. Each starts a daemon in the background,
// which is ended before the next round, and whose folder must then hold the event.
func (b *bench) noDaemon(ctx context.Context, dir string, env []string) error {
	call := []string{b.program("belay-hook"), "claude-code", "Stop"}
	kept := 0
	with := b.process("with daemon", dir, stopEvent, env, nil, call...)
	without := &variant{name: "without daemon", round: func(ctx context.Context) (float64, error) {
		own, env, err := b.folder()
		if err != nil {
			return 0, err
		}

		c, err := b.launch.run(own, stopEvent, env, call...)
		if err != nil {
			return 0, err
		}

		n, err := endStarted(ctx, own)
		kept += n
		return ms(c.took), errors.Join(err, os.RemoveAll(own))
	}}

	rounds := b.pick(40, 15)
	if err := b.compare(ctx, "hook client without a daemon", rounds, []*variant{with, without}); err != nil {
		return err
	}

	r := &b.report
	r.add("belay-hook, daemon runs", "ms", with.got)
	r.add("belay-hook, no daemon (starts one)", "ms", without.got).over("daemon runs", with.got).most("A4", 1.15)
	r.add("events lost without a daemon", "", sample{float64(rounds - kept)}).worth("A4: none", kept == rounds)
	return nil
}

// endStarted waits for the daemon that a hook started, ends it, and counts the sessions that its folder then knows.
func endStarted(ctx context.Context, dir string) (sessions int, err error) {
	c, err := dialUntil(ctx, socketOf(dir), 10*time.Second)
	if err != nil {
		return 0, err
	}

	answer, err := hello(c)
	_ = c.Close() // the answer came
	var r wire.Reply
	var body struct{ PID int }
	if err = errors.Join(err, json.Unmarshal([]byte(answer), &r)); err != nil {
		return 0, err
	}
	if err = json.Unmarshal(r.Body, &body); err != nil || body.PID <= 1 {
		return 0, fmt.Errorf("hello names process %d: %w", body.PID, err)
	}

	known := func() (int, error) {
		states, _, err := state.Dir{Root: stateOf(dir), FS: vfs.OS{}}.States(ctx, nil)
		return len(states), err
	}

	// its intake hands the event over
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && sessions == 0; {
		if sessions, err = known(); err != nil {
			return 0, err
		}
		time.Sleep(5 * time.Millisecond)
	}

	if err := syscall.Kill(body.PID, syscall.SIGTERM); err != nil {
		return 0, err
	}

	for end := time.Now().Add(10 * time.Second); !ended(body.PID); {
		if time.Now().After(end) {
			return 0, fmt.Errorf("daemon %d does not end", body.PID)
		}
		time.Sleep(time.Millisecond)
	}

	return known()
}

// ended says whether a process that is no child of ours is gone, or a corpse that nobody collects.
func ended(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return syscall.Kill(pid, 0) != nil
	}

	var id int
	var name, state string
	_, err = fmt.Sscan(string(data), &id, &name, &state)
	return err == nil && state == "Z"
}
