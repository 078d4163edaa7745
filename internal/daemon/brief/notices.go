package brief

import (
	"fmt"
	"sync"
	"time"

	"belay/breaker"
	"belay/recovery"
)

// Notices remembers what starting sessions were told of belay's own faults, so that each is told once. The zero value
// is ready.
type Notices struct {
	mu struct {
		sync.Mutex
		trips   int       // the degraded spell
		dropped int64     // events that were set aside or had no room
		aside   int       // sessions whose checkpoints fail
		at      time.Time // when the last two were told
	}
}

// quietFor is how long no starting session hears of more lost events: a flood is one line, and status has the count.
const quietFor = time.Hour

// Line is one line for a starting session when checkpoints cannot be written, of all sessions or of some, or when
// events were lost; empty when there is nothing new. It is told to one session alone.
func (n *Notices) Line(start string, b breaker.State, dropped int64, now time.Time) string {
	if start == recovery.StartClear {
		return ""
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	aside := n.mu.aside
	n.mu.aside = min(aside, len(b.Aside)) // one that was taken back and fails again is told again
	switch {
	case b.Phase != breaker.Closed && n.mu.trips != b.Trips:
		n.mu.trips = b.Trips
		return fmt.Sprintf(
			"belay has not been able to write checkpoints since %s UTC; what is said goes on into its journal. "+
				"`belay status` shows why.\n",
			b.Since.UTC().Format("2006-01-02 15:04"),
		)

	case !n.mu.at.IsZero() && now.Sub(n.mu.at) < quietFor:
	case dropped > n.mu.dropped:
		more := dropped - n.mu.dropped
		n.mu.dropped, n.mu.at = dropped, now
		return fmt.Sprintf("belay could not take in %d of the events that it was sent, and goes on with the rest. "+
			"`belay status` counts them, its log says why.\n", more)

	case len(b.Aside) > aside:
		n.mu.aside, n.mu.at = len(b.Aside), now
		return fmt.Sprintf("belay cannot write the checkpoints of %d of its sessions; the others' are well. "+
			"`belay status` shows why.\n", len(b.Aside))
	}

	return ""
}
