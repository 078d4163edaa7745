// Package checkpoint is the heart of belay: what a session's state is (a pure fold over events), when a checkpoint of
// it is due (the gates), what a checkpoint holds and how it is written down, and the contract of the stores that keep
// it.
//
// Nothing here reads a clock, a disk or a socket; the same events give the same state, in the daemon, after a restart
// and in `belay recover` without a daemon.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
)

// StateFormat is the version of State's JSON form. A newer one is refused, an older one is read.
const StateFormat = 1

// Bounds of a state. They hold whatever the agent does.
const (
	maxTurns                      = 32
	maxDoubles                    = 64
	keepUsers                     = 20 // newest user messages, each up to keepUserBytes
	keepReplies                   = 40 // newest assistant messages, each up to keepReplyBytes
	keepWhole                     = 2  // newest of each role that keep up to CutText bytes
	maxNotes                      = 50
	maxOpen                       = 256
	maxEnded                      = 50
	maxEndedIDs                   = 512
	maxFiles                      = 100
	maxChildren                   = 64
	keepUserBytes, keepReplyBytes = 4 << 10, 2 << 10
	noteBytes                     = 1 << 10
)

// DoubleWindow is how long an equal hook payload counts as the same event.
const DoubleWindow = 10 * time.Second

// State is all that belay knows of one session. Times are the daemon's receive times unless a field says otherwise.
type State struct {
	Format int    `json:"format"`
	Key    Key    `json:"key"`
	Seq    uint64 `json:"seq"` // last journal number folded in

	Parent    string    `json:"parent,omitempty"` // a child's parent session id
	Workspace string    `json:"workspace,omitempty"`
	Title     string    `json:"title,omitempty"`
	Part      int       `json:"part,omitempty"` // grows with each clear
	Began     time.Time `json:"began,omitzero"`
	LastEvent time.Time `json:"last_event,omitzero"`
	LastHook  time.Time `json:"last_hook,omitzero"` // of what the agent did, not of beats and marks
	LastFile  time.Time `json:"last_file,omitzero"` // when the transcript last gave something
	Source    string    `json:"source,omitempty"`   // of the last start
	Model     string    `json:"model,omitempty"`
	Mode      string    `json:"mode,omitempty"`

	Transcript string `json:"transcript,omitempty"`
	Cursor     Cursor `json:"cursor,omitempty"`
	Reread     bool   `json:"reread,omitempty"` // the transcript's past changed and is being read again
	Losses     Losses `json:"losses,omitzero"`
	Skipped    int64  `json:"skipped,omitempty"` // bytes not read at first sight
	Dropped    int    `json:"dropped,omitempty"` // events of this session that were lost

	Task      string `json:"task,omitempty"`
	TaskSet   bool   `json:"task_set,omitempty"` // by an event; else it follows the prompts
	Decisions []Note `json:"decisions,omitempty"`
	Notes     []Note `json:"notes,omitempty"`

	Rounds      int       `json:"rounds"`                 // rounds of the session: messageCount
	SinceSparse int       `json:"since_sparse,omitempty"` // rounds since the last SPARSE
	Turns       []Turn    `json:"turns,omitempty"`
	TurnSeq     int       `json:"turn_seq,omitempty"`
	Messages    []Message `json:"messages,omitempty"`
	MsgSeq      uint64    `json:"msg_seq,omitempty"`
	Calls       []Call    `json:"calls,omitempty"`
	EndedIDs    []uint64  `json:"ended_ids,omitempty"` // hashes of ended calls: they never reopen
	StartsSeen  bool      `json:"starts_seen,omitempty"`
	Anonymous   int       `json:"anonymous,omitempty"`
	Chain       bool      `json:"chain,omitempty"` // pendingToolChain
	Files       []string  `json:"files,omitempty"` // touched, newest last
	Children    []Child   `json:"children,omitempty"`

	Proc     *Proc   `json:"proc,omitempty"`
	Live     bool    `json:"live,omitempty"`   // started and not ended
	Ending   *Ending `json:"ending,omitempty"` // how it last ended; kept while it goes on
	Deaths   int     `json:"deaths,omitempty"`
	Given    *Given  `json:"given,omitempty"` // the last brief that was given
	OwedTo   bool    `json:"owed_to,omitempty"`
	Compacts bool    `json:"compacts,omitempty"` // a compaction hook came and its boundary did not yet
	Boundary uint64  `json:"boundary,omitempty"` // hash of the id of the last boundary in the transcript

	News       uint64    `json:"news"` // grows with everything that a checkpoint would show
	LastSparse *Taken    `json:"last_sparse,omitempty"`
	LastFull   *Taken    `json:"last_full,omitempty"`
	LastForced time.Time `json:"last_forced,omitzero"`
	LastNumber uint64    `json:"last_number,omitempty"`
	MarkSeq    uint64    `json:"mark_seq,omitempty"` // MsgSeq at the last checkpoint
	MarkAt     time.Time `json:"mark_at,omitzero"`
	OwedFull   Cause     `json:"owed_full,omitempty"`
	OwedNews   uint64    `json:"owed_news,omitempty"` // News that the owed FULL must hold
	OwedSparse bool      `json:"owed_sparse,omitempty"`
	Gap        *Gap      `json:"gap,omitempty"` // a degraded spell that no checkpoint has stated yet

	Doubles []uint64  `json:"doubles,omitempty"` // hashes of the newest client event ids
	LastSum uint64    `json:"last_sum,omitempty"`
	SumAt   time.Time `json:"sum_at,omitzero"`
}

// Note is something the user marked.
type Note struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Ending is how a session ended.
type Ending struct {
	At     time.Time `json:"at"`
	Clean  bool      `json:"clean"`
	Reason string    `json:"reason,omitempty"`
	InTurn bool      `json:"in_turn,omitempty"` // a prompt without its answer, or an open call
	Gone   bool      `json:"gone,omitempty"`    // its process is gone
	Told   bool      `json:"told,omitempty"`    // its parent told why
}

// Given is a brief that reached a client.
type Given struct {
	At        time.Time `json:"at"`
	Marker    string    `json:"marker"`
	Death     int       `json:"death"`
	News      uint64    `json:"news"`                // State.News then: what came later was not told
	Confirmed bool      `json:"confirmed,omitempty"` // the marker was seen in the transcript
}

// Gap is a spell in which checkpoints could not be written.
type Gap struct {
	From   time.Time `json:"from"`
	Reason string    `json:"reason,omitempty"`
}

// Effect is what one event did, as far as the gates need it.
type Effect struct {
	Double   bool  // it was there before: nothing changed
	Round    bool  // a round ended
	ChainEnd bool  // a pending tool chain ended
	Beat     bool  // a heartbeat
	Force    Cause // a forced FULL is due; empty when not
}

// NewState begins a session.
func NewState(key Key) *State { return &State{Format: StateFormat, Key: key} }

// Clone copies a state deeply.
func (s *State) Clone() *State {
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("state of %s has no JSON form: %v", s.Key, err)) // plain data always has one
	}

	c := new(State)
	if err := json.Unmarshal(data, c); err != nil {
		panic(fmt.Sprintf("state of %s does not read its own JSON: %v", s.Key, err))
	}

	return c
}

// DecodeState reads the JSON form of a state.
func DecodeState(data []byte) (*State, error) {
	s := new(State)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	if s.Format > StateFormat {
		return nil, fmt.Errorf("read state: format %d is newer than this belay's %d", s.Format, StateFormat)
	}
	if s.Key.Agent == "" || s.Key.Session == "" {
		return nil, fmt.Errorf("read state: no session in it")
	}

	return s, nil
}

// InTurn says whether the agent is at work: a prompt waits for its answer, or a call is open.
func (s *State) InTurn() bool {
	return s.working() != nil || s.openCalls(false) > 0
}

// Apply folds one event in. It never fails: an event that makes no sense changes little or nothing.
func (s *State) Apply(e Event) Effect {
	if e.Seq > s.Seq {
		s.Seq = e.Seq
	}

	e.At = sane(e.At)
	if s.double(e) {
		return Effect{Double: true}
	}
	if s.Began.IsZero() {
		s.Began = e.At
	}
	if sign(e.Kind) && e.At.After(s.LastEvent) {
		s.LastEvent = e.At
	}

	s.about(e)
	var f Effect
	switch e.Kind {
	case EventStart:
		f = s.start(e)
	case EventPrompt:
		f = s.prompt(e)
	case EventStop:
		f = s.stop(e)
	case EventToolStart:
		s.toolStart(e)
	case EventToolEnd:
		f = s.toolEnd(e)
	case EventCompacting:
		s.Compacts = true
		f.Force = CauseCompaction
	case EventCompacted:
	case EventChildStart, EventChildEnd:
		s.child(e, true)
	case EventEnd:
		f = s.end(e)
	case EventExit:
		f = s.exit(e)
	case EventMark:
		f = s.mark(e)
	case EventTask:
		if e.Text != "" {
			s.Task, _ = Shorten(e.Text, keepUserBytes)
			s.TaskSet = true
			s.News++
		}

	case EventBeat:
		f.Beat = true
	default:
		f = s.own(e)
	}

	if sign(e.Kind) && e.Kind != EventEntries {
		s.LastHook = e.At
	}

	return f
}

// sign says whether an event shows the agent at work, and not only that belay, its clock or a person beside it was.
func sign(k EventKind) bool {
	switch k {
	case EventStart,
		EventPrompt,
		EventStop,
		EventToolStart,
		EventToolEnd,
		EventCompacting,
		EventCompacted,
		EventChildStart,
		EventChildEnd,
		EventEnd,
		EventEntries:
		return true
	}
	return false
}

// sane is a time that has a JSON form: agents write anything into their stamps.
func sane(t time.Time) time.Time {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}

// own folds what the daemon itself reports.
func (s *State) own(e Event) Effect {
	switch e.Kind {
	case EventEntries:
		return s.entries(e)
	case EventCheckpoint:
		if e.Taken != nil {
			s.taken(*e.Taken)
		}

	case EventGiven:
		s.Given = &Given{At: e.At, Marker: e.Marker, Death: s.Deaths, News: s.News}
		s.OwedTo = false
		for i := range s.Calls {
			if c := &s.Calls[i]; c.State == CallDoubt || c.State == CallOpen && c.Background || c.Unfiled() {
				c.Told = true
			}
		}

	case EventOwed:
		s.OwedTo = true
		if e.Source != "" {
			s.Source = e.Source
		}

	case EventProcs:
		if c := s.call(e.Call); c != nil && c.State == CallOpen {
			c.Procs = e.Procs
		}

	case EventDropped:
		s.Dropped += e.Count
		s.News++
	case EventDegraded:
		if s.Gap == nil {
			s.Gap = &Gap{From: e.At, Reason: e.Reason}
		}
	}
	return Effect{}
}

// double says whether an event was folded in before (the same client event id; else equal bytes within
// the window with no other event of that session between; same turn and tool ids are recognised where they are folded).
func (s *State) double(e Event) bool {
	if e.ID != "" {
		h := Hash(e.ID)
		for _, d := range s.Doubles {
			if d == h {
				return true
			}
		}
		s.Doubles = keepNewest(append(s.Doubles, h), maxDoubles)
	}

	switch e.Kind {
	case EventEntries, EventCheckpoint, EventGiven, EventOwed, EventProcs, EventDropped, EventDegraded:
		return false // the daemon's own events neither double nor stand between
	}

	same := e.Sum != 0 && e.Sum == s.LastSum && e.At.Sub(s.SumAt) < DoubleWindow && s.SumAt.Sub(e.At) < DoubleWindow
	s.LastSum, s.SumAt = e.Sum, e.At
	return same
}

// about keeps what any event may say of its session.
func (s *State) about(e Event) {
	if e.Workspace != "" && s.Workspace == "" {
		s.Workspace = e.Workspace
	}
	if e.Transcript != "" {
		s.Transcript = e.Transcript
	}
	if e.Parent != "" {
		s.Parent = e.Parent
	}
	if e.Model != "" {
		s.Model = e.Model
	}
	if e.Mode != "" {
		s.Mode = e.Mode
	}
	if s.Ending != nil && !s.Ending.Gone && (e.Kind == EventPrompt || e.Kind == EventToolStart) {
		s.Live = true // it goes on after its good-bye
	}
	if e.Proc == nil || e.Kind == EventExit || e.Kind == EventStart {
		return
	}
	if s.Ending != nil && s.Ending.Gone && !s.Live && s.Proc != nil && *s.Proc == *e.Proc {
		return // a late event of a process that is gone
	}

	s.Proc = e.Proc
	s.Live = s.Live || e.Kind != EventEnd // a second good-bye wakes nobody
}

func (s *State) start(e Event) Effect {
	var f Effect
	sameProc := e.Proc != nil && s.Proc != nil && *e.Proc == *s.Proc
	switch e.Source {
	case "clear":
		s.newPart()
	case "compact":
	default:
		if s.Live && !sameProc && s.InTurn() {
			s.die(e.At, "went unseen: the session started again", true, &f)
		}
	}

	s.Source, s.Live = e.Source, true
	if e.Proc != nil {
		s.Proc = e.Proc
	}

	return f
}

// newPart forgets everything of the conversation: what was cleared is never given again.
func (s *State) newPart() {
	s.Part++
	s.Title, s.Task, s.TaskSet = "", "", false
	s.Decisions, s.Notes = nil, nil
	s.Turns, s.Messages, s.Calls, s.Files, s.Children = nil, nil, nil, nil, nil
	s.Chain, s.Ending, s.OwedTo, s.Compacts = false, nil, false, false
	s.News++
}

func (s *State) mark(e Event) Effect {
	if e.Text == "" {
		return Effect{}
	}

	s.News++
	note := Note{At: e.At}
	note.Text, _ = Shorten(e.Text, noteBytes)
	if !e.Decision {
		s.Notes = keepNewest(append(s.Notes, note), maxNotes)
		return Effect{}
	}

	s.Decisions = keepNewest(append(s.Decisions, note), maxNotes)
	return Effect{Force: CauseDecision}
}

// Hash is the short hash that states keep of texts and ids.
func Hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // a hash cannot fail
	return h.Sum64()
}

// textHash compares texts across witnesses: white space at the ends does not count, nor does what a cut may have taken.
func textHash(s string) uint64 {
	s = strings.TrimSpace(s)
	if len(s) > 1024 {
		s = s[:1024]
	}
	return Hash(s)
}

func keepNewest[T any](list []T, most int) []T {
	if n := len(list) - most; n > 0 {
		return slices.Delete(list, 0, n)
	}
	return list
}
