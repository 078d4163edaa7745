package droid

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
)

// hooks are belay's, by the file that they belong in. Droid reads an event that hooks.json names from there alone;
// earlier versions kept that file in a folder, which Droid still reads.
func (a *Agent) hooks() ([]settings.Spec, error) {
	common := settings.Spec{
		Agent: name, Home: a.home, File: "settings.json", State: a.host.State, FS: a.host.FS,
		Dialect: jsontext.Comments, Type: "command", Exec: true, Unit: time.Second,
	}

	alone := common
	alone.File, alone.Top = "hooks.json", true
	f, err := alone.Read()
	if err == nil && !f.Exists {
		alone.File = filepath.Join("hooks", "hooks.json")
		f, err = alone.Read()
	}
	if err != nil || alone.Dialect.Blank(f.Text) {
		common.Events = hookEvents()
		return []settings.Spec{common, alone}, err
	}

	root, err := alone.Dialect.Object(f.Text)
	for _, e := range hookEvents() {
		if _, named := root.Find(e.Name); named {
			alone.Events = append(alone.Events, e)
		} else {
			common.Events = append(common.Events, e)
		}
	}

	return []settings.Spec{common, alone}, err
}

// Install writes belay's hooks into the user's settings.
func (a *Agent) Install(_ context.Context, p agent.Paths, dryRun bool) (changes []agent.Change, err error) {
	specs, err := a.hooks()
	if err != nil {
		return nil, fmt.Errorf("install hooks: %w", err)
	}

	for _, s := range specs {
		if len(s.Events) == 0 {
			continue
		}

		more, err := s.Install(p, dryRun, nil)
		if err != nil {
			return changes, err
		}

		changes = append(changes, more...)
	}

	return changes, nil
}

// Uninstall takes them out again.
func (a *Agent) Uninstall(_ agent.Paths, dryRun bool) (changes []agent.Change, err error) {
	specs, err := a.hooks()
	if err != nil {
		return nil, fmt.Errorf("uninstall hooks: %w", err)
	}

	for i, s := range specs {
		more, err := s.Uninstall(dryRun)
		if err != nil {
			return changes, err
		}
		if i == 0 || more[0].Action != "keep" {
			changes = append(changes, more...)
		}
	}

	return changes, nil
}

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(_ context.Context, p agent.Paths) (found []string) {
	specs, err := a.hooks()
	if err != nil {
		return []string{err.Error()}
	}

	for _, s := range specs {
		if len(s.Events) > 0 {
			found = append(found, s.Check(p)...)
		}
	}

	return slices.Compact(found)
}

// Present says whether Droid is on this machine. Nothing is run for its version.
func (a *Agent) Present() (string, bool) {
	return settings.Present(a.host.FS, a.host.Var("PATH"), a.home, nil, name)
}
