package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"belay/internal/daemon"
	"belay/internal/lookup"
	"belay/internal/statedir"
	"belay/internal/wire"
)

func (a *app) statusCmd() *cobra.Command {
	var f sessionFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon, its sessions and what is at risk now",
		Long: `Shows what would be lost if the machine died now: rounds and seconds that no checkpoint holds, bytes of the transcript that the
mirror does not hold. With --session it is that session alone; its JSON is flat and has the names of the original scripts.
Without a daemon it shows what the state folder holds, and says so.

  belay status
  belay status --session 3f0c... --json

Exit codes: 0 shown, 1 failed, 3 no such session, 4 no daemon answers (what is known is shown all the same).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.session == "" {
				f.session = os.Getenv("BELAY_SESSION")
			}
			if f.session != "" {
				return a.sessionStatus(cmd, f, asJSON)
			}
			return a.wholeStatus(cmd, f, asJSON)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("session", a.completeSessions)
	return cmd
}

func (a *app) sessionStatus(cmd *cobra.Command, f sessionFlags, asJSON bool) error {
	name, err := f.name()
	if err != nil {
		return err
	}
	var st lookup.SessionStatus
	r, _, err := a.request(cmd.Context(), false, wire.Request{Op: "status", Agent: f.agent, Session: f.session, Child: f.child, Workspace: name.Workspace})
	switch {
	case err == nil:
		if err := json.Unmarshal(r.Body, &st); err != nil {
			return fmt.Errorf("read the daemon's answer: %w", err)
		}
	case errors.Is(err, wire.ErrNoDaemon):
		folder, ferr := a.folder()
		if ferr != nil {
			return ferr
		}
		list, ferr := folder.Sessions(cmd.Context(), name, 1)
		if ferr != nil {
			return ferr
		}
		if len(list) == 0 {
			return fmt.Errorf("session %s: %w", f.session, lookup.ErrNotFound)
		}
		st = list[0]
	default:
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), st)
	}
	printSession(cmd.OutOrStdout(), st)
	return nil
}

func (a *app) wholeStatus(cmd *cobra.Command, f sessionFlags, asJSON bool) error {
	r, _, err := a.request(cmd.Context(), false, wire.Request{Op: "status"})
	if errors.Is(err, wire.ErrNoDaemon) {
		folder, ferr := a.folder()
		if ferr != nil {
			return ferr
		}
		list, ferr := folder.Sessions(cmd.Context(), statedir.Name{Agent: f.agent}, 20)
		if ferr != nil {
			return ferr
		}
		if asJSON {
			ferr = printJSON(cmd.OutOrStdout(), map[string]any{"daemon": nil, "sessions": list})
		} else {
			fmt.Fprintln(cmd.OutOrStdout(), "daemon    not running; this is what the state folder holds")
			printSessions(cmd.OutOrStdout(), list)
		}
		return errors.Join(ferr, err)
	}
	if err != nil {
		return err
	}
	var st daemon.Status
	if err := json.Unmarshal(r.Body, &st); err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), st)
	}
	printStatus(cmd.OutOrStdout(), st)
	return nil
}

func printStatus(w io.Writer, st daemon.Status) {
	fmt.Fprintf(w, "daemon    pid %d, %s, up %s, %.1f MB\n", st.PID, st.Version, ago(st.Started), float64(st.Memory)/1e6)
	fmt.Fprintf(w, "socket    %s\n", st.Socket)
	if st.Problem != "" {
		fmt.Fprintf(w, "problem   %s\n", st.Problem)
	}
	switch {
	case st.Degraded:
		fmt.Fprintf(w, "store     DEGRADED since %s: %s; next probe in %s (belay reset tries now)\n", st.Breaker.Since.Local().Format("15:04:05"), st.Breaker.Reason,
			max(time.Until(st.Breaker.NextProbe), 0).Round(time.Second))
	default:
		fmt.Fprintf(w, "store     well, %d checkpoints taken since the start\n", st.Counts["checkpoints"])
	}
	for _, s := range st.Breaker.Aside {
		fmt.Fprintf(w, "set aside %s after %d failures: %s\n", s.Session, s.Failures, s.Reason)
	}
	if st.Journal.Error != "" {
		fmt.Fprintf(w, "journal   FAILING since %s: %s; %d records in memory only, %d lost\n", st.Journal.Since.Local().Format("15:04:05"), st.Journal.Error, st.Journal.Held, st.Journal.Dropped)
	} else {
		fmt.Fprintf(w, "journal   well, record %d is on disk\n", st.Journal.Stored)
	}
	if st.Watch.Why != "" {
		fmt.Fprintf(w, "watch     polling %d paths: %s\n", len(st.Watch.Polled), st.Watch.Why)
	}
	if n := st.Counts["dropped"]; n > 0 {
		fmt.Fprintf(w, "LOST      %d events were dropped\n", n)
	}
	printSessions(w, st.Sessions)
}

func printSessions(w io.Writer, list []lookup.SessionStatus) {
	if len(list) == 0 {
		fmt.Fprintln(w, "\nno sessions")
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "AGENT\tSESSION\tSTATE\tROUNDS\tLAST EVENT\tCHECKPOINT\tAT RISK\tTITLE")
	for _, s := range list {
		id := s.SessionID
		if s.Child != "" {
			id += "/" + s.Child
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.Agent, short(id, 36), s.State, s.MessageCount, ago(s.LastEvent), newest(s), risk(s.AtRisk), short(s.Title, 50))
	}
	_ = t.Flush() // the writer below reports its own errors
}

func printSession(w io.Writer, s lookup.SessionStatus) {
	line := func(k, format string, args ...any) { fmt.Fprintf(w, "%-12s"+format+"\n", append([]any{k}, args...)...) }
	line("session", "%s %s", s.Agent, s.SessionID)
	line("title", "%s", s.Title)
	line("workspace", "%s", s.Workspace)
	line("state", "%s, last event %s ago", s.State, ago(s.LastEvent))
	line("rounds", "%d", s.MessageCount)
	line("task", "%s", short(s.CurrentTask, 200))
	line("checkpoint", "%s", newest(s))
	line("at risk", "%s", risk(s.AtRisk))
	if s.Owed != "" {
		line("owed", "%s", s.Owed)
	}
	for _, c := range s.OpenCalls {
		line("open call", "%s %s since %s", c.Name, c.Digest, c.At.Local().Format("15:04:05"))
	}
	if t := s.Transcript; t != nil {
		line("transcript", "%s", t.Path)
		if !t.SilentSince.IsZero() {
			line("", "silent since %s", t.SilentSince.Local().Format("15:04:05"))
		}
		if t.MirrorError != "" {
			line("mirror", "%s", t.MirrorError)
		}
	}
	if l := s.Lost; l.BadLines+l.Holes+l.Oversized > 0 || l.Torn > 0 {
		line("lost", "%d bad lines, %d holes, %d too large, %d bytes of a torn line", l.BadLines, l.Holes, l.Oversized, l.Torn)
	}
	if s.Degraded {
		line("store", "DEGRADED")
	}
}

func newest(s lookup.SessionStatus) string {
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
	return fmt.Sprintf("%d %s, %s ago", s.Checkpoint, kind, ago(at))
}

func risk(r lookup.AtRisk) string {
	var parts []string
	if r.Rounds > 0 {
		parts = append(parts, fmt.Sprintf("%d rounds", r.Rounds))
	}
	if r.Seconds > 0 {
		parts = append(parts, (time.Duration(r.Seconds) * time.Second).String())
	}
	if r.Bytes > 0 {
		parts = append(parts, fmt.Sprintf("%d bytes", r.Bytes))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t)
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func short(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}
