package run

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"belay/checkpoint"
	"belay/internal/host/proc"
	"belay/internal/wire"
)

// Family is the agent's process and its descendants, as far as they were seen: the program that was started is often a
// launcher, and the real agent, which its hooks name, a child of it.
type Family struct {
	head checkpoint.Proc
	look func() []checkpoint.Proc // the head's descendants now

	mu struct {
		sync.Mutex
		seen map[checkpoint.Proc]bool // without names: a program may change its own
	}
}

// mostProcs bounds how many descendants are kept.
const mostProcs = 4096

// NewFamily begins with one process.
func NewFamily(head checkpoint.Proc) *Family {
	f := &Family{head: head, look: func() []checkpoint.Proc { return proc.Descendants(head.PID, mostProcs) }}
	f.mu.seen = map[checkpoint.Proc]bool{nameless(head): true}
	return f
}

func nameless(p checkpoint.Proc) checkpoint.Proc {
	p.Name = ""
	return p
}

// Has says whether p was seen to belong to the family.
func (f *Family) Has(p checkpoint.Proc) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.Start != 0 && f.mu.seen[nameless(p)]
}

// note keeps who descends from the head now.
func (f *Family) note() {
	now := f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range now {
		if len(f.mu.seen) < mostProcs {
			f.mu.seen[nameless(p)] = true
		}
	}
}

// Follow keeps the family up to date until ctx ends. It costs nothing while nothing happens: it listens to the daemon,
// and looks at the processes when an event names a session for the first time, whose agent lives at that moment.
// Without a daemon it tries to connect, less and less often.
func (f *Family) Follow(ctx context.Context, dial func(context.Context) (*wire.Conn, error)) {
	sessions := map[string]bool{}
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 30*time.Second) {
		if c, err := dial(ctx); err == nil {
			if f.listen(ctx, c, sessions) {
				pause = 50 * time.Millisecond
			}
			_ = c.Close() // nothing is owed to it
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// listen reads the daemon's stream to its end; it says whether there was one.
func (f *Family) listen(ctx context.Context, c *wire.Conn, sessions map[string]bool) bool {
	r, _, err := c.Do(ctx, wire.Request{Op: "subscribe"}, nil)
	if err != nil || !r.OK {
		return false
	}

	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends the reading below
	defer stop()
	f.note() // what began before we listened
	for {
		line, err := c.Line()
		if err != nil {
			return true
		}

		var n struct{ Agent, Session, Kind string }
		if json.Unmarshal(line, &n) != nil || n.Session == "" {
			continue
		}
		if name := n.Agent + "/" + n.Session; !sessions[name] || n.Kind == string(checkpoint.EventStart) {
			sessions[name] = true
			f.note()
		}
	}
}
