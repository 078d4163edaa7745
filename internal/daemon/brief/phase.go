package brief

import "belay/checkpoint"

// phase is where the telling of one session stands.
type phase string

const (
	unasked phase = "nobody asked"
	telling phase = "being told" // a client waits for its bytes
	told    phase = "told"       // they reached it, and nothing new has happened since
	owed    phase = "owed"       // they reached nobody: the next event that can carry them does
)

// sign is what moves a session from one phase to another.
type sign string

const (
	start   sign = "start"        // a client waits for a brief
	carrier sign = "carrier"      // a client waits with an event that can carry an owed brief
	missed  sign = "missed start" // a start whose client has gone without an answer
	reached sign = "reached"      // the bytes reached the client
	lost    sign = "lost"         // the client gave up first, or the brief could not be written
	nothing sign = "nothing"      // there was nothing to tell
)

// moves are all that there are. A sign that a phase does not list changes nothing: whoever sends it is told nothing.
var moves = map[phase]map[sign]phase{
	unasked: {start: telling, missed: owed},
	telling: {reached: told, lost: owed, nothing: unasked},
	told:    {start: telling, missed: owed},
	owed:    {start: telling, carrier: telling},
}

// phaseOf reads the phase of a session from its state, which holds what must survive the daemon; busy says that a
// client is being told.
func phaseOf(st *checkpoint.State, busy bool) phase {
	switch {
	case busy:
		return telling
	case st.OwedTo:
		return owed
	case st.Given != nil && st.Given.News == st.News:
		return told
	}
	return unasked
}
