package checkpoint

import "time"

// EventKind is the kind of an Event.
type EventKind string

const (
	EventStart  EventKind = "start"  // a session began or goes on; Source says why
	EventPrompt EventKind = "prompt" // the user's words; opens a turn
	// the agent handed back: the turn ended (Outcome); Text is the last answer
	EventStop       EventKind = "stop"
	EventToolStart  EventKind = "tool-start"  // a tool call is about to run
	EventToolEnd    EventKind = "tool-end"    // it ended
	EventCompacting EventKind = "compacting"  // the context is about to be compacted
	EventCompacted  EventKind = "compacted"   // it was
	EventChildStart EventKind = "child-start" // to the parent: a sub-agent (Child) began
	EventChildEnd   EventKind = "child-end"   // to the parent: it ended
	EventEnd        EventKind = "end"         // the session ended by itself; Reason
	EventExit       EventKind = "exit"        // the agent's process is gone; Reason when known
	EventMark       EventKind = "mark"        // Text is a note of the user's; with Decision it is kept for good
	EventTask       EventKind = "task"        // Text is the task now
	EventBeat       EventKind = "beat"        // heartbeat; by cron, or by an agent with a heartbeat of its own

	// Made by the daemon itself.
	EventEntries    EventKind = "entries"    // what a transcript reader found
	EventCheckpoint EventKind = "checkpoint" // a checkpoint is in the store
	EventGiven      EventKind = "given"      // a brief's bytes were written to a waiting client
	EventOwed       EventKind = "owed"       // a brief could not be given: the next event that can carry it does
	EventProcs      EventKind = "procs"      // the agent's descendant processes while a call runs
	EventDropped    EventKind = "dropped"    // Count events of this session were lost
	EventDegraded   EventKind = "degraded"   // the store's breaker opened (Reason) while the session had something new
)

// Event is one thing that happened to a session, normalised, redacted and cut: what the journal keeps. Every field but
// Kind and Key is optional; a fold over events must not fail on any combination.
type Event struct {
	Seq  uint64    `json:"-"` // the journal's number; the order of all things
	At   time.Time `json:"at"`
	Key  Key       `json:"key"`
	Kind EventKind `json:"kind"`
	ID   string    `json:"id,omitempty"` // client event id
	// Sum is a hash of a hook's payload: equal ones within DoubleWindow, with no other event of the session between,
	// are one event. 0 for clients whose every call counts.
	Sum uint64 `json:"sum,omitempty"`

	Turn string `json:"turn,omitempty"` // prompt or turn id
	Text string `json:"text,omitempty"`
	// Aside marks a heartbeat or cron turn: no round.
	Aside bool `json:"aside,omitempty"`

	Source  string  `json:"source,omitempty"` // start: startup, resume, clear, compact, fork, or empty
	Reason  string  `json:"reason,omitempty"` // end, exit, compacting: the agent's word
	Outcome Outcome `json:"outcome,omitempty"`

	// Tools. Bare marks calls of a client that sends nothing but tool-start and tool-end: its chain ends with the last
	// open call.
	Call       string `json:"call,omitempty"`
	Name       string `json:"name,omitempty"`
	Input      string `json:"input,omitempty"`
	Output     string `json:"output,omitempty"`
	Failed     bool   `json:"failed,omitempty"`
	Background bool   `json:"background,omitempty"`
	Bare       bool   `json:"bare,omitempty"`
	// Alike is equal for equal calls, of agents whose hooks and transcript have no id of a call in common: it joins
	// what the two tell of one. 0 for all others.
	Alike uint64 `json:"alike,omitempty"`
	Act

	Child      string `json:"child,omitempty"`
	ChildName  string `json:"child_name,omitempty"`
	Parent     string `json:"parent,omitempty"` // on a child's start: the parent's session id
	Decision   bool   `json:"decision,omitempty"`
	Transcript string `json:"transcript,omitempty"` // path, as the agent names it
	Workspace  string `json:"workspace,omitempty"`  // real path
	Model      string `json:"model,omitempty"`
	Mode       string `json:"mode,omitempty"`
	Proc       *Proc  `json:"proc,omitempty"`
	Procs      []Proc `json:"procs,omitempty"`
	Count      int    `json:"count,omitempty"`

	// EventEntries.
	Entries []Entry `json:"entries,omitempty"`
	Cursor  Cursor  `json:"cursor,omitempty"`
	Losses  *Losses `json:"losses,omitempty"`
	First   bool    `json:"first,omitempty"`
	Skipped int64   `json:"skipped,omitempty"`

	// EventCheckpoint.
	Taken *Taken `json:"taken,omitempty"`
	// EventGiven and EventOwed: the brief's marker, which turns up in the transcript later.
	Marker string `json:"marker,omitempty"`
}

// Act is what a tool call does, as far as its agent can tell. The zero value is a call that may change something:
// records of old say no more.
type Act struct {
	Reads  bool   `json:"reads,omitempty"`  // it changes nothing
	File   string `json:"file,omitempty"`   // the file that it changes, as the call names it
	Digest string `json:"digest,omitempty"` // the telling one of its arguments, in one line (Line)
}

// Outcome is how a turn ended.
type Outcome string

const (
	OutcomeDone        Outcome = ""
	OutcomeFailed      Outcome = "failed"
	OutcomeInterrupted Outcome = "interrupted"
)

// Proc is a process that cannot be mistaken for a later one with the same number.
type Proc struct {
	PID int `json:"pid"`
	// start time in clock ticks since boot (Linux) or Unix microseconds (macOS); 0 unknown
	Start uint64 `json:"start,omitempty"`
	Boot  string `json:"boot,omitempty"` // boot id; empty unknown
	Name  string `json:"name,omitempty"`
}

// Taken is the bookkeeping of one checkpoint, folded into the state.
type Taken struct {
	Number uint64    `json:"number"`
	Level  Level     `json:"level"`
	Cause  Cause     `json:"cause"`
	At     time.Time `json:"at"`
	Seq    uint64    `json:"seq"`     // the state held events up to this number
	News   uint64    `json:"news"`    // State.News at that moment
	MsgSeq uint64    `json:"msg_seq"` // State.MsgSeq at that moment
	Rounds int       `json:"rounds"`  // State.Rounds at that moment
	Both   bool      `json:"both,omitempty"`
	Failed string    `json:"failed,omitempty"` // why it is not in the store; nothing but the forced gate moves
	Gap    bool      `json:"gap,omitempty"`    // the catch-up that states a degraded spell
}
