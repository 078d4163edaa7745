package daemon

import (
	"testing"

	"belay/internal/wire"
)

// A checkpoint that is asked for while the spool is looked at waits for the end of that, and no longer: also when
// nothing was there.
func TestADrainOfNothingHoldsUpNoCheckpoint(t *testing.T) {
	r := start(t, tempDir(t))
	r.l.drain.turn.Lock() // a drain that takes long, as on a busy machine
	r.l.drain.on.Store(true)
	r.rounds("s", 0, 1)
	answer := make(chan wire.Reply, 1)
	go func() { answer <- r.checkpoint("s") }()
	until(t, "the checkpoint is owed", func() bool { return r.session("tester", "s").Owed != "" })
	r.l.drain.turn.Unlock()
	if n, err := r.l.drain.once(t.Context()); n != 0 || err != nil {
		t.Fatalf("drained %d, %v; want nothing there", n, err)
	}
	if got := <-answer; got.Decision == nil || !got.Decision.Take {
		t.Errorf("checkpoint: %+v, want it taken", got)
	}
}
