package pi

import (
	"bytes"

	"belay/checkpoint"
	"belay/internal/transcript/lines"
)

// firstSight gives the head of a transcript that was never read, up to the first prompt, and the place where its newest
// part begins.
func (r *reader) firstSight(p *page) (lines.Pos, error) {
	span, err := r.file.Read(lines.Pos{}, lines.Options{Max: headBytes}, func(line lines.Line) bool {
		r.line(p, line)
		for _, e := range p.Entries {
			if e.Kind == checkpoint.EntryUser && !e.Aside {
				return false
			}
		}
		return true
	})
	if err != nil {
		return lines.Pos{}, err
	}
	p.Losses.Add(span.Losses)
	head := span.Pos
	if !span.More {
		return head, nil
	}
	off, err := r.window(head.Off)
	if err != nil || off <= head.Off {
		return head, err
	}
	pos, err := r.file.At(off)
	if err != nil {
		return lines.Pos{}, err
	}
	p.Skipped = off - head.Off
	r.whole, r.leaf, r.copying, r.turn = false, root, false, turn{}
	return pos, nil
}

// window walks backward to where the newest part begins: at the prompt before which enough are seen or at a compaction, but
// not before an answer of the model's was met; at a reset, or at the line that makes it large enough. It does not go before
// from.
func (r *reader) window(from int64) (off int64, err error) {
	size, err := r.file.Size()
	if err != nil {
		return 0, err
	}
	off = from // when no line ends behind it
	asks, enough, answered := 0, false, false
	err = r.file.Backward(size, windowBytes+lines.MaxLine, func(line lines.Line) bool {
		if line.Off < from {
			off = from
			return false
		}
		off = line.Off
		switch boundary(line.Data) {
		case typeMessage:
			asks++
		case typeCompaction:
			enough = true
		case typeReset:
			return false
		}
		answered = answered || answers(line.Data)
		enough = enough || asks >= windowAsks
		return !(enough && answered) && size-off < windowBytes
	})
	return off, err
}

// answers says whether a line holds words of the model.
func answers(data []byte) bool {
	if !bytes.Contains(data, []byte(`"assistant"`)) {
		return false
	}
	rec, ok := parse(data, 0)
	if !ok || rec.typ != typeMessage {
		return false
	}
	msg := parseMessage(rec.message)
	for _, e := range (&mapper{}).entries(rec, msg, "") {
		if e.Kind == checkpoint.EntryAssistant && !e.Aside && e.Text != "" {
			return true
		}
	}
	return false
}

// boundary names what a line is to the window: a prompt of the user's (typeMessage), a compaction, a reset, or nothing.
func boundary(data []byte) string {
	ask := bytes.Contains(data, []byte(`"user"`))
	if !ask && !bytes.Contains(data, []byte(`"`+typeCompaction+`"`)) && !bytes.Contains(data, []byte(`"`+typeReset+`"`)) {
		return ""
	}
	rec, ok := parse(data, 0)
	switch {
	case !ok:
	case rec.typ == typeCompaction, rec.typ == typeReset:
		return rec.typ
	case ask && rec.typ == typeMessage:
		msg := parseMessage(rec.message)
		if aside, _ := machinePrompt(personal(msg.text), msg.origin); msg.role == "user" && !aside {
			return typeMessage
		}
	}
	return ""
}
