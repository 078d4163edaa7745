package socket

import (
	"bufio"
	"context"
	"encoding/json"
	"time"

	"belay/internal/wire"
)

// writeAnswers writes until the channel is closed or the client no longer reads.
func (s *Server) writeAnswers(ctx, talk context.Context, c *conn, answers <-chan *Answer) {
	w := bufio.NewWriterSize(c, 16<<10)
	for a := range answers {
		var err error
		if a.Finish != nil || a.Seq > 0 && a.Seq > s.handler.Stored() {
			err = s.flush(talk, c, w) // what is ready does not wait
		}
		if err == nil {
			s.complete(ctx, talk, a)
			err = s.writeAnswer(talk, c, w, a)
		}
		if err == nil && (a.Written != nil || len(answers) == 0) {
			err = s.flush(talk, c, w)
		}

		a.tell(ctx, err == nil)
		if err != nil {
			return
		}

		if a.Stream != nil {
			s.stream(talk, c, a.Stream)
			return
		}

		c.end()
	}
}

// complete waits for what an answer promises.
func (s *Server) complete(ctx, talk context.Context, a *Answer) {
	if a.Seq > 0 {
		kept, err := s.handler.Kept(ctx, a.Seq) // also when the connection is to end: the client is told the truth
		if err != nil {
			a.Reply.OK, a.Reply.Code, a.Reply.Message = false, wire.CodeInternal, err.Error()
		}
		a.Reply.Kept = kept
	}
	if a.Finish != nil {
		a.Finish(talk, a)
	}
}

func (s *Server) writeAnswer(ctx context.Context, c *conn, w *bufio.Writer, a *Answer) error {
	a.Reply.Len = len(a.Body)
	line, err := json.Marshal(a.Reply)
	if err != nil {
		return err
	}

	if err := s.allow(ctx, c); err != nil {
		return err
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}

	_, err = w.Write(a.Body)
	return err
}

func (s *Server) flush(ctx context.Context, c *conn, w *bufio.Writer) error {
	if err := s.allow(ctx, c); err != nil {
		return err
	}
	return w.Flush()
}

// allow gives the next write its time.
func (s *Server) allow(ctx context.Context, c *conn) error {
	budget := s.opt.Times.Write
	if ctx.Err() != nil || c.out.Load() {
		budget = hangUp
	}
	return c.SetWriteDeadline(time.Now().Add(budget))
}

func (s *Server) stream(ctx context.Context, c *conn, lines <-chan []byte) {
	c.give() // its end is the connection's: from now on the client is never kept waiting
	for {
		select {
		case line := <-lines:
			if s.allow(ctx, c) != nil {
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
