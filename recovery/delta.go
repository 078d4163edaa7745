package recovery

import (
	"fmt"
	"strings"
	"time"

	"belay/checkpoint"
)

// delta writes the section of the original scripts: what was said since the checkpoint, newest kept, in time order.
func (w *writer) delta() string {
	head := fmt.Sprintf("_delta_since_last: %s → %s_\n\n", stamp(w.mark.at, "start"), stamp(w.now, "now"))
	small := w.opt.MaxBytes < 400 // then the words need the room of the title
	if !small {
		head += "### 📡 Recovered Delta\n\n"
	}

	room := w.opt.MaxBytes - len(checkpoint.Frame(w.opt.Marker, head)) - len("\n\n")
	list := w.g.messages
	if len(list) > 1 {
		room -= len(leftOut(Omitted{Messages: 999, Bytes: 9_999_999}, small))
	}

	b := w.pick(list, room, small)
	w.keep(b)
	if len(list) == 0 {
		b.text = "Nothing new since then.\n"
	}

	return checkpoint.Frame(w.opt.Marker, head+leftOut(w.omitted(), small)+b.text)
}

// pick takes the newest messages that fit. Tool lines do not count as messages, and before the newest message is in
// they take a third of the room at most: many calls never push it out.
func (w *writer) pick(list []Said, room int, small bool) block {
	var b block
	var parts []string
	lines, shown := room/3, 0
	for i := len(list) - 1; i >= 0 && shown < w.opt.MaxMessages; i-- {
		m := list[i]
		tool := m.Role == string(checkpoint.RoleTool)
		text, cut := w.deltaEntry(m, room, small, !tool && shown == 0)
		if tool && shown == 0 && newerWords(list[:i]) {
			if len(text) > lines {
				continue
			}
			lines -= len(text)
		}

		if text == "" {
			break
		}

		room -= len(text)
		parts = append(parts, text)
		b.nums = append(b.nums, m.num)
		if cut {
			b.cut = append(b.cut, m.num)
		}
		if !tool {
			shown++
		}
	}

	for j := len(parts) - 1; j >= 0; j-- {
		b.text += parts[j]
	}

	return b
}

// newerWords says whether a message, and not a tool line alone, is still to come.
func newerWords(list []Said) bool {
	for _, m := range list {
		if m.Role != string(checkpoint.RoleTool) {
			return true
		}
	}
	return false
}

// deltaEntry is one message; the newest is shortened rather than left out, whatever the room.
func (w *writer) deltaEntry(m Said, room int, small, newest bool) (string, bool) {
	title := fmt.Sprintf("**[%s]** ", w.stampOf(m.At, small))
	if m.Role == string(checkpoint.RoleUser) && !small {
		title += "(the user had said) "
	}

	text, cut := quoted("", w.clean(m), room-len(title)-len("\n")+len("> "))
	if text == "" || cut && !newest && room < 200 {
		return "", true
	}

	return title + strings.TrimPrefix(text, "> ") + "\n", cut
}

func (w *writer) stampOf(t time.Time, small bool) string {
	switch {
	case small:
		return t.UTC().Format("15:04:05Z")
	case t.After(w.now.Add(time.Hour)):
		return stamp(t, "") + ", a stamp from the future"
	}
	return stamp(t, "no time")
}

func leftOut(o Omitted, small bool) string {
	switch {
	case o.Messages == 0:
		return ""
	case small:
		return fmt.Sprintf("_%d left out_\n\n", o.Messages)
	}
	return fmt.Sprintf("_%d earlier left out, %d bytes_\n\n", o.Messages, o.Bytes)
}

func stamp(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
