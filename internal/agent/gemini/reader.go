package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/wholefile"
	"belay/internal/vfs"
)

// replayBytes bounds how much of a conversation's past is read again.
const replayBytes = 256 << 20

// transcript is one file of either form. The program turns the old form into the new one, so that a cursor may be of
// the other.
type transcript struct {
	checkpoint.Transcript
	document bool
}

func openTranscript(src agent.Source) checkpoint.Transcript {
	if isDocument(src.Path) {
		return transcript{wholefile.Open(src.Path, walkDocument(src)), true}
	}
	return transcript{(&reader{src: src}).open(), false}
}

// otherForm is a cursor that no reader knows: the conversation is told again, after a Reset.
const otherForm = checkpoint.Cursor("-")

// Read implements checkpoint.Transcript.
func (t transcript) Read(
	ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions,
) (checkpoint.Batch, error) {
	var c struct {
		Off *int64 `json:"o"` // of lines
		Doc *struct {
			Last string `json:"i"`
			Hash uint64 `json:"h"`
		} `json:"d"` // of a document, in the form that cursors had at first: the last message that was told
	}

	place := from
	if json.Unmarshal([]byte(from), &c) == nil {
		switch {
		case t.document && c.Doc != nil && c.Doc.Last == "":
			place = ""
		case t.document && c.Doc != nil:
			place = wholefile.After(ident(c.Doc.Last), c.Doc.Hash)
		case t.document && c.Off != nil, !t.document && c.Doc != nil:
			place = otherForm
		}
	}

	b, err := t.Transcript.Read(ctx, place, opt)
	if err != nil {
		b.Cursor = from
	}

	return b, err
}

// isDocument says whether a transcript is one JSON document: by its name, as only the new form's ends in "l".
func isDocument(path string) bool { return strings.HasSuffix(path, ".json") }

// state is what one record needs to know of those before it.
type state struct {
	lines.Pos
	Model   uint32 `json:"m,omitempty"` // hash of the model that was told last
	Copying bool   `json:"c,omitempty"` // a compaction is being written down
	// Answer is the model's newest message, and Noted says that a notice of the program's follows it.
	Answer string `json:"a,omitempty"`
	Noted  bool   `json:"n,omitempty"`
	Child  int64  `json:"k,omitempty"` // when the newest sub-agent that was told of began, in milliseconds

	h *history // what was read of the conversation; nil before the first record
}

// reader reads one transcript of lines. The file's order is the truth; stamps are only passed on.
type reader struct {
	src     agent.Source
	foreign string          // the session that the file says it is of, when that is not the one it was opened for
	headed  bool            // foreign is known
	told    map[string]told // sub-agents' files that were told of
}

func (r *reader) open() checkpoint.Transcript {
	f := r.format()
	f.Finish = r.finish
	return lines.NewReader(r.src.Path, f)
}

// format says what the records of a file of lines mean.
func (r *reader) format() lines.Format[state] {
	return lines.Format[state]{
		Keys: []string{"id", "$set", "$rewindTo", "projectHash"},
		Marks: func(line []byte, answered bool) bool {
			return bytes.Contains(line, []byte(`"`+typeUser+`"`)) ||
				!answered && bytes.Contains(line, []byte(`"`+typeGemini+`"`))
		},
		Gap: func(s *state) { *s = state{} },
		Record: func(ctx context.Context, p *lines.Page[state], rec lines.Record) error {
			c := entries{Page: p}
			return c.record(ctx, rec, r.replay)
		},
	}
}

// finish adds what the file's place and the files beside it tell.
func (r *reader) finish(s *state, b *checkpoint.Batch) {
	if !r.headed {
		r.foreign, r.headed = foreignSession(r.src)
	}

	for i := range b.Entries {
		b.Entries[i].Session = r.foreign
	}

	if b.First {
		r.told = nil
		if e, ok := about(r.src, r.foreign); ok {
			b.Entries = append([]checkpoint.Entry{e}, b.Entries...)
		}
	}

	r.children(s, b)
}

// about is the entry that names a transcript's workspace.
func about(src agent.Source, foreign string) (checkpoint.Entry, bool) {
	work := projectRoot(src.Path)
	return checkpoint.Entry{ID: "header", Kind: checkpoint.EntryMeta, Workspace: work, Session: foreign}, work != ""
}

// foreignSession is the session that a transcript's header names, when it is another one than the transcript was opened
// for. Ok is false when there is no header to be read yet.
func foreignSession(src agent.Source) (session string, ok bool) {
	h, ok := headerOf(src.Path)
	if src.Session == "" || src.Child != "" || h.SessionID == src.Session {
		return "", ok
	}
	return ident(h.SessionID), ok
}

// projectRoot is the folder in which the sessions of a transcript's project run: the program leaves its path two levels
// above the transcript, three above a sub-agent's.
func projectRoot(path string) string {
	dir := filepath.Dir(path)
	for range 2 {
		dir = filepath.Dir(dir)
		data, err := vfs.ReadFile(vfs.OS{}, filepath.Join(dir, ".project_root"), maxPath)
		if root := strings.TrimSpace(string(data)); err == nil && filepath.IsAbs(root) &&
			strings.IndexByte(root, 0) < 0 {
			return payload.RealPath(strings.ToValidUTF8(root, "\uFFFD"))
		}
	}

	return ""
}

// replay learns the conversation before a place in the file, of which a record there speaks. It is read again only
// then: when the program resumed a session, compacted it or took a part back since the cursor. A past that is too long
// or out of reach is nil: then only what was read since counts as known.
func (r *reader) replay(ctx context.Context, end int64) *history {
	if end > replayBytes {
		return nil
	}

	file := lines.Open(r.src.Path) // a look of its own: the other file is being read
	defer file.Close()             // read only
	f := r.format()
	past := f.Page(state{h: newHistory(true)})
	for pos := (lines.Pos{}); pos.Off < end; {
		span, err := file.Read(pos, lines.Options{Max: end - pos.Off}, func(line lines.Line) bool {
			if line.End > end || ctx.Err() != nil {
				return false
			}
			past.Line(ctx, line)
			past.Entries = past.Entries[:0]
			return true
		})

		if err != nil || ctx.Err() != nil || span.Changed || span.Pos.Off <= pos.Off {
			return nil
		}

		pos = span.Pos
	}

	return past.State.h
}
