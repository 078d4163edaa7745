package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/lazyre"
)

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

// Choose finds the predecessor of a new session of agent in workspace. Sessions of other workspaces,
// and children, never come up; a living session of any agent in the workspace may be the one that goes on, so nothing
// is proven beside it.
func Choose(
	list []Candidate,
	self checkpoint.Key,
	workspace string,
	adopt Adopt,
	window time.Duration,
	now time.Time,
) Choice {
	if adopt == AdoptNever || workspace == "" {
		return Choice{}
	}

	var open []Candidate
	lives := false
	for _, c := range list {
		if c.Key == self || c.Key.Child != "" || c.Workspace != workspace {
			continue
		}
		if c.Alive {
			lives = true
			continue
		}
		if c.Key.Agent != self.Agent || c.Key.Account != self.Account {
			continue
		}
		if c.Ending != nil && c.Ending.Clean || c.Given || now.Sub(c.LastEvent) > window {
			continue
		}

		open = append(open, c)
	}

	slices.SortFunc(open, func(a, b Candidate) int {
		return cmp.Or(b.LastEvent.Compare(a.LastEvent), strings.Compare(a.Key.Session, b.Key.Session))
	})
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

	return fmt.Sprintf(
		"The last session in this folder stopped without a good-bye at %s, while it was idle. What was said: %s\n",
		dated(at), command(program, "recover", c.Key.Agent, c.Key.Session),
	)
}

// ListText lists sessions that may go on here, without their content: it is bounded, whatever the sessions are called.
func ListText(list []Candidate, program string, now time.Time) string {
	const most = 10
	var b strings.Builder
	if len(list) == 1 {
		b.WriteString(
			"A session in this folder ended without a good-bye; it is not proven to be the one that goes on here. ",
		)
	} else {
		fmt.Fprintf(
			&b,
			"%d sessions in this folder ended without a good-bye; none is proven to be the one that goes on here. ",
			len(list),
		)
	}

	fmt.Fprintf(&b, "`%s recover --session ID` shows one.\n", program)
	for i, c := range list {
		if i == most {
			fmt.Fprintf(&b, "- and %d older ones\n", len(list)-most)
			break
		}

		state := "idle"
		if c.InTurn {
			state = "in the middle of its work"
		}
		if c.Open > 0 {
			state += fmt.Sprintf(", %d tool calls open", c.Open)
		}

		title := ""
		if c.Title != "" {
			title = fmt.Sprintf(", titled \"%s\"", strings.ReplaceAll(word(c.Title, 120), `"`, "'"))
		}

		fmt.Fprintf(&b, "- %s, last sign %s, %s%s\n", code(c.Key.Session, 120), clock(c.LastEvent, now), state, title)
	}

	return b.String()
}

var plainWord = lazyre.New(`^[A-Za-z0-9._:@/+][A-Za-z0-9._:@/+-]*$`)

// command is a command line that a person or a model may run as it stands. Ids come from agents: one that a shell would
// read as more than a word is quoted, and one that cannot be shown faithfully gives way to the command that finds it.
func command(program, verb, agent, session string) string {
	words := []string{program, verb}
	for _, w := range [][2]string{{"--agent", agent}, {"--session", session}} {
		switch id := w[1]; {
		case plainWord().MatchString(id) && len(id) <= 200 && clean(id) == id:
			words = append(words, w[0], id)
		case len(id) <= 200 && flat(id) == id && !strings.ContainsAny(id, "`'"):
			words = append(words, w[0]+"='"+id+"'")
		default:
			return "`" + program + " list`"
		}
	}

	return "`" + strings.Join(words, " ") + "`"
}
