package daemon

import (
	"runtime"
	"testing"
	"time"

	"belay/internal/wire"
)

// A daemon gives memory back when its last session has left, and not before.
func TestAtRest(t *testing.T) {
	collections := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}

	r := start(t, tempDir(t), func(d *Daemon) { d.times.session.IdleAfter = 20 * time.Millisecond })
	for range 2 {
		before := collections()
		r.event("s", wire.Event{Kind: "prompt", Text: "what now"})
		if got := collections(); got != before {
			t.Errorf("%d forced collections while a session works, want none", got-before)
		}

		until(t, "the session leaves", func() bool { return len(r.l.sessions.Active()) == 0 })
		until(t, "memory is given back", func() bool { return collections() > before })
	}
}
