// Package socket is the daemon's side of the wire: where the socket lies, who may connect, how a request is read and an
// answer written. It knows requests and answers as bytes in order; what an op means is its Handler's.
//
// It promises:
//   - One daemon listens for a state folder, and only the user's own processes are heard.
//   - Answers come in the order of the requests. Requests are pipelined, and one that takes long delays those behind it
//     on its own connection alone.
//   - Lines, payloads, connections and the time for each request and answer are bounded. When all connections are in
//     use, a new one replaces an idle one, so that no client shuts out the others.
//   - What a client is told about its event is true: its answer waits until the record is where the answer says.
//
// It does not promise that a client gets its answer: one that does not read is given up.
package socket

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay/internal/redact"
	"belay/internal/wire"
)

// Handler answers requests. Its methods may be called from several goroutines.
type Handler interface {
	// Handle starts the answer to a request, which may still be on its way when Handle returns. ctx ends with the
	// connection. Requests of one connection come one at a time, in their order.
	Handle(ctx context.Context, c *Client, req wire.Request, payload []byte) *Answer
	// Stored is the newest record that is on disk.
	Stored() uint64
	// Kept waits until a record is on disk, or known not to be, and says where it is in the wire's words.
	Kept(ctx context.Context, seq uint64) (string, error)
}

// Client is what a connection said about itself.
type Client struct {
	Agent string
}

// Answer is one reply on its way: made by a Handler, written in order by the connection's writer.
type Answer struct {
	Seq    uint64                               // the journal's record that must be safe first; 0 for none
	Finish func(ctx context.Context, a *Answer) // fills in what takes time; runs in the connection's writer
	Reply  wire.Reply
	Body   []byte
	// Written hears whether the client got the bytes. Its context outlives the connection.
	Written func(ctx context.Context, ok bool)
	Stream  <-chan []byte // lines without end, after the reply
}

// Failure is an answer that says what went wrong, and with hint what to do; neither holds a secret.
func Failure(code, message, hint string) *Answer {
	return &Answer{Reply: wire.Reply{Code: code, Message: redact.Text(message), Hint: redact.Text(hint)}}
}

func (a *Answer) tell(ctx context.Context, ok bool) {
	if a.Written != nil {
		a.Written(ctx, ok)
	}
}

// Times bound how long the server waits for others.
type Times struct {
	Ready time.Duration // for the daemon, before a request is refused
	Frame time.Duration // for one request, once it has begun
	Write time.Duration // for one reply to a slow client
}

// Counts are what the server has seen since its start.
type Counts struct {
	BadFrames, CutFrames atomic.Int64 // requests that mean nothing, or ended in the middle
	Refused, Evicted     atomic.Int64 // connections
}

// Options of a server.
type Options struct {
	Ready       <-chan struct{} // closed when the handler can be asked: until then requests wait
	Connections int             // at most
	Times       Times
	Log         *zap.Logger
}

// Server serves one socket.
type Server struct {
	Counts Counts

	handler Handler
	opt     Options
	began   time.Time
	big     *connLimit // those whose big payload is coming or being taken
}

// New makes a server that asks h.
func New(h Handler, opt Options) *Server {
	return &Server{handler: h, opt: opt, began: time.Now(), big: newConnLimit(maxBig, bigSpared, bigDawdle)}
}

const (
	bigPayload = 1 << 20 // bytes over which a payload needs a slot
	maxBig     = 8       // big payloads in memory at a time
	bigSpared  = time.Second
	bigDawdle  = 10 * time.Second // 16 MB on a machine that has much else to do
	hangUp     = 200 * time.Millisecond
)

// Serve accepts until the listener is closed, and returns when the last conversation has ended. talk ends the
// conversations; ctx, which ends later, bounds what must still be done for them then.
func (s *Server) Serve(ctx, talk context.Context, l net.Listener) {
	all := newConnLimit(s.opt.Connections, spared, dawdle)
	var conns sync.WaitGroup
	defer conns.Wait()

	for {
		accepted, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed), err != nil && talk.Err() != nil:
			return
		case err != nil:
			s.opt.Log.Warn("accept", zap.Error(err)) // out of descriptors: the others go on, this client spools
			if !sleep(talk, 50*time.Millisecond) {
				return
			}
			continue
		}

		talk, hang := context.WithCancel(talk)
		c := s.admit(accepted, hang, all)
		if c == nil {
			hang()
			continue
		}

		conns.Go(func() {
			defer hang()
			defer all.leave(c)
			s.converse(ctx, talk, c)
		})

		s.inTurn(talk, c)
	}
}

// admit gives a connection a slot; nil when it is not one of ours or there is none.
func (s *Server) admit(accepted net.Conn, hang context.CancelFunc, all *connLimit) *conn {
	u := accepted.(*net.UnixConn) //nolint:errcheck // a unix listener gives nothing else
	if uid, err := wire.PeerUID(u); err != nil || uid != os.Getuid() {
		s.Counts.Refused.Add(1)
		_ = u.Close() // not one of ours: it gets no answer
		return nil
	}

	c := &conn{UnixConn: u, since: s.began, hang: hang, heard: make(chan struct{})}
	other, ok := all.admit(c, c.now())
	if !ok {
		s.Counts.Refused.Add(1)
		_ = u.Close() // the client's event goes to the spool
		return nil
	}

	s.evict(other)
	return c
}

func (s *Server) evict(c *conn) {
	if c != nil {
		s.Counts.Evicted.Add(1)
		c.evict()
	}
}

// inTurn finishes a client that has already hung up before accepting the next. After a suspend many are queued, and a
// session's events must keep their order.
func (s *Server) inTurn(ctx context.Context, c *conn) {
	select {
	case <-s.opt.Ready:
	default:
		return // no request is answered yet
	}

	if !wire.Gone(c.UnixConn) {
		return
	}

	timer := time.NewTimer(hangUp)
	defer timer.Stop()
	select {
	case <-c.heard:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func sleep(ctx context.Context, t time.Duration) bool {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// converse reads requests and writes their answers in order, until talk ends or the client does.
func (s *Server) converse(ctx, talk context.Context, c *conn) {
	// When the daemon stops or the writer gives up: the reader ends, and a client that does not read is not waited for.
	stop := context.AfterFunc(talk, func() {
		_ = c.CloseRead()
		_ = c.SetWriteDeadline(time.Now().Add(hangUp))
	})

	defer stop()

	answers := make(chan *Answer, 128)
	var writer sync.WaitGroup
	writer.Go(func() {
		s.writeAnswers(ctx, talk, c, answers)
		c.hang()
		for a := range answers {
			a.tell(ctx, false) // nobody will read it
		}
	})

	err := s.readRequests(ctx, talk, c, answers)
	close(c.heard)
	close(answers)
	writer.Wait()
	_ = c.Close() // both directions are done
	if err != nil && !errors.Is(err, io.EOF) && talk.Err() == nil {
		s.opt.Log.Debug("connection", zap.Error(err))
	}
}
