package daemon

import (
	"fmt"
	"testing"

	"belay/internal/wire"
)

// An event that comes again counts once, however many others came between: after a suspend each comes from its connection and from
// the spool. Its second answer promises what the first did.
func TestDoublesFarApart(t *testing.T) {
	const others = 300
	r := start(t, tempDir(t))
	c := r.dial()
	say := func(n int) wire.Reply {
		req := eventRequest("s", wire.Event{Kind: "stop", Text: fmt.Sprint("answer ", n)})
		req.ID = fmt.Sprint("e", n)
		reply, _, err := tryDo(c, req, nil)
		if err != nil || !reply.OK {
			t.Fatalf("event %d: %+v, %v", n, reply, err)
		}
		return reply
	}
	for n := range others {
		say(n)
	}
	for n := range others {
		if reply := say(n); reply.Kept != wire.KeptDisk || reply.Seq == 0 {
			t.Fatalf("event %d once more: %+v, want it kept on disk", n, reply)
		}
	}
	if got := r.session("tester", "s").MessageCount; got != others {
		t.Errorf("%d rounds of %d events that came twice, want each once", got, others)
	}
}

// What a session remembers is bounded: the oldest ids go first.
func TestHeardForgetsTheOldest(t *testing.T) {
	var h heard
	for n := range maxHeard + 10 {
		h.add(fmt.Sprint("e", n), uint64(n))
	}
	for n, want := range map[int]bool{0: false, 9: false, 10: true, maxHeard + 9: true, maxHeard + 10: false} {
		if got := h.has(fmt.Sprint("e", n)); got != want {
			t.Errorf("e%d is known: %t, want %t", n, got, want)
		}
	}
	if h.has("") || len(h.ids) != maxHeard || h.seq != maxHeard+9 {
		t.Errorf("knows no id: %t; %d ids up to %d, want %d up to %d", h.has(""), len(h.ids), h.seq, maxHeard, maxHeard+9)
	}
}
