package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"belay/internal/wire"
)

// serve accepts until the listener is closed. Connections end with the daemon.
func (d *Daemon) serve(ctx context.Context, l net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	places := make(chan struct{}, d.opt.Connections)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			d.log.Warn("accept", zap.Error(err)) // out of descriptors: the others go on, this client spools
			if !sleep(ctx, 50*time.Millisecond) {
				return nil
			}
			continue
		}
		u := c.(*net.UnixConn) //nolint:errcheck // a unix listener gives nothing else
		if !peerIsUs(u) {
			d.counts.refused.Add(1)
			_ = c.Close() // not one of ours: nothing is owed to it
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			d.counts.refused.Add(1)
			_ = c.Close() // the client's event goes to the spool
			continue
		}
		conns.Go(func() {
			defer func() { <-places }()
			d.converse(u)
		})
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

// converse reads requests and writes their answers in order; requests are pipelined.
func (d *Daemon) converse(c *net.UnixConn) {
	ctx, cancel := context.WithCancel(d.life)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) }) // the daemon stops, or the writer gave up
	defer stop()
	answers := make(chan *answer, 128)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		d.writeAnswers(ctx, c, answers)
	})
	err := d.readRequests(ctx, c, answers)
	close(answers)
	wg.Wait()
	_ = c.Close() // both directions are done
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		d.log.Debug("connection", zap.Error(err))
	}
}

func (d *Daemon) readRequests(ctx context.Context, c net.Conn, answers chan<- *answer) error {
	r := bufio.NewReaderSize(c, 16<<10)
	cl := &client{}
	for {
		if _, err := r.Peek(1); err != nil {
			return err // between requests a client may be silent for as long as it likes
		}
		if err := c.SetReadDeadline(time.Now().Add(frameBudget)); err != nil {
			return err
		}
		line, err := readLine(r, wire.MaxLine)
		if err != nil {
			if errors.Is(err, errLongLine) {
				d.counts.badFrames.Add(1)
				d.send(ctx, answers, failure(wire.CodeBadRequest, err.Error(), "send big payloads as \"len\" bytes after the line"))
			} else if errors.Is(err, io.ErrUnexpectedEOF) {
				d.counts.cutFrames.Add(1)
			}
			return err
		}
		if len(line) == 0 {
			if err := c.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
			continue
		}
		var req wire.Request
		if err := json.Unmarshal(line, &req); err != nil {
			d.counts.badFrames.Add(1)
			if !d.send(ctx, answers, failure(wire.CodeBadRequest, "not a JSON object: "+err.Error(), "one JSON object a line; see docs/protocol.md")) {
				return nil
			}
			continue
		}
		payload, err := readPayload(r, &req)
		if err != nil {
			d.counts.cutFrames.Add(1)
			return err
		}
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		if req.Op == "" {
			payload = line // a bare payload of the agent that said hello
		}
		if !d.send(ctx, answers, d.handle(ctx, cl, req, payload)) {
			return nil
		}
	}
}

// send queues an answer; false when the connection ends.
func (d *Daemon) send(ctx context.Context, answers chan<- *answer, a *answer) bool {
	if a == nil {
		return true
	}
	select {
	case answers <- a:
		return true
	case <-ctx.Done():
		return false
	}
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
		if err == nil && line == nil {
			return append([]byte(nil), part[:len(part)-1]...), nil
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

// readPayload gives the raw bytes after a request line, cut at the bound.
func readPayload(r *bufio.Reader, req *wire.Request) ([]byte, error) {
	if req.Len <= 0 {
		return nil, nil
	}
	payload := make([]byte, min(req.Len, wire.MaxPayload))
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, err
	}
	if over := int64(req.Len) - int64(len(payload)); over > 0 {
		req.Cut = true
		if _, err := io.CopyN(io.Discard, r, over); err != nil {
			return nil, err
		}
	}
	return payload, nil
}

func (d *Daemon) writeAnswers(ctx context.Context, c net.Conn, answers <-chan *answer) {
	w := bufio.NewWriterSize(c, 16<<10)
	for a := range answers {
		if a.finish != nil || a.seq > d.journal.Health().Stored {
			if err := d.flush(c, w); err != nil { // what is ready does not wait
				d.giveUp(a, answers)
				return
			}
		}
		d.complete(ctx, a)
		err := d.writeAnswer(c, w, a)
		if err == nil && (a.written != nil || len(answers) == 0) {
			err = d.flush(c, w)
		}
		if a.written != nil {
			a.written(err == nil)
		}
		if err != nil {
			d.giveUp(nil, answers)
			return
		}
		if a.stream != nil {
			d.stream(ctx, c, a.stream)
			d.giveUp(nil, answers)
			return
		}
	}
}

// complete waits for what an answer promises.
func (d *Daemon) complete(ctx context.Context, a *answer) {
	if a.seq > 0 {
		kept, err := d.kept(ctx, a.seq)
		if err != nil {
			a.reply.OK, a.reply.Code, a.reply.Message = false, wire.CodeInternal, err.Error()
		}
		a.reply.Kept = kept
	}
	if a.finish != nil {
		a.finish(ctx, a)
	}
}

func (d *Daemon) writeAnswer(c net.Conn, w *bufio.Writer, a *answer) error {
	a.reply.Len = len(a.body)
	line, err := json.Marshal(a.reply)
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(writeBudget)); err != nil {
		return err
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}
	_, err = w.Write(a.body)
	return err
}

func (d *Daemon) flush(c net.Conn, w *bufio.Writer) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeBudget)); err != nil {
		return err
	}
	return w.Flush()
}

// giveUp tells the ops whose answers nobody will read, and lets the reader end.
func (d *Daemon) giveUp(a *answer, answers <-chan *answer) {
	if a != nil && a.written != nil {
		a.written(false)
	}
	go func() { // the reader closes the channel when its next read fails; the connection's deadline sees to that
		for a := range answers {
			if a.written != nil {
				a.written(false)
			}
		}
	}()
}

func (d *Daemon) stream(ctx context.Context, c net.Conn, lines <-chan []byte) {
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			if c.SetWriteDeadline(time.Now().Add(writeBudget)) != nil {
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
	return &answer{reply: wire.Reply{Code: code, Message: message, Hint: hint}}
}
