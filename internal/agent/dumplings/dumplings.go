// Package dumplings knows the agents of dumplingsAI by what they save: .duas files (an INI head and the conversation as
// JSON lines), and the table "sessions" of its SQLite store. Both are only read; the library has no hooks, so that a
// session is known when its file is named, or lies in the workspace that is asked for.
//
// It promises what packages document and sqlitero do. A session is named by its key: the file's name without .duas, the
// row's key. Of a file whose format version is unknown nothing is told (ErrVersion).
//
// What it cannot do: the library was never run with belay (its published versions have no such files), and its messages
// have neither ids nor times, so that equal ones are told apart by their order alone.
package dumplings

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/tools"
	"belay/internal/transcript/sqlite"
	"belay/internal/transcript/wholefile"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "dumplings"

// ErrVersion is returned for a file of a format version that is not known.
var ErrVersion = errors.New("unknown format version")

// Agent is dumplingsAI as the rest of belay sees it.
type Agent struct{}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
	_ agent.Watched    = (*Agent)(nil)
)

// New gives the agent.
func New(agent.Host) *Agent { return &Agent{} }

// Name is "dumplings".
func (a *Agent) Name() string { return name }

// Events is empty: the library has no hooks.
func (a *Agent) Events() []agent.EventSpec { return nil }

// Limits of a brief that a person asks for.
func (a *Agent) Limits() agent.Limits { return agent.Limits{BriefBytes: 9000} }

// Tools are those of any program: a program brings its own.
func (a *Agent) Tools() tools.Table { return tools.Generic }

// Decode knows no payloads: a program that uses the library sends op event.
func (a *Agent) Decode(context.Context, agent.Hook) (agent.Incoming, error) {
	return agent.Incoming{}, agent.ErrNotOurs
}

// Reply is the text itself.
func (a *Agent) Reply(_, text string) []byte { return []byte(text) }

const (
	fileSuffix = ".duas"
)

// Open gives the reader of a .duas file, or of one row of a database.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript {
	if isDatabase(src.Path) {
		return openTable(src)
	}
	return wholefile.Open(src.Path, walk(src.Session))
}

func isDatabase(path string) bool {
	head := headOf(path, len(sqlite.Header))
	return string(head) == sqlite.Header ||
		len(head) == 0 && !strings.HasSuffix(path, fileSuffix) && filepath.Ext(path) != ""
}

// headOf gives the first bytes of a regular file; none of what cannot be read.
func headOf(path string, most int) []byte {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}

	defer file.Close() // read only
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}

	data, err := io.ReadAll(io.LimitReader(file, int64(most)))
	if err != nil {
		return nil
	}

	return data
}

// Watch names the files that change: no mirror is kept of them, because they are rewritten as a whole.
func (a *Agent) Watch(path string) []string {
	if isDatabase(path) {
		return []string{path, path + "-wal"}
	}
	return []string{path}
}

// ResumeCommand says how a person goes on.
func (a *Agent) ResumeCommand(session string) string {
	return "load the agent " + session + " in the program that saved it"
}

const (
	defaultMost = 20 // of Query.Most
	maxFolders  = 200
)

// Locate finds the .duas files of a workspace, in it and in its folders, newest first.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	most := q.Most
	if most <= 0 {
		most = defaultMost
	}
	if q.Workspace == "" {
		return nil, nil // the library keeps its files where its user says
	}

	list := files(q.Workspace)
	entries, err := os.ReadDir(q.Workspace)
	if err != nil {
		return nil, nil // no such folder has no files
	}

	folders := 0
	for _, e := range entries {
		if e.IsDir() && folders < maxFolders {
			folders++
			list = append(list, files(filepath.Join(q.Workspace, e.Name()))...)
		}
	}

	slices.SortStableFunc(list, func(x, y agent.Found) int {
		return cmp.Or(y.Changed.Compare(x.Changed), cmp.Compare(x.Path, y.Path))
	})
	var found []agent.Found
	for _, f := range list {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		if q.Session != "" && f.Session != q.Session && !names(f.Path, q.Session) {
			continue
		}

		f.Workspace = q.Workspace
		if found = append(found, f); len(found) == most {
			break
		}
	}

	return found, nil
}

// files lists the .duas files of a folder.
func files(dir string) []agent.Found {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // not to be read: no files for us
	}

	var list []agent.Found
	for _, e := range entries {
		key, ok := strings.CutSuffix(e.Name(), fileSuffix)
		info, err := e.Info()
		if ok && err == nil && info.Mode().IsRegular() {
			list = append(
				list,
				agent.Found{
					Source:  agent.Source{Path: filepath.Join(dir, e.Name()), Session: key},
					Changed: info.ModTime(),
				},
			)
		}
	}

	return list
}

// names says whether a file's head names an agent so.
func names(path, session string) bool {
	head := headOf(path, 64<<10)
	meta := readHead(head)
	return meta.uuid == session || meta.name == session
}

// Recognise knows a .duas file by its first section, and a database by its table.
func (*Agent) Recognise(head []byte) agent.Score {
	if bytes.HasPrefix(head, []byte(sqlite.Header)) {
		return agent.MineIf(tableForm().Match(head))
	}
	m := readHead(head)
	return agent.MineIf(m.section && m.format != "")
}
