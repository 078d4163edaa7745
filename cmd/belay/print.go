package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"belay/internal/daemon"
	"belay/internal/state/query"
)

func printStatus(w io.Writer, st daemon.Status) {
	line := func(k, format string, args ...any) {
		fmt.Fprintf(w, "%-9s %s\n", k, printable(fmt.Sprintf(format, args...)))
	}
	line(
		"daemon", "pid %d, %s, up %s, %.1f MB", st.PID, st.Version, age(time.Since(st.Started)),
		float64(st.Memory)/1e6,
	)

	line("socket", "%s", st.Socket)
	if st.Problem != "" {
		line("problem", "%s", st.Problem)
	}

	if st.Degraded {
		line("store", "DEGRADED since %s: %s", clock(st.Breaker.Since), st.Breaker.Reason)
		if st.Breaker.Manual {
			line("", "only belay reset ends it")
		} else {
			line(
				"", "next probe in %s; belay reset tries now",
				max(time.Until(st.Breaker.NextProbe), 0).Round(time.Second),
			)
		}
	} else {
		line("store", "well, %s taken since the start", count(int(st.Counts["checkpoints"]), "checkpoint"))
	}

	if most := st.Counts["kept_most"]; most > 0 {
		line(
			"kept", "%.1f MB of all sessions, at most %.0f MB", float64(st.Counts["kept_bytes"])/1e6,
			float64(most)/1e6,
		)
	}

	for _, s := range st.Breaker.Aside {
		line("set aside", "%s after %s: %s", s.Session, count(s.Failures, "failure"), s.Reason)
	}

	if st.Journal.Error != "" {
		what := "FAILING"
		if st.Journal.Full {
			what = "disk full"
		}
		line("journal", "%s since %s: %s", what, clock(st.Journal.Since), st.Journal.Error)
		line("", "%s in memory only, %d lost", count(st.Journal.Held, "record"), st.Journal.Dropped)
	} else {
		line("journal", "well, record %d is on disk", st.Journal.Stored)
	}

	if st.Watch.Why != "" {
		line("watch", "polling %s: %s", count(len(st.Watch.Polled), "folder"), st.Watch.Why)
	}
	if n := st.Counts["dropped"]; n > 0 {
		line("LOST", "%s dropped", count(int(n), "event"))
	}
	if len(st.Sessions) == 0 {
		fmt.Fprintln(w, "no session is active; belay list has those of before")
		return
	}

	printSessions(w, st.Sessions)
}

// printSessions gives people three lines that fit for each session, and programs a table.
func printSessions(w io.Writer, list []query.SessionStatus) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no sessions")
		return
	}

	if cols := width(w); cols > 0 {
		for _, s := range list {
			printBlock(w, s, cols)
		}
		return
	}

	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "AGENT\tSESSION\tSTATE\tROUNDS\tLAST EVENT\tCHECKPOINT\tAT RISK\tTITLE")
	for _, s := range list {
		last := "never"
		if !s.LastEvent.IsZero() {
			last = s.LastEvent.UTC().Format(time.RFC3339)
		}

		fmt.Fprintf(
			t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", printable(s.Agent), printable(fullID(s)), s.State,
			s.MessageCount, last, newest(s), risk(s.AtRisk), printable(short(s.Title, 50)),
		)
	}

	_ = t.Flush() // the writer below reports its own errors
}

func printBlock(w io.Writer, s query.SessionStatus, cols int) {
	title := s.Title
	if title == "" {
		title = "(nothing said yet)"
	}

	// what matters first: the rest may be cut
	facts := fmt.Sprintf("at risk: %s; %s, checkpoint %s", risk(s.AtRisk), count(s.MessageCount, "round"), newest(s))

	// never cut: it is there to be copied
	fmt.Fprintf(w, "\n%s %s\n", printable(s.Agent), printable(fullID(s)))
	fmt.Fprintln(w, short(fmt.Sprintf("  %s, %s: %s", s.State, lastEvent(s), printable(title)), cols))
	fmt.Fprintln(w, short("  "+facts, cols))
}

func lastEvent(s query.SessionStatus) string {
	if s.LastEvent.IsZero() {
		return "no event"
	}
	return fmt.Sprintf("%s (%s)", ago(s.LastEvent), s.LastEvent.Local().Format("Jan 2 15:04 MST"))
}

func fullID(s query.SessionStatus) string {
	if s.Child != "" {
		return s.SessionID + "/" + s.Child
	}
	return s.SessionID
}

func printSession(w io.Writer, s query.SessionStatus) {
	cols := width(w)
	line := func(k, format string, args ...any) {
		fmt.Fprintln(w, short(fmt.Sprintf("%-12s%s", k, printable(fmt.Sprintf(format, args...))), cols))
	}
	fmt.Fprintf(w, "%-12s%s %s\n", "session", printable(s.Agent), printable(fullID(s)))
	line("title", "%s", s.Title)
	line("workspace", "%s", s.Workspace)
	line("state", "%s, last event %s", s.State, lastEvent(s))
	line("rounds", "%d", s.MessageCount)
	line("task", "%s", short(s.CurrentTask, 200))
	line("checkpoint", "%s", newest(s))
	line("at risk", "%s", risk(s.AtRisk))
	if s.Owed != "" {
		line("owed", "%s", s.Owed)
	}

	for _, c := range s.OpenCalls {
		line("open call", "%s since %s", strings.Join(strings.Fields(c.Name+" "+c.Digest), " "), clock(c.At))
	}

	if t := s.Transcript; t != nil {
		line("transcript", "%s", t.Path)
		if !t.SilentSince.IsZero() {
			line("", "silent since %s", clock(t.SilentSince))
		}
		if t.MirrorError != "" {
			line("mirror", "%s", t.MirrorError)
		}
	}

	if l := s.Lost; l.BadLines+l.Holes+l.Oversized > 0 || l.Torn > 0 {
		line(
			"lost", "%s, %s, %d too large, %s of a torn line", count(l.BadLines, "bad line"),
			count(l.Holes, "hole"), l.Oversized, count(int(l.Torn), "byte"),
		)
	}

	if s.Dropped > 0 {
		line("lost", "%s dropped", count(s.Dropped, "event"))
	}
	if s.Degraded {
		line("store", "DEGRADED: belay status says why")
	}
}

// clock is a time of this day, or else with its date.
func clock(t time.Time) string {
	t = t.Local()
	if day := time.Now().Format(time.DateOnly); t.Format(time.DateOnly) != day {
		return t.Format("2006-01-02 15:04:05 MST")
	}
	return t.Format("15:04:05 MST")
}

func newest(s query.SessionStatus) string {
	if s.Checkpoint == 0 {
		return "none"
	}

	var at time.Time
	kind := "FULL"
	if s.LastFullCheckpoint != nil {
		at = *s.LastFullCheckpoint
	}
	if p := s.LastSparseCheckpoint; p != nil && p.After(at) {
		at, kind = *p, "SPARSE"
	}

	return fmt.Sprintf("%d %s %s", s.Checkpoint, kind, ago(at))
}

func risk(r query.AtRisk) string {
	var parts []string
	if r.Rounds > 0 {
		parts = append(parts, count(r.Rounds, "round"))
	}
	if r.Seconds > 0 {
		parts = append(parts, age(time.Duration(r.Seconds)*time.Second))
	}
	if r.Bytes > 0 {
		parts = append(parts, count(int(r.Bytes), "byte"))
	}
	if len(parts) == 0 {
		return "nothing"
	}

	return strings.Join(parts, ", ")
}
