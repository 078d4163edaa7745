package daemon

import (
	"fmt"
	"testing"

	"belay/internal/wire"
)

// An event that comes again counts once, however many others came between: after a suspend each comes from its
// connection and from the spool. Its second answer promises what the first did.
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
