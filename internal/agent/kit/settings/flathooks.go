// Package settings holds what those agents have in common whose hooks stand flat in a file of their own,
//
//	{"version": 1, "hooks": {"<event>": [{"command": "..", "timeout": 5}]}}
//
// and whose hooks answer with one JSON object that has the text in it: the installer and that answer.
//
// It promises what package jsonedit does: everything that is somebody else's stays as it is, byte for byte, and the very
// bytes that were there before come back. A hook of belay's is known by what it starts, at any path; a wrapper of the user's
// around belay-hook is the user's.
package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/kit/plugin"
	"belay/internal/jsontext"
)

// empty is what a file begins with that was not there.
const empty = "{\n  \"version\": 1\n}\n"

// File is the hooks of one agent. Handler and Key are the agent's form of a hook.
type File struct {
	Host    agent.Host
	Agent   string // its name on the command line
	Home    string // the agent's folder; empty when none is known
	Path    string // of the file
	Events  []string
	Key     string // of the command line in a handler
	Handler func(line string) any
}

func (f File) hooks() jsontext.Hooks {
	return jsontext.Hooks{Events: f.Events, Own: f.own, Flat: true}
}

func (f File) files() jsontext.Files {
	return jsontext.Files{FS: f.Host.FS, Dir: filepath.Join(f.Host.State, "install", f.Agent)}
}

// line is the command line of a hook: one simple command, which a shell becomes and a program without a shell starts, so that
// the hook's parent is the agent either way.
func (f File) line(p agent.Paths, event string) string {
	line := payload.ShellWord(p.Hook)
	if p.Socket != "" {
		line += " --socket " + payload.ShellWord(p.Socket)
	}
	return line + " " + f.Agent + " " + event
}

// started is what a handler starts, and the event that it is told; false for one that is not of belay's form.
func (f File) started(handler []byte) (program, event string, ok bool) {
	var members map[string]json.RawMessage
	var line string
	if json.Unmarshal(handler, &members) != nil || json.Unmarshal(members[f.Key], &line) != nil {
		return "", "", false
	}
	argv := payload.ShellWords(line)
	if n := len(argv); n >= 3 && argv[n-2] == f.Agent {
		return argv[0], argv[n-1], true
	}
	return "", "", false
}

func (f File) own(handler []byte) bool {
	program, _, ok := f.started(handler)
	return ok && strings.HasPrefix(filepath.Base(program), agent.HookBinary)
}

// read gives the file and its text without anything of belay's.
func (f File) read() (file jsontext.File, bare []byte, err error) {
	if f.Home == "" || f.Host.State == "" {
		return file, nil, agent.ErrNoHome
	}
	if file, err = f.files().Read(f.Path); err == nil {
		bare, err = f.hooks().Strip(file.Text, nil)
	}
	return file, bare, err
}

// Install writes belay's hooks. A second run changes nothing; hooks of an earlier belay, at another path or of another form,
// are replaced.
func (f File) Install(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	c, err := f.install(p, dryRun)
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", f.Path, err)
	}
	return []agent.Change{c}, nil
}

func (f File) install(p agent.Paths, dryRun bool) (agent.Change, error) {
	if err := p.OneLine(); err != nil {
		return agent.Change{}, err
	}
	file, bare, err := f.read()
	if err != nil {
		return agent.Change{}, err
	}
	want := map[string]any{}
	for _, event := range f.Events {
		want[event] = f.Handler(f.line(p, event))
	}
	text := file.Text
	if jsontext.Blank(text) {
		text = []byte(empty)
	}
	next, err := f.hooks().Merge(text, want)
	if err != nil {
		return agent.Change{}, err
	}
	c := agent.Change{Path: f.Path, Action: "change", Detail: fmt.Sprintf("hooks for %d events", len(f.Events)) + file.Note()}
	switch {
	case !file.Exists:
		c.Action = "create"
	case bytes.Equal(next, file.Text):
		c.Action = "keep"
		return c, nil
	}
	if err = file.Locked; err == nil && !dryRun {
		err = f.files().Change(file, next, bare)
	}
	return c, err
}

// Uninstall takes belay's hooks out again. When nobody changed the file since Install its old bytes come back, and a file or
// folder that Install made goes; else only belay's entries go.
func (f File) Uninstall(dryRun bool) ([]agent.Change, error) {
	file, bare, err := f.read()
	var u jsontext.Undo
	if err == nil {
		u, err = f.files().Undo(file, bare, nothing(bare))
	}
	if err == nil && !dryRun {
		err = f.files().Do(u)
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", f.Path, err)
	}
	details := map[string]string{
		"keep":    "no hooks of belay's",
		"change":  "belay's hooks taken out, the rest kept" + file.Note(),
		"restore": "as it was before install" + file.Note(),
		"remove":  "was made by install" + file.Note(),
	}
	return []agent.Change{{Path: f.Path, Action: u.Action, Detail: details[u.Action]}}, nil
}

// nothing says whether a text holds nothing of the user's: an object without members, or with the form's version alone.
func nothing(bare []byte) bool {
	start := jsontext.SkipSpace(bare, 0)
	if start >= len(bare) || bare[start] != '{' {
		return false
	}
	members, _ := jsontext.Members(bare, start)
	return len(members) == 0 || len(members) == 1 && members[0].Key == "version"
}

// Present says whether one of the agent's programs is on the PATH or its folder exists.
func (f File) Present(programs ...string) bool {
	for _, name := range programs {
		if _, ok := plugin.FindProgram(f.Host.Var("PATH"), name, nil); ok {
			return true
		}
	}
	_, err := os.Stat(f.Home)
	return f.Home != "" && err == nil
}

// Check says what is wrong with the wiring, one finding each.
func (f File) Check(p agent.Paths) []string {
	found := plugin.CheckHook(p)
	file, _, err := f.read()
	switch {
	case err != nil:
		return append(found, fmt.Sprintf("%s: %v", f.Path, err))
	case !file.Exists:
		return append(found, f.Path+" is not there: no hook is installed")
	}
	for _, event := range f.Events {
		list, err := f.hooks().Handlers(file.Text, event)
		switch {
		case err != nil:
			return append(found, fmt.Sprintf("%s: %v", f.Path, err))
		case len(list) == 0:
			found = append(found, event+": hook is missing")
			continue
		case len(list) > 1:
			found = append(found, fmt.Sprintf("%s: hook is there %d times", event, len(list)))
			continue
		}
		program, told, _ := f.started(list[0].Text)
		if program != p.Hook {
			found = append(found, fmt.Sprintf("%s: hook starts %s, not %s", event, program, p.Hook))
		}
		if told != event {
			found = append(found, fmt.Sprintf("%s: hook reports the event as %s", event, told))
		}
	}
	return found
}
