package recovery

import (
	"fmt"
	"slices"
	"time"

	"belay/checkpoint"
)

// given is what the start's rule lets into the answer, before any cap.
type given struct {
	nothing  bool
	doubts   []Doubt // to be named
	users    []Said
	messages []Said // the conversation in its order
	last     *Said  // newest answer
	done     []checkpoint.Call
	only     string // why only a part is given: for the section "Now"
}

// chosen applies the table of start reasons (design section 7).
func chosen(in Input, opt Options, border uint64) given {
	s := in.State
	var g given
	for _, m := range s.Messages {
		said := Said{ID: m.ID, At: m.At, Role: string(m.Role), Text: m.Text, Shortened: m.Cut, num: m.Num}
		if m.Role == checkpoint.RoleUser {
			g.users = append(g.users, said)
		}
		if m.Role == checkpoint.RoleAssistant {
			g.last = &said
		}
		if slices.Contains(opt.Roles, m.Role) {
			g.messages = append(g.messages, said)
		}
	}
	g.doubts = doubts(in)
	for _, c := range s.Calls {
		if c.State == checkpoint.CallDone && c.Mutates {
			g.done = append(g.done, c)
		}
	}
	if opt.Format == Delta {
		g.messages = withCalls(s, g.messages, border, opt)
	}
	switch opt.Start {
	case StartClear:
		g.nothing = true
	case StartResume, StartFork:
		g = g.unfiled(s)
	case StartCompact:
		g.only = "The context was compacted. This is what was said before it, word for word."
		g.nothing = len(g.users) == 0 && len(s.Decisions) == 0 && len(g.doubts) == 0
	case StartManual:
	default:
		g.nothing = s.Ending != nil && s.Ending.Clean
	}
	g.nothing = g.nothing || len(s.Messages) == 0 && len(g.doubts) == 0 && len(s.Decisions) == 0 && s.Task == "" && opt.Format != Delta
	if g.users == nil {
		g.users = []Said{}
	}
	if g.messages == nil {
		g.messages = []Said{}
	}
	return g
}

// unfiled keeps what a resumed conversation does not hold by itself: calls in doubt that no brief named yet, decisions, and
// words that never reached the agent's file.
func (g given) unfiled(s *checkpoint.State) given {
	told := map[string]bool{}
	missing := map[uint64]bool{}
	for _, c := range s.Calls {
		told[c.ID] = c.Told
	}
	for _, m := range s.Messages {
		missing[m.Num] = !m.InFile && m.Role != checkpoint.RoleSummary
	}
	keep := func(list []Said) []Said {
		return slices.DeleteFunc(slices.Clone(list), func(m Said) bool { return !missing[m.num] })
	}
	g.doubts = slices.DeleteFunc(g.doubts, func(d Doubt) bool { return told[d.ID] })
	g.users, g.messages = keep(g.users), keep(g.messages)
	if g.last != nil && !missing[g.last.num] {
		g.last = nil
	}
	g.done = nil
	newDecisions := len(s.Decisions) > 0 && (s.Given == nil || s.Decisions[len(s.Decisions)-1].At.After(s.Given.At))
	g.nothing = len(g.doubts) == 0 && len(g.users) == 0 && g.last == nil && !newDecisions
	g.only = "This conversation goes on. Its own record does not hold what follows."
	return g
}

func doubts(in Input) []Doubt {
	list := []Doubt{}
	for _, c := range in.State.InDoubt() {
		p, ok := in.Processes[c.ID]
		if !ok {
			p = ProcessUnknown
		}
		list = append(list, Doubt{ID: c.ID, Name: c.Name, Digest: c.Digest, Started: c.At, Mutates: c.Mutates, Process: p,
			unseen: c.NotSeenToStart(in.State), background: c.Background})
	}
	return list
}

// withCalls puts one line for each tool call behind the message that it followed, as the original's delta did, and keeps
// what came after the border.
func withCalls(s *checkpoint.State, list []Said, border uint64, opt Options) []Said {
	if !slices.Contains(opt.Roles, checkpoint.RoleAssistant) && !slices.Contains(opt.Roles, checkpoint.RoleTool) {
		return slices.DeleteFunc(list, func(m Said) bool { return m.num <= border })
	}
	lines := map[uint64][]Said{}
	for _, c := range s.Calls {
		text := fmt.Sprintf("[Tool: %s(%s)]", c.Name, c.Digest)
		if c.State == checkpoint.CallFailed || c.State == checkpoint.CallDoubt || c.State == checkpoint.CallOpen {
			text += " " + string(c.State)
		}
		lines[c.Num] = append(lines[c.Num], Said{ID: c.ID, At: c.At, Role: string(checkpoint.RoleTool), Text: text, num: c.Num})
	}
	var out []Said
	for _, m := range s.Messages {
		i := slices.IndexFunc(list, func(o Said) bool { return o.num == m.Num })
		if i >= 0 && m.Num > border {
			out = append(out, list[i])
		}
		if m.Num > border {
			out = append(out, lines[m.Num]...)
		}
		delete(lines, m.Num)
	}
	return out
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
		t.Detail = fmt.Sprintf("branch is %s, was %s", is.Branch, was.Branch)
	case was.Head != is.Head:
		t.Detail = fmt.Sprintf("HEAD is %.10s, was %.10s", is.Head, was.Head)
	case !slices.Equal(was.Changed, is.Changed) || was.More != is.More:
		t.Detail = fmt.Sprintf("%d changed names now, %d then", len(is.Changed)+is.More, len(was.Changed)+was.More)
	}
	t.Differs = t.Detail != ""
	return t
}

// Candidate is a session that a new one may be the successor of.
type Candidate struct {
	Key       checkpoint.Key
	Workspace string
	Title     string
	LastEvent time.Time
	Ending    *checkpoint.Ending
	InTurn    bool
	Open      int  // open or doubtful calls
	Alive     bool // its process lives, or may live
	Dead      bool // its process is known dead
	Given     bool // a brief of its last death was given already
}

// Adopt is the setting recovery.adopt.
type Adopt string

const (
	AdoptAuto  Adopt = "auto"
	AdoptList  Adopt = "list"
	AdoptNever Adopt = "never"
)

// Choice is the answer to "which session goes on here".
type Choice struct {
	Adopt *Candidate  // the proven predecessor: its brief is given
	Idle  *Candidate  // it died idle: one line with the command
	List  []Candidate // not proven: id, title, time and what was open; no content
}

// Choose finds the predecessor of a new session of agent in workspace (design section 7). Sessions of other workspaces, and
// children, never come up.
func Choose(list []Candidate, self checkpoint.Key, workspace string, adopt Adopt, window time.Duration, now time.Time) Choice {
	if adopt == AdoptNever || workspace == "" {
		return Choice{}
	}
	var open []Candidate
	lives := false
	for _, c := range list {
		if c.Key == self || c.Key.Child != "" || c.Key.Agent != self.Agent || c.Key.Account != self.Account || c.Workspace != workspace {
			continue
		}
		if c.Alive {
			lives = true
			continue
		}
		if c.Ending != nil && c.Ending.Clean || c.Given || now.Sub(c.LastEvent) > window {
			continue
		}
		open = append(open, c)
	}
	slices.SortFunc(open, func(a, b Candidate) int { return b.LastEvent.Compare(a.LastEvent) })
	if len(open) == 1 && open[0].Dead && !lives && adopt != AdoptList {
		if open[0].InTurn {
			return Choice{Adopt: &open[0]}
		}
		return Choice{Idle: &open[0]}
	}
	return Choice{List: open}
}

// IdleLine tells of a session that died idle: nothing was under way, so a command is enough.
func IdleLine(c Candidate, program string) string {
	at := c.LastEvent
	if c.Ending != nil {
		at = c.Ending.At
	}
	return fmt.Sprintf("The last session in this folder stopped without a good-bye at %s UTC, while it was idle. What was said: `%s recover --agent %s --session %s`\n",
		at.UTC().Format("2006-01-02 15:04"), program, flat(c.Key.Agent), flat(c.Key.Session))
}

// ListText lists sessions that may go on here, without their content.
func ListText(list []Candidate, program string, now time.Time) string {
	const most = 10
	text := fmt.Sprintf("%d sessions in this folder ended without a good-bye; none is proven to be the one that goes on here. `%s recover --session ID` shows one.\n", len(list), program)
	for i, c := range list {
		if i == most {
			text += fmt.Sprintf("- and %d older ones\n", len(list)-most)
			break
		}
		state := "idle"
		if c.InTurn {
			state = "in the middle of its work"
		}
		if c.Open > 0 {
			state += fmt.Sprintf(", %d tool calls open", c.Open)
		}
		text += fmt.Sprintf("- %s, last sign %s UTC, %s: %s\n", flat(c.Key.Session), c.LastEvent.UTC().Format("2006-01-02 15:04"), state, flat(c.Title))
	}
	return text
}
