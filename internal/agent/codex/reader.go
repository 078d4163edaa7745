package codex

import (
	"bytes"
	"context"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

// state is what one record needs to know of those before it. Workspace and model only need to be compared: they are
// hashes. The place is in the unpacked file.
type state struct {
	lines.Pos
	Turn  string   `json:"u,omitempty"` // the turn that began last
	Place uint32   `json:"w,omitempty"`
	Model uint32   `json:"m,omitempty"`
	Kinds bool     `json:"k,omitempty"` // this version says what a message in the user's role is
	Said  lastSaid `json:"a,omitzero"`
}

// openTranscript reads one thread's rollouts. File order is the truth; ordinals and stamps are ignored.
func openTranscript(src agent.Source) checkpoint.Transcript {
	c := &chain{own: &rollout{path: src.Path}}
	f := format()
	f.Begin = c.goneBack
	f.Finish = func(_ *state, b *checkpoint.Batch) {
		foreign := c.own.foreign(src)
		for i := range b.Entries {
			if b.Entries[i].Op != checkpoint.Reset {
				b.Entries[i].Session = foreign
			}
		}
	}

	return lines.NewSourceReader(c, f)
}

// format says what the records of a rollout mean.
func format() lines.Format[state] {
	return lines.Format[state]{
		Keys:  []string{"payload"},
		Skip:  func(line []byte) bool { return !matters(line) },
		Learn: func(seen *lines.Seen, l lines.Line) { seen.Add(lines.ContentID(l.Data)) },
		Marks: func(line []byte, answered bool) bool {
			return bytes.Contains(line, []byte(`"user`)) || bytes.Contains(line, []byte(`"UserMessage"`)) ||
				bytes.Contains(line, []byte(`"compacted"`)) || !answered && bytes.Contains(line, []byte(`"assistant"`))
		},
		Gap: func(s *state) { s.Said = lastSaid{} },
		Record: func(ctx context.Context, p *lines.Page[state], rec lines.Record) error {
			return entries{p}.record(ctx, rec.Data)
		},
	}
}
