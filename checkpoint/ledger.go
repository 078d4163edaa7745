package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CallState is where a tool call stands.
type CallState string

const (
	CallOpen   CallState = "open"
	CallDone   CallState = "done"
	CallFailed CallState = "failed"
	CallDoubt  CallState = "in doubt" // the agent died while it was open, or made its result up
)

// Call is one row of the ledger.
type Call struct {
	ID         string    `json:"id"`
	Name       string    `json:"name,omitempty"`
	Digest     string    `json:"digest,omitempty"` // one line of its arguments
	State      CallState `json:"state"`
	At         time.Time `json:"at"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
	Turn       int       `json:"turn,omitempty"`
	Num        uint64    `json:"num,omitempty"`     // the message that it follows
	Started    bool      `json:"started,omitempty"` // a hook saw it start
	Asked      bool      `json:"asked,omitempty"`   // the transcript holds it
	Filed      bool      `json:"filed,omitempty"`   // the transcript holds its true result too
	Mutates    bool      `json:"mutates,omitempty"` // it may change something
	Background bool      `json:"background,omitempty"`
	Bare       bool      `json:"bare,omitempty"`
	Anonymous  bool      `json:"anonymous,omitempty"` // its client names no ids: ID is belay's own
	Death      int       `json:"death,omitempty"`     // in doubt since this death
	Told       bool      `json:"told,omitempty"`      // a brief named it
	Alike      uint64    `json:"alike,omitempty"`     // as in Event
	Also       string    `json:"also,omitempty"`      // the id that the other witness gives it
	Procs      []Proc    `json:"procs,omitempty"`     // the agent's descendants while it was open
}

// Unfiled says that the call is known to have ended and the transcript, which holds the call, does not hold its result:
// the agent died before it wrote it, and may tell the model that the outcome is unknown.
func (c Call) Unfiled() bool {
	return c.Asked && c.Started && !c.Filed && (c.State == CallDone || c.State == CallFailed)
}

// NotSeenToStart says that the model asked for the call and nobody saw it start, although starts are seen in this
// session.
func (c Call) NotSeenToStart(s *State) bool { return c.Asked && !c.Started && s.StartsSeen }

func (s *State) call(id string) *Call {
	for i := len(s.Calls) - 1; i >= 0 && id != ""; i-- {
		if c := &s.Calls[i]; c.ID == id || c.Also == id {
			return c
		}
	}
	return nil
}

// callOf gives the call that a witness tells of. Where hooks and file name one call by two ids, it is the oldest one
// like it that only the other witness has told of; what had ended before a call started is another.
func (s *State) callOf(id string, alike uint64, by witness, at time.Time) *Call {
	c := s.call(id)
	if c != nil || id == "" || alike == 0 || s.hasEnded(id) {
		return c
	}

	for i := range s.Calls {
		c := &s.Calls[i]
		ended := c.State == CallDone || c.State == CallFailed
		switch {
		case c.Alike != alike, c.Also != "":
		case by == byFile && !c.Asked,
			by == byHook && !c.Started && (c.State == CallOpen || ended && c.EndedAt.After(at)):
			if c.Also = id; ended {
				s.EndedIDs = keepNewest(append(s.EndedIDs, Hash(id)), maxEndedIDs)
			}
			return c
		}
	}

	return nil
}

// openCalls counts the calls that are open; those in the background only when asked for.
func (s *State) openCalls(background bool) int {
	n := 0
	for _, c := range s.Calls {
		if c.State == CallOpen && (background || !c.Background) {
			n++
		}
	}
	return n
}

// InDoubt gives the calls whose outcome is unknown, oldest first: those of the last death (all of them, told or not),
// and those that are open now.
func (s *State) InDoubt() []Call {
	var list []Call
	for _, c := range s.Calls {
		if c.State == CallOpen || c.State == CallDoubt && c.Death == s.Deaths {
			list = append(list, c)
		}
	}
	return list
}

func (s *State) hasEnded(id string) bool {
	h := Hash(id)
	for _, e := range s.EndedIDs {
		if e == h {
			return true
		}
	}
	return false
}

// nameless makes an id for a call whose client names none.
func (s *State) nameless() string {
	for {
		s.Anonymous++
		if id := fmt.Sprintf("call-%d", s.Anonymous); s.call(id) == nil && !s.hasEnded(id) {
			return id
		}
	}
}

func (s *State) toolStart(e Event) {
	s.StartsSeen = true
	c := s.callOf(e.Call, e.Alike, byHook, e.At)
	switch {
	case e.Call == "":
		c = s.newCall(Call{ID: s.nameless(), At: e.At, Bare: e.Bare, Anonymous: true})
	case s.hasEnded(e.Call):
		return
	case c == nil:
		c = s.newCall(Call{ID: e.Call, At: e.At, Bare: e.Bare, Alike: e.Alike})
	case !c.Started:
		c.At, c.Bare = e.At, e.Bare // the agent's own stamp may be wrong
	}

	c.Started = true
	c.describe(e.Name, e.Input, e.Act)
	s.touch(c, e.File)
	if c.State == CallOpen && !c.Background {
		s.Chain = true
	}
}

// openNameless is the newest open call without an id of its own.
func (s *State) openNameless() *Call {
	for i := len(s.Calls) - 1; i >= 0; i-- {
		if c := &s.Calls[i]; c.Anonymous && c.State == CallOpen {
			return c
		}
	}
	return nil
}

func (s *State) toolEnd(e Event) Effect {
	c := s.callOf(e.Call, e.Alike, byHook, e.At)
	if e.Call == "" {
		c = s.openNameless()
	}

	switch {
	case c == nil && e.Call == "" && e.Bare:
		return Effect{} // an end without any start
	case e.Call != "" && s.hasEnded(e.Call):
		return Effect{}
	case c == nil:
		id, nameless := e.Call, e.Call == ""
		if nameless {
			id = s.nameless()
		}

		c = s.newCall(Call{ID: id, At: e.At, Started: true, Anonymous: nameless, Alike: e.Alike})
		if t := s.lastTurn(); t != nil && !t.Ended {
			s.Chain = true
		}
	}

	c.describe(e.Name, e.Input, e.Act)
	s.touch(c, e.File)
	bare := c.Bare || e.Bare
	if e.Background {
		c.Background = true
		s.News++
	} else {
		s.finish(c, e.Failed, e.At)
	}

	var f Effect
	if bare && s.openCalls(false) == 0 {
		s.endChain(&f)
	}

	return f
}

// finish ends a call; an outcome that is known never changes again.
func (s *State) finish(c *Call, failed bool, at time.Time) {
	if c.State != CallOpen && c.State != CallDoubt {
		return
	}

	c.State = CallDone
	if failed {
		c.State = CallFailed
	}

	c.EndedAt, c.Procs, c.Death = at, nil, 0
	s.EndedIDs = append(s.EndedIDs, Hash(c.ID))
	if c.Also != "" {
		s.EndedIDs = append(s.EndedIDs, Hash(c.Also))
	}

	s.EndedIDs = keepNewest(s.EndedIDs, maxEndedIDs)
	s.News++
	s.pruneCalls()
}

func (s *State) newCall(c Call) *Call {
	c.State, c.Turn, c.Num = CallOpen, s.TurnSeq, s.MsgSeq
	s.Calls = append(s.Calls, c)
	s.News++
	s.pruneCalls()
	return &s.Calls[len(s.Calls)-1]
}

// pruneCalls keeps every open call up to a bound, and the newest ended ones.
func (s *State) pruneCalls() {
	matters := func(c Call) bool {
		return c.State == CallOpen || c.State == CallDoubt && c.Death == s.Deaths
	}
	open, ended := -maxOpen, -maxEnded // too many by so many
	for _, c := range s.Calls {
		if matters(c) {
			open++
		} else {
			ended++
		}
	}

	if open <= 0 && ended <= 0 {
		return
	}

	s.Calls = slices.DeleteFunc(s.Calls, func(c Call) bool {
		n := &ended
		if matters(c) {
			n = &open
		}
		*n--
		return *n >= 0
	})
}

// describe fills in what is known of a call: the tool's name and its arguments, and what its agent says of them. One
// that names no tool says nothing new of a tool that is known by its name.
func (c *Call) describe(name, input string, a Act) {
	first := c.Name == "" && name != ""
	if first || c.Digest == "" && input != "" && (name != "" || c.Name == "") {
		c.Mutates = !a.Reads
	}
	if first {
		c.Name = name
	}
	if c.Digest == "" {
		c.Digest = cmp.Or(a.Digest, wholeInput(input))
	}
}

// touch keeps the file that a call changes.
func (s *State) touch(c *Call, file string) {
	if !c.Mutates || file == "" {
		return
	}
	s.Files = slices.DeleteFunc(s.Files, func(f string) bool { return f == file })
	s.Files = keepNewest(append(s.Files, file), maxFiles)
}

// wholeInput is the line for a call of which nobody has said what its arguments tell: all of them, without spaces where
// they are JSON.
func wholeInput(input string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(input)) == nil {
		input = b.String()
	}
	if input == "{}" || input == "null" {
		return ""
	}

	return Line(input)
}

const lineBytes = 240

// Line makes one bounded line of a text.
func Line(s string) string {
	s = strings.Join(strings.Fields(headBytes(s, 8*lineBytes)), " ")
	s, _ = Shorten(s, lineBytes)
	return s
}
