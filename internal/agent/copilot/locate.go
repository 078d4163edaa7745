package copilot

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/wholefile"
)

const (
	eventsFile  = "events.jsonl"
	locateMost  = 20       // when the query does not say
	locateHead  = 64 << 10 // of a file, in which its first record ends
	locateFiles = 5000     // heads that one query reads at most, the newest files'
)

func (a *Agent) sessions() string { return filepath.Join(a.home, "session-state") }

// Locate finds sessions by their first record, newest first.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	if q.Most <= 0 {
		q.Most = locateMost
	}

	files := a.files()
	want := payload.RealPath(q.Workspace)
	var found []agent.Found
	for _, f := range files[:min(len(files), locateFiles)] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		session, workspace := headOf(f.Path)
		if session == "" || q.Session != "" && session != q.Session || q.Workspace != "" && workspace != want {
			continue
		}

		f.Session, f.Workspace = session, workspace
		if found = append(found, f); len(found) == q.Most {
			break
		}
	}

	return found, nil
}

// files lists the sessions' files, newest first.
func (a *Agent) files() []agent.Found {
	if a.home == "" {
		return nil
	}

	dirs, err := os.ReadDir(a.sessions())
	if err != nil {
		return nil // not there, or not for us
	}

	var list []agent.Found
	for _, d := range dirs {
		path := filepath.Join(a.sessions(), d.Name(), eventsFile)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			list = append(list, agent.Found{Source: agent.Source{Path: path}, Changed: info.ModTime()})
		}
	}

	slices.SortStableFunc(list, func(x, y agent.Found) int {
		return cmp.Or(y.Changed.Compare(x.Changed), cmp.Compare(x.Path, y.Path))
	})
	return list
}

// headOf reads whose a file is; empty when it does not say.
func headOf(path string) (session, workspace string) {
	file := lines.Open(path)
	defer file.Close() // read only

	// What cannot be read says nothing of itself.
	_, _ = file.Read(lines.Pos{}, lines.Options{Max: locateHead, Final: true}, func(l lines.Line) bool {
		var rec record
		if lines.Decode(l.Data, &rec) == nil && rec.Type == "session.start" {
			session, workspace = wholefile.Ident(rec.Data.Session), payload.RealPath(rec.Data.Context.Path("cwd"))
		}
		return false
	})

	return session, workspace
}
