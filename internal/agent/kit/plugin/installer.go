package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
)

// Plugin installs what belay puts into an agent as files in the agent's language.
type Plugin struct {
	What  string // what the agent calls it: extension, plugin
	Path  string // of the one file, or of the folder of all
	Files []Part // the first one makes the folders of all: it is put first and goes last
	// Tidy, when not nil, removes what the agent made of a file in a folder.
	Tidy func(dir string)
}

// Part is one file of a plugin.
type Part struct {
	File
	Text   func(p agent.Paths) (string, error)
	Detail string // what Install tells of it
}

// Install puts the plugin in its place, all of it or nothing. A second run changes nothing; the plugin of another
// belay is replaced.
func (pl Plugin) Install(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	changes, err := pl.install(p, dryRun)
	if err != nil {
		return nil, fmt.Errorf("install %s: %w", pl.What, err)
	}
	return changes, nil
}

func (pl Plugin) install(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	var texts []string
	for _, f := range pl.Files { // what is in the way is found before anything is written
		text, err := f.Text(p)
		if err == nil {
			_, err = f.Read()
		}
		if err != nil {
			return nil, err
		}

		texts = append(texts, text)
	}

	var changes []agent.Change
	for i, f := range pl.Files {
		action, err := f.Put(texts[i], dryRun)
		if err != nil {
			for n := i - 1; n >= 0; n-- {
				if changes[n].Action == "create" && !dryRun {
					_ = pl.Files[n].Remove(pl.Tidy) // a part of it is of no use; what cannot go is found by doctor
				}
			}
			return nil, err
		}

		changes = append(changes, agent.Change{Path: f.Path, Action: action, Detail: f.Detail})
	}

	return changes, nil
}

// Uninstall takes the plugin away again, and the folders that were made for it and are empty.
func (pl Plugin) Uninstall(dryRun bool) ([]agent.Change, error) {
	var changes []agent.Change
	for n := len(pl.Files) - 1; n >= 0; n-- {
		f := pl.Files[n]
		old, err := f.Read()
		if errors.Is(err, ErrForeign) {
			continue // another's is none of ours to take away
		}
		if err == nil && !dryRun {
			err = f.Remove(pl.Tidy) // also where there is none: a crash may have left one half written
		}
		if err != nil {
			return changes, fmt.Errorf("uninstall %s: %w", pl.What, err)
		}
		if old != nil {
			changes = append(changes, agent.Change{Path: f.Path, Action: "remove", Detail: "was made by install"})
		}
	}

	if len(changes) == 0 {
		changes = append(changes, agent.Change{Path: pl.Path, Action: "keep", Detail: "no " + pl.What + " of belay's"})
	}

	return changes, nil
}

// InPlace says whether every file is there as Install would write it.
func (pl Plugin) InPlace(p agent.Paths) bool {
	for _, f := range pl.Files {
		old, err := f.Read()
		want, terr := f.Text(p)
		if err != nil || terr != nil || old == nil || !f.Holds(old, want) {
			return false
		}
	}
	return true
}

// Check says what is wrong with the wiring, one finding each.
func (pl Plugin) Check(p agent.Paths) []string {
	found := settings.CheckHook(p)
	var absent []string
	for _, f := range pl.Files {
		old, err := f.Read()
		switch {
		case err != nil:
			found = append(found, err.Error())
			continue
		case old == nil:
			absent = append(absent, filepath.Base(filepath.Dir(f.Path)))
			continue
		}

		if want, err := f.Text(p); err == nil && !f.Holds(old, want) {
			what := "was written by another belay"
			if !bytes.Contains(old, []byte("HOOK = "+strconv.Quote(p.Hook))) {
				what = "starts another belay-hook than " + p.Hook
			}
			found = append(found, fmt.Sprintf("%s %s: install it again", f.Path, what))
		}
	}

	switch {
	case len(absent) > 0 && len(pl.Files) == 1:
		found = append(found, fmt.Sprintf("%s is not there: the %s is not installed", pl.Path, pl.What))
	case len(absent) > 0:
		found = append(found, fmt.Sprintf("the %s is not installed at %s", pl.What, strings.Join(absent, ", ")))
	}

	return found
}
