package claude

import (
	"context"
	"path/filepath"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

// state is what one record needs to know of those before it. Workspace, model and mode are kept as hashes: they only
// need to be compared.
type state struct {
	lines.Pos
	Place uint32 `json:"w,omitempty"`
	Model uint32 `json:"m,omitempty"`
	Mode  uint32 `json:"p,omitempty"`
	Ended bool   `json:"e,omitempty"` // the turn that the last prompt opened has ended
}

// openTranscript reads one transcript file. File order is the truth: parents, which can be missing or go in circles,
// are never followed, and stamps are only passed on.
func openTranscript(src agent.Source) checkpoint.Transcript {
	return lines.NewReader(src.Path, format(src))
}

// recordKeys: of the objects in a record only records themselves have a uuid.
var recordKeys = []string{"uuid"}

// format says what the records of one file mean.
func format(src agent.Source) lines.Format[state] {
	session := src.Session
	if session == "" && src.Child == "" {
		session = sessionOfName(src.Path)
	}

	return lines.Format[state]{
		Keys:  recordKeys,
		Skip:  func(line []byte) bool { return !matters(line) },
		Learn: func(seen *lines.Seen, l lines.Line) { seen.Add(recordID(l.Data)) },
		Marks: func(line []byte, answered bool) bool { return mayTurn(line) || !answered && mayAnswer(line) },
		Record: func(_ context.Context, p *lines.Page[state], rec lines.Record) error {
			return entries{p, session, src.Child}.record(rec.Data)
		},
	}
}

// sessionOfName is the session id in the name of a live main transcript; empty for every other file.
func sessionOfName(path string) string {
	id, ok := strings.CutSuffix(filepath.Base(path), ".jsonl")
	if !ok || !checkpoint.IsUUID(id) {
		return ""
	}
	return id
}
