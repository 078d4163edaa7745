// Package agentzero knows Agent Zero: its chat files, the events of belay's extension for its message loop
// (extension.py), and the installer of that extension.
//
// It promises:
//   - chat.json is only read, as a stream, in bounded memory up to wholefile.Ceiling; over that, only events tell of a
//     chat, and that is counted. A rewrite of the file is no news: messages are told apart by their ids.
//   - The session is the first agent of the chain. A subordinate's words and calls belong to a child session, A1, A2,
//     ...; those that were at work when the file was written are named as running.
//   - Of contexts of type BACKGROUND nothing is kept, whatever tells of them.
//   - The extension never waits and never fails the agent. A call has one id for both witnesses: that of the message
//     which asked for it.
//
// The program mostly runs in a container: belay has to run in there too, or to have its state folder and the program's
// in both at the same paths.
//
// What it cannot do: a history has no times but those of the newest 1,000 log items; a call's failure is known only
// when the program itself warns of it; of a chat that is cut back the newest 8 messages that were told are taken back,
// as many as the cursor holds.
package agentzero

import (
	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/tools"
	"belay/internal/transcript/wholefile"
	"belay/internal/vfs"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "agent-zero"

// Agent is Agent Zero as the rest of belay sees it. The zero value is not ready: use New.
type Agent struct {
	roots []string // folders where the program may be installed, the likeliest first
	fsys  vfs.FS
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Installer  = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
	_ agent.Watched    = (*Agent)(nil)
)

// New gives Agent Zero as it is on a machine: in $AGENT_ZERO_DIR, else /a0 (its container) and the folders that people
// clone it into.
func New(h agent.Host) *Agent {
	if dir := h.Dir("AGENT_ZERO_DIR"); dir != "" {
		return &Agent{fsys: h.FS, roots: []string{dir}}
	}

	a := &Agent{fsys: h.FS, roots: []string{"/a0"}}
	if h.Home != "" {
		a.roots = append(a.roots, h.Below("agent-zero"), h.Below("a0"))
	}

	return a
}

// Name is "agent-zero".
func (a *Agent) Name() string { return name }

// Events lists the extension points that the extension lives from. None of them waits for belay: a brief is put into
// the prompt when it has come.
func (a *Agent) Events() []agent.EventSpec {
	return []agent.EventSpec{
		{Name: "session_start"},
		{Name: "monologue_start"},
		{Name: "intervention"},
		{Name: "tool_execute_before"},
		{Name: "tool_execute_after"},
		{Name: "monologue_end"},
	}
}

// Limits of Agent Zero. It cuts no prompt: it is the model's attention that is spared.
func (a *Agent) Limits() agent.Limits { return agent.Limits{BriefBytes: 9000} }

// Tools are those of any program: a plugin brings its own.
func (a *Agent) Tools() tools.Table { return tools.Generic }

// Reply is the brief itself: the extension puts it into the prompt.
func (a *Agent) Reply(event, text string) []byte {
	if event != "monologue_start" {
		return nil
	}
	return []byte(text)
}

// Open gives the reader of a chat.json; with a child's id, of that subordinate's part of it.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript {
	return wholefile.Open(src.Path, walk(src))
}

// Watch names the file itself: it is no file of lines, and no mirror is kept of it.
func (a *Agent) Watch(path string) []string { return []string{path} }

// ResumeCommand says how a person goes on: chats are chosen in the program's own page.
func (a *Agent) ResumeCommand(session string) string {
	return "open the chat " + session + " in Agent Zero's page"
}
