package intake

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"belay/internal/wire"
)

// Dial connects to the first place where a daemon of ours listens.
func Dial(ctx context.Context, places []string) (net.Conn, error) {
	err := ErrNoDaemon
	for _, place := range places {
		conn, derr := wire.Connect(ctx, place)
		if derr == nil {
			return conn, nil
		}
		err = errors.Join(err, derr)
	}

	return nil, err
}

// peer is the daemon's end of a connection.
type peer struct {
	conn net.Conn
	r    *bufio.Reader
}

func newPeer(conn net.Conn) *peer { return &peer{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)} }

// exchange sends one request over a connection and closes it.
func exchange(ctx context.Context, conn net.Conn, req wire.Request, payload []byte) error {
	header, err := encode(req)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	err = newPeer(conn).send(ctx, header, payload)
	_ = conn.Close() // the answer is read, or there is none
	return err
}

// send gives one request to the daemon and waits for its answer: nil when it has the event, ErrRefused when it will
// never want it, any other error when it has it not.
func (p *peer) send(ctx context.Context, header, payload []byte) error {
	if end, ok := ctx.Deadline(); ok {
		if err := p.conn.SetDeadline(end); err != nil {
			return fmt.Errorf("send event: %w", err)
		}
	}

	bufs := net.Buffers{header, payload}
	if _, err := bufs.WriteTo(p.conn); err != nil {
		return fmt.Errorf("send event: %w", err)
	}

	line, err := p.r.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}

	var rep wire.Reply
	if err := json.Unmarshal(line, &rep); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if _, err := io.CopyN(io.Discard, p.r, int64(max(rep.Len, 0))); err != nil { // nobody waits for these bytes
		return fmt.Errorf("read answer: %w", err)
	}

	switch {
	case rep.OK:
		return nil
	case rep.Code == wire.CodeStopping || rep.Code == wire.CodeInternal:
		return fmt.Errorf("%s: %s", rep.Code, rep.Message)
	}

	return fmt.Errorf("%w: %s: %s", ErrRefused, rep.Code, rep.Message)
}
