// Package openclaw knows the agent "openclaw" of every age: from 2026.8 on its transcripts are rows of a SQLite
// database, up to 2026.7 (and in the line 2026.7.33 to 35) they are the .jsonl files that package pi reads. Which one
// holds is told by the table transcript_events, never by a version.
//
// A row holds the record that a line held, so that both readers share pi's mapping and promises. A plugin inside of
// OpenClaw tells what happens; Decode knows its payloads, which are belay's own form. Nothing of OpenClaw's is written
// but the plugin's entry in its settings.
//
// Sessions whose rows were moved into cold archives are found and read too.
//
// Not done: sub-agents are known from events alone.
package openclaw

import (
	"context"
	"path/filepath"
	"strings"
	"sync"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/pi"
	"belay/internal/transcript/sqlite"
)

const name = "openclaw"

// databaseName is the file that holds the sessions of one of OpenClaw's agents: <state>/agents/<id>/agent/<this>.
const databaseName = "openclaw-agent.sqlite"

// Agent is OpenClaw. Its words, limits and the reader of files are those of the file era.
type Agent struct {
	*pi.Agent
	host   agent.Host
	states []string // state folders on this machine
	config string   // the settings; empty when no home is known
	plain  string   // the default state folder: its agent "main" needs no account

	mu struct {
		sync.Mutex
		stores map[string]bool // databases that are known to hold transcripts
	}
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
	_ agent.Watched    = (*Agent)(nil)
	_ agent.Installer  = (*Agent)(nil)
)

// New gives OpenClaw as it is on a machine.
func New(h agent.Host) *Agent {
	a := &Agent{Agent: pi.OpenClaw(h), states: pi.States(h), host: h, config: h.Dir("OPENCLAW_CONFIG_PATH")}
	if a.config == "" && len(a.states) > 0 {
		a.config = filepath.Join(a.states[0], "openclaw.json")
	}
	if plain := h.Below(".openclaw"); plain != "" {
		a.plain = payload.RealPath(plain)
	}

	a.mu.stores = map[string]bool{}
	return a
}

// Events lists the events that the plugin forwards. Two names are the plugin's own: session_open is the first turn of a
// session in a process, for which it waits; dropped tells of events that no daemon took.
func (a *Agent) Events() []agent.EventSpec {
	return []agent.EventSpec{
		{Name: "session_open", Waits: true},
		{Name: "before_prompt_build"},
		{Name: "before_tool_call"},
		{Name: "after_tool_call"},
		{Name: "agent_end"},
		{Name: "before_compaction"},
		{Name: "after_compaction"},
		{Name: "before_reset"},
		{Name: "subagent_spawned"},
		{Name: "subagent_ended"},
		{Name: "session_end"},
		{Name: "dropped"},
	}
}

// Open gives the reader of a session's rows, or of its file.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript {
	if !isDatabase(src.Path) {
		return a.Agent.Open(src)
	}
	return pi.OpenRows(src, openRows(src.Path, src.Session))
}

// Watch names the files that change with the transcript at path: what is new stands in the database's log.
func (a *Agent) Watch(path string) []string {
	if !isDatabase(path) {
		return nil
	}
	return []string{path, path + "-wal"}
}

func isDatabase(path string) bool { return strings.HasSuffix(path, ".sqlite") }

// Recognise knows the database by its tables, as far as they stand in its head, and the header of a file.
func (a *Agent) Recognise(head []byte) agent.Score {
	if s := string(head); strings.HasPrefix(s, sqlite.Header) {
		return agent.MineIf(strings.Contains(s, "transcript_events") ||
			strings.Contains(s, "session_nodes") && strings.Contains(s, "session_key"))
	}
	return a.Agent.Recognise(head)
}

// holds says whether a database has transcripts in it. Once it has, it has for good.
func (a *Agent) holds(ctx context.Context, path string) bool {
	a.mu.Lock()
	known := a.mu.stores[path]
	a.mu.Unlock()
	if known || path == "" || !hasTable(ctx, path) {
		return known
	}

	a.mu.Lock()
	a.mu.stores[path] = true
	a.mu.Unlock()
	return true
}
