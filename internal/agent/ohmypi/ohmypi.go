// Package ohmypi knows oh-my-pi (omp), which came of pi: its transcripts and its extensions have pi's form, and pi's
// package reads and installs them. What is oh-my-pi's own is here: where its files lie, the title that stands before
// the header of a transcript, the events of its extensions, and its sub-agents.
//
// A sub-agent runs in the process of the session that started it, loads the extension like any other, and keeps a
// transcript in a folder that is named after that session's. Its events are those of a child, which nobody tells of the
// dead.
//
// What it does not do: sessions in a folder that only the command line names (--session-dir) are known by their events
// alone; a profile of oh-my-pi is seen when the environment names it.
package ohmypi

import (
	"context"
	_ "embed"
	"path/filepath"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/pi"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "oh-my-pi"

//go:embed extension.ts
var extension string

// Agent is oh-my-pi as the rest of belay sees it. The zero value is not ready: use New.
type Agent struct{ *pi.Program }

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Installer  = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
	_ agent.Examiner   = (*Agent)(nil)
)

// New gives oh-my-pi as it is on a machine. It waits for a handler without a limit; the extension does not wait longer
// than a second.
func New(h agent.Host) *Agent {
	home := folder(h)
	return &Agent{pi.New(h, pi.Kin{
		Name: name, Program: "omp", Home: home, Extension: extension,
		Sessions: func() []string {
			if home == "" {
				return nil // no home, no sessions
			}
			return []string{filepath.Join(home, "sessions")}
		},
		Events: []agent.EventSpec{
			{Name: "session_start"},
			{Name: "before_agent_start", Waits: true},
			{Name: "tool_execution_start"},
			{Name: "tool_execution_end"},
			{Name: "agent_end"},
			{Name: "session_before_compact"},
			{Name: "session_compact"},
			{Name: "session_shutdown"},
		},
		Resume: func(session string) string { return "omp --resume " + payload.ShellWord(session) },
	})}
}

// folder is oh-my-pi's own folder; empty when nothing says where it is. A profile has one of its own.
func folder(h agent.Host) string {
	if dir := h.Dir("PI_CODING_AGENT_DIR"); dir != "" {
		return dir
	}

	root := h.Below(".omp")
	if dir := h.Var("PI_CONFIG_DIR"); dir != "" {
		root = h.Below(dir)
	}

	profile := h.Var("OMP_PROFILE")
	switch {
	case root == "" || strings.ContainsRune(profile, filepath.Separator):
		return ""
	case profile == "" || profile == "default":
		return filepath.Join(root, "agent")
	}

	return filepath.Join(root, "profiles", profile, "agent")
}

// Decode maps one event of the extension as pi's does. One of a sub-agent belongs to the session whose folder holds its
// transcript, and asks for nothing.
func (a *Agent) Decode(ctx context.Context, h agent.Hook) (agent.Incoming, error) {
	in, err := a.Program.Decode(ctx, h)
	if err != nil || len(in.Events) == 0 {
		return in, err
	}

	root, name := caller(in.Events[0].Transcript)
	if root == "" {
		return in, nil
	}

	var list []checkpoint.Event
	for _, e := range in.Events {
		if e.Kind == checkpoint.EventOwed {
			continue // a sub-agent is told nothing
		}

		e.Key.Session, e.Key.Child = root, e.Key.Session
		of := checkpoint.Event{
			Key: e.Key.Parent(), Child: e.Key.Child, ChildName: name, Transcript: e.Transcript, Workspace: e.Workspace,
		}
		switch e.Kind {
		case checkpoint.EventStart:
			e.Parent, e.ChildName = root, name
			of.Kind = checkpoint.EventChildStart
			list = append(list, of)
		case checkpoint.EventEnd:
			of.Kind = checkpoint.EventChildEnd
			list = append(list, of)
		}

		list = append(list, e)
	}

	return agent.Incoming{Events: list}, nil
}

// caller is the session in whose folder a sub-agent's transcript lies, and the sub-agent's name; empty for the
// transcript of a session.
func caller(file string) (session, name string) {
	if _, ok := pi.SessionOfName(filepath.Base(file)); ok || file == "" {
		return "", ""
	}

	for dir := filepath.Dir(file); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if session, ok := pi.SessionOfName(filepath.Base(dir) + ".jsonl"); ok {
			return session, strings.TrimSuffix(filepath.Base(file), ".jsonl")
		}
	}

	return "", ""
}

// Open gives a reader for a .jsonl transcript. That of a sub-agent names itself, not the session that it belongs to.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript {
	if src.Child != "" {
		src.Session = src.Child
	}
	return pi.OpenTranscript(src)
}

// Recognise knows oh-my-pi's files, which differ from pi's in little.
func (*Agent) Recognise(head []byte) agent.Score {
	if pi.Titled(head) {
		return agent.Mine
	}
	return agent.NotMine
}
