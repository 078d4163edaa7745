package gemini

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/lazyre"
	"belay/internal/transcript/lines"
)

const (
	locateMost  = 20       // when the query does not say
	locateHeads = 5000     // heads that one query reads at most, the newest files'
	locateHead  = 64 << 10 // how far into a file its header is looked for
	emptyBytes  = 256 << 10
)

// fileName is the name of a main transcript: minute and the first characters of the session id. Copies that the program
// sets aside have longer names.
var fileName = lazyre.New(`^session-.*-([A-Za-z0-9_-]{1,8})\.jsonl?$`)

type liveEntry struct {
	path    string
	changed time.Time
}

// Locate finds main transcripts of this user, newest first. It reads heads only. A file that holds nothing but its
// header is given only when its session has no other.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	if q.Most <= 0 {
		q.Most = locateMost
	}

	files, err := a.transcripts(q.Session)
	if err != nil {
		return nil, err
	}

	want := payload.RealPath(q.Workspace)
	var found []agent.Found
	seen := map[string]bool{}
	for _, f := range files[:min(len(files), locateHeads)] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		h, _ := headerOf(f.path)
		if h.SessionID == "" || h.Kind == kindChild || q.Session != "" && h.SessionID != q.Session {
			continue
		}

		work := projectRoot(f.path)
		if q.Workspace != "" && work != want && (work != "" || h.ProjectHash != hashOfPath(want)) {
			continue
		}
		if work == "" && q.Workspace != "" {
			work = want // an old version that keeps the hash alone
		}

		path := liveFile(f.path, h.SessionID)
		if seen[path] {
			continue
		}

		seen[path] = true
		found = append(
			found,
			agent.Found{
				Source:    agent.Source{Path: path, Session: ident(h.SessionID)},
				Workspace: work,
				Changed:   f.changed,
			},
		)

		if len(found) == q.Most {
			break
		}
	}

	return found, nil
}

func hashOfPath(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])
}

// transcripts lists main transcripts, newest first: of any session or those that may be of one. A folder that cannot be
// looked at is passed over.
func (a *Agent) transcripts(session string) ([]liveEntry, error) {
	root := filepath.Join(a.home, "tmp")
	dirs, err := os.ReadDir(root)
	if a.home == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	var files []liveEntry
	for _, d := range dirs {
		files = append(files, chats(filepath.Join(root, d.Name(), "chats"), session)...)
	}

	newestFirst(files)
	return files, nil
}

// chats lists the main transcripts of one folder: of any session or those that may be of one. There may be thousands,
// as runaway children of the program leave them.
func chats(dir, session string) (files []liveEntry) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil // not there, or not for us
	}

	for _, n := range names {
		m := fileName().FindStringSubmatch(n.Name())
		if m == nil || session != "" && !strings.HasPrefix(session, m[1]) {
			continue
		}

		path := filepath.Join(dir, n.Name())
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, liveEntry{path, info.ModTime()})
		}
	}

	return files
}

func newestFirst(files []liveEntry) {
	slices.SortStableFunc(files, func(a, b liveEntry) int {
		return cmp.Or(b.changed.Compare(a.changed), cmp.Compare(b.path, a.path))
	})
}

// headerOf reads what a transcript says of itself. Ok is false when it does not say it (yet).
func headerOf(path string) (h header, ok bool) {
	if isDocument(path) {
		enough := errors.New("the header is read")
		end, _ := eachMessage(path, func(message, int64) error { return enough }) // it stands before the messages
		return end.header, end.header.SessionID != ""
	}

	file := lines.Open(path)
	defer file.Close() // read only

	// What cannot be read says nothing of itself.
	_, _ = file.Read(lines.Pos{}, lines.Options{Max: locateHead, Final: true}, func(line lines.Line) bool {
		var rec record
		if lines.Decode(line.Data, &rec) == nil && rec.RewindTo == "" && rec.ID == "" && rec.Set == nil &&
			rec.SessionID != "" {
			h = rec.header
		}
		return h.SessionID == ""
	})

	return h, h.SessionID != ""
}

// liveFile is the file in which a session goes on. At a resume the program names a new file, writes no more than a
// header and its own context into it, and goes on in the old one.
func liveFile(path, session string) string {
	if !filepath.IsAbs(path) || session == "" || !empty(path) {
		return path
	}

	files := chats(filepath.Dir(path), session)
	newestFirst(files)
	for _, f := range files {
		if f.path == path || empty(f.path) {
			continue
		}
		if h, _ := headerOf(f.path); h.SessionID == session {
			return f.path
		}
	}

	return path
}

// empty says whether nothing was said in a transcript yet. One that is not there is empty as well.
func empty(path string) bool {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil || info.Size() > emptyBytes {
		return false
	}

	said := errors.New("something was said")
	look := func(m message) bool {
		text, _ := personal(m.text())
		return m.Type == typeGemini || m.Type == typeUser && text != ""
	}

	if isDocument(path) {
		_, err := eachMessage(path, func(m message, _ int64) error {
			if look(m) {
				return said
			}
			return nil
		})
		return err == nil
	}

	file := lines.Open(path)
	defer file.Close() // read only
	nothing := true
	_, err = file.Read(lines.Pos{}, lines.Options{Final: true}, func(line lines.Line) bool {
		var rec record
		if lines.Decode(line.Data, &rec) != nil {
			return true
		}

		list := append(rec.Messages, rec.message)
		if rec.Set != nil && rec.Set.Messages != nil {
			list = append(list, *rec.Set.Messages...)
		}

		nothing = !slices.ContainsFunc(list, look)
		return nothing
	})

	return err == nil && nothing
}

// Recognise knows Gemini's transcripts by their header: the first of the records, or the head of a document. A header
// that is not there whole may be another agent's.
func (*Agent) Recognise(head []byte) agent.Score {
	first, rest, _ := bytes.Cut(bytes.TrimLeft(head, "\xef\xbb\xbf \t\r\n\x00"), []byte("\n"))
	if string(bytes.TrimSpace(first)) == "{" {
		first = rest // a document, a key on each line
	}

	switch {
	case isHeader(first):
		return agent.Mine
	case isHeader(head):
		return agent.Alike
	}

	return agent.NotMine
}

func isHeader(text []byte) bool {
	return bytes.Contains(text, []byte(`"projectHash"`)) && bytes.Contains(text, []byte(`"sessionId"`))
}
