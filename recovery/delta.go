package recovery

import (
	"fmt"
	"strings"
	"time"

	"belay/checkpoint"
)

// delta writes the section of the original scripts: what was said since the checkpoint, newest kept, in time order.
func (w *writer) delta() string {
	from := w.opt.SinceTime
	if from.IsZero() {
		from = w.in.State.MarkAt
	}
	head := fmt.Sprintf("_delta_since_last: %s → %s_\n\n### 📡 Recovered Delta\n\n", stamp(from, "start"), stamp(w.now, "now"))
	budget := w.opt.MaxBytes - len(checkpoint.Frame(w.opt.Marker, head))
	list := w.g.messages
	const omittedLine = "_999 earlier left out, 999999 bytes_\n\n"
	var parts []string
	used, i, shown := 0, len(list)-1, 0
	for ; i >= 0 && shown < w.opt.MaxMessages; i-- {
		m := list[i]
		title := fmt.Sprintf("**[%s]** ", stamp(m.At, "no time"))
		room := budget - used - len(title) - len("\n\n")
		if i > 0 {
			room -= len(omittedLine)
		}
		text := strings.TrimPrefix(quote(m.Text), "> ")
		if len(text) > room {
			if shown > 0 && room < 120 || room < 20 {
				break
			}
			text = strings.TrimPrefix(quoted("", m.Text, room), "> ")
			w.r.Messages[i].Shortened = true
		}
		text = title + strings.TrimRight(text, "\n") + "\n\n"
		used += len(text)
		parts = append(parts, text)
		if m.Role != string(checkpoint.RoleTool) {
			shown++
		}
	}
	var b strings.Builder
	b.WriteString(head)
	if left := i + 1; left > 0 {
		bytes := 0
		for _, m := range list[:left] {
			bytes += len(m.Text)
		}
		w.r.Omitted = Omitted{Messages: left, Bytes: bytes}
		if line := fmt.Sprintf("_%d earlier left out, %d bytes_\n\n", left, bytes); used+len(line) <= budget {
			b.WriteString(line)
		}
	}
	if len(parts) == 0 && budget > len("Nothing new since then.\n") {
		b.WriteString("Nothing new since then.\n")
	}
	for j := len(parts) - 1; j >= 0; j-- {
		b.WriteString(parts[j])
	}
	return checkpoint.Frame(w.opt.Marker, b.String())
}

func stamp(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
