package breaker

import (
	"cmp"
	"slices"
	"time"

	"github.com/sony/gobreaker/v2"
)

// fault is what one session's own failures are counted in.
type fault struct {
	*circuit
	fails  int
	began  time.Time // the first failure
	last   time.Time
	reason string
}

// maxFaults bounds the sessions that are remembered. The one whose failure is oldest is forgotten first.
const maxFaults = 1000

// session gives what is known of a session. It is called under the lock, like all below.
func (b *Breaker) session(dir string, now time.Time) *fault {
	f := b.mu.sessions[dir]
	if f == nil {
		b.forgetOldest()
		f = &fault{last: now, circuit: newCircuit(gobreaker.Settings{
			Name:        dir,
			ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= uint32(b.opt.Failures) },
			IsExcluded:  func(err error) bool { return err != nil && !blames(err, bySession) },
		}, b.opt.Pause, b.opt.MaxPause, now)}
		b.mu.sessions[dir] = f
	}

	return f
}

func (b *Breaker) forgetOldest() {
	if len(b.mu.sessions) < maxFaults {
		return
	}

	oldest := ""
	for dir, f := range b.mu.sessions {
		if oldest == "" || f.last.Before(b.mu.sessions[oldest].last) {
			oldest = dir
		}
	}

	delete(b.mu.sessions, oldest)
}

// failed counts a failure of the session's own, and says whether it was set aside by this one.
func (f *fault) failed(reason string, now time.Time) (aside bool) {
	if f.fails == 0 {
		f.began = now
	}
	f.fails++
	f.last, f.reason = now, reason
	return f.look(now)
}

// aside lists the sessions that are set aside, for State.
func (b *Breaker) aside() []Aside {
	var list []Aside
	for dir, f := range b.mu.sessions {
		if f.open {
			list = append(list, Aside{
				Session: dir, Failures: f.fails, Since: f.began.Round(0), Reason: f.reason, NextTry: f.probeAt(),
			})
		}
	}

	slices.SortFunc(list, func(a, b Aside) int { return cmp.Compare(a.Session, b.Session) })
	return list
}
