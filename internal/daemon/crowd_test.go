package daemon

import (
	"testing"
	"time"
)

// Who has to make room when all places are taken.
func TestTheIdlestMakesRoom(t *testing.T) {
	now := time.Hour
	for _, tc := range []struct {
		name   string
		quiet  []time.Duration // of the connections that are there, since they were last heard
		busy   []int           // which of them have something in flight
		want   int             // who goes; -1: nobody
		wantOK bool
	}{
		{"there is room", []time.Duration{time.Hour, time.Hour}, nil, -1, true},
		{"the idlest", []time.Duration{time.Second, time.Minute, 2 * time.Second}, nil, 1, true},
		{"the idlest that has nothing in flight", []time.Duration{time.Second, time.Minute, 2 * time.Second}, []int{1}, 2, true},
		{"all have something in flight", []time.Duration{time.Minute, time.Minute, time.Minute}, []int{0, 1, 2}, -1, false},
		{"all have only just come", []time.Duration{0, spared / 2, spared - 1}, nil, -1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCrowd(3)
			var there []*talker
			for _, quiet := range tc.quiet {
				one := &talker{}
				if _, ok := c.admit(one, now-quiet); !ok {
					t.Fatal("no room in a crowd that is not full")
				}
				there = append(there, one)
			}
			for _, i := range tc.busy {
				there[i].begin()
			}
			got, ok := c.admit(&talker{}, now)
			var want *talker
			if tc.want >= 0 {
				want = there[tc.want]
			}
			if got != want || ok != tc.wantOK {
				t.Errorf("%p goes, admitted %v; want %p of %v, %v", got, ok, want, there, tc.wantOK)
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

func TestAnsweredIsIdle(t *testing.T) {
	one := &talker{}
	one.begin()
	one.begin()
	one.end(time.Second)
	if one.open.Load() != 1 {
		t.Errorf("%d in flight, want the second", one.open.Load())
	}
	one.end(2 * time.Second)
	if one.open.Load() != 0 || time.Duration(one.quiet.Load()) != 2*time.Second {
		t.Errorf("%d in flight, quiet since %s; want none, since its last answer", one.open.Load(), time.Duration(one.quiet.Load()))
	}
}
