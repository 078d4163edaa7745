package watch

import (
	"testing"
	"time"
)

func TestMarksCoalesce(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	every := func(step, until int) (at []time.Duration) {
		for i := 0; i <= until; i += step {
			at = append(at, ms(i))
		}
		return at
	}

	for _, c := range []struct {
		name    string
		changes []time.Duration
		want    []time.Duration // when marks are taken
	}{
		{"one change waits for quiet", every(10, 0), []time.Duration{ms(50)}},
		{"a burst is one mark", every(10, 100), []time.Duration{ms(150)}},
		{"a stream is not put off for ever", every(10, 600), []time.Duration{ms(250), ms(500), ms(650)}},
		{"two changes far apart are two", every(100, 100), []time.Duration{ms(50), ms(150)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			m := newMarks(ms(50), ms(250))
			var got []time.Duration
			for at := time.Duration(0); at < 2*time.Second; at += ms(1) {
				if _, ok := m.take(start.Add(at)); ok {
					got = append(got, at)
				}
				if len(c.changes) > 0 && c.changes[0] == at {
					c.changes = c.changes[1:]
					m.add("p", start.Add(at))
				}
			}

			if len(got) != len(c.want) {
				t.Fatalf("marks at %v, want %v", got, c.want)
			}

			for i := range got {
				if d := got[i] - c.want[i]; d < 0 || d > ms(10) {
					t.Errorf("marks at %v, want %v", got, c.want)
				}
			}

			if len(m.byPath) != 0 || !m.next().IsZero() {
				t.Errorf("left over: %d marks, next %v", len(m.byPath), m.next())
			}
		})
	}
}

func TestMarksOrderAndDrop(t *testing.T) {
	now := time.Unix(1000, 0)
	m := newMarks(50*time.Millisecond, 250*time.Millisecond)
	for i, p := range []string{"a", "b", "c"} {
		m.add(p, now.Add(time.Duration(i)*time.Millisecond))
	}

	m.drop("b")
	m.drop("never heard of")
	now = now.Add(time.Second)
	var got string
	for p, ok := m.take(now); ok; p, ok = m.take(now) {
		got += p
	}

	if got != "ac" {
		t.Errorf("took %q, want %q", got, "ac")
	}
}
