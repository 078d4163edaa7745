package socket

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"belay/internal/wire"
)

func (s *Server) readRequests(ctx, talk context.Context, c *conn, answers chan<- *Answer) error {
	r := bufio.NewReaderSize(c, 16<<10)
	cl := &Client{}
	for {
		if _, err := r.Peek(1); err != nil {
			return err // between requests a client may be silent for as long as its slot is not needed
		}

		c.begin(c.now())
		if err := c.SetReadDeadline(time.Now().Add(s.opt.Times.Frame)); err != nil {
			return err
		}

		a, err := s.readRequest(talk, c, r, cl)
		c.whole()
		if err != nil && a == nil && c.out.Load() {
			a = Failure(wire.CodeStopping, "connection closed: the request stalled and all slots were in use",
				"send the request again, with the same id, on a new connection")
		}

		if a != nil {
			select {
			case answers <- a:
			case <-talk.Done():
				a.tell(ctx, false)
				return talk.Err()
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
func (s *Server) readRequest(ctx context.Context, c *conn, r *bufio.Reader, cl *Client) (*Answer, error) {
	line, err := readLine(r, wire.MaxLine)
	switch {
	case errors.Is(err, errLongLine):
		s.Counts.BadFrames.Add(1)
		return Failure(wire.CodeBadRequest, err.Error(), "send big payloads as \"len\" bytes after the line"), err
	case errors.Is(err, io.ErrUnexpectedEOF):
		s.Counts.CutFrames.Add(1)
		return nil, err
	case err != nil:
		return nil, err
	case len(bytes.TrimSpace(line)) == 0:
		return nil, nil
	}

	req, err := readHeader(line)
	if err != nil {
		s.Counts.BadFrames.Add(1)
		return Failure(wire.CodeBadRequest, "not a JSON object: "+err.Error(),
			"one JSON object a line; see docs/protocol.md"), nil
	}

	if req.Op == "" {
		c.whole()
		return s.handle(ctx, cl, req, line), nil // a bare payload of the agent that said hello
	}

	payload, free, err := s.readPayload(ctx, c, r, &req)
	defer free()
	if err != nil {
		s.Counts.CutFrames.Add(1)
		return nil, err
	}

	c.whole()
	return s.handle(ctx, cl, req, payload), nil
}

// handle waits for the handler and asks it.
func (s *Server) handle(ctx context.Context, cl *Client, req wire.Request, payload []byte) *Answer {
	if !s.waitReady(ctx) {
		return Failure(wire.CodeStopping, "belay is not ready yet", "try again; events go to the spool meanwhile")
	}
	return s.handler.Handle(ctx, cl, req, payload)
}

func (s *Server) waitReady(ctx context.Context) bool {
	select {
	case <-s.opt.Ready:
		return true
	default:
	}

	t := time.NewTimer(s.opt.Times.Ready)
	defer t.Stop()
	select {
	case <-s.opt.Ready:
		return true
	case <-t.C:
	case <-ctx.Done():
	}

	return false
}

// readHeader decodes a request line. In an object without op the fields are an agent's own and mean nothing here.
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

// readLine gives the next line without its end. A line without one at the end of the stream was cut off by a
// disconnect.
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

// readPayload gives the raw bytes after a request line, cut at the bound. Memory is taken as bytes come, not as a
// header says; free lets the next big payload in.
func (s *Server) readPayload(
	ctx context.Context, c *conn, r *bufio.Reader, req *wire.Request,
) (payload []byte, free func(), err error) {
	free = func() {}
	if req.Len <= 0 {
		return nil, free, nil
	}

	if req.Len > bigPayload {
		if err := s.waitForSlot(ctx, c); err != nil {
			return nil, free, err
		}
		free = func() { s.big.leave(c) }
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

// waitForSlot waits for a slot for a big payload. When all are in use, one whose client no longer sends is evicted.
func (s *Server) waitForSlot(ctx context.Context, c *conn) error {
	begun := c.begun.Swap(0) // waiting for a slot is not the client's fault
	for {
		other, ok := s.big.admit(c, c.now())
		s.evict(other)
		if ok {
			c.begun.Store(begun)
			return nil
		}
		if !sleep(ctx, spared) {
			return ctx.Err()
		}
	}
}
