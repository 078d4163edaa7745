package daemon

import (
	"fmt"
	"time"

	"belay/breaker"
	"belay/recovery"
)

// troubles is what starting sessions were told of belay's own faults, so that each is told once.
type troubles struct {
	trips   int       // the degraded spell
	dropped int64     // events that were set aside or had no room
	aside   int       // sessions whose checkpoints fail
	at      time.Time // when the last two were told
}

// quietFor is how long no starting session hears of more lost events: a flood is one line, and status has the count.
const quietFor = time.Hour

// trouble is one line for a starting session when checkpoints cannot be written, of all sessions or of some, or when events
// were lost. It is told to one session alone.
func (d *Daemon) trouble(start string) string {
	if start == recovery.StartClear {
		return ""
	}
	b, dropped, now := d.store.State(), d.counts.dropped.Load(), time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	told := &d.mu.told
	aside := told.aside
	told.aside = min(aside, len(b.Aside)) // who was taken back and fails again is told again
	switch {
	case b.Phase != breaker.Closed && told.trips != b.Trips:
		told.trips = b.Trips
		return fmt.Sprintf("belay has not been able to write checkpoints since %s UTC; what is said goes on into its journal. `belay status` shows why.\n",
			b.Since.UTC().Format("2006-01-02 15:04"))
	case !told.at.IsZero() && now.Sub(told.at) < quietFor:
	case dropped > told.dropped:
		n := dropped - told.dropped
		told.dropped, told.at = dropped, now
		return fmt.Sprintf("belay could not take in %d of the events that it was sent, and goes on with the rest. `belay status` counts them, its log says why.\n", n)
	case len(b.Aside) > aside:
		told.aside, told.at = len(b.Aside), now
		return fmt.Sprintf("belay cannot write the checkpoints of %d of its sessions; the others' are well. `belay status` shows why.\n", len(b.Aside))
	}
	return ""
}
