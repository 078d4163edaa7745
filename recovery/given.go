package recovery

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"belay/checkpoint"
)

// given is what the start's rule lets into the answer, before any cap.
type given struct {
	nothing  bool
	whole    bool // a start that lost its conversation: how it stopped, work tree, sub-agents
	task     string
	ending   *checkpoint.Ending // how it last ended; nil when it went on since
	doubts   []Doubt            // to be named
	users    []Said
	messages []Said // the conversation in its order
	last     *Said  // newest answer
	notes    []checkpoint.Note
	done     []checkpoint.Call
	only     string // why only a part is given: for the section "Now"
}

// chosen applies the table of start reasons.
func chosen(in Input, opt Options, m mark, now time.Time) given {
	s := in.State
	asking := askedNow(s, opt.Start)
	g := given{whole: true, task: s.Task, ending: lastEnding(s, asking, now), doubts: doubts(in), notes: s.Decisions}
	for _, m := range s.Messages {
		if asking > 0 && m.Turn == asking && m.Role == checkpoint.RoleUser {
			continue
		}

		said := Said{ID: m.ID, At: m.At, Role: string(m.Role), Text: m.Text, Shortened: m.Cut, num: m.Num}
		if !slices.Contains(opt.Roles, m.Role) {
			continue
		}

		g.messages = append(g.messages, said)
		switch m.Role {
		case checkpoint.RoleUser:
			g.users = append(g.users, said)
		case checkpoint.RoleAssistant:
			g.last = &said
		}
	}

	if asking > 0 && !s.TaskSet {
		g.task = taskOf(g.users)
	}

	for _, c := range s.Calls {
		if c.State == checkpoint.CallDone && c.Mutates {
			g.done = append(g.done, c)
		}
	}

	if opt.Format == Delta || slices.Contains(opt.Roles, checkpoint.RoleTool) {
		if opt.Format != Delta {
			m = mark{} // a brief goes back as far as it can
		}
		g.messages = withCalls(s, g.messages, m, opt)
	}

	if opt.Start != StartManual {
		g.doubts = untold(s, g.doubts, opt.Start)
	}

	switch opt.Start {
	case StartClear:
		g.nothing = true
	case StartResume, StartFork:
		g = g.unfiled(s)
	case StartCompact:
		g = g.compacted()
	case StartManual:
	default:
		g.nothing = g.ending != nil && g.ending.Clean
	}

	empty := len(g.messages) == 0 && len(g.users) == 0 && len(g.doubts) == 0 && len(g.done) == 0 && len(g.notes) == 0
	g.nothing = g.nothing || empty && g.task == "" && opt.Format != Delta

	return g
}

// askedNow is the turn whose prompt is being said at this moment, 0 for none: a brief that was owed rides on the next
// prompt, which has been folded in by then and is no part of the record.
func askedNow(s *checkpoint.State, start string) int {
	if !s.OwedTo || start == StartManual || len(s.Turns) == 0 {
		return 0
	}

	t := s.Turns[len(s.Turns)-1]
	if t.Ended || !t.Hook || t.File || s.Ending != nil && !t.At.After(s.Ending.At) {
		return 0
	}

	return t.N
}

// lastEnding is how the session ended, unless it went on since: a state keeps its last ending while it goes on.
func lastEnding(s *checkpoint.State, asking int, now time.Time) *checkpoint.Ending {
	for _, t := range s.Turns {
		since := s.Ending != nil && t.At.After(s.Ending.At) &&
			!t.At.After(now) // files may bring stamps from the future
		if since && !t.Aside && t.N != asking {
			return nil
		}
	}
	return s.Ending
}

// taskOf is the fold's rule: the newest prompt over 20 characters that is no command, else the newest.
func taskOf(users []Said) string {
	for i := len(users) - 1; i >= 0; i-- {
		if t := users[i].Text; utf8.RuneCountInString(t) > 20 && t[0] != '/' && t[0] != '!' {
			return t
		}
	}

	if len(users) == 0 {
		return ""
	}

	return users[len(users)-1].Text
}

// untold leaves out the calls in doubt that a brief named since the death that left them open. One that goes on in the
// background is named again only where the conversation lost that brief.
func untold(s *checkpoint.State, list []Doubt, start string) []Doubt {
	told := map[string]bool{}
	for _, c := range s.Calls {
		told[c.ID] = c.Told && (c.State == checkpoint.CallDoubt || start != StartCompact)
	}
	return slices.DeleteFunc(list, func(d Doubt) bool { return told[d.ID] })
}

// unfiled keeps what a resumed conversation does not hold by itself: calls in doubt that no brief named yet, decisions,
// and words and results that never reached the agent's file.
func (g given) unfiled(s *checkpoint.State) given {
	missing := map[uint64]bool{}
	for _, m := range s.Messages {
		missing[m.Num] = !m.InFile && m.Role != checkpoint.RoleSummary
	}

	keep := func(list []Said) []Said {
		return slices.DeleteFunc(
			slices.Clone(list),
			func(m Said) bool { return !missing[m.num] || m.Role == string(checkpoint.RoleTool) },
		)
	}

	g.users, g.messages = keep(g.users), keep(g.messages)
	if g.last != nil && !missing[g.last.num] {
		g.last = nil
	}

	newDecisions := len(g.notes) > 0 && (s.Given == nil || g.notes[len(g.notes)-1].At.After(s.Given.At))
	g.done = slices.DeleteFunc(slices.Clone(s.Calls), func(c checkpoint.Call) bool {
		return !c.Unfiled() || c.Told || s.Ending == nil || s.Ending.Clean || c.EndedAt.After(s.Ending.At)
	})
	g.nothing = len(g.doubts) == 0 && len(g.messages) == 0 && len(g.done) == 0 && !newDecisions
	g.whole, g.task = false, ""
	g.only = "This conversation goes on. Its own record does not hold what follows."
	return g
}

// compacted keeps what a compaction loses: the user's words, decisions and open calls.
func (g given) compacted() given {
	g.messages, g.last, g.done, g.whole = slices.Clone(g.users), nil, nil, false
	g.nothing = len(g.users) == 0 && len(g.notes) == 0 && len(g.doubts) == 0
	g.only = "The context was compacted. What follows is from before that: " +
		"the user's own words, decisions, and calls without a result."
	return g
}

func doubts(in Input) []Doubt {
	list := []Doubt{}
	for _, c := range in.State.InDoubt() {
		p, ok := in.Processes[c.ID]
		if !ok {
			p = ProcessUnknown
		}

		list = append(
			list,
			Doubt{ID: c.ID, Name: c.Name, Digest: c.Digest, Started: c.At, Mutates: c.Mutates, Process: p,
				unseen: c.NotSeenToStart(in.State), background: c.Background},
		)
	}

	return list
}

// mark is the place of a checkpoint in the conversation: messages with a higher number came after it.
type mark struct {
	num  uint64
	at   time.Time
	here bool // the checkpoint that the answer names lies there
}

// markOf is the border between old and new. The default is the checkpoint that could be read: what a damaged newer one
// held is new again. A state that never heard of that checkpoint (it was rebuilt from the transcript) counts
// otherwise.
func markOf(in Input, opt Options) mark {
	s, c := in.State, in.Checkpoint
	known := c != nil && c.State != nil && (c.Number <= s.LastNumber || c.State.Seq > 0 && c.State.Seq <= s.Seq)
	switch {
	case opt.SinceNum != nil:
		return mark{num: *opt.SinceNum, at: opt.SinceTime, here: known && c.State.MsgSeq == *opt.SinceNum}
	case known:
		return mark{num: c.State.MsgSeq, at: c.At, here: true}
	case c == nil && in.Damaged > 0:
		return mark{}
	}

	return mark{num: s.MarkSeq, at: s.MarkAt}
}

// isNew says whether a call is news since the mark. Calls have no number of their own: of those that follow the mark's
// last message, the ones are old that had ended by then. When a call ended is belay's own time, never the agent's
// stamp.
func (m mark) isNew(c checkpoint.Call) bool {
	if c.Num != m.num || m.num == 0 {
		return c.Num > m.num || m.num == 0
	}
	return c.EndedAt.IsZero() || c.EndedAt.After(m.at)
}

// withCalls keeps what came after the mark, and puts one line for each tool call behind the message that it followed,
// as the original's delta did.
func withCalls(s *checkpoint.State, list []Said, m mark, opt Options) []Said {
	said := map[uint64]Said{}
	for _, o := range list {
		said[o.num] = o
	}

	lines := map[uint64][]Said{} // by the message that they follow; 0: they come first
	if slices.Contains(opt.Roles, checkpoint.RoleAssistant) || slices.Contains(opt.Roles, checkpoint.RoleTool) {
		for i, c := range s.Calls {
			if m.isNew(c) {
				num := follows(s, c.Num)
				lines[num] = append(lines[num], callLine(c, i))
			}
		}
	}

	out := append([]Said{}, lines[0]...)
	for _, msg := range s.Messages {
		if o, ok := said[msg.Num]; ok && msg.Num > m.num {
			out = append(out, o)
		}
		out = append(out, lines[msg.Num]...)
	}

	return out
}

// follows is the newest message up to num that is still kept: the one of that number may be gone.
func follows(s *checkpoint.State, num uint64) uint64 {
	var best uint64
	for _, m := range s.Messages {
		if m.Num <= num {
			best = max(best, m.Num)
		}
	}
	return best
}

// callNumbers keeps the numbers of tool lines apart from those of messages.
const callNumbers = 1 << 62

func callLine(c checkpoint.Call, i int) Said {
	text := fmt.Sprintf("[Tool: %s(%s)]", word(c.Name, 60), flat(c.Digest))
	if c.State != checkpoint.CallDone {
		text += " " + string(c.State)
	}
	return Said{ID: c.ID, At: c.At, Role: string(checkpoint.RoleTool), Text: text, num: callNumbers + uint64(i)}
}

// compareTree says whether the work tree still is what the checkpoint saw.
func compareTree(in Input) *WorkTreeNow {
	if in.WorkTree == nil || in.WorkTree.Error != "" {
		return nil
	}

	t := &WorkTreeNow{Now: in.WorkTree}
	if in.Checkpoint == nil || in.Checkpoint.WorkTree == nil || in.Checkpoint.WorkTree.Error != "" {
		return t
	}

	was, is := in.Checkpoint.WorkTree, in.WorkTree
	switch {
	case was.Branch != is.Branch:
		t.Detail = fmt.Sprintf("branch is %s, was %s", branch(is.Branch), branch(was.Branch))
	case was.Head != is.Head:
		t.Detail = fmt.Sprintf("HEAD is %.10s, was %.10s", flat(is.Head), flat(was.Head))
	case !slices.Equal(was.Changed, is.Changed) || was.More != is.More:
		t.Detail = fmt.Sprintf("%d changed names now, %d then", len(is.Changed)+is.More, len(was.Changed)+was.More)
		if len(is.Changed)+is.More == len(was.Changed)+was.More {
			t.Detail = fmt.Sprintf(
				"%d changed names as then, but others, or changed otherwise", len(is.Changed)+is.More,
			)
		}
	}

	t.Differs = t.Detail != ""
	return t
}

func branch(name string) string {
	if name == "" {
		return "none"
	}
	return code(name, 80)
}
