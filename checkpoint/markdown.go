package checkpoint

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// markdown writes the part of a checkpoint that people read. Nothing is ever parsed back from it.
func (c *Checkpoint) markdown(w io.Writer) {
	s := c.State
	p := func(format string, args ...any) { fmt.Fprintf(w, format, args...) }
	p("# %s\n\n", orElse(Line(s.Title), "(no prompt yet)"))
	p(
		"%s checkpoint %d of %s session `%s`: %s.\n\n", c.Level, c.Number, code(s.Key.Agent),
		code(s.Key.Session), Line(c.Reason),
	)

	if c.Gap != nil {
		p(
			"> Degraded from %s until now: no checkpoint could be written (%s). Rounds were counted all the while.\n\n",
			clock(c.Gap.From), Line(c.Gap.Reason),
		)
	}

	if s.Task != "" {
		p("## Task\n\n%s\n\n", quoteText(s.Task))
	}

	if s.Ending != nil && !s.Live {
		p(
			"Ended %s%s%s.\n\n", clock(s.Ending.At),
			map[bool]string{true: " cleanly", false: " without a good-bye"}[s.Ending.Clean],
			inBrackets(s.Ending.Reason),
		)
	}

	if doubt := s.InDoubt(); len(doubt) > 0 {
		p("## Open or in doubt\n\n")
		for _, call := range doubt {
			p("- %s `%s` since %s (%s)\n", code(call.Name), code(call.Digest), clock(call.At), call.State)
		}
		p("\n")
	}

	if len(s.Decisions) > 0 {
		p("## Decisions\n\n")
		for _, d := range s.Decisions {
			p("- %s: %s\n", clock(d.At), Line(d.Text))
		}
		p("\n")
	}

	if t := c.WorkTree; t != nil {
		p(
			"## Work tree\n\nbranch %s at %s, %d changed\n\n", orElse(Line(t.Branch), "(none)"),
			orElse(Line(t.Head), "(no commit)"), len(t.Changed)+t.More,
		)
	}

	p("## delta_since_last\n\n_delta_since_last: %s → %s_\n\n", clock(c.DeltaFrom), clock(c.At))
	for _, m := range c.Delta {
		p("**[%s] %s**\n\n%s\n\n", clock(m.At), m.Role, quoteText(m.Text))
	}

	if s.Losses.BadLines+s.Losses.Oversized+s.Dropped > 0 {
		p(
			"Lost: %d bad transcript lines, %d too large, %d events.\n\n", s.Losses.BadLines,
			s.Losses.Oversized, s.Dropped,
		)
	}
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "the beginning"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + Line(s) + ")"
}

// code is text for between back-ticks.
func code(s string) string { return Line(strings.ReplaceAll(s, "`", "'")) }

// quoteText sets text off, so that no line of it can look like a heading or the end of the file.
func quoteText(s string) string {
	return "> " + strings.NewReplacer("\r\n", "\n> ", "\n", "\n> ", "\r", "\n> ").Replace(s)
}
