package checkpoint

import "time"

// Child is a sub-agent of this session.
type Child struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	At      time.Time `json:"at"`
	Running bool      `json:"running,omitempty"`
	Told    bool      `json:"told,omitempty"` // an event told of it, not the file alone
}

// child notes that a sub-agent began or ended; told says that an event said so.
func (s *State) child(e Event, told bool) {
	for i := range s.Children {
		if s.Children[i].ID == e.Child {
			s.Children[i].Told = s.Children[i].Told || told
			s.Children[i].Running = e.Kind == EventChildStart
			if s.Children[i].Name == "" {
				s.Children[i].Name = e.ChildName
			}
			s.News++
			return
		}
	}
	if e.Kind == EventChildStart && e.Child != "" {
		s.Children = keepNewest(
			append(s.Children, Child{ID: e.Child, Name: e.ChildName, At: e.At, Running: true, Told: told}),
			maxChildren,
		)
		s.News++
	}
}

// childEntry folds in what a file says of a sub-agent. The file may be behind the events: where those told of the
// sub-agent, it never makes it run again.
func (s *State) childEntry(n Entry, at time.Time) {
	begins := n.Kind == EntryChildStart
	for _, c := range s.Children {
		if c.ID == n.Child && (c.Running == begins || c.Told && begins) {
			return
		}
	}

	e := Event{Kind: EventChildEnd, Child: n.Child, ChildName: n.Name, At: at}
	if begins {
		e.Kind = EventChildStart
	}

	s.child(e, false)
}
