package state_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"belay/breaker"
	"belay/checkpoint"
	"belay/checkpoint/storetest"
	"belay/internal/daemon"
	"belay/internal/state"
	"belay/internal/state/check/checktest"
	"belay/internal/state/query"
	"belay/internal/vfs"
	"belay/internal/wire"
)

func TestUnknownStore(t *testing.T) {
	d := state.Dir{Root: t.TempDir(), FS: vfs.OS{}, Store: "sheets"}
	if _, err := d.OpenStore(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("OpenStore = %v, want ErrUnsupported", err)
	}
	if _, _, err := d.States(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("States = %v, want ErrUnsupported", err)
	}
}

// TestAnotherStore: a new store is its own code and one registration. The daemon writes to it, the next daemon and the
// commands read from it, and the check knows what is in it.
func TestAnotherStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) checkpoint.Store { return &memory{} })

	files, m := state.Stores[state.UsualStore], &memory{}
	state.Stores[state.UsualStore] = func(vfs.FS, string) checkpoint.Store { return m }
	t.Cleanup(func() { state.Stores[state.UsualStore] = files })

	root := t.TempDir()
	key := checkpoint.NewKey("tester", "", "11111111-2222-4333-8444-555555555555", "")
	number := uint64(0)
	for range 2 { // the second daemon goes on where the first ended
		withDaemon(t, root, func(c *wire.Conn) {
			ask(t, c, key, "event", wire.Event{Kind: "prompt", Text: "mend the uploader"})
			reply := ask(t, c, key, "checkpoint", nil)
			if reply.Decision == nil || reply.Decision.Number <= number {
				t.Fatalf("checkpoint after %d: %+v", number, reply.Decision)
			}
			number = reply.Decision.Number
		})
	}

	if list, err := m.List(t.Context(), key); err != nil || len(list) == 0 || list[0].Number < number {
		t.Errorf("the store holds %+v (%v), want %d", list, err, number)
	}
	if files, _ := filepath.Glob(filepath.Join(root, "sessions/*/*/*/*")); len(files) > 0 {
		t.Errorf("checkpoints lie beside the store: %v", files)
	}

	shown, err := query.Open(root, nil).Show(t.Context(), state.Name{Session: key.Session}, 0)
	if err != nil || shown.Number < number || len(shown.Damaged) > 0 {
		t.Errorf("show: checkpoint %d, damaged %v, %v; want %d or later", shown.Number, shown.Damaged, err, number)
	}

	checktest.Whole(t, root)

	// The state and the journal are gone: the store alone knows the session.
	d := state.Dir{Root: root, FS: vfs.OS{}}
	if err := errors.Join(os.RemoveAll(d.Journal()), os.RemoveAll(d.Sessions())); err != nil {
		t.Fatal(err)
	}
	if l := d.Load(t.Context(), m, key, 0); l.Err != nil || l.Rounds+len(l.Messages) == 0 || l.LastNumber < number {
		t.Errorf("loaded from the store: %+v, %v", l.State, l.Err)
	}
}

// withDaemon runs a daemon while fn talks to it.
func withDaemon(t *testing.T, root string, fn func(*wire.Conn)) {
	t.Helper()
	ready := make(chan struct{})
	d := daemon.New(daemon.Options{
		StateDir: root, FS: vfs.OS{}, Log: zap.NewNop(), Version: "test",
		Gates:     checkpoint.Gates{SparseTime: time.Hour, SparseRounds: 5, FullTime: time.Hour},
		Retention: checkpoint.Policy{Count: 50, Bytes: 64 << 20, Age: 24 * time.Hour},
		Heartbeat: "@every 30m", Breaker: breaker.Options{Failures: 3, Pause: time.Second, MaxPause: time.Minute},
		SegmentBytes: 1 << 20, MemoryBytes: 1 << 20,
		Mirror: daemon.MirrorOff, Poll: time.Second, PollMax: time.Second, Connections: 10, SessionsPerMinute: 100,
		Ready: func() { close(ready) },
	})

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the daemon ended with: %v", err)
		}
	}()

	select {
	case <-ready:
	case <-time.After(20 * time.Second):
		t.Fatal("the daemon is not ready")
	}

	c, err := wire.Dial(ctx, root, "")
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close() // every reply was read
	fn(c)
}

func ask(t *testing.T, c *wire.Conn, key checkpoint.Key, op string, body any) wire.Reply {
	t.Helper()
	req := wire.Request{Op: op, Agent: key.Agent, Session: key.Session, Workspace: "/proj"}
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req.Body = data
	}

	reply, _, err := c.Do(t.Context(), req, nil)
	if err != nil || !reply.OK {
		t.Fatalf("%s: %+v, %v", op, reply, err)
	}

	return reply
}
