// Package gemini knows Gemini CLI: its hook payloads, its settings file and its transcripts, in the form of today
// (lines that add to and rewrite the conversation) and in the older one (a JSON document that is rewritten as a whole).
//
// It promises:
//   - Payloads are decoded once, here; all text comes out redacted, cut and valid; an event that belay does not know
//     means nothing. When there is nothing to say to the model, a hook prints nothing at all: what it prints goes in
//     front of the person's words.
//   - A tool call has one id for both witnesses, although the program gives hooks none: see calls.go.
//   - Transcripts are only read. A message counts once, whichever way and however often it is written; one that was
//     taken back is retracted.
//   - A sub-agent is a child of its session, found by its file: see children.go.
//   - A second file of a session that holds nothing but a header is passed over: the program makes one at each resume.
//   - The one file of the program's that is ever written is settings.json, by Install and Uninstall, as an edit of the
//     text.
//
// What it cannot do: the file alone does not say that a turn has ended, nor that a call is running (calls are written
// when they have ended), so a session without hooks counts its last turn only when the next begins. The program deletes
// sessions at its start (those over 30 days, and those in which it finds nothing to go on with): belay's mirror is what
// is left then.
package gemini

import (
	"path/filepath"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/kit/settings"
	"belay/internal/vfs"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "gemini"

// Agent is Gemini CLI as the rest of belay sees it. The zero value is not ready: use New.
type Agent struct {
	home    string // $GEMINI_CLI_HOME/.gemini, else ~/.gemini; empty when there is no home folder
	plain   string // ~/.gemini whatever the environment says: sessions of this home have no account
	state   string // belay's state folder, for the original bytes of changed settings
	path    string // where the gemini program is looked for, as in $PATH
	managed string // the administrator's settings, which can turn ours off
	fsys    vfs.FS
	pairs   pairing
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Installer  = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
)

// New gives Gemini CLI as it is on a machine.
func New(h agent.Host) *Agent {
	a := &Agent{
		home:    h.Below(".gemini"),
		plain:   h.Below(".gemini"),
		state:   h.State,
		path:    h.Var("PATH"),
		managed: systemSettings(h),
		fsys:    h.FS,
	}

	if dir := h.Dir("GEMINI_CLI_HOME"); dir != "" {
		a.home = filepath.Join(dir, ".gemini")
	}

	return a
}

// Name is "gemini".
func (a *Agent) Name() string { return name }

// Limits of Gemini CLI. It cuts no injected text, up to 200,000 bytes: it is the model's attention that is spared. No
// hook comes after a compaction.
func (a *Agent) Limits() agent.Limits {
	return agent.Limits{BriefBytes: 9000, QuietCompaction: true}
}

// Open gives the reader of one transcript of either form, main or sub-agent.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript { return openTranscript(src) }

// ResumeCommand is what a person types to go on with a session, in its folder.
func (a *Agent) ResumeCommand(session string) string {
	return "gemini --resume " + payload.ShellWord(session)
}

// hookEvents are the events belay lives from. Each hook holds the program up, so that those which say nothing more are
// left out: BeforeModel, BeforeToolSelection and AfterModel (one for each piece of an answer), Notification, and
// PreCompress but for the person's own command, as it comes before each call of the model: so what is left of it is a
// true sign.
func hookEvents() []settings.Event {
	list := []settings.Event{
		{Name: "SessionStart", Waits: true},
		{Name: "BeforeAgent"},
		{Name: "BeforeTool", Matcher: "*"},
		{
			Name:    "AfterTool",
			Matcher: "*",
		},
		{Name: "AfterAgent"},
		{Name: "PreCompress", Matcher: "manual"},
		{Name: "SessionEnd"},
	}

	for i := range list {
		list[i].Timeout = 5 * time.Second
	}

	return list
}

// Events lists the hook events that belay wants.
func (a *Agent) Events() []agent.EventSpec { return settings.Specs(hookEvents()) }
