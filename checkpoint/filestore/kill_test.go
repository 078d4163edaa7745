package filestore_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/internal/audit/audittest"
	"belay/internal/statedir"
	"belay/internal/vfs"
)

// writerDir names, in the environment of a child of this test, the folder in which it writes checkpoints until it is killed.
const writerDir = "BELAY_TEST_WRITER"

var (
	killedKey    = checkpoint.Key{Agent: "agent", Session: "killed"}
	killedPolicy = checkpoint.Policy{Count: 8}
)

// TestT12KillsAtRandomTimes: a process that does nothing but to write checkpoints is killed at random times. Each time the
// store is whole, and what it had said to be written is there. BELAY_KILLS sets how many kills (30; 500 is the long form),
// BELAY_SEED repeats a run.
func TestT12KillsAtRandomTimes(t *testing.T) {
	if root := os.Getenv(writerDir); root != "" {
		writeUntilKilled(t, root)
		return
	}
	kills, seed := 30, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("BELAY_KILLS")); err == nil {
		kills = n
	}
	if n, err := strconv.ParseUint(os.Getenv("BELAY_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d (BELAY_SEED repeats it), %d kills", seed, kills)
	rng := rand.New(rand.NewPCG(seed, 12))
	root := t.TempDir()
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	acked, left := uint64(0), 0
	for i := range kills {
		acked = max(acked, killWriter(t, root, time.Duration(rng.IntN(30_000))*time.Microsecond))
		d := statedir.Dir{Root: root, FS: vfs.OS{}}
		for _, broken := range audittest.Kept(d, killedPolicy) {
			t.Errorf("kill %d: %s", i, broken)
		}
		list, err := filestore.At(d.FS, root).List(t.Context(), killedKey)
		if err != nil || len(list) == 0 && acked > 0 || len(list) > 0 && list[0].Number < acked {
			t.Errorf("kill %d: the newest of %+v (%v) is below %d, which was acknowledged", i, list, err, acked)
		}
		entries, _ := os.ReadDir(d.Session(killedKey) + "/checkpoints")
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), vfs.TempSuffix) {
				left++
			}
		}
		if t.Failed() {
			t.Fatalf("kill %d of seed %d", i, seed)
		}
	}
	t.Logf("%d checkpoints acknowledged, %d kills in the middle of one", acked, left)
	if acked < uint64(kills) {
		t.Errorf("%d checkpoints in %d runs: the test proved nothing", acked, kills)
	}
}

// killWriter runs the writer, kills it a while after its first checkpoint, and gives the last number that it said.
func killWriter(t *testing.T, root string, life time.Duration) (acked uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestT12KillsAtRandomTimes$")
	cmd.Env = append(os.Environ(), writerDir+"="+root)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		n, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			t.Errorf("the writer said %q", lines.Text())
		}
		if acked == 0 {
			time.AfterFunc(life, func() { _ = cmd.Process.Kill() }) // it ends in no other way
		}
		acked = max(acked, n)
	}
	_ = cmd.Wait() // it says that it was killed
	return acked
}

// writeUntilKilled writes a chain of checkpoints as the daemon does, pruning before each, and says each number once it is
// acknowledged.
func writeUntilKilled(t *testing.T, root string) {
	store, err := filestore.Open(vfs.OS{}, root)
	if err != nil {
		t.Fatal(err)
	}
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
		state.Apply(checkpoint.Event{Key: killedKey, Kind: checkpoint.EventPrompt, Text: strings.Repeat("go on ", 500), At: time.Now()})
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
