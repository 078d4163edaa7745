package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// ErrNoDaemon: nobody listens at any of the places.
var ErrNoDaemon = errors.New("no belay daemon answers")

// Conn is a client's connection, for commands and tests. The hook client has its own, smaller one.
type Conn struct {
	c net.Conn
	r *bufio.Reader
}

// Dial connects to the daemon of a state folder, or to the socket that is named.
func Dial(ctx context.Context, stateDir, socket string) (*Conn, error) {
	places := []string{socket}
	if socket == "" {
		places = SocketPlaces(stateDir)
	}

	var errs []error
	for _, place := range places {
		c, err := Connect(ctx, place)
		if err == nil {
			return &Conn{c, bufio.NewReader(c)}, nil
		}
		errs = append(errs, err)
	}

	return nil, fmt.Errorf("%w: %w", ErrNoDaemon, errors.Join(errs...))
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// Do sends one request and reads its reply and the bytes that follow it. The context's deadline holds for both.
func (c *Conn) Do(ctx context.Context, req Request, payload []byte) (Reply, []byte, error) {
	deadline, _ := ctx.Deadline()
	if err := c.c.SetDeadline(deadline); err != nil {
		return Reply{}, nil, err
	}

	stop := context.AfterFunc(ctx, func() { _ = c.c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.Send(req, payload); err != nil {
		return Reply{}, nil, err
	}

	return c.Receive()
}

// Send writes one request without waiting for its reply.
func (c *Conn) Send(req Request, payload []byte) error {
	req.V, req.Len = Version, len(payload)
	line, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("send %s: %w", req.Op, err)
	}
	if _, err := c.c.Write(append(append(line, '\n'), payload...)); err != nil {
		return fmt.Errorf("send %s: %w", req.Op, err)
	}

	return nil
}

// Receive reads the next reply.
func (c *Conn) Receive() (Reply, []byte, error) {
	var r Reply
	line, err := c.r.ReadBytes('\n')
	if err != nil {
		return r, nil, fmt.Errorf("read the reply: %w", err)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, nil, fmt.Errorf("read the reply: %w", err)
	}

	body := make([]byte, r.Len)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return r, nil, fmt.Errorf("read the reply: %w", err)
	}

	return r, body, nil
}

// Line reads the next line of a stream (op subscribe).
func (c *Conn) Line() ([]byte, error) { return c.r.ReadBytes('\n') }
