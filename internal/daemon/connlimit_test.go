package daemon

import (
	"bufio"
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

// Who has to make room when all places are taken.
func TestTheStillestMakesRoom(t *testing.T) {
	const now = time.Hour
	type one struct {
		moved time.Duration // ago
		begun time.Duration // ago, of the request that is coming; 0: none
		open  int32
		reads int32 // it is its turn to read
	}
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
		{"one that does not read its answers", []one{{moved: time.Second}, {moved: time.Minute, open: 5, reads: 1}, {moved: 2 * time.Second}}, 1, true},
		{"all wait for the daemon", []one{{moved: time.Minute, open: 1}, {moved: time.Minute, open: 1}, {moved: time.Minute, open: 1}}, -1, false},
		{"all have only just come", []one{{moved: 0}, {moved: spared / 2}, {moved: spared - 1}}, -1, false},
		{"one that keeps sending is not put out before one that stands still", []one{{moved: 0, begun: time.Minute, open: 1}, {moved: spared}, {moved: 0, begun: time.Minute, open: 1}}, 1, true},
		{"all send drop by drop: the one that has done so for longest", []one{{moved: 0, begun: 2 * dawdle, open: 1}, {moved: 0, begun: 3 * dawdle, open: 1}, {moved: 0}}, 1, true},
		{"all send, none for long", []one{{moved: 0, begun: dawdle - 1, open: 1}, {moved: 0, begun: 1, open: 1}, {moved: 0}}, -1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCrowd(3, spared, dawdle)
			var there []*talker
			for _, o := range tc.there {
				one := &talker{}
				if _, ok := c.admit(one, now-o.moved); !ok {
					t.Fatal("no room in a crowd that is not full")
				}
				one.open.Store(o.open)
				one.giving.Store(o.reads)
				if o.begun > 0 {
					one.begun.Store(int64(now - o.begun))
				}
				there = append(there, one)
			}
			got, ok := c.admit(&talker{}, now)
			var want *talker
			if tc.want >= 0 {
				want = there[tc.want]
			}
			if got != want || ok != tc.ok {
				t.Errorf("%p goes, admitted %v; want %p of %v, %v", got, ok, want, there, tc.ok)
			}
			if got != nil {
				c.leave(got) // its end comes later, and takes nobody else's place
			}
			if n := len(c.mu.all); n != min(len(there)+1, 3) {
				t.Errorf("%d are there, want 3 at the most", n)
			}
		})
	}
}

// hung says something on a connection of its own, and then nothing more.
func hung(r *running, words string) net.Conn {
	r.t.Helper()
	c := r.raw()
	if _, err := io.WriteString(c, words); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// served asks until it is answered: for so long as whoever took the places may keep them.
func (r *running) served(within time.Duration) {
	r.t.Helper()
	began := time.Now()
	until(r.t, "a new client is served", func() bool {
		c, err := wire.Dial(r.t.Context(), r.dir, "")
		if err != nil {
			return false
		}
		defer c.Close()
		reply, _, err := tryDo(c, eventRequest("s", wire.Event{Kind: "prompt", Text: "may I"}), nil)
		return err == nil && reply.Kept == wire.KeptDisk
	})
	if took := time.Since(began); took > within {
		r.t.Errorf("a new client was served after %s, want %s at most", took.Round(time.Millisecond), within)
	}
}

// However clients fill all places, a new one is served at once, and who gives way is told.
func TestNobodyShutsOutOthers(t *testing.T) {
	const places = 8
	few := func(d *Daemon) { d.opt.Connections = places }
	t.Run("in the middle of a line", func(t *testing.T) {
		r := start(t, tempDir(t), few)
		var all []net.Conn
		for range places {
			all = append(all, hung(r, `{"op":"he`))
		}
		r.served(5 * time.Second)
		until(t, "who gave way is told to send it again", func() bool {
			return slices.ContainsFunc(all, func(c net.Conn) bool {
				_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
				line, _ := bufio.NewReader(c).ReadString('\n') // most of them are told nothing
				return strings.Contains(line, `"code":"stopping"`)
			})
		})
	})
	t.Run("in the middle of a payload", func(t *testing.T) {
		r := start(t, tempDir(t), few)
		for range places {
			hung(r, `{"op":"hook","agent":"claude-code","event":"Stop","len":1000}`+"\n{")
		}
		r.served(5 * time.Second)
	})
	t.Run("subscribers", func(t *testing.T) {
		r := start(t, tempDir(t), few)
		for range places {
			hung(r, `{"op":"subscribe"}`+"\n")
		}
		r.served(5 * time.Second)
	})
	t.Run("those who do not read", func(t *testing.T) {
		r := start(t, tempDir(t), few)
		r.rounds("s", 0, 20)
		for range places {
			c := r.raw()
			_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)) // until nothing more goes in
			show := strings.Repeat(`{"op":"show","agent":"tester","session":"s","workspace":"/proj"}`+"\n", 20_000)
			if _, err := io.WriteString(c, show); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("asking without reading: %v; want that nothing more goes in", err)
			}
		}
		r.served(5 * time.Second)
	})
	t.Run("drop by drop", func(t *testing.T) {
		r := start(t, tempDir(t), few)
		end := drips(r, places)
		r.served(dawdle + 5*time.Second)
		end()
	})
}

// drips sends requests drop by drop, over so many connections, until end is called.
func drips(r *running, n int) (end func()) {
	r.t.Helper()
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		c := hung(r, `{"op":"`)
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

// Eight that stop in the middle of a big payload hold up no other big one.
func TestBigPayloadsMakeRoom(t *testing.T) {
	home(t)
	r := start(t, tempDir(t))
	for range maxBig {
		hung(r, fmt.Sprintf(`{"op":"hook","agent":"claude-code","event":"Stop","len":%d}`+"\n{", 2*bigPayload))
	}
	until(t, "all have their places", func() bool {
		r.d.big.mu.Lock()
		defer r.d.big.mu.Unlock()
		return len(r.d.big.mu.all) == maxBig
	})
	began := time.Now()
	reply, _ := r.hook(0, payload{"hook_event_name": "UserPromptSubmit", "session_id": sessionA, "cwd": "/proj", "prompt": strings.Repeat("big ", bigPayload/2)})
	if reply.Kept != wire.KeptDisk {
		t.Errorf("a big payload beside them: %+v, want it on disk", reply)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s, want little more than %s", took, bigSpared)
	}
}
