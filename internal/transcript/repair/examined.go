// Package repair examines an agent's transcript of lines: what it holds, what is damaged, whether the agent itself
// would resume it, and which smallest edits make it whole. The agents say what their records mean (Form); what is wrong
// and how it is mended is decided here, in one way for all.
//
// It promises:
//   - The transcript is only read. Repair writes another file, which must not exist yet, as a whole or not at all.
//   - An edit touches what is broken and nothing else: every other byte is copied unchanged.
//   - No whole record is lost, except a repeat of one that stays; what is cut is reported with its line and offset.
//   - A repaired file has nothing left to repair.
//   - Memory grows with the number of records (some 300 bytes each), never with their size, and work is linear.
//
// It does not judge what was said, does not choose between branches of a conversation (two windows, a rewind), and
// invents only what a loader needs: the end of a call whose outcome is unknown, the call of a lone result, a header.
package repair

import (
	"encoding/json"

	"belay/checkpoint"
)

// Report says what a transcript holds.
type Report struct {
	Agent       string               `json:"agent"`
	File        string               `json:"file"`
	Bytes       int64                `json:"bytes"`
	Records     int                  `json:"records"` // whole ones, rescued ones among them, repeats left out
	Bad         []checkpoint.BadLine `json:"bad"`
	TornBytes   int64                `json:"torn_bytes"`
	Holes       []Hole               `json:"holes"`
	Repeats     int                  `json:"repeats"`
	Rescued     int                  `json:"rescued"`
	OpenCalls   []OpenCall           `json:"open_calls"`
	Compactions int                  `json:"compactions"`
	Generations int                  `json:"generations"` // this file, and older ones that belay's mirror keeps
	Resumable   bool                 `json:"resumable"`
	WhyNot      []string             `json:"why_not"`
}

// Hole is a run of NUL bytes where a record should begin: what a crash leaves of a block that never reached the disk.
type Hole struct {
	Line   int64 `json:"line"`
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// OpenCall is a call without a result.
type OpenCall struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	Line   int64  `json:"line"`
	Offset int64  `json:"offset"`
}

// Change is one edit of a repair, with its place in the original.
type Change struct {
	Line   int64  `json:"line,omitempty"` // 0 when it is of the file as a whole
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"` // of the original that are not in the copy
	Action Action `json:"action"`
	What   string `json:"what"`
}

// Action is the kind of a change: what was found wrong.
type Action string

// The actions, each after what it mends.
const (
	CutTorn    Action = "cut torn tail"
	CutBad     Action = "cut bad line"
	CutStub    Action = "cut stub"            // beside a whole record
	Split      Action = "split fused records" // whole ones on one line
	TrimHole   Action = "cut hole"
	TrimBefore Action = "trim NULs before record"
	TrimAfter  Action = "trim NULs after record"
	TrimMark   Action = "cut byte-order mark"
	EndLine    Action = "end last line"
	DropRepeat Action = "drop repeat"
	Relink     Action = "mend parent"
	Uncycle    Action = "break cycle"
	CloseCall  Action = "close call"
	RemakeCall Action = "remake call"
	MakeHeader Action = "make header"
	EndText    Action = "end document"
)

// Fact is what one record says, as far as its damage matters.
type Fact struct {
	Key        string // under which it counts once; empty: any number of times
	Node       string // its name in the tree of records; empty: it is outside of it
	Parent     string // the record that it says it follows
	Lane       string // the thread of the conversation that it belongs to, where a file holds several
	Group      string // joins the records of one message
	Calls      []Call
	Results    []Result
	Header     bool
	Talk       bool // words of a person or the model
	Compaction bool
}

// Call is a tool call.
type Call struct{ ID, Name string }

// Result is the end of a call.
type Result struct{ Call, Name string }

// Form says what an agent's transcripts are like. Agent, Keys and Fact are required; what an agent's loader needs
// beyond them is left out where nobody knows it. The functions are pure, but for Header, which may look at the folder
// of the file.
type Form struct {
	// Agent is the agent's word.
	Agent string
	// Keys name members of which every record has one, and nothing inside a record.
	Keys []string
	// Fact reads one whole JSON object; ok is false when it is not a record.
	Fact func(data []byte) (f Fact, ok bool)
	// ParentKey is the member that names the parent; empty when the records are not a tree.
	ParentKey string
	// Chained says that the results of a message's calls follow one another, instead of each hanging on its call.
	Chained bool
	// Header makes the first record of a file that has none; nil for files that begin with any record. Stub is the line
	// that may have been it, first the first records. ErrNoHeader says that this file needs none, any other error why
	// the header cannot be made.
	Header func(path string, stub []byte, first [][]byte) ([]byte, error)
	// Close makes the result of a call that has none, in the agent's own form and with an unknown outcome. From is the
	// record of the call, parent what the result hangs on; name is the record's own, for the tree. Nil: open calls stay
	// open.
	Close func(from []byte, c Call, parent string) (record []byte, name string)
	// Recall makes the call of a lone result, under a name and below a parent. Nil: the agent takes a lone result.
	Recall func(from []byte, r Result, name, parent string) (record []byte)
	// Symptoms say what the agent does with the damage that an action mends. An action without one is of damage with
	// which the agent copes.
	Symptoms map[Action]string
}

// Examined is the result of an examination: what was found, and what would mend it.
type Examined struct {
	Report
	Changes []Change // of a repair, in file order
	file    string   // the transcript
	path    string   // of its plain text
	edits   []edit   // nil when it cannot be repaired
	forget  func() error
}

// Whole says that nothing is wrong with it: there is nothing to repair, and nothing that cannot be.
func (e *Examined) Whole() bool {
	return len(e.Changes) == 0 && len(e.Bad) == 0 && len(e.OpenCalls) == 0 && e.TornBytes == 0
}

// Close lets go of what Repair would have needed.
func (e *Examined) Close() error {
	if e.forget == nil {
		return nil
	}
	return e.forget()
}

// MarshalJSON gives the report alone: empty lists are lists.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report
	r.Bad, r.Holes, r.OpenCalls, r.WhyNot = list(r.Bad), list(r.Holes), list(r.OpenCalls), list(r.WhyNot)
	return json.Marshal(plain(r))
}

func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
