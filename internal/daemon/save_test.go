package daemon

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/state/check/checktest"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
	"belay/internal/wire"
)

// dying is a daemon's life that ends at an operation on the disk: all fail from then on, as after a kill.
func dying(disk vfs.FS) func(*Daemon) {
	return func(d *Daemon) {
		d.opt.FS = disk
		d.times.stop = time.Nanosecond // nothing is saved on the way out
	}
}

// TestG07KillAtEachStepOfSaving: the daemon ends at each step of saving a checkpoint. The next one goes on where the
// newest whole checkpoint ended: every message is in one checkpoint, none in two.
func TestG07KillAtEachStepOfSaving(t *testing.T) {
	var steps []int // the operations that change something, counted from the request on
	saving := func(k int) (ops []string) {
		dir := tempDir(t)
		disk := vfstest.NewFault(vfstest.Quick{}, -1, nil)
		r := start(t, dir, dying(disk))
		r.rounds("s", 0, 2)
		r.do(eventCheckpoint("s"), nil)
		r.rounds("s", 2, 2)
		before := disk.Count()
		if k >= 0 {
			disk.FailFrom(before+k, syscall.EIO)
		}

		r.do(eventCheckpoint("s"), nil) // what it answers is another test's
		if err := r.stop(); err != nil {
			t.Fatalf("step %d: Run = %v", k, err)
		}

		ops = disk.Ops()[before:]
		checktest.Whole(t, dir)
		r = start(t, dir)
		r.event("s", wire.Event{Kind: "prompt", Text: "and one more"})
		until(t, "all is in a checkpoint", func() bool {
			reply, _ := r.do(eventCheckpoint("s"), nil)
			return reply.Decision != nil && reply.Decision.Code == string(checkpoint.CodeNothingNew)
		})

		once(t, r, k, 9) // prompts and answers
		if err := r.stop(); err != nil {
			t.Errorf("step %d: Run = %v", k, err)
		}
		if t.Failed() {
			t.Fatalf("step %d of %q", k, ops)
		}

		return ops
	}

	renamed := false
	for i, op := range saving(-1) {
		verb, _, _ := strings.Cut(op, " ")
		if slices.Contains([]string{"create", "write", "sync", "rename", "syncdir", "remove", "mkdir"}, verb) {
			steps = append(steps, i)
		}
		renamed = renamed || strings.HasPrefix(op, "rename .000002-full.md")
	}

	if !renamed || len(steps) < 6 {
		t.Fatalf("%d steps, renamed: %v: the checkpoint is not saved on this disk", len(steps), renamed)
	}

	for _, k := range steps {
		saving(k)
	}

	t.Logf("%d steps", len(steps))
}

// once wants the messages 1 to n in the session's checkpoints, each in one.
func once(t *testing.T, r *running, k int, n uint64) {
	t.Helper()
	in := map[uint64]uint64{}
	store := storeOf(t, r.dir)
	key := checkpoint.NewKey("tester", "", "s", "/proj")
	list, err := store.List(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range list {
		data, err := store.Get(t.Context(), key, m.Number)
		if err != nil {
			t.Fatal(err)
		}

		c, err := checkpoint.Decode(data)
		if err != nil {
			t.Fatal(err)
		}

		for _, d := range c.Delta {
			if other, twice := in[d.Num]; twice {
				t.Errorf("step %d: message %d is in %d and in %d", k, d.Num, m.Number, other)
			}
			in[d.Num] = m.Number
		}
	}

	for num := uint64(1); num <= n; num++ {
		if in[num] == 0 {
			t.Errorf("step %d: message %d of %d is in none of the %d checkpoints", k, num, n, len(list))
		}
	}
}
