// Package settings wires an agent whose hooks are command lines in a settings file. The file has one of two forms:
// nested,
//
//	{"hooks": {"<event>": [{"matcher": "..", "hooks": [{"type": "command", "command": "..", "timeout": 5}]}]}}
//
// or flat, where an event's list holds the hooks themselves:
//
//	{"version": 1, "hooks": {"<event>": [{"command": "..", "timeout": 5}]}}
//
// It promises:
//   - Everything of the user's stays as it is, byte for byte, comments too, and the very bytes that were there before
//     come back.
//   - A hook of belay's is known by what it starts, at any path; a wrapper of the user's around belay-hook is the
//     user's.
//   - A hook's command is one simple command, so that the hook's parent is the agent.
//   - Install and uninstall are idempotent, and a dry run writes nothing.
//
// Files puts an edited text in place, of whatever kind, and keeps the way back; FindProgram and its neighbours say
// what is on this machine. It does not know what any event means.
package settings

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/jsontext"
	"belay/internal/vfs"
)

// waitFlag makes belay-hook wait for a brief.
const waitFlag = "--wait"

// Spec is where an agent's hooks stand and how they look there.
type Spec struct {
	Agent string // its name on the command line
	Home  string // the agent's folder; empty when none is known
	File  string // the settings file below it
	State string // belay's own state folder; empty when none is known
	FS    vfs.FS

	Dialect jsontext.Dialect
	Events  []Event
	Type    string        // of each hook
	Label   string        // the name of each hook; empty where hooks have none
	Unit    time.Duration // of timeouts
	Flat    bool          // an event's list holds the hooks themselves
	Top     bool          // the events stand at the top of the file, not below "hooks"
	Args    bool          // the program and its arguments stand apart: no shell is needed
	Exec    bool          // the command line goes through a shell, which the hook replaces
	Bash    bool          // the keys are bash and timeoutSec
	Async   string        // what becomes of a hook that the agent does not wait for; empty where hooks cannot be so
}

// Event is one hook event that belay wants.
type Event struct {
	Name    string
	Matcher string        // empty matches all
	Timeout time.Duration // as belay writes it
	Budget  time.Duration // how long the agent waits when no timeout is set; only where its form of trust holds it
	Waits   bool          // as in agent.EventSpec
}

// Specs are the events as the rest of belay knows them.
func Specs(events []Event) []agent.EventSpec {
	var specs []agent.EventSpec
	for _, e := range events {
		specs = append(specs, agent.EventSpec{Name: e.Name, Waits: e.Waits})
	}
	return specs
}

// Path is that of the settings file.
func (s Spec) Path() string { return filepath.Join(s.Home, s.File) }

// Files keep the way back of an agent's files.
func (s Spec) Files() Files {
	return Files{FS: s.FS, Dir: filepath.Join(s.State, "install", s.Agent)}
}

// Read gives the settings file, which need not be there.
func (s Spec) Read() (File, error) {
	if s.Home == "" || s.State == "" {
		return File{Path: s.Path()}, agent.ErrNoHome
	}
	return s.Files().Read(s.Path())
}

// Install writes belay's hooks. A second run changes nothing. More, when not nil, adds to what is told of the new text.
func (s Spec) Install(p agent.Paths, dryRun bool, more func(next []byte) string) ([]agent.Change, error) {
	c, err := s.install(p, dryRun, more)
	if err != nil {
		return nil, fmt.Errorf("install hooks in %s: %w", s.Path(), err)
	}
	return []agent.Change{c}, nil
}

func (s Spec) install(p agent.Paths, dryRun bool, more func(next []byte) string) (c agent.Change, err error) {
	if err = p.OneLine(); err != nil {
		return c, err
	}

	f, err := s.Read()
	if err != nil {
		return c, err
	}

	next, err := s.Merge(f.Text, p)
	if err != nil {
		return c, err
	}

	bare, err := s.Strip(f.Text)
	if err != nil {
		return c, err
	}

	c, err = s.Files().Put(f, next, bare, fmt.Sprintf("hooks for %d events", len(s.Events)), dryRun)
	if more != nil {
		c.Detail += more(next)
	}

	return c, err
}

// Undo decides how belay's hooks are taken out again.
func (s Spec) Undo() (Undo, error) {
	f, err := s.Read()
	if err != nil {
		return Undo{}, err
	}

	bare, err := s.Strip(f.Text)
	if err != nil {
		return Undo{}, err
	}

	return s.Files().Undo(f, bare, s.empty(bare))
}

// Uninstall takes belay's hooks out again. When nobody changed the file since Install its old bytes come back, and a
// file or folder that Install made goes; else only belay's entries go.
func (s Spec) Uninstall(dryRun bool) ([]agent.Change, error) {
	u, err := s.Undo()
	if err == nil && !dryRun {
		err = s.Files().Do(u)
	}
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks from %s: %w", s.Path(), err)
	}

	return []agent.Change{u.Change("hooks")}, nil
}

// Check says what is wrong with the wiring, one finding each.
func (s Spec) Check(p agent.Paths) []string {
	found := CheckHook(p)
	f, err := s.Read()
	switch {
	case err != nil:
		return append(found, fmt.Sprintf("%s: %v", s.Path(), err))
	case !f.Exists:
		return append(found, s.Path()+" is not there: no hook is installed")
	}

	for _, e := range s.Events {
		list, err := s.Handlers(f.Text, e.Name)
		if err != nil {
			return append(found, fmt.Sprintf("%s: %v", s.Path(), err))
		}
		for _, fault := range s.check(e, list, p) {
			found = append(found, e.Name+": "+fault)
		}
	}

	return found
}

// check compares an event's hooks with what belay would write. Where the settings may be shared by machines with
// different versions of the agent, hooks with arguments and hooks without are both right.
func (s Spec) check(e Event, list []Handler, p agent.Paths) (found []string) {
	switch len(list) {
	case 0:
		return []string{"hook is missing"}
	case 1:
	default:
		return []string{fmt.Sprintf("hook is there %d times", len(list))}
	}

	argv := s.argvOf(list[0].Text)
	last := len(argv) - 1
	if argv[0] != p.Hook {
		found = append(found, fmt.Sprintf("hook starts %s, not %s", argv[0], p.Hook))
	}
	if argv[last] != e.Name {
		found = append(found, fmt.Sprintf("hook reports the event as %s", argv[last]))
	}
	if e.Waits && !slices.Contains(argv[1:last-1], waitFlag) {
		found = append(found, "hook is of an earlier belay, which did not wait for a brief: install it again")
	}

	var h payload.Payload
	_ = s.Dialect.Decode(list[0].Text, &h) // it is an object, or it would be no hook of belay's
	found = append(found, s.checkTimeout(e, h)...)
	if s.Async != "" && h.Flag("async") {
		found = append(found, "hook is async: "+s.Async)
	}

	var g struct{ Matcher string }

	// A matcher of another type is as wrong as a narrow one.
	err := s.Dialect.Decode(list[0].GroupText, &g)
	if err != nil || !slices.Contains([]string{"", "*", e.Matcher}, g.Matcher) {
		found = append(found, fmt.Sprintf("hook's matcher %q leaves calls out", g.Matcher))
	}

	return found
}

func (s Spec) checkTimeout(e Event, h payload.Payload) []string {
	key, unit := "timeout", "seconds"
	if s.Bash {
		key = "timeoutSec"
	}
	if s.Unit < time.Second {
		unit = "milliseconds"
	}

	var timeout *float64
	most := float64(e.Timeout / s.Unit)
	switch err := json.Unmarshal(h[key], &timeout); {
	case err != nil || timeout == nil:
		return []string{"hook has no timeout"}
	case *timeout > most:
		return []string{fmt.Sprintf("hook's timeout is %g %s, more than %g", *timeout, unit, most)}
	case s.Unit < time.Second && *timeout < float64(time.Second/s.Unit):
		const form = "hook's timeout is %g %s, less than a second: the unit is no second here"
		return []string{fmt.Sprintf(form, *timeout, unit)}
	}

	return nil
}
