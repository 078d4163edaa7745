package codex

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
)

const (
	locateMost  = 20   // when the query does not say
	locateHeads = 5000 // heads that one query reads at most, the newest files'
)

// locate finds main rollouts below home, newest first. Names only say which files are rollouts, and of which thread
// where the query asks for one; whose a file is, its first record says, and the name only where that does not. A
// compressed file is told under its plain name: that is the one that hooks give, and the reader finds the other.
func locate(ctx context.Context, home string, q agent.Query) ([]agent.Found, error) {
	files, err := rollouts(home, q.Session)
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
	seen := map[string]bool{} // a thread whose person went back has several rollouts, the newest of which goes on
	want := payload.RealPath(q.Workspace)
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		own, err := ownerOf(f.path)
		if err != nil || own.child {
			continue // gone meanwhile or not ours to read; or a sub-agent's
		}
		if own.thread == "" {
			own.session = threadOfName(f.path)
		}
		if seen[own.session] {
			continue
		}

		workspace := workspaceOf(own.cwd)
		if q.Session != "" && own.session != q.Session || q.Workspace != "" && workspace != want {
			continue
		}

		seen[own.session] = own.session != ""
		found = append(found, agent.Found{
			Source:    agent.Source{Path: strings.TrimSuffix(f.path, packed), Session: own.session},
			Workspace: workspace,
			Changed:   f.changed,
		})

		if len(found) == q.Most {
			break
		}
	}

	return found, nil
}

type namedFile struct {
	path    string
	changed time.Time
}

// rollouts lists the files that are named like rollouts, newest first: of one thread, or all. A file or folder that
// cannot be looked at is passed over: others may be what is asked for. Where a plain and a compressed file stand side
// by side the plain one counts.
func rollouts(home, session string) ([]namedFile, error) {
	var files []namedFile
	plain := map[string]bool{}
	for _, root := range []string{"sessions", "archived_sessions"} {
		root = filepath.Join(home, root)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if path == root && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				return nil
			}

			thread := threadOfName(path)
			if d.IsDir() || thread == "" || session != "" && thread != session {
				return nil
			}

			info, err := os.Stat(path) // a link to a file is one
			if err != nil || !info.Mode().IsRegular() {
				return nil
			}

			files = append(files, namedFile{path, info.ModTime()})
			plain[path] = true
			return nil
		})

		if err != nil {
			return nil, err
		}
	}

	files = slices.DeleteFunc(files, func(f namedFile) bool {
		bare, cut := strings.CutSuffix(f.path, packed)
		return cut && plain[bare]
	})

	slices.SortStableFunc(files, func(a, b namedFile) int {
		return cmp.Or(b.changed.Compare(a.changed), cmp.Compare(a.path, b.path))
	})
	return files, nil
}

// Recognise knows a rollout by its first record, compressed too.
func (*Agent) Recognise(head []byte) agent.Score {
	if bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")) {
		z, err := decoder(bytes.NewReader(head))
		if err != nil {
			return agent.NotMine
		}
		defer z.Close()
		// The file may go on behind head: what came before that is what counts.
		head, _ = io.ReadAll(io.LimitReader(z, 64<<10))
	}

	first, _, _ := bytes.Cut(bytes.TrimLeft(head, "\xef\xbb\xbf \t\r\n\x00"), []byte("\n"))
	wrapped := bytes.Contains(first, []byte(`"payload"`)) && bytes.Contains(first, []byte(`"session_meta"`))
	bare := bytes.Contains(first, []byte(`"instructions"`)) && bytes.Contains(head, []byte(`"record_type":"state"`))
	return agent.MineIf(wrapped || bare)
}
