package daemon

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"belay/internal/wire"
)

// crowd is the connections that are open. One more than there is room for takes the place of the idlest.
type crowd struct {
	most int
	mu   struct {
		sync.Mutex
		all map[*talker]struct{}
	}
}

// talker is one connection. Two goroutines write the numbers, its reader and its writer; the one that accepts reads them.
type talker struct {
	*net.UnixConn
	open  atomic.Int32  // requests that have begun and are not answered yet; a stream never ends
	quiet atomic.Int64  // when the last of them ended, in ns since the daemon's start
	heard chan struct{} // closed when all that it sent was taken
}

// spared is how long a connection is left alone that has said nothing: a hook speaks as soon as it is connected.
const spared = wire.EventDeadline

func newCrowd(most int) *crowd {
	c := &crowd{most: most}
	c.mu.all = map[*talker]struct{}{}
	return c
}

// admit takes a connection in, if need be in the place of another, which it gives back: its reading is to be ended. ok is
// false when all others have something in flight.
func (c *crowd) admit(t *talker, now time.Duration) (idlest *talker, ok bool) {
	t.quiet.Store(int64(now))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.all) >= c.most {
		for other := range c.mu.all {
			if other.open.Load() == 0 && (idlest == nil || other.quiet.Load() < idlest.quiet.Load()) {
				idlest = other
			}
		}
		if idlest == nil || now-time.Duration(idlest.quiet.Load()) < spared {
			return nil, false
		}
		delete(c.mu.all, idlest)
	}
	c.mu.all[t] = struct{}{}
	return idlest, true
}

func (c *crowd) leave(t *talker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.all, t) // nothing, when another took its place
}

// begin and end enclose each request and its answer.
func (t *talker) begin() { t.open.Add(1) }

func (t *talker) end(now time.Duration) {
	t.quiet.Store(int64(now)) // first: it is not idle before that is there
	t.open.Add(-1)
}
