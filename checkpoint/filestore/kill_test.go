package filestore_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/internal/state"
	"belay/internal/state/check/checktest"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

var (
	killedKey    = checkpoint.Key{Agent: "agent", Session: "killed"}
	killedPolicy = checkpoint.Policy{Count: 8}
)

// TestT12KillsAtRandomTimes: a process that does nothing but to write checkpoints is killed at random times. Each time
// the store is whole, and what it had said to be written is there. BELAY_KILLS sets how many kills (30; 500 is the long
// form), BELAY_SEED repeats a run.
func TestT12KillsAtRandomTimes(t *testing.T) {
	if root := vfstest.Victim(); root != "" {
		writeUntilKilled(t, root)
		return
	}

	kills := vfstest.NewKills(t, 30)
	root := t.TempDir()
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}

	acked, left := uint64(0), 0
	kills.Each(func(i int) {
		for _, line := range kills.Kill(root, 30*time.Millisecond) {
			n, err := strconv.ParseUint(line, 10, 64)
			if err != nil {
				t.Errorf("the writer said %q", line)
			}
			acked = max(acked, n)
		}

		d := state.Dir{Root: root, FS: vfs.OS{}}
		for _, broken := range checktest.Kept(d, killedPolicy) {
			t.Errorf("kill %d: %s", i, broken)
		}

		list, err := filestore.Open(d.FS, root).List(t.Context(), killedKey)
		if err != nil || len(list) == 0 && acked > 0 || len(list) > 0 && list[0].Number < acked {
			t.Errorf("kill %d: the newest of %+v (%v) is below %d, which was acknowledged", i, list, err, acked)
		}

		entries, _ := os.ReadDir(d.Session(killedKey) + "/checkpoints")
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), vfs.TempSuffix) {
				left++
			}
		}
	})

	t.Logf("%d checkpoints acknowledged, %d kills in the middle of one", acked, left)
	if acked < uint64(kills.N) {
		t.Errorf("%d checkpoints in %d runs: the test proved nothing", acked, kills.N)
	}
}

// writeUntilKilled writes a chain of checkpoints as the daemon does, pruning before each, and says each number once it
// is acknowledged.
func writeUntilKilled(t *testing.T, root string) {
	store := filestore.Open(vfs.OS{}, root)
	list, err := store.List(t.Context(), killedKey)
	if err != nil {
		t.Fatal(err)
	}

	state := checkpoint.NewState(killedKey)
	if len(list) > 0 {
		data, err := store.Get(t.Context(), killedKey, list[0].Number)
		if err != nil {
			t.Fatal(err)
		}

		c, err := checkpoint.Decode(data)
		if err != nil {
			t.Fatal(err)
		}

		state = c.Restore()
	}

	for {
		state.Apply(
			checkpoint.Event{
				Key:  killedKey,
				Kind: checkpoint.EventPrompt,
				Text: strings.Repeat("go on ", 500),
				At:   time.Now(),
			},
		)

		level := checkpoint.Full
		if state.LastNumber%3 != 0 {
			level = checkpoint.Sparse
		}

		c := checkpoint.New(state.Clone(), state.LastNumber+1, checkpoint.Decision{Level: level}, time.Now())
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}

		list, err := store.List(t.Context(), killedKey)
		if err != nil {
			t.Fatal(err)
		}

		for _, n := range checkpoint.Prune(list, killedPolicy.Room(int64(len(data))), time.Now()) {
			if err := store.Delete(t.Context(), killedKey, n); err != nil {
				t.Fatal(err)
			}
		}

		if err := store.Put(t.Context(), killedKey, c.Meta(), data); err != nil {
			t.Fatal(err)
		}

		taken := c.Taken()
		state.Apply(checkpoint.Event{Key: killedKey, Kind: checkpoint.EventCheckpoint, At: time.Now(), Taken: &taken})
		fmt.Println(c.Number)
	}
}
