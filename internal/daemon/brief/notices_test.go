package brief

import (
	"strings"
	"testing"
	"time"

	"belay/breaker"
	"belay/recovery"
)

// Each fault is told to one starting session, and a flood of lost events once an hour.
func TestNotices(t *testing.T) {
	var n Notices
	now := time.Unix(1_700_000_000, 0)
	open := breaker.State{Phase: breaker.Open, Trips: 1, Since: now}
	aside := breaker.State{Phase: breaker.Closed, Trips: 1, Aside: []breaker.Aside{{Session: "a"}, {Session: "b"}}}
	for i, c := range []struct {
		after   time.Duration
		start   string
		state   breaker.State
		dropped int64
		want    string // part of the line; empty: none
	}{
		{0, recovery.StartUp, breaker.State{Phase: breaker.Closed}, 0, ""},
		{0, recovery.StartClear, open, 7, ""},
		{0, recovery.StartUp, open, 0, "write checkpoints since"},
		{0, recovery.StartUp, open, 0, ""},
		{0, recovery.StartUp, open, 7, "take in 7 of the events"},
		{30 * time.Minute, recovery.StartUp, open, 900, ""},
		{31 * time.Minute, recovery.StartUp, open, 1000, "take in 993 of the events"},
		{31 * time.Minute, recovery.StartUp, aside, 1000, ""},
		{31 * time.Minute, recovery.StartUp, aside, 1000, "checkpoints of 2 of its sessions"},
		{2 * time.Hour, recovery.StartUp, aside, 1000, ""},
		{0, recovery.StartUp, breaker.State{Phase: breaker.HalfOpen, Trips: 2, Since: now}, 1000, "write checkpoints since"},
	} {
		now = now.Add(c.after)
		if got := n.Line(
			c.start, c.state, c.dropped, now,
		); c.want == "" && got != "" ||
			!strings.Contains(got, c.want) {
			t.Errorf("step %d: %q, want %q in it", i, got, c.want)
		}
	}
}
