// Package wire is the socket's language: one JSON object a line, each way, in order, pipelined. docs/protocol.md is its
// description for people who write clients.
//
// A request whose Len is not zero is followed by so many raw bytes; so is a reply.
package wire

import (
	"encoding/json"
	"time"
)

// Version of the protocol. A peer with the same version needs no restart; unknown fields and ops are answered, not
// fatal.
const Version = 1

// Bounds.
const (
	MaxLine    = 1 << 20  // bytes of one request line; over it the connection ends, that one only
	MaxPayload = 16 << 20 // raw bytes after a line; the rest is dropped and the event marked cut
)

// Deadlines of a hook's client.
const (
	EventDeadline = 100 * time.Millisecond // for an event
	BriefDeadline = time.Second            // where the agent waits for a brief
)

// The values of Reply.Kept.
const (
	KeptDisk   = "disk"   // on stable storage
	KeptMemory = "memory" // the journal's disk fails: in a bounded ring in memory
	KeptEarly  = "early"  // answered before the write, as asked for

	KeptNothing = "nothing" // the session is ephemeral: it was not to be kept
)

// Request is one line from a client. An object without "op" is a payload of the agent named in "hello".
type Request struct {
	V int `json:"v,omitempty"`
	// hello hook event verb checkpoint check status list show recover mark reset subscribe
	Op string `json:"op,omitempty"`
	ID string `json:"id,omitempty"` // client event id: doubles are dropped

	Agent     string `json:"agent,omitempty"`
	Event     string `json:"event,omitempty"` // hook: the event's name
	Account   string `json:"account,omitempty"`
	Session   string `json:"session,omitempty"`
	Child     string `json:"child,omitempty"`
	Workspace string `json:"workspace,omitempty"` // the client's working directory
	PID       int    `json:"pid,omitempty"`       // the agent's process
	Cut       bool   `json:"cut,omitempty"`
	Early     bool   `json:"early,omitempty"`
	Spooled   int64  `json:"spooled,omitempty"` // Unix ms: the event waited in the spool since then
	Len       int    `json:"len,omitempty"`

	Body json.RawMessage `json:"body,omitempty"` // op event: the event; others: their options
}

// Error codes.
const (
	CodeBadRequest   = "bad_request"
	CodeUnknownOp    = "unknown_op"
	CodeUnknownAgent = "unknown_agent"
	CodeNotFound     = "not_found"
	CodeDegraded     = "degraded"
	CodeStopping     = "stopping"
	CodeInternal     = "internal"
)

// Reply is one line to a client. Len comes last, so that a client without a JSON parser finds it at the line's end.
type Reply struct {
	OK      bool   `json:"ok"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`

	Seq      uint64          `json:"seq,omitempty"`
	Kept     string          `json:"kept,omitempty"`
	Decision *Decision       `json:"decision,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`
	Len      int             `json:"len,omitempty"`
}

// Decision is the wire form of a gate's answer.
type Decision struct {
	Take   bool   `json:"take"`
	Kind   string `json:"kind,omitempty"` // SPARSE or FULL
	Code   string `json:"code"`
	Text   string `json:"text"`
	Owed   bool   `json:"owed,omitempty"`
	Number uint64 `json:"number,omitempty"` // of the checkpoint, where the reply waited for it
}

// Event is an event of op "event" and "mark", as a client writes it. Every field but kind is optional.
type Event struct {
	// start prompt stop tool-start tool-end compacting compacted child-start child-end end exit mark task beat
	Kind string `json:"kind"`
	Text string `json:"text,omitempty"`
	Turn string `json:"turn,omitempty"` // prompt or turn id

	Source  string `json:"source,omitempty"`  // start: startup, resume, clear, compact, fork
	Reason  string `json:"reason,omitempty"`  // end, exit
	Outcome string `json:"outcome,omitempty"` // stop: failed, interrupted; empty for done
	Aside   bool   `json:"aside,omitempty"`   // a heartbeat or cron turn: no round

	Call       string `json:"call,omitempty"` // tool call id
	Name       string `json:"name,omitempty"`
	Input      string `json:"input,omitempty"`
	Output     string `json:"output,omitempty"`
	Failed     bool   `json:"failed,omitempty"`
	Background bool   `json:"background,omitempty"`
	// this client sends no ends of turns: a tool chain ends with its last open call
	Bare bool `json:"bare,omitempty"`

	Child     string `json:"child,omitempty"`
	ChildName string `json:"child_name,omitempty"`
	Parent    string `json:"parent,omitempty"`

	Decision   bool   `json:"decision,omitempty"` // mark: keep it among the decisions
	Transcript string `json:"transcript,omitempty"`
	Model      string `json:"model,omitempty"`
	Mode       string `json:"mode,omitempty"`
	PID        int    `json:"pid,omitempty"`       // the agent's process, so that its end is noticed
	Ephemeral  bool   `json:"ephemeral,omitempty"` // a session of which nothing is kept
}
