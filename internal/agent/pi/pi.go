// Package pi knows two agents that write the same kind of transcript: pi, and OpenClaw up to 2026.7, whose sessions
// were pi's .jsonl files. (Later OpenClaw keeps the same records in SQLite; that store is not read here.)
//
// A transcript is a tree of records in one file that mostly grows. Beside what package lines promises:
//   - A record counts once: under its id, and as a copy under another id when the agent rewrites a part of its file.
//   - Entries off the current branch are taken back (Retract), and come again when the branch is taken up again. A
//     parent that cannot be found cuts nothing off: the record then follows the one before.
//   - What is no round of the person's is marked (Aside): heartbeats, cron jobs, notices, mirrors of sent messages.
//
// pi itself is wired by an extension (extension.ts, Program): it tells belay what pi does while it does it.
//
// What it does not do: it holds no tree in memory, so that a branch that begins more than 64 MB before its place in the
// file is not found; hidden or replaced entries (pi's context_edit) stay as they were said; what a reset says to keep
// is not brought over into the new part.
package pi

import (
	"context"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
)

// Agent is what the two programs have in common: their transcripts.
type Agent struct {
	name   string
	events []agent.EventSpec
	limits agent.Limits
	resume func(session string) string
	list   func() []candidate // transcripts on this machine, by their names
}

var _ agent.Agent = (*Agent)(nil)

// openclaw is the word of the agent that shares the form of its files with pi.
const openclaw = "openclaw"

// briefBytes is what one injection may hold. Neither program cuts, up to 200,000 bytes: it is the model's attention
// that is spared.
const briefBytes = 9000

// OpenClaw gives the agent "openclaw". Events are those of its plugin.
func OpenClaw(h agent.Host) *Agent {
	return &Agent{
		name: openclaw,
		events: []agent.EventSpec{
			{Name: "gateway_start"},
			{Name: "session_start"},
			{Name: "before_prompt_build", Waits: true},
			{Name: "before_tool_call"},
			{Name: "after_tool_call"},
			{Name: "before_compaction"},
			{Name: "after_compaction"},
			{Name: "before_reset"},
			{Name: "agent_end"},
			{Name: "session_end"},
			{Name: "gateway_stop"},
		},
		limits: agent.Limits{BriefBytes: briefBytes, Repairs: true},
		resume: func(session string) string {
			return "openclaw agent --session-id " + payload.ShellWord(session) + " --message 'Please go on.'"
		},
		list: func() []candidate { return openclawFiles(h) },
	}
}

// Name is the agent's word.
func (a *Agent) Name() string { return a.name }

// Events lists the events that the agent's extension or plugin forwards.
func (a *Agent) Events() []agent.EventSpec { return a.events }

// Limits of the agent.
func (a *Agent) Limits() agent.Limits { return a.limits }

// Decode leaves every payload to the generic JSON form.
func (a *Agent) Decode(context.Context, agent.Hook) (agent.Incoming, error) {
	return agent.Incoming{}, agent.ErrNotOurs
}

// Reply is the text itself: whoever asked puts it where it belongs.
func (a *Agent) Reply(_, text string) []byte { return []byte(text) }

// Open gives a reader for a .jsonl transcript.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript { return OpenTranscript(src) }

// ResumeCommand is what a person types to go on with a session.
func (a *Agent) ResumeCommand(session string) string { return a.resume(session) }
