package claude

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
)

const (
	locateMost  = 20       // when the query does not say
	locateHeads = 5000     // heads that one query reads at most, the newest files'
	locateHead  = 64 << 10 // how far into a file its session and workspace are looked for
)

// locate finds main transcripts below home, newest first. Names only say which files are live transcripts; whose a file
// is, its records say, and the name only where they do not. One head is read at a time, so the cost does not depend on
// how large the files are.
func locate(ctx context.Context, home string, q agent.Query) ([]agent.Found, error) {
	files, err := transcripts(home)
	if err != nil {
		return nil, err
	}
	if q.Most <= 0 {
		q.Most = locateMost
	}
	if len(files) > locateHeads {
		files = files[:locateHeads]
	}

	var found []agent.Found
	want := payload.RealPath(q.Workspace)
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		session, cwd := headOfFile(f.path)
		if q.Session != "" && session != q.Session {
			continue
		}

		workspace := workspaceOf(cwd)
		if q.Workspace != "" && workspace != want {
			continue
		}

		found = append(found, agent.Found{
			Source:    agent.Source{Path: f.path, Session: session},
			Workspace: workspace,
			Changed:   f.changed,
		})

		if len(found) == q.Most {
			break
		}
	}

	return found, nil
}

type liveFile struct {
	path    string
	changed time.Time
}

// transcripts lists the files that are named like a live main transcript, newest first. Locks, backups and archives
// beside them have longer names. A file or folder that cannot be looked at is passed over: others may be what is asked
// for.
func transcripts(home string) ([]liveFile, error) {
	root := filepath.Join(home, "projects")
	dirs, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	var files []liveFile
	for _, d := range dirs {
		names, err := os.ReadDir(filepath.Join(root, d.Name()))
		if err != nil {
			continue
		}

		for _, n := range names {
			if sessionOfName(n.Name()) == "" {
				continue
			}
			path := filepath.Join(root, d.Name(), n.Name())
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				files = append(files, liveFile{path, info.ModTime()})
			}
		}
	}

	slices.SortStableFunc(files, func(a, b liveFile) int {
		return cmp.Or(b.changed.Compare(a.changed), cmp.Compare(a.path, b.path))
	})
	return files, nil
}

// headOfFile reads whose a file is. The session is the one in the file's name when any record names it, else that of
// the first record; for a file without records it is the name's.
func headOfFile(path string) (session, cwd string) {
	name := sessionOfName(path)
	f := lines.Open(path)
	defer f.Close() // read only
	_, err := f.Read(lines.Pos{}, lines.Options{Max: locateHead}, func(line lines.Line) bool {
		var rec struct {
			SessionID string `json:"sessionId"`
			Cwd       string `json:"cwd"`
		}

		if lines.Decode(line.Data, &rec) != nil {
			return true
		}
		if rec.SessionID == name || session == "" && rec.SessionID != "" {
			session = rec.SessionID
		}
		if cwd == "" {
			cwd = rec.Cwd
		}

		return session != name || cwd == ""
	})

	if err != nil || session == "" || !checkpoint.IsUUID(session) {
		session = name
	}

	return session, cwd
}
