package daemon

import (
	"testing"

	"belay/internal/wire"
)

// TestLookupsThatFindNothing: what is not there is not_found, and a question that makes no sense bad_request.
func TestLookupsThatFindNothing(t *testing.T) {
	home(t)
	r := start(t, tempDir(t))
	r.rounds("s", 0, 2)
	for _, c := range []struct {
		name string
		req  wire.Request
		code string
	}{
		{"show of none", wire.Request{Op: "show", Session: "none"}, wire.CodeNotFound},
		{"show of no checkpoint", wire.Request{Op: "show", Session: "s", Agent: "tester", Body: []byte(`{"number":77}`)}, wire.CodeNotFound},
		{"recover of none", wire.Request{Op: "recover", Session: "none"}, wire.CodeNotFound},
		{"recover since no checkpoint", wire.Request{Op: "recover", Session: "s", Agent: "tester", Body: []byte(`{"since":"77"}`)}, wire.CodeNotFound},
		{"recover in no format", wire.Request{Op: "recover", Session: "s", Agent: "tester", Body: []byte(`{"format":"poem"}`)}, wire.CodeBadRequest},
	} {
		if reply, _ := r.do(c.req, nil); reply.OK || reply.Code != c.code {
			t.Errorf("%s: reply %+v, want code %q", c.name, reply, c.code)
		}
	}

	if reply, _ := r.do(
		eventRequest("gone", wire.Event{Kind: "prompt", Text: "x", Ephemeral: true}), nil,
	); reply.Kept != wire.KeptNothing {
		t.Errorf("an ephemeral session: reply %+v, want kept: nothing", reply)
	}
}
