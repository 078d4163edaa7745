package vfstest

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// VictimIn names, in the environment of a child of a test, the folder in which it works until it is killed.
const VictimIn = "BELAY_TEST_VICTIM"

// Kills is the one form of a kill test: a process that does nothing but to write is killed at random moments, and each
// time what it left is looked at. The process is the test's own program, started again with the same test.
type Kills struct {
	// N is how many kills there are: BELAY_KILLS, or the test's own number.
	N int
	*rand.Rand
	t    testing.TB
	seed uint64
}

// Victim gives the folder in which this process has to work until it is killed; empty in the test itself.
func Victim() string { return os.Getenv(VictimIn) }

// NewKills begins a kill test. The seed is logged; BELAY_SEED repeats a run.
func NewKills(t testing.TB, usual int) *Kills {
	t.Helper()
	k := &Kills{N: usual, t: t, seed: uint64(time.Now().UnixNano())}
	if n, err := strconv.Atoi(os.Getenv("BELAY_KILLS")); err == nil {
		k.N = n
	}
	if n, err := strconv.ParseUint(os.Getenv("BELAY_SEED"), 10, 64); err == nil {
		k.seed = n
	}

	t.Logf("seed %d (BELAY_SEED repeats it), %d kills", k.seed, k.N)
	k.Rand = rand.New(rand.NewPCG(k.seed, 12))
	return k
}

// Each calls fn once for each kill, and stops after the first that fails the test.
func (k *Kills) Each(fn func(i int)) {
	k.t.Helper()
	for i := range k.N {
		if fn(i); k.t.Failed() {
			k.t.Fatalf("kill %d of seed %d", i, k.seed)
		}
	}
}

// Moment is a random time below most.
func (k *Kills) Moment(most time.Duration) time.Duration { return time.Duration(k.Int64N(int64(most))) }

// Kill starts the victim in a folder and kills it a random while, below most, after it said its first line. It gives
// the whole lines that the victim said: each is something that it had done.
func (k *Kills) Kill(root string, most time.Duration) (said []string) {
	k.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+k.t.Name()+"$")
	cmd.Env = append(os.Environ(), VictimIn+"="+root)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}

	life := k.Moment(most)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // what was cut off was not said
		}
		if said == nil {
			time.AfterFunc(life, func() { _ = cmd.Process.Kill() }) // it ends in no other way
		}

		said = append(said, line[:len(line)-1])
	}

	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() >= 0 {
		k.t.Errorf("the victim ended by itself: %v, it said %q", err, said[max(len(said)-20, 0):])
	}

	return said
}
