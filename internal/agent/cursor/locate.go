package cursor

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/lazyre"
)

const (
	locateMost  = 20       // when the query does not say
	locateHead  = 64 << 10 // of a file, read for its workspace
	locateFiles = 5000     // heads that one query reads at most, the newest files'
)

var notPlain = lazyre.New(`[^A-Za-z0-9]`)

// folderOf is the name that Cursor gives to a workspace's folder.
func folderOf(workspace string) string {
	return notPlain().ReplaceAllString(strings.TrimPrefix(workspace, "/"), "-")
}

// transcriptOf is where a session's transcript lies, when it lies there: the payloads of the command line do not name
// it.
func (a *Agent) transcriptOf(session, workspace string) string {
	if a.home == "" || workspace == "" || !checkpoint.IsUUID(session) {
		return ""
	}

	dir := filepath.Join(a.home, "projects", folderOf(workspace), "agent-transcripts")
	for _, path := range []string{filepath.Join(dir, session+".jsonl"), filepath.Join(dir, session, session+".jsonl")} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}

	return ""
}

// Locate finds agent transcripts, newest first. The session's id is the file's name. The workspace is nowhere in the
// file and its folder's name fits several: a transcript counts as one of the workspace that is asked for when its
// folder has that name and a path below that workspace stands in its head. By id it is found anyway.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	if q.Most <= 0 {
		q.Most = locateMost
	}

	files := a.files(q)
	var found []agent.Found
	for _, f := range files[:min(len(files), locateFiles)] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		head, err := headOf(f.Path)
		if err != nil || a.Recognise(head) == agent.NotMine || q.Session != "" && q.Session != f.Session {
			continue // gone meanwhile, not ours to read, or not a transcript
		}

		if q.Workspace != "" && below(head, q.Workspace) {
			f.Workspace = q.Workspace
		} else if q.Workspace != "" && q.Session == "" {
			continue
		}

		if found = append(found, f); len(found) == q.Most {
			break
		}
	}

	return found, nil
}

// files lists what may be a transcript, newest first.
func (a *Agent) files(q agent.Query) []agent.Found {
	if a.home == "" {
		return nil
	}

	projects := filepath.Join(a.home, "projects")
	dirs, err := os.ReadDir(projects)
	if err != nil {
		return nil // not there, or not for us
	}

	var list []agent.Found
	for _, d := range dirs {
		if q.Workspace != "" && d.Name() != folderOf(q.Workspace) {
			continue
		}

		dir := filepath.Join(projects, d.Name(), "agent-transcripts")
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}

		for _, e := range entries {
			session, isFile := strings.CutSuffix(e.Name(), ".jsonl")
			path := filepath.Join(dir, e.Name())
			if !isFile {
				path = filepath.Join(path, session+".jsonl")
			}

			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				list = append(
					list,
					agent.Found{Source: agent.Source{Path: path, Session: session}, Changed: info.ModTime()},
				)
			}
		}
	}

	slices.SortStableFunc(list, func(x, y agent.Found) int {
		return cmp.Or(y.Changed.Compare(x.Changed), cmp.Compare(x.Path, y.Path))
	})
	return list
}

func headOf(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // read only
	return io.ReadAll(io.LimitReader(file, locateHead))
}

// below says whether a path below a folder, or its own, stands in a text of JSON.
func below(head []byte, folder string) bool {
	return bytes.Contains(head, []byte(`"`+folder+`/`)) || bytes.Contains(head, []byte(`"`+folder+`"`))
}
