package recovery

import (
	"fmt"
	"strings"
	"time"

	"belay/checkpoint"
)

const earlierHead = "## Earlier messages\n"

// sectionNow says what the task was, when and how it stopped, and what is missing from this record.
func (w *writer) sectionNow(limit int) block {
	const head = "## Now\n"
	room := limit - len(head)
	take := func(line string, spare int) string {
		if len(line) > room-spare {
			return ""
		}
		room -= len(line)
		return line
	}

	long, brief := w.stopped()
	stop := take(long, 0)
	if stop == "" {
		stop = take(brief, 0)
	}

	var only, missing string
	if w.g.only != "" {
		only = take(w.g.only+"\n", 0)
	}

	spare := min(len(w.g.task), 120) // the task before the smaller things
	for _, line := range w.missing() {
		missing += take(line, spare)
	}

	task, num := w.task(room)
	room -= len(task)
	text := only + task + stop + missing + w.children(room)
	if text == "" {
		return block{}
	}

	b := block{text: head + text}
	if num != 0 {
		b.nums = []uint64{num}
	}

	return b
}

// task is the line of the task. When it is the user's newest words, on one line and whole, they stand here and nowhere
// else; when it is in other words of the user's, which are told below, its beginning is enough.
func (w *writer) task(room int) (line string, num uint64) {
	if w.g.task == "" || room < 45 {
		return "", 0
	}

	text, said := flat(w.g.task), false
	for i, m := range w.g.users {
		if m.Text != w.g.task {
			continue
		}

		said = true
		whole := fmt.Sprintf("The task was, in the user's last words (%s): %s\n", w.when(m.At), text)
		if i == len(w.g.users)-1 && len(whole) <= room && text == strings.TrimSpace(w.clean(m)) {
			return whole, m.num
		}
	}

	const lead = "The task was: "
	most := room - len(lead) - 1
	if said {
		most = min(most, 100)
	}

	text, _ = checkpoint.Shorten(text, most)
	return lead + text + "\n", 0
}

// stopped says when and how it stopped, in a long and in a short form.
func (w *writer) stopped() (long, short string) {
	say := func(t time.Time, long, short, more string) (string, string) {
		return fmt.Sprintf(long, w.when(t)) + more + ".\n", fmt.Sprintf(short, w.when(t)) + "\n"
	}
	switch e := w.g.ending; {
	case w.opt.Start == StartCompact:
		return "", ""
	case e != nil && e.Clean:
		return say(e.At, "The session ended cleanly at %s", "Ended %s.", "")
	case e != nil && e.InTurn:
		return say(
			e.At, "The agent stopped without a good-bye at %s, in the middle of its work", "Died %s, at work.",
			reason(e.Reason),
		)

	case e != nil:
		return say(
			e.At, "The agent stopped without a good-bye at %s, while it was idle", "Died %s, idle.",
			reason(e.Reason),
		)

	case w.in.State.InTurn():
		return say(w.lastSign(), "The last sign of it came at %s, in the middle of its work", "Last sign %s.", "")
	}

	return say(w.lastSign(), "The last sign of it came at %s", "Last sign %s.", "")
}

// lastSign is when the session last did something; its own new start, which asks, is no such thing.
func (w *writer) lastSign() time.Time {
	s := w.in.State
	if w.opt.Start == StartManual {
		return s.LastEvent
	}

	var newest time.Time
	see := func(t time.Time) {
		if t.After(newest) && !t.After(w.now) {
			newest = t
		}
	}

	for _, t := range s.Turns {
		see(t.At)
	}

	for _, c := range s.Calls {
		see(c.At)
		see(c.EndedAt)
	}

	for _, m := range s.Messages {
		see(m.At)
	}

	if newest.IsZero() {
		return s.LastEvent
	}

	return newest
}

func reason(s string) string {
	if s == "" {
		return ""
	}
	return " (" + word(s, 120) + ")"
}

// missing says what this record does not hold, most important first.
func (w *writer) missing() []string {
	s := w.in.State
	var lines, lost []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if w.in.Gone {
		say("The agent's own transcript is missing; this comes from belay's record alone.\n")
	} else if silent := s.LastHook.Sub(s.LastFile); s.Transcript != "" && silent > time.Minute && len(s.Messages) > 0 {
		since := "the beginning"
		if !s.LastFile.IsZero() {
			since = w.when(s.LastFile)
		}
		say("The agent's transcript was silent since %s.\n", since)
	}

	add := func(n int64, format string) {
		if n > 0 {
			lost = append(lost, fmt.Sprintf(format, n))
		}
	}

	add(int64(w.r.Lost.BadLines), "%d bad transcript lines")
	add(w.r.Lost.TornBytes, "1 torn line of %d bytes")
	if n := w.r.Lost.HoleBytes; n > 0 {
		lost = append(lost, fmt.Sprintf("%d hole(s) of %d bytes", w.r.Lost.Holes, n))
	}

	add(int64(w.r.Lost.Events), "%d events")
	if len(lost) > 0 {
		say("Not readable: %s.\n", strings.Join(lost, ", "))
	}

	if n := w.in.Damaged; n > 0 && w.in.Checkpoint != nil {
		say("%d newer checkpoint(s) were damaged; an older one was used.\n", n)
	} else if n > 0 {
		say("%d checkpoint(s) were damaged; none could be used.\n", n)
	}

	if s.Gap != nil {
		say("No checkpoint could be written since %s.\n", w.when(s.Gap.From))
	}

	return lines
}

// children names the sub-agents that were running; those that do not fit are counted.
func (w *writer) children(room int) string {
	s := w.in.State
	if s.Key.Child != "" || w.opt.Start == StartCompact {
		return ""
	}

	var lines []string
	for _, c := range s.Children {
		if c.Running {
			lines = append(lines, fmt.Sprintf("Sub-agent %s (%s) was running.\n", word(c.Name, 60), word(c.ID, 60)))
		}
	}

	if text, left := bullets("", lines, room); text != "" || left == 0 {
		return text
	}

	count := "A sub-agent was running.\n"
	if len(lines) > 1 {
		count = fmt.Sprintf("%d sub-agents were running.\n", len(lines))
	}
	if len(count) > room {
		return ""
	}

	return count
}

func more(n int) string { return fmt.Sprintf("- and %d more\n", n) }

// sectionDoubt names the newest calls and counts the others; with the least room it counts them all.
func (w *writer) sectionDoubt(limit int) block {
	head, list := "## In doubt: check before you run it again\n", w.g.doubts
	if w.opt.Repairs {
		head = "## In doubt\n"
	}
	if b := w.namedCalls(head, list, limit); b.text != "" || len(list) == 0 {
		return b
	}

	count := "- 1 call\n"
	if len(list) > 1 {
		count = fmt.Sprintf("- %d calls\n", len(list))
	}
	if len(head)+len(count) > limit {
		head = "## In doubt\n"
	}
	if len(head)+len(count) > limit {
		return block{}
	}

	return block{text: head + count, left: len(list)}
}

// namedCalls is a list of calls, each with a fair part of the room.
func (w *writer) namedCalls(head string, list []Doubt, limit int) block {
	if len(list) == 0 {
		return block{}
	}

	each := max(110, min(400, (limit-len(head))/len(list)))
	lines := make([]string, len(list))
	for i, d := range list {
		lines[i] = w.doubtLine(d, each)
	}

	text, left := bullets(head, lines, limit)
	return block{text: text, left: left}
}

func (w *writer) doubtLine(d Doubt, limit int) string {
	tail := ", may have changed something"
	if !d.Mutates {
		tail = ", only reads"
	}

	switch {
	case d.unseen:
		tail += "; asked for, not seen to start"
	case d.Process == ProcessRunning:
		tail += "; its process is still running"
	case d.Process == ProcessGone:
		tail += "; its process is gone"
	case d.background:
		tail += "; it may go on in the background"
	case limit >= 180: // where room is short, the name and the arguments say more
		tail += "; it is not known whether its process still runs"
	}

	if d.background && d.Process != ProcessUnknown { // else nobody saw it go on
		tail += "; it went on in the background"
	}

	tail = fmt.Sprintf(" started %s%s. Result unknown.\n", w.when(d.Started), tail)
	name := word(d.Name, 60)
	if name == "" {
		name = "a tool call"
	}
	if d.Digest == "" {
		return "- " + name + tail
	}

	return "- " + name + " " + code(d.Digest, max(24, limit-len("-  ``")-len(name)-len(tail))) + tail
}

func (w *writer) sectionLast(limit int) block {
	if w.g.last == nil {
		return block{}
	}

	m := *w.g.last
	head := fmt.Sprintf("## Last answer (%s)\n", w.when(m.At))
	if limit < 2*len(head) {
		head = "## Last answer\n"
	}

	text, cut := quoted(head, w.clean(m), limit)
	if text == "" {
		return block{}
	}

	b := block{text: text, nums: []uint64{m.num}}
	if cut {
		b.cut = b.nums
	}

	return b
}

// sectionUser gives the user's own words, newest first when the limit bites.
func (w *writer) sectionUser(list []Said, limit int) block {
	const head = "## User said\n"
	b := w.talk(list, limit-len(head), false, 0)
	if b.text != "" {
		b.text = head + b.text
	}
	return b
}

func (w *writer) sectionDecisions(limit int) block {
	return w.notes("## Decisions\n", len(w.g.notes), limit, func(i int) string {
		d := w.g.notes[i]
		return fmt.Sprintf("- [%s] %s\n", w.when(d.At), word(d.Text, 400))
	})
}

// sectionDone names what changed something and is done, so that nobody does it again.
func (w *writer) sectionDone(limit int) block {
	return w.notes("## Already done\n", len(w.g.done), limit, func(i int) string {
		c := w.g.done[i]
		line := fmt.Sprintf("- [%s] %s", w.when(c.EndedAt), word(c.Name, 60))
		if c.Digest != "" {
			line += " " + code(c.Digest, 240)
		}
		if c.State == checkpoint.CallFailed {
			line += " (it failed)"
		}

		return line + "\n"
	})
}

func (w *writer) notes(head string, n, limit int, line func(int) string) block {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = line(i)
	}
	text, left := bullets(head, lines, limit)
	return block{text: text, left: left}
}

// sectionEarlier gives the conversation in its order, newest kept, with the checkpoint's place; lastMost is the room of
// the last answer, when it is in the list again. The head is written by the caller, but has its room here.
func (w *writer) sectionEarlier(list []Said, limit, lastMost int) block {
	return w.talk(list, limit-len(earlierHead), true, lastMost)
}

// talk writes a list of messages, the newest that fit, in their order.
func (w *writer) talk(list []Said, limit int, roles bool, lastMost int) block {
	var b block
	var parts []string
	border := !roles || !w.mark.here
	i := len(list) - 1
	for ; i >= 0; i-- {
		m := list[i]
		place := ""
		if !border && m.num <= w.mark.num {
			c := w.r.Checkpoint
			place = fmt.Sprintf("--- checkpoint %d (%s, %s) was here ---\n", c.Number, c.Level, w.when(c.At))
		}

		title, most := "["+w.when(m.At)+"]", 2500
		if roles {
			title += " " + speaker(m.Role)
		}
		if lastMost > 0 && w.g.last != nil && m.num == w.g.last.num {
			title, most = title+" (the last answer, more of it)", lastMost
		}

		text, cut := w.entry(title+"\n", m, min(most, limit-len(place)), len(parts) == 0)
		if text == "" {
			break
		}

		limit -= len(text) + len(place)
		if place != "" {
			border = true
			parts = append(parts, place)
		}

		parts = append(parts, text)
		b.nums = append(b.nums, m.num)
		if cut {
			b.cut = append(b.cut, m.num)
		}
	}

	b.left = i + 1
	for j := len(parts) - 1; j >= 0; j-- {
		b.text += parts[j]
	}

	return b
}

// entry is one message of a list: whole, or, when it is the newest or there is much room, shortened rather than left
// out.
func (w *writer) entry(head string, m Said, room int, newest bool) (string, bool) {
	text := w.clean(m)
	if !newest && room < 300 {
		if whole := head + quote(text); len(whole) <= room {
			return whole, false
		}
		return "", true
	}

	if newest && room < len(head)+30 {
		return "", true
	}

	return quoted(head, text, room)
}

func speaker(role string) string {
	switch checkpoint.Role(role) {
	case checkpoint.RoleUser:
		return "the user had said"
	case checkpoint.RoleAssistant:
		return "the agent had answered"
	case checkpoint.RoleSummary:
		return "summary at the compaction"
	}
	return "tool"
}

// sectionTail is the work tree and the way to the rest; each line that does not fit is left out.
func (w *writer) sectionTail(limit int) string {
	text := ""
	if t := w.r.WorkTree; t != nil && t.Differs && w.g.whole {
		if tree := "## Work tree\nNot as at the checkpoint: " + t.Detail + ".\n"; len(tree) <= limit {
			text = tree
		}
	}

	more := "## More\n" + command(w.opt.Program, "show", w.r.Agent, w.r.Session) + "\n"
	if len(text)+len(more) <= limit {
		text += more
	}

	return text
}

func (w *writer) when(t time.Time) string { return clock(t, w.now) }

// clock is a time for people: the clock alone today, the date too otherwise. Stamps come from agents and may be wrong.
func clock(t, now time.Time) string {
	switch t, now = t.UTC(), now.UTC(); {
	case t.IsZero():
		return "an unknown time"
	case t.After(now.Add(time.Hour)):
		return dated(t) + " (a stamp from the future)"
	case t.YearDay() == now.YearDay() && t.Year() == now.Year():
		return t.Format("15:04:05") + " UTC"
	}
	return dated(t)
}

func dated(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") + " UTC" }
