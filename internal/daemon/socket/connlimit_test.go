package socket

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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"belay/internal/wire"
)

// one is a connection that has a slot.
type one struct {
	moved time.Duration // ago
	begun time.Duration // ago, of the request that is coming; 0: none
	open  int
	reads bool // it is its turn to read
}

func (o one) in(t *testing.T, l *connLimit, now time.Duration) *conn {
	t.Helper()
	c := &conn{}
	if _, ok := l.admit(c, now-o.moved); !ok {
		t.Fatal("no slot although not all are in use")
	}

	for range o.open {
		c.begin(now - o.begun)
		if o.begun == 0 {
			c.whole()
		}
	}

	if o.reads {
		c.give()
	}

	return c
}

// Who has to make room when all slots are in use.
func TestTheIdlestMakesRoom(t *testing.T) {
	const now = time.Hour
	for _, tc := range []struct {
		name  string
		there []one
		want  int // who goes; -1: nobody
		ok    bool
	}{
		{"there is room", []one{{moved: time.Hour}, {moved: time.Hour}}, -1, true},
		{"the idlest", []one{{moved: time.Second}, {moved: time.Minute}, {moved: 2 * time.Second}}, 1, true},
		{"one in the middle of a request, silent for longer than the idle", []one{{moved: time.Second}, {moved: 2 * time.Second, begun: time.Minute, open: 1}, {moved: time.Second}}, 1, true},
		{"an idle one, silent for longer than those in the middle of a request", []one{{moved: time.Minute}, {moved: time.Second, begun: time.Second, open: 1}, {moved: time.Second}}, 0, true},
		{"one whose client waits for the daemon is left alone", []one{{moved: time.Second}, {moved: time.Minute, open: 1}, {moved: 2 * time.Second}}, 2, true},
		{"so is one that sends the next request while it waits", []one{{moved: time.Minute, begun: time.Minute, open: 2}, {moved: time.Second}, {moved: time.Minute, open: 3}}, 1, true},
		{"one that does not read its answers", []one{{moved: time.Second}, {moved: time.Minute, open: 5, reads: true}, {moved: 2 * time.Second}}, 1, true},
		{"all wait for the daemon", []one{{moved: time.Minute, open: 1}, {moved: time.Minute, open: 1}, {moved: time.Minute, open: 1}}, -1, false},
		{"all have only just come", []one{{moved: 0}, {moved: spared / 2}, {moved: spared - 1}}, -1, false},
		{"one that keeps sending is not evicted before an idle one", []one{{moved: 0, begun: time.Minute, open: 1}, {moved: spared}, {moved: 0, begun: time.Minute, open: 1}}, 1, true},
		{"all send slowly: the one that has done so for longest", []one{{moved: 0, begun: 2 * dawdle, open: 1}, {moved: 0, begun: 3 * dawdle, open: 1}, {moved: 0}}, 1, true},
		{"all send, none for long", []one{{moved: 0, begun: dawdle - 1, open: 1}, {moved: 0, begun: 1, open: 1}, {moved: 0}}, -1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newConnLimit(3, spared, dawdle)
			var there []*conn
			for _, o := range tc.there {
				there = append(there, o.in(t, l, now))
			}

			got, ok := l.admit(&conn{}, now)
			var want *conn
			if tc.want >= 0 {
				want = there[tc.want]
			}
			if got != want || ok != tc.ok {
				t.Errorf("%p goes, admitted %v; want %p of %v, %v", got, ok, want, there, tc.ok)
			}
			if got != nil {
				l.leave(got) // its end comes later, and takes nobody else's slot
			}
			if n := l.taken(); n != min(len(there)+1, 3) {
				t.Errorf("%d are there, want 3 at the most", n)
			}
		})
	}
}

// hung says something on a connection of its own, and then nothing more.
func (s *serving) hung(words string) net.Conn {
	s.t.Helper()
	c := s.raw()
	if _, err := io.WriteString(c, words); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// However clients fill all slots, a new one is served at once, and one that is evicted is told.
func TestNobodyShutsOutOthers(t *testing.T) {
	const slots = 8
	few := func(o *Options) { o.Connections = slots }
	t.Run("in the middle of a line", func(t *testing.T) {
		s := serve(t, few)
		var all []net.Conn
		for range slots {
			all = append(all, s.hung(`{"op":"he`))
		}

		s.served(5 * time.Second)
		until(t, "one that was evicted is told to send it again", func() bool {
			return slices.ContainsFunc(all, func(c net.Conn) bool {
				_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
				line, _ := bufio.NewReader(c).ReadString('\n') // most of them are told nothing
				return strings.Contains(line, `"code":"stopping"`)
			})
		})
	})

	t.Run("in the middle of a payload", func(t *testing.T) {
		s := serve(t, few)
		for range slots {
			s.hung(`{"op":"hook","agent":"claude-code","event":"Stop","len":1000}` + "\n{")
		}
		s.served(5 * time.Second)
	})

	t.Run("subscribers", func(t *testing.T) {
		s := serve(t, few)
		for range slots {
			s.hung(`{"op":"subscribe"}` + "\n")
		}
		s.served(5 * time.Second)
	})

	t.Run("those who do not read", func(t *testing.T) {
		s := serve(t, few)
		for range slots {
			c := s.raw()
			_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)) // until nothing more goes in
			show := strings.Repeat(`{"op":"show"}`+"\n", 100_000)
			if _, err := io.WriteString(c, show); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("asking without reading: %v; want that nothing more goes in", err)
			}
		}

		s.served(5 * time.Second)
	})

	t.Run("slowly", func(t *testing.T) {
		s := serve(t, few)
		end := s.trickle(slots)
		s.served(dawdle + 5*time.Second)
		end()
	})
}

// trickle sends requests byte by byte, over so many connections, until end is called.
func (s *serving) trickle(n int) (end func()) {
	s.t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		c := s.hung(`{"op":"`)
		all.Go(func() {
			tick := time.NewTicker(spared / 10)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					if _, err := io.WriteString(c, "x"); err != nil {
						return
					}
				}
			}
		})
	}

	return func() { close(stop); all.Wait() }
}

// Eight that stop in the middle of a big payload delay no other big one.
func TestBigPayloadsMakeRoom(t *testing.T) {
	s := serve(t)
	for range maxBig {
		s.hung(fmt.Sprintf(`{"op":"hook","agent":"claude-code","event":"Stop","len":%d}`+"\n{", 2*bigPayload))
	}

	until(t, "all have their slots", func() bool { return s.big.taken() == maxBig })

	began := time.Now()
	reply, err := s.ask(wire.Request{Op: "hook"}, []byte(repeated("big ", 2*bigPayload)))
	if err != nil || reply.Kept != wire.KeptDisk {
		t.Errorf("a big payload beside them: %+v, %v; want it on disk", reply, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s, want little more than %s", took, bigSpared)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s := serve(t, func(o *Options) { o.Connections = 4 })
	for range 4 {
		s.raw()
	}

	refused := s.raw()
	if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("the fifth connection: %v, want it closed", err)
	}
}

// A client that never reads its answers ends after its time and delays no other.
func TestSlowReader(t *testing.T) {
	s := serve(t, func(o *Options) { o.Times.Write = 300 * time.Millisecond })
	slow, err := wire.Dial(t.Context(), s.dir, "")
	if err != nil {
		t.Fatal(err)
	}

	defer slow.Close()
	ended := make(chan error, 1)
	go func() {
		for {
			if err := slow.Send(wire.Request{Op: "show"}, nil); err != nil {
				ended <- err
				return
			}
		}
	}()

	if got, err := s.ask(wire.Request{Op: "event"}, nil); err != nil || got.Kept != wire.KeptDisk {
		t.Errorf("an event beside a slow reader: %+v, %v", got, err)
	}

	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the slow reader was never given up")
	}
}

// A subscriber that is slower than what happens loses lines and is told how many; nobody waits for it.
func TestFeed(t *testing.T) {
	var f Feed
	f.Publish(Notice{What: "unheard"})
	ctx, cancel := context.WithCancel(t.Context())
	lines := f.Subscribe(ctx).Stream
	for range cap(lines) + 3 {
		f.Publish(Notice{What: "event"})
	}

	for range cap(lines) {
		<-lines
	}

	f.Publish(Notice{What: "breaker"})
	var got Notice
	if err := json.Unmarshal(<-lines, &got); err != nil || got.What != "breaker" || got.Lost != 3 {
		t.Errorf("after 3 lines too many: %+v, %v; want 3 lost", got, err)
	}

	cancel()
	until(t, "a subscriber whose connection ended is forgotten", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.mu.subscribers) == 0
	})
}

func FuzzReadRequest(f *testing.F) {
	for _, seed := range []string{`{"op":"status"}`, `{"op":"hook","len":3}` + "\nabc", `{"len":9999999}`, `{"op":7}`, "null", "", `{"op":"event","body":{}}`} {
		f.Add([]byte(seed + "\n"))
	}

	s := New(&scribe{}, Options{})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		line, err := readLine(r, wire.MaxLine)
		if err != nil {
			return
		}

		req, err := readHeader(line)
		if err != nil {
			return
		}
		if req.Op == "" && (req.Len != 0 || req.ID != "") {
			t.Errorf("fields of an agent's payload were taken for ours: %+v", req)
		}

		payload, free, err := s.readPayload(t.Context(), &conn{}, r, &req)
		free()
		if err == nil && len(payload) > min(max(req.Len, 0), wire.MaxPayload) {
			t.Errorf("%d bytes of payload for %d", len(payload), req.Len)
		}
	})
}

// taken is how many slots are in use.
func (l *connLimit) taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.all)
}
