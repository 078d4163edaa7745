package daemon

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"belay/internal/wire"
)

// crowd is the connections that have a place. One more than there are places for takes that of the one that has stood still
// longest.
type crowd struct {
	most   int
	spared time.Duration // how long one is left alone through which nothing goes: it is on its way
	dawdle time.Duration // how long a request may come drop by drop while others want the place
	mu     struct {
		sync.Mutex
		all map[*talker]struct{}
	}
}

// talker is one connection. Its reader and its writer write the numbers; whoever wants its place reads them.
type talker struct {
	*net.UnixConn
	since  time.Time          // the moments below are times since then
	hang   context.CancelFunc // ends the conversation, whatever is on its way
	heard  chan struct{}      // closed when all that it sent was taken
	moved  atomic.Int64       // when a byte last went, either way
	begun  atomic.Int64       // when the request began to come that is not whole yet; 0 when there is none
	open   atomic.Int32       // requests that have begun and are not answered yet
	giving atomic.Int32       // something is being written, or a stream is open: it is the client that has to read
	out    atomic.Bool        // its place is another's now
}

const (
	// spared is for a connection's place: a hook speaks as soon as it is connected.
	spared = wire.EventDeadline
	// dawdle is for one: nobody of ours needs so long for a request.
	dawdle = wire.BriefDeadline
)

func newCrowd(most int, spared, dawdle time.Duration) *crowd {
	c := &crowd{most: most, spared: spared, dawdle: dawdle}
	c.mu.all = map[*talker]struct{}{}
	return c
}

// admit takes a connection in, if need be in the place of another, which it gives back: that one is to be put out. ok is
// false when all others are at work or wait for the daemon.
func (c *crowd) admit(t *talker, now time.Duration) (other *talker, ok bool) {
	t.moved.Store(int64(now))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.all) >= c.most {
		if other = c.stillest(now); other == nil {
			return nil, false
		}
		delete(c.mu.all, other)
	}
	c.mu.all[t] = struct{}{}
	return other, true
}

// stillest is the one that has stood still longest; where all move, the one whose request has been coming for longest.
func (c *crowd) stillest(now time.Duration) (found *talker) {
	var slowest *talker
	for t := range c.mu.all {
		if !t.waits() {
			continue
		}
		if found == nil || t.moved.Load() < found.moved.Load() {
			found = t
		}
		if begun := t.begun.Load(); begun != 0 && (slowest == nil || begun < slowest.begun.Load()) {
			slowest = t
		}
	}
	switch {
	case found != nil && now-time.Duration(found.moved.Load()) >= c.spared:
		return found
	case slowest != nil && now-time.Duration(slowest.begun.Load()) >= c.dawdle:
		return slowest
	}
	return nil
}

func (c *crowd) leave(t *talker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.all, t) // nothing, when another took its place
}

// waits says that the daemon waits for the client: it is idle, in the middle of a request, or does not read. Else the client
// waits for the daemon, and is right to be silent.
func (t *talker) waits() bool {
	coming := int32(0)
	if t.begun.Load() != 0 {
		coming = 1
	}
	return t.open.Load() <= coming || t.giving.Load() > 0
}

// putOut ends a connection for the good of another. What it has sent by now is still read and answered, unless it is the
// answers that it does not read.
func (t *talker) putOut() {
	t.out.Store(true)
	_ = t.CloseRead() // it may have ended by itself
	if t.giving.Load() > 0 {
		t.hang()
	}
}

// begin, whole and end are the life of a request: its first byte, its last, and its answer's last.
func (t *talker) begin() {
	t.open.Add(1)
	t.begun.Store(int64(t.now()))
}

func (t *talker) whole() { t.begun.Store(0) }

func (t *talker) end() { t.open.Add(-1) }

func (t *talker) now() time.Duration { return time.Since(t.since) }

// Read is the connection's, and notes that something came.
func (t *talker) Read(b []byte) (int, error) {
	n, err := t.UnixConn.Read(b)
	if n > 0 {
		t.moved.Store(int64(t.now()))
	}
	return n, err
}

// onePiece is small enough for a client that reads steadily to be seen doing so.
const onePiece = 64 << 10

// Write is the connection's, and notes whenever something went.
func (t *talker) Write(b []byte) (n int, err error) {
	t.giving.Add(1)
	defer t.giving.Add(-1)
	for err == nil && n < len(b) {
		t.moved.Store(int64(t.now())) // also before the first: up to now the client waited for us
		var m int
		m, err = t.UnixConn.Write(b[n:min(n+onePiece, len(b))])
		n += m
	}
	return n, err
}
