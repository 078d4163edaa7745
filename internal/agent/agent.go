// Package agent is the small interface through which the rest of belay knows an agent program. Each agent is one folder
// below this one: transcript reader, hook payloads, installer, limits, and the forms that the agent makes up itself.
// They are registered in internal/agent/all; nothing else names one.
package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent/kit/tools"
	"belay/internal/transcript/repair"
)

// ErrNotOurs is returned by Decode for a payload that is none of this agent's. Any other error means that it is ours
// and is broken.
var ErrNotOurs = errors.New("not an event of this agent")

// Errors of Install, Uninstall and Trust. The agent's files are as they were after any of them.
var (
	// ErrNoHome: no home folder says where the agent's files are, or where belay keeps its own.
	ErrNoHome = errors.New("no home folder is known")
	// ErrBadHook: the path of belay-hook cannot stand in the agent's settings.
	ErrBadHook = errors.New("path of belay-hook cannot be used")
)

// HookBinary begins the name of every program of belay's that a hook may start.
const HookBinary = "belay-hook"

// Hook is one call of belay-hook, as it came.
type Hook struct {
	Event   string // the event's name from the command line; the payload's own name wins where it has one
	Payload []byte // at most 16 MiB; may be cut (Cut), broken or empty
	Cut     bool
	PID     int    // the agent's process, as the client believes
	Cwd     string // the client's working directory
}

// Ask says what a hook's client waits for.
type Ask int

const (
	AskNothing Ask = iota
	AskStart       // a session starts: it wants the brief that belongs to its start reason
	AskCarry       // its answer can carry a brief that is owed
)

// Incoming is what one hook call means.
type Incoming struct {
	// Events in order. Decode fills Kind, Key and what the payload says; redacted and cut. At, Seq and Proc are the
	// daemon's. A call may mean nothing (no events).
	Events []checkpoint.Event
	Ask    Ask
}

// EventSpec describes one hook event of an agent.
type EventSpec struct {
	Name string
	// Waits is set for the event whose answer is the brief of a starting session: the client waits for it a second.
	// Where an answer can only carry a brief that is owed, the client waits no longer than for any event.
	Waits bool
}

// Limits of an agent.
type Limits struct {
	// BriefBytes is the most that one injection may hold, frame included, in bytes and in characters.
	BriefBytes int
	// Repairs is set for an agent that tells the model by itself that its turn was interrupted.
	Repairs bool
	// LateText is set when the hook of a turn's end comes before the last answer is in the transcript.
	LateText bool
	// QuietCompaction is set when no hook comes after a compaction: the brief for it goes out with the next event that
	// can carry one.
	QuietCompaction bool
}

// Source names one transcript.
type Source struct {
	Path    string
	Session string // the session id, when known
	Child   string // sub-agent id, for a child's own file
}

// Query asks for transcripts on this machine.
type Query struct {
	Session   string // exact id; empty for any
	Workspace string // real path; empty for any
	Most      int    // at most so many, the newest; 0 means 20
}

// Found is a transcript that lies on this machine.
type Found struct {
	Source
	Workspace string
	Changed   time.Time
}

// Agent is what the rest of belay knows of one agent program. Methods may be called from several goroutines.
type Agent interface {
	// Name is the word of the command line and of the sessions folder, for example "claude-code".
	Name() string
	Events() []EventSpec
	Limits() Limits
	// Tools says what the agent's tools do.
	Tools() tools.Table
	// Decode maps a hook call to events. Unknown fields and events are no error: they mean nothing. It looks into the
	// agent's files only as long as the context lasts.
	Decode(ctx context.Context, h Hook) (Incoming, error)
	// Reply is what the hook must print on stdout to put a text into the context at this event; exactly one document.
	Reply(event, text string) []byte
	// Open gives a reader for a transcript, which need not be there yet.
	Open(src Source) checkpoint.Transcript
	// Locate finds transcripts by content (session id, workspace), newest first. It reads heads only.
	Locate(ctx context.Context, q Query) ([]Found, error)
	// ResumeCommand is the shell command with which a person goes on with a session.
	ResumeCommand(session string) string
}

// Paths are the places that an installer needs.
type Paths struct {
	Hook   string // absolute path of the belay-hook to write into the settings
	Socket string // not empty only when it is not at its default place
}

// Valid says whether the places can stand in an agent's settings.
func (p Paths) Valid() error {
	switch {
	case !filepath.IsAbs(p.Hook):
		return fmt.Errorf("%w: %q is not absolute", ErrBadHook, p.Hook)
	case !utf8.ValidString(p.Hook + p.Socket):
		return fmt.Errorf("%w: %q is no valid UTF-8", ErrBadHook, p.Hook+p.Socket)
	case !strings.HasPrefix(filepath.Base(p.Hook), HookBinary):
		return fmt.Errorf("%w: %q is not named %s", ErrBadHook, p.Hook, HookBinary)
	}
	return nil
}

// OneLine is Valid for an agent that runs each line of a hook as a command.
func (p Paths) OneLine() error {
	if strings.ContainsAny(p.Hook+p.Socket, "\x00\n\r") {
		return fmt.Errorf("%w: %q cannot stand in a command line", ErrBadHook, p.Hook+p.Socket)
	}
	return p.Valid()
}

// Change is one file that install or uninstall would change or has changed.
type Change struct {
	Path   string `json:"path"`
	Action string `json:"action"` // create, change, restore, remove, keep
	Detail string `json:"detail,omitempty"`
}

// Installer is the part of an Agent that can be wired by `belay install`. Both are idempotent, keep everything that is
// not belay's, write to Host.FS through vfs.Replace, and change nothing when dryRun is set. The context bounds what the
// agent itself is asked for: its version.
type Installer interface {
	// Present says whether the agent is on this machine, and its version when that can be told cheaply.
	Present() (version string, ok bool)
	Install(ctx context.Context, p Paths, dryRun bool) ([]Change, error)
	Uninstall(p Paths, dryRun bool) ([]Change, error)
	// Check says what is wrong with the wiring, one finding each; none means it is in place.
	Check(ctx context.Context, p Paths) []string
}

// Truster is the part of an Agent that runs hooks only once a person has said that they may: Trust says so in the
// agent's own settings, for belay's hooks as Install wrote them and for nothing else. It is called only when a person
// asks for it. It is idempotent, changes nothing when dryRun is set, and Uninstall takes back what it wrote.
type Truster interface {
	Trust(p Paths, dryRun bool) ([]Change, error)
}

// Recogniser is the part of an Agent that knows its transcripts by their beginning, for `--transcript` without
// `--agent`.
type Recogniser interface {
	// Recognise says how surely a file that begins with head (up to 64 KB) is one of this agent's transcripts. It looks
	// for this agent's own form, whatever others there are: Recognise of this package compares.
	Recognise(head []byte) Score
}

// Score says how surely a file is a transcript of one agent's.
type Score int

const (
	NotMine Score = iota
	Alike         // it has words of this agent's records, which other agents' records may have too
	Mine          // it has the form that is this agent's own
)

// MineIf is Mine where that holds.
func MineIf(holds bool) Score {
	if holds {
		return Mine
	}
	return NotMine
}

// Recognise gives the one of some agents that is surest of a file that begins with head. None is where nobody knows it,
// or several are equally sure.
func Recognise(agents []Agent, head []byte) (Agent, bool) {
	var best Agent
	score := NotMine
	for _, a := range agents {
		r, ok := a.(Recogniser)
		if !ok {
			continue
		}

		switch s := r.Recognise(head); {
		case s > score:
			best, score = a, s
		case s == score:
			best = nil
		}
	}

	return best, best != nil
}

// Watched is the part of an Agent some of whose transcripts are more than one file: a database and its log. All of them
// are watched; they are no lines, so that no mirror is kept of them.
type Watched interface {
	// Watch names the files that change when the transcript at path does; none for one that is just the file at path.
	Watch(path string) []string
}

// Examiner is the part of an Agent whose transcripts can be looked into record by record, and repaired where they are
// lines.
type Examiner interface {
	// Examine reads the whole transcript at src.Path and changes nothing. Seen, when not nil, is called now and then
	// with how many of the file's bytes have been read.
	Examine(ctx context.Context, src Source, seen func(bytes int64)) (*repair.Examined, error)
}
