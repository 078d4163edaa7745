package socket

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"belay/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for something that must happen; only a failing test waits so long.
const patience = 20 * time.Second

// until waits for a condition that nothing announces.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain for: %s", patience, what)
		}
	}
}

// scribe is a handler that answers everything: "show" with many bytes, "hook" with its payload, all else in a word.
type scribe struct{ feed Feed }

var show = bytes.Repeat([]byte("x"), 4<<10)

func (h *scribe) Handle(ctx context.Context, _ *Client, req wire.Request, payload []byte) *Answer {
	switch req.Op {
	case "show":
		return &Answer{Reply: wire.Reply{OK: true}, Body: show}
	case "hook":
		return &Answer{Reply: wire.Reply{OK: true}, Body: payload[:min(len(payload), 10)], Seq: 1}
	case "subscribe":
		return h.feed.Subscribe(ctx)
	}
	return &Answer{Reply: wire.Reply{OK: true}, Seq: 1}
}

func (h *scribe) Stored() uint64 { return 0 }

func (h *scribe) Kept(context.Context, uint64) (string, error) { return wire.KeptDisk, nil }

// serving is a server that runs inside the test.
type serving struct {
	*Server
	t     *testing.T
	feed  *Feed
	dir   string
	place *Place
}

// serve runs a server on a folder of its own until the test ends.
func serve(t *testing.T, change ...func(*Options)) *serving {
	t.Helper()
	dir, err := os.MkdirTemp("", "bs") // short, so that the socket fits
	if err != nil {
		t.Fatal(err)
	}

	place, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}

	ready, h := make(chan struct{}), &scribe{}
	close(ready)
	opt := Options{
		Ready:       ready,
		Connections: 600,
		Log:         zap.NewNop(),
		Times:       Times{Ready: patience, Frame: patience, Write: patience},
	}

	for _, f := range change {
		f(&opt)
	}

	s := New(h, opt)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx, ctx, place) }()
	t.Cleanup(func() {
		err := place.Close()
		cancel()
		<-ended
		if err := errors.Join(err, place.Unlock(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})

	return &serving{Server: s, t: t, feed: &h.feed, dir: dir, place: place}
}

// raw is a connection without the client's manners.
func (s *serving) raw() *net.UnixConn {
	s.t.Helper()
	c, err := net.Dial("unix", s.place.Path)
	if err != nil {
		s.t.Fatal(err)
	}

	s.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}

	return c.(*net.UnixConn)
}

// ask sends one request on a connection of its own.
func (s *serving) ask(req wire.Request, payload []byte) (wire.Reply, error) {
	c, err := wire.Dial(s.t.Context(), s.dir, "")
	if err != nil {
		return wire.Reply{}, err
	}

	defer c.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	reply, _, err := c.Do(ctx, req, payload)
	return reply, err
}

// served asks until it is answered: for so long as whoever took the slots may keep them.
func (s *serving) served(within time.Duration) {
	s.t.Helper()
	began := time.Now()
	until(s.t, "a new client is served", func() bool {
		reply, err := s.ask(wire.Request{Op: "event"}, nil)
		return err == nil && reply.Kept == wire.KeptDisk
	})

	if took := time.Since(began); took > within {
		s.t.Errorf("a new client was served after %s, want %s at most", took.Round(time.Millisecond), within)
	}
}

func repeated(word string, bytes int) string { return strings.Repeat(word, bytes/len(word)) }
