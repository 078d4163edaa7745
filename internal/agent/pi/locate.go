package pi

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/lazyre"
	"belay/internal/transcript/lines"
	"belay/internal/vfs"
)

const (
	defaultMost   = 20       // of Query.Most
	headerBytes   = 64 << 10 // where the header is looked for
	indexBytes    = 64 << 20 // of a sessions.json
	settingsBytes = 4 << 20  // of pi's settings.json
	maxAgentDirs  = 1000
)

// Live names alone are transcripts. Beside them lie archives, backups, locks, traces and copies, some of which end in
// .jsonl as well.
var (
	uuidName = lazyre.New(
		`(?i)^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(-topic-[A-Za-z0-9%_.!~*'()-]+)?\.jsonl$`,
	)
	stampName = lazyre.New(`^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z_([A-Za-z0-9][A-Za-z0-9._-]*)\.jsonl$`)
	notLive   = []string{".checkpoint.", ".trajectory.", ".corrupt-", ".jsonl."}
)

// SessionOfName gives the session id that the name of a live transcript tells, and whether it is such a name. The
// header inside has the last word.
func SessionOfName(file string) (session string, ok bool) {
	for _, part := range notLive {
		if strings.Contains(file, part) {
			return "", false
		}
	}

	if m := uuidName().FindStringSubmatch(file); m != nil {
		return m[1], true
	}
	if m := stampName().FindStringSubmatch(file); m != nil {
		return m[1], true
	}

	return "", false
}

// candidate is a file that is a transcript by its name, or by what the agent's index says of it.
type candidate struct {
	path    string
	session string
	changed time.Time
}

// Locate finds transcripts, newest first. It reads heads only, and no more of them than it has to.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	most := q.Most
	if most <= 0 {
		most = defaultMost
	}

	files := existing(a.list())
	var found []agent.Found
	for _, c := range files {
		if err := ctx.Err(); err != nil {
			return found, err
		}

		f := header(c)
		if q.Session != "" && f.Session != q.Session || q.Workspace != "" && !samePlace(f.Workspace, q.Workspace) {
			continue
		}
		if found = append(found, f); len(found) == most {
			break
		}
	}

	return found, nil
}

// existing drops what is no file and what is there twice, and sorts the newest first.
func existing(list []candidate) []candidate {
	seen := map[string]bool{}
	var kept []candidate
	for _, c := range list {
		info, err := os.Stat(c.path)
		if err != nil || !info.Mode().IsRegular() {
			continue // gone since it was listed, or nothing to read
		}
		if c.changed = info.ModTime(); !seen[payload.RealPath(c.path)] {
			seen[payload.RealPath(c.path)] = true
			kept = append(kept, c)
		}
	}

	slices.SortStableFunc(kept, func(a, b candidate) int {
		return cmp.Or(b.changed.Compare(a.changed), cmp.Compare(a.path, b.path))
	})
	return kept
}

// header reads what a transcript says of itself. One with a torn header is known by its name.
func header(c candidate) agent.Found {
	f := agent.Found{Source: agent.Source{Path: c.path, Session: c.session}, Changed: c.changed}
	file := lines.Open(c.path)
	defer file.Close() // read only

	// What cannot be read is still found under its name; reading it later says why.
	_, _ = file.Read(lines.Pos{}, lines.Options{Max: headerBytes}, func(line lines.Line) bool {
		rec, ok := parse(line.Data, line.Off)
		if !ok || rec.typ != typeHeader {
			return true
		}

		f.Workspace = ident(text(rec.cwd))
		if rec.id != "" {
			f.Session = ident(rec.id)
		}

		return false
	})

	return f
}

func samePlace(a, b string) bool {
	return a != "" && (a == b || payload.RealPath(a) == payload.RealPath(b))
}

// live lists the transcripts of a folder, and its other folders. A folder that is not there has none.
func live(dir string) (files []candidate, folders []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil
	}

	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if session, ok := SessionOfName(e.Name()); ok {
			files = append(files, candidate{path: path, session: session})
		} else if info, err := os.Stat(path); err == nil && info.IsDir() {
			folders = append(folders, path)
		}
	}

	return files, folders
}

// filesIn lists the transcripts in folders: one for each workspace, or one that the user chose.
func filesIn(dirs []string) []candidate {
	var files []candidate
	for _, dir := range dirs {
		own, folders := live(dir)
		files = append(files, own...)
		for _, folder := range folders {
			more, _ := live(folder)
			files = append(files, more...)
		}
	}

	return files
}

// piSessionDirs are the folders in which pi keeps sessions. One that is set for a single project, or on pi's command
// line, is not among them: a session there is known by its events.
func piSessionDirs(h agent.Host) []string {
	home := piHome(h)
	if dir := expandHome(h, h.Var("PI_CODING_AGENT_SESSION_DIR")); dir != "" {
		return []string{dir}
	}
	if home == "" {
		return nil // no home, no sessions
	}

	dirs := []string{filepath.Join(home, "sessions")}
	data, err := vfs.ReadFile(vfs.OS{}, filepath.Join(home, "settings.json"), settingsBytes)
	if err != nil {
		return dirs // no settings, or none that can be read
	}
	if dir := expandHome(h, member(data, "sessionDir")); dir != "" && dir != dirs[0] {
		dirs = append(dirs, dir)
	}

	return dirs
}

// openclawFiles lists OpenClaw's transcripts of all agents and profiles.
func openclawFiles(h agent.Host) []candidate {
	var files []candidate
	for _, state := range States(h) {
		agents, err := os.ReadDir(filepath.Join(state, "agents"))
		if err != nil {
			continue // no such state folder
		}

		for _, a := range agents[:min(len(agents), maxAgentDirs)] {
			dir := filepath.Join(state, "agents", a.Name(), "sessions")
			files = append(files, indexed(dir)...)
			more, _ := live(dir)
			files = append(files, more...)
		}
	}

	return files
}

// States are OpenClaw's state folders on a machine, the one of the environment or the default one first.
func States(h agent.Host) []string {
	if dir := h.Var("OPENCLAW_STATE_DIR"); dir != "" {
		return []string{dir}
	}

	home := h.Var("OPENCLAW_HOME")
	if home == "" {
		home = h.Home
	}
	if home == "" {
		return nil // no home, no sessions
	}

	states := []string{filepath.Join(home, ".openclaw"), filepath.Join(home, ".clawdbot")}
	entries, err := os.ReadDir(home)
	if err != nil {
		return states
	}

	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".openclaw-") {
			states = append(states, filepath.Join(home, e.Name()))
		}
	}

	return states
}

// indexed gives the transcripts that sessions.json names. Their names need not be live ones by form, as the index has
// the last word on where a session is. An index that is missing or broken names none.
func indexed(dir string) []candidate {
	data, err := vfs.ReadFile(vfs.OS{}, filepath.Join(dir, "sessions.json"), indexBytes)
	if err != nil {
		return nil
	}

	var index map[string]json.RawMessage
	if json.Unmarshal(data, &index) != nil {
		return nil
	}

	var files []candidate
	for _, raw := range index {
		session, path := member(raw, "sessionId"), member(raw, "sessionFile")
		if path == "" && session != "" && filepath.Base(session) == session {
			path = filepath.Join(dir, session+".jsonl")
		}
		if session == "" || !filepath.IsAbs(path) || !strings.HasSuffix(path, ".jsonl") {
			continue // later versions have a marker of their database here
		}

		files = append(files, candidate{path: path, session: ident(session)})
	}

	return files
}
