package droid

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
	locateMost  = 20       // when the query does not say
	locateHead  = 64 << 10 // of a file, in which its first record ends
	locateFiles = 5000     // heads that one query reads at most, the newest files'
)

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

		head := headOf(f.Path)
		f.Session, f.Workspace = wholefile.Ident(head.ID), payload.RealPath(head.Cwd)
		if f.Session == "" || head.Caller != "" ||
			q.Session != "" && f.Session != q.Session || q.Workspace != "" && f.Workspace != want {
			continue
		}
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

	paths, _ := filepath.Glob(filepath.Join(a.home, "sessions", "*", "*.jsonl")) // the pattern is right
	var list []agent.Found
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			list = append(list, agent.Found{Source: agent.Source{Path: path}, Changed: info.ModTime()})
		}
	}

	slices.SortStableFunc(list, func(x, y agent.Found) int {
		return cmp.Or(y.Changed.Compare(x.Changed), cmp.Compare(x.Path, y.Path))
	})
	return list
}

// headOf is a file's first record; empty when it is none of a session's.
func headOf(path string) (head record) {
	file := lines.Open(path)
	defer file.Close() // read only

	// What cannot be read says nothing of itself.
	_, _ = file.Read(lines.Pos{}, lines.Options{Max: locateHead, Final: true}, func(l lines.Line) bool {
		var rec record
		if lines.Decode(l.Data, &rec) == nil && rec.Type == "session_start" {
			head = rec
		}
		return false
	})

	return head
}
