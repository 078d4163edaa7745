package daemon

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/internal/wire"
)

// slowList is a store whose lists take as long as somebody wants, but for the first of them.
type slowList struct {
	checkpoint.Store
	hang  atomic.Pointer[chan struct{}]
	lists atomic.Int64
}

func (s *slowList) List(ctx context.Context, key checkpoint.Key) ([]checkpoint.Meta, error) {
	if wait := s.hang.Load(); wait != nil && s.lists.Add(1) > 1 {
		<-*wait
	}
	return s.Store.List(ctx, key)
}

// A store that hangs while sessions wake holds up none of their events, and what it knows is folded in when it answers. Its first
// list is waited for: it may be of what the journal lost.
func TestAStoreThatHangsHoldsUpNoEvent(t *testing.T) {
	store := &slowList{}
	r := start(t, tempDir(t), func(d *Daemon) {
		d.times.idleAfter = 20 * time.Millisecond
		d.openStore = func() (s checkpoint.Store, err error) {
			store.Store, err = filestore.Open(d.opt.FS, d.opt.StateDir)
			return store, err
		}
	})
	r.rounds("s", 0, 2)
	reply, _ := r.do(eventCheckpoint("s"), nil)
	if reply.Decision == nil || reply.Decision.Number != 1 {
		t.Fatalf("the first checkpoint: %+v", reply)
	}
	// A checkpoint of which the journal does not know: the next one's file, as a crash between the two leaves it.
	key := checkpoint.NewKey("tester", "", "s", "/proj")
	until(t, "the session leaves memory", func() bool { return len(r.d.active()) == 0 })
	state, err := r.d.dir.LoadState(key)
	if err != nil {
		t.Fatal(err)
	}
	c := checkpoint.New(state, 2, checkpoint.Decision{Level: checkpoint.Full, Cause: checkpoint.CauseManual}, time.Now())
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), key, c.Meta(), data); err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	store.hang.Store(&hang)
	began := time.Now()
	got := r.event("s", wire.Event{Kind: "prompt", Text: "does it answer"})
	took := time.Since(began)
	store.hang.Store(nil)
	close(hang)
	if got.Kept != wire.KeptDisk || took > 5*time.Second {
		t.Errorf("an event beside a store that hangs: %+v after %s, want it on disk after %s", got, took, 2*r.d.times.glance)
	}
	until(t, "the checkpoint is heard of", func() bool { return r.session("tester", "s").Checkpoint == 2 })
}
