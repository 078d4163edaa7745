// Package opencode knows opencode: the SQLite database in which it keeps its sessions, the events of belay's plugin for
// it, and the installer of that plugin.
//
// It promises:
//   - The database is only read, through internal/transcript/sqlite: nothing of it changes, and nothing appears beside
//     it.
//   - A session is found by its id alone. The project under which opencode files it is never looked at, so that a
//     session whose project got another key is still there.
//   - Both witnesses name a turn by the id of the person's message and a call by the id of its part, so that they count
//     once. (The model's own ids of calls may come again in one session.)
//   - The place in a session is the number of an event in opencode's append-only table: a reader goes on from there at
//     a cost that follows what is new. A database without that table (or with no events of the session) is read by the
//     times in its message and part tables.
//   - The plugin waits for belay with the first prompt of a session alone, a second at most. What belay says becomes a
//     part of that message, which opencode marks as not written by the person.
//
// What it cannot do: words that were streaming when the program was killed are nowhere but in the plugin's process; a
// session read by its message and part tables does not tell of messages that were taken back; what an undo hides is
// taken back only when opencode removes it, with the next prompt; the files of versions before SQLite are not read; the
// newer form of records that opencode is trying out (session.next) is not read. At the first start with a plugin,
// whosever it is, opencode waits until it has fetched a package of its own from npm: without a network that takes
// minutes, and belay cannot change it.
package opencode

import (
	"path/filepath"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/vfs"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "opencode"

// briefBytes is what one injection may hold. opencode cuts nothing: it is the model's attention that is spared.
const briefBytes = 9000

// Agent is opencode as the rest of belay sees it. The zero value is not ready: use New.
type Agent struct {
	data   string // the folder of its databases; empty when there is no home folder
	config string // the folder in which it looks for plugins; empty likewise
	db     string // $OPENCODE_DB, when it is absolute
	path   string // where the opencode program is looked for, as in $PATH
	fsys   vfs.FS
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Installer  = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
	_ agent.Watched    = (*Agent)(nil)
)

// New gives opencode as it is on a machine.
func New(h agent.Host) *Agent {
	a := &Agent{
		data:   place(h, "XDG_DATA_HOME", ".local/share"),
		config: place(h, "XDG_CONFIG_HOME", ".config"),
		path:   h.Var("PATH"),
		fsys:   h.FS,
	}

	db := h.Var("OPENCODE_DB")
	switch {
	case filepath.IsAbs(db):
		a.db = filepath.Clean(db)
	case db != "" && db != ":memory:" && a.data != "":
		a.db = filepath.Join(a.data, db)
	}

	return a
}

// place is opencode's folder below one of the folders that a person can move.
func place(h agent.Host, variable, plain string) string {
	if dir := h.Dir(variable); dir != "" {
		return filepath.Join(dir, name)
	}
	return h.Below(plain, name)
}

// Name is "opencode".
func (a *Agent) Name() string { return name }

// Events lists the events that belay's plugin forwards. opencode kills no plugin; the plugin itself does not wait
// longer than a second.
func (a *Agent) Events() []agent.EventSpec {
	return []agent.EventSpec{
		{Name: eventStart},
		{Name: eventPrompt, Waits: true},
		{Name: eventToolStart},
		{Name: eventToolEnd},
		{Name: eventIdle},
		{Name: eventCompacting},
		{Name: eventCompacted},
		{Name: eventDispose},
	}
}

// Limits of opencode.
func (a *Agent) Limits() agent.Limits { return agent.Limits{BriefBytes: briefBytes} }

// Open gives the reader of one session of a database.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript { return openTranscript(src) }

// ResumeCommand is what a person types to go on with a session.
func (a *Agent) ResumeCommand(session string) string {
	return "opencode --session " + payload.ShellWord(session)
}

// Reply is the brief itself: the plugin makes a part of the prompt of it. It can do so with a prompt alone.
func (a *Agent) Reply(event, text string) []byte {
	if event != eventPrompt {
		return nil
	}
	return []byte(text)
}
