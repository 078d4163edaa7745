// Package codex knows OpenAI's Codex CLI: its hook payloads, its hooks.json and the trust that config.toml keeps for
// it, its rollout files and the forms that it makes up itself after a crash.
//
// Payloads are decoded once, here: every field but the session id may be absent or of another type than expected, all
// text comes out redacted, cut and valid, and an event that belay does not know means nothing. Rollouts are only read,
// plain or compressed, wherever Codex moved them. Two files of Codex's are ever written: hooks.json by Install and
// Uninstall, and config.toml by Trust, which a person has to ask for, and by Uninstall, which takes that back. Both are
// edited as text, so that everything of the user's stays as it is and the very same bytes can come back.
//
// A thread is a session: its id is the session id of the root thread's hooks, and a sub-agent's thread is a child of it
// with a rollout of its own. In the terminal program the hooks' parent, and so the agent's process, is the server that
// runs the threads in the background, not the program that a person sees: closing the terminal ends nothing.
//
// A person who goes back in a conversation makes Codex go on in another rollout of the same thread: what was taken back
// is retracted, and what still stands counts once (chain.go). A fork is a thread of its own, with what it says itself;
// what it goes on from is its parent's. A command of a turn that a person breaks off has no result: Codex leaves it
// running, or ends it without a word when it had just begun. It is in doubt, as one in the background, until its end is
// told.
//
// What it cannot know: SIGTERM and kill -9 are told by no event and no record. Whether a shell command failed is not in
// the hook's payload: Decode looks for it at the end of the rollout that the payload names, and nowhere else.
package codex

import (
	"context"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/kit/settings"
	"belay/internal/vfs"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "codex"

// Agent is Codex as the rest of belay sees it. The zero value is not ready: use New.
type Agent struct {
	home  string // $CODEX_HOME, else ~/.codex; empty when there is no home folder
	plain string // ~/.codex whatever the environment says: sessions of this home have no account
	state string // belay's state folder, for the original bytes of changed files
	path  string // where the codex program is looked for, as in $PATH
	fsys  vfs.FS
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Installer  = (*Agent)(nil)
	_ agent.Truster    = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
)

// New gives Codex as it is on a machine.
func New(h agent.Host) *Agent {
	a := &Agent{
		home:  h.Below(".codex"),
		plain: h.Below(".codex"),
		state: h.State,
		path:  h.Var("PATH"),
		fsys:  h.FS,
	}

	if dir := h.Dir("CODEX_HOME"); dir != "" {
		a.home = payload.RealPath(dir) // so does Codex, and trust names the file by it
	}

	return a
}

// Name is "codex".
func (a *Agent) Name() string { return name }

// Limits of Codex. Of more than about 10,000 bytes head and tail reach the model and the middle is cut; Stop may come
// before the last answer is in the rollout.
func (a *Agent) Limits() agent.Limits {
	return agent.Limits{BriefBytes: 9000, LateText: true}
}

// Open gives the reader of one thread's rollout.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript { return openTranscript(src) }

// Locate finds the rollouts of this user's main threads, newest first.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	return locate(ctx, a.home, q)
}

// ResumeCommand is what a person types to go on with a session.
func (a *Agent) ResumeCommand(session string) string {
	return "codex resume " + payload.ShellWord(session)
}

// hookEvents are those that belay lives from; PermissionRequest says nothing that these do not. What is written for
// them is frozen: a person's trust is for these bytes, and any change of command or timeout asks for it again.
func hookEvents() []settings.Event {
	var list []settings.Event
	for _, event := range []string{
		"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PreCompact", "PostCompact",
		"SubagentStart", "SubagentStop", "Stop",
	} {
		list = append(list, settings.Event{
			Name: event, Timeout: 5 * time.Second, Budget: 600 * time.Second, Waits: event == "SessionStart",
		})
	}

	for _, event := range []string{"Interrupt", "SessionEnd"} { // these two get 1 s, and never more than 3
		list = append(list, settings.Event{Name: event, Timeout: time.Second, Budget: time.Second})
	}

	return list
}

// Events lists the hook events that belay wants.
func (a *Agent) Events() []agent.EventSpec { return settings.Specs(hookEvents()) }
