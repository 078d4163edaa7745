package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"belay/internal/redact"
	"belay/internal/wire"
)

const (
	bigPayload = 1 << 20 // bytes over which a payload needs a place
	maxBig     = 8       // big payloads in memory at a time
	bigSpared  = time.Second
	bigDawdle  = 10 * time.Second // 16 MB on a machine that has much else to do
	hangUp     = 200 * time.Millisecond
)

// serve accepts until the listener is closed. Connections end with the daemon.
func (d *Daemon) serve(ctx context.Context, l net.Listener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	all := newCrowd(d.opt.Connections, spared, dawdle)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			d.log.Warn("accept", zap.Error(err)) // out of descriptors: the others go on, this client spools
			if !sleep(ctx, 50*time.Millisecond) {
				return
			}
			continue
		}
		u := c.(*net.UnixConn) //nolint:errcheck // a unix listener gives nothing else
		if uid, err := wire.PeerUID(u); err != nil || uid != os.Getuid() {
			d.counts.refused.Add(1)
			_ = c.Close() // not one of ours: nothing is owed to it
			continue
		}
		talk, hang := context.WithCancel(d.talk)
		t := &talker{UnixConn: u, since: d.started, hang: hang, heard: make(chan struct{})}
		other, ok := all.admit(t, t.now())
		if !ok {
			hang()
			d.counts.refused.Add(1)
			_ = c.Close() // the client's event goes to the spool
			continue
		}
		if other != nil {
			d.counts.putOut.Add(1)
			other.putOut()
		}
		conns.Go(func() {
			defer hang()
			defer all.leave(t)
			d.converse(talk, t)
		})
		d.inTurn(ctx, t)
	}
}

// inTurn lets a client that has given up be heard before the next is: after a spell in which the daemon stood still (a suspend)
// many such wait, and the events of a session keep their order.
func (d *Daemon) inTurn(ctx context.Context, t *talker) {
	select {
	case <-d.ready:
	default:
		return // nobody is heard yet
	}
	if !wire.Gone(t.UnixConn) {
		return
	}
	timer := time.NewTimer(hangUp)
	defer timer.Stop()
	select {
	case <-t.heard:
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

// answer is one reply on its way: made by an op, written in order by the connection's writer.
type answer struct {
	seq     uint64                               // the journal's record that must be safe first; 0 for none
	finish  func(ctx context.Context, a *answer) // fills in what takes time; runs in the connection's writer
	reply   wire.Reply
	body    []byte
	written func(ok bool) // told whether the client got the bytes
	stream  <-chan []byte // op subscribe: lines without end
}

func (a *answer) tell(ok bool) {
	if a.written != nil {
		a.written(ok)
	}
}

// converse reads requests and writes their answers in order; requests are pipelined.
func (d *Daemon) converse(ctx context.Context, c *talker) {
	// When the daemon stops or the writer gives up: the reader ends, and a client that does not read is not waited for.
	stop := context.AfterFunc(ctx, func() {
		_ = c.CloseRead()
		_ = c.SetWriteDeadline(time.Now().Add(hangUp))
	})
	defer stop()
	answers := make(chan *answer, 128)
	var wg sync.WaitGroup
	wg.Go(func() {
		d.writeAnswers(ctx, c, answers)
		c.hang()
		for a := range answers {
			a.tell(false) // nobody will read it
		}
	})
	err := d.readRequests(ctx, c, answers)
	close(c.heard)
	close(answers)
	wg.Wait()
	_ = c.Close() // both directions are done
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		d.log.Debug("connection", zap.Error(err))
	}
}

func (d *Daemon) readRequests(ctx context.Context, c *talker, answers chan<- *answer) error {
	r := bufio.NewReaderSize(c, 16<<10)
	cl := &client{}
	for {
		if _, err := r.Peek(1); err != nil {
			return err // between requests a client may be silent for as long as its place is not needed
		}
		c.begin()
		if err := c.SetReadDeadline(time.Now().Add(d.times.frameBudget)); err != nil {
			return err
		}
		a, err := d.readRequest(ctx, c, r, cl)
		c.whole()
		if err != nil && a == nil && c.out.Load() {
			a = failure(wire.CodeStopping, "this connection stood still in the middle of a request, and others needed its place",
				"send the request again, with the same id, on a new connection")
		}
		if a != nil {
			select {
			case answers <- a:
			case <-ctx.Done():
				a.tell(false)
				return ctx.Err()
			}
		} else {
			c.end()
		}
		if err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
}

// readRequest reads one request and starts its answer; nil for a blank line. An error ends the connection.
func (d *Daemon) readRequest(ctx context.Context, c *talker, r *bufio.Reader, cl *client) (*answer, error) {
	line, err := readLine(r, wire.MaxLine)
	switch {
	case errors.Is(err, errLongLine):
		d.counts.badFrames.Add(1)
		return failure(wire.CodeBadRequest, err.Error(), "send big payloads as \"len\" bytes after the line"), err
	case errors.Is(err, io.ErrUnexpectedEOF):
		d.counts.cutFrames.Add(1)
		return nil, err
	case err != nil:
		return nil, err
	case len(bytes.TrimSpace(line)) == 0:
		return nil, nil
	}
	req, err := readHeader(line)
	if err != nil {
		d.counts.badFrames.Add(1)
		return failure(wire.CodeBadRequest, "not a JSON object: "+err.Error(), "one JSON object a line; see docs/protocol.md"), nil
	}
	if req.Op == "" {
		c.whole()
		return d.handle(ctx, cl, req, line), nil // a bare payload of the agent that said hello
	}
	payload, free, err := d.readPayload(ctx, c, r, &req)
	defer free()
	if err != nil {
		d.counts.cutFrames.Add(1)
		return nil, err
	}
	c.whole()
	return d.handle(ctx, cl, req, payload), nil
}

// readHeader decodes a request line. An object without op is no request: its fields are an agent's own and mean nothing here.
func readHeader(line []byte) (wire.Request, error) {
	var req wire.Request
	err := json.Unmarshal(line, &req)
	var other *json.UnmarshalTypeError
	if errors.As(err, &other) && other.Field != "" && req.Op == "" {
		err = nil
	}
	if req.Op == "" {
		req = wire.Request{}
	}
	return req, err
}

var errLongLine = fmt.Errorf("a line over %d bytes", wire.MaxLine)

// readLine gives the next line without its end. A line without one at the end of the stream was cut off by a disconnect.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, errLongLine
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// readPayload gives the raw bytes after a request line, cut at the bound. Memory is taken as bytes come, not as a header
// says; free lets the next big payload in.
func (d *Daemon) readPayload(ctx context.Context, c *talker, r *bufio.Reader, req *wire.Request) (payload []byte, free func(), err error) {
	free = func() {}
	if req.Len <= 0 {
		return nil, free, nil
	}
	if req.Len > bigPayload {
		if err := d.placeForBig(ctx, c); err != nil {
			return nil, free, err
		}
		free = func() { d.big.leave(c) }
	}
	var b bytes.Buffer
	keep := int64(min(req.Len, wire.MaxPayload))
	if _, err := io.CopyN(&b, r, keep); err != nil {
		return nil, free, err
	}
	if over := int64(req.Len) - keep; over > 0 {
		req.Cut = true
		if _, err := io.CopyN(io.Discard, r, over); err != nil {
			return nil, free, err
		}
	}
	return b.Bytes(), free, nil
}

// placeForBig waits for a place in memory. Where all are taken, who sends nothing any more gives his up.
func (d *Daemon) placeForBig(ctx context.Context, c *talker) error {
	begun := c.begun.Swap(0) // it is we who keep the client waiting
	for {
		other, ok := d.big.admit(c, c.now())
		if other != nil {
			d.counts.putOut.Add(1)
			other.putOut()
		}
		if ok {
			c.begun.Store(begun)
			return nil
		}
		if !sleep(ctx, spared) {
			return ctx.Err()
		}
	}
}

// writeAnswers writes until the channel is closed or the client no longer reads.
func (d *Daemon) writeAnswers(ctx context.Context, c *talker, answers <-chan *answer) {
	w := bufio.NewWriterSize(c, 16<<10)
	for a := range answers {
		var err error
		if a.finish != nil || a.seq > 0 && a.seq > d.journal.Health().Stored {
			err = d.flush(ctx, c, w) // what is ready does not wait
		}
		if err == nil {
			d.complete(ctx, a)
			err = d.writeAnswer(ctx, c, w, a)
		}
		if err == nil && (a.written != nil || len(answers) == 0) {
			err = d.flush(ctx, c, w)
		}
		a.tell(err == nil)
		if err != nil {
			return
		}
		if a.stream != nil {
			d.stream(ctx, c, a.stream)
			return
		}
		c.end()
	}
}

// complete waits for what an answer promises.
func (d *Daemon) complete(ctx context.Context, a *answer) {
	if a.seq > 0 {
		kept, err := d.kept(d.life, a.seq) // also when the connection is to end: the client is told the truth
		if err != nil {
			a.reply.OK, a.reply.Code, a.reply.Message = false, wire.CodeInternal, err.Error()
		}
		a.reply.Kept = kept
	}
	if a.finish != nil {
		a.finish(ctx, a)
	}
}

func (d *Daemon) writeAnswer(ctx context.Context, c *talker, w *bufio.Writer, a *answer) error {
	a.reply.Len = len(a.body)
	line, err := json.Marshal(a.reply)
	if err != nil {
		return err
	}
	if err := d.allow(ctx, c); err != nil {
		return err
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}
	_, err = w.Write(a.body)
	return err
}

func (d *Daemon) flush(ctx context.Context, c *talker, w *bufio.Writer) error {
	if err := d.allow(ctx, c); err != nil {
		return err
	}
	return w.Flush()
}

// allow gives the next write its time.
func (d *Daemon) allow(ctx context.Context, c *talker) error {
	budget := d.times.writeBudget
	if ctx.Err() != nil || c.out.Load() {
		budget = hangUp
	}
	return c.SetWriteDeadline(time.Now().Add(budget))
}

func (d *Daemon) stream(ctx context.Context, c *talker, lines <-chan []byte) {
	c.giving.Add(1) // its end is the connection's: from now on the client is never kept waiting
	for {
		select {
		case line := <-lines:
			if d.allow(ctx, c) != nil {
				return
			}
			if _, err := c.Write(line); err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func failure(code, message, hint string) *answer {
	return &answer{reply: wire.Reply{Code: code, Message: redact.Text(message), Hint: redact.Text(hint)}}
}
