package socket

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"belay/internal/wire"
)

// connLimit caps the open connections. When it is full, a new one replaces the one that has been idle longest.
type connLimit struct {
	most   int
	spared time.Duration // how long a connection without traffic is safe from eviction: its bytes are on their way
	dawdle time.Duration // how long a request may trickle in while others want the slot
	mu     struct {
		sync.Mutex
		all map[*conn]struct{}
	}
}

const (
	// spared is how long a new connection is safe from eviction; hooks send at once.
	spared = wire.EventDeadline
	// dawdle is longer than any client of ours needs for a request.
	dawdle = wire.BriefDeadline
)

func newConnLimit(most int, spared, dawdle time.Duration) *connLimit {
	l := &connLimit{most: most, spared: spared, dawdle: dawdle}
	l.mu.all = map[*conn]struct{}{}
	return l
}

// admit gives a connection a slot, if need be that of another, which it returns for the caller to evict. ok is false
// when all others are at work or wait for the daemon.
func (l *connLimit) admit(c *conn, now time.Duration) (other *conn, ok bool) {
	c.move(now)
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.mu.all) >= l.most {
		if other = l.idlest(now); other == nil {
			return nil, false
		}
		delete(l.mu.all, other)
	}

	l.mu.all[c] = struct{}{}
	return other, true
}

// idlest picks the connection to drop: the longest idle, or else the one with the oldest unfinished request.
func (l *connLimit) idlest(now time.Duration) (idlest *conn) {
	var slowest *conn
	for c := range l.mu.all {
		if !c.waits() {
			continue
		}
		if idlest == nil || c.moved.Load() < idlest.moved.Load() {
			idlest = c
		}
		if begun := c.begun.Load(); begun != 0 && (slowest == nil || begun < slowest.begun.Load()) {
			slowest = c
		}
	}

	switch {
	case idlest != nil && now-time.Duration(idlest.moved.Load()) >= l.spared:
		return idlest
	case slowest != nil && now-time.Duration(slowest.begun.Load()) >= l.dawdle:
		return slowest
	}

	return nil
}

func (l *connLimit) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.all, c) // nothing, when another took its slot
}

// conn is one connection.
type conn struct {
	*net.UnixConn
	traffic
	since time.Time          // the moments of its traffic are times since then
	hang  context.CancelFunc // ends the conversation, whatever is on its way
	heard chan struct{}      // closed when all that it sent was taken
	out   atomic.Bool        // it was evicted
}

// evict closes a connection to make room. Requests already received are still answered, unless the client has stopped
// reading.
func (c *conn) evict() {
	c.out.Store(true)
	_ = c.CloseRead() // it may have ended by itself
	if c.giving.Load() > 0 {
		c.hang()
	}
}

func (c *conn) now() time.Duration { return time.Since(c.since) }

// Read reads from the connection, and notes that something came.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.UnixConn.Read(b)
	if n > 0 {
		c.move(c.now())
	}
	return n, err
}

// onePiece is small enough that a client which reads steadily is seen to do so.
const onePiece = 64 << 10

// Write writes to the connection, and notes whenever something went.
func (c *conn) Write(b []byte) (n int, err error) {
	c.give()
	defer c.given()
	for err == nil && n < len(b) {
		c.move(c.now()) // also before the first: up to now the client waited for us
		var m int
		m, err = c.UnixConn.Write(b[n:min(n+onePiece, len(b))])
		n += m
	}

	return n, err
}

// traffic is what goes over a connection. Its reader and its writer note it; connLimit looks at it.
type traffic struct {
	moved  atomic.Int64 // when a byte last went, either way
	begun  atomic.Int64 // when the request that is still coming began; 0 when there is none
	open   atomic.Int32 // requests that have begun and are not answered yet
	giving atomic.Int32 // something is being written, or a stream is open: it is the client that has to read
}

func (t *traffic) move(now time.Duration) { t.moved.Store(int64(now)) }

// begin, whole and end are the life of a request: its first byte, its last, and its answer's last.
func (t *traffic) begin(now time.Duration) {
	t.open.Add(1)
	t.begun.Store(int64(now))
}

func (t *traffic) whole() { t.begun.Store(0) }

func (t *traffic) end() { t.open.Add(-1) }

// give and given are the life of what is written.
func (t *traffic) give() { t.giving.Add(1) }

func (t *traffic) given() { t.giving.Add(-1) }

// waits says that the daemon waits for the client: the client is idle, in the middle of a request, or does not read.
// Else the client waits for the daemon, and is right to be silent.
func (t *traffic) waits() bool {
	coming := int32(0)
	if t.begun.Load() != 0 {
		coming = 1
	}
	return t.open.Load() <= coming || t.giving.Load() > 0
}
