package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"belay/internal/config"
	"belay/internal/daemon"
	"belay/internal/state"
	"belay/internal/state/mirror"
	"belay/internal/state/query"
)

// printMirror prints the copy of a session's transcript, line for line: the exact one where there is one. copyNumber
// picks an older copy of the same kind.
func printMirror(out io.Writer, folder query.Folder, s query.Shown, copyNumber int) error {
	list, err := mirror.Generations(folder.Dir.FS, folder.Dir.Session(s.State.Key))
	if err != nil {
		return err
	}

	// after a change of the setting the one that goes further, not the one that was left behind
	exact, most := false, int64(-1)
	for _, g := range list {
		if g.Number == 0 && g.To > most {
			exact, most = g.Exact(), g.To
		}
	}

	for _, g := range list {
		if g.Number != copyNumber || g.Exact() != exact {
			continue
		}
		return mirrorHint(copyLines(out, folder, g))
	}

	what := fmt.Errorf("session %s: no copy of its transcript", s.Session.SessionID)
	if copyNumber > 0 {
		what = fmt.Errorf("session %s: no older copy %d of its transcript", s.Session.SessionID, copyNumber)
	}

	return &coded{
		what,
		exitNotFound,
		"The setting mirror says whether one is kept; transcripts in a database have none.",
	}
}

func copyLines(out io.Writer, folder query.Folder, g mirror.Generation) error {
	var key *mirror.Key
	if g.Exact() {
		var err error
		if key, err = mirror.ReadKey(folder.Dir.FS, config.KeyDir(os.Getenv)); err != nil {
			return err
		}
	}

	lines, err := mirror.Lines(folder.Dir.FS, g.Path, key)
	if err != nil {
		return err
	}

	defer lines.Close() // read only: nothing can be lost
	_, err = io.Copy(out, lines)
	return err
}

// mirrorHint says what to do about a key that is not right.
func mirrorHint(err error) error {
	dir := config.KeyDir(os.Getenv)
	switch {
	case errors.Is(err, mirror.ErrNoKey):
		return &coded{err, exitFailed, "Put the key back to " + dir + "; nothing else opens this copy."}
	case errors.Is(err, mirror.ErrWrongKey):
		return &coded{err, exitFailed, "Put the key with which it was made to " + dir + " and try again."}
	case errors.Is(err, mirror.ErrUnsafeKey):
		return &coded{err, exitFailed, makeKeySafe(dir)}
	}

	return err
}

func makeKeySafe(dir string) string {
	return "chmod 700 " + dir + " and 600 the file in it, both yours and no links; if others may have read it, " +
		"move it away: the daemon makes a new one at its next start"
}

// diagnoseKey looks at the key of exact mirrors.
func diagnoseKey(c *config.Config, dir state.Dir) []finding {
	if c == nil || daemon.Mirror(c.Mirror) != daemon.MirrorExact {
		return nil
	}

	place := config.KeyDir(os.Getenv)
	_, err := mirror.ReadKey(dir.FS, place)
	switch {
	case place == "":
		return []finding{
			{
				"mirror",
				"problem",
				"exact mirrors need a key, and there is no home folder for it",
				"set HOME or XDG_CONFIG_HOME",
			},
		}

	case err == nil:
		return []finding{{"mirror", "ok", "exact, encrypted with the key in " + place, ""}}
	case errors.Is(err, mirror.ErrNoKey):
		return []finding{
			{
				"mirror",
				"note",
				"exact; there is no key yet in " + place,
				"the daemon makes it at its next start; copies that an older key has encrypted need that one",
			},
		}
	}

	return []finding{{"mirror", "problem", err.Error() + "; mirrors are kept without secrets", makeKeySafe(place)}}
}
