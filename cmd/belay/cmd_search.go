package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"belay/internal/state/index"
)

// mostHits is how many sessions a search shows when nobody says how many.
const mostHits = 20

func (a *app) searchCmd() *cobra.Command {
	var agentName, workspace string
	var most int
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "search WORDS...",
		GroupID: groupSessions,
		Short:   "Find sessions by what was said in them",
		Long: `Finds the sessions in which all of the words were said, the best first, with the place that fits
best. A word stands for all that begin with it; case and accents make no difference, and no
character has a meaning of its own. Titles, tasks and decisions count for more than your own
words, these for more than the answers. What belay still holds of a session is searched (its
newest 20 prompts and 40 answers, redacted), not the agent's transcript. It needs no daemon.

  belay search login page
  belay search deploy staging --agent claude-code --workspace . --json
  belay search -- --force

Exit codes: 0 searched, 1 failed, 2 wrong use.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 0 {
				return &usage{what: "--max-sessions cannot be negative"}
			}

			folder, err := a.folder()
			if err != nil {
				return err
			}

			step, done := lazyProgress(cmd.ErrOrStderr(), "reading sessions")
			hits, err := index.Of(
				folder.Dir,
			).WithStep(
				step,
			).Search(
				cmd.Context(),
				index.Query{Words: args, Agent: agentName, Workspace: realFolder(workspace), Most: most},
			)

			done()
			switch {
			case errors.Is(err, index.ErrNoWords):
				return &usage{what: "which words?", hint: "For example: belay search login page"}
			case errors.Is(err, index.ErrManyWords):
				return &usage{what: err.Error()}
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), map[string]any{"sessions": append([]index.Hit{}, hits...)})
			}

			return printHits(cmd.OutOrStdout(), hits)
		},
	}

	cmd.Flags().StringVar(&agentName, "agent", "", "of this agent only")
	cmd.Flags().StringVar(&workspace, "workspace", "", "of this folder only")
	cmd.Flags().IntVar(&most, "max-sessions", mostHits, "at most so many (0: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	completeFlag(cmd, "agent", completeAgents)
	return cmd
}

// lazyProgress is a bar that comes when the first second is over and there is more to do.
func lazyProgress(w io.Writer, what string) (at func(done, all int), end func()) {
	began, shown := time.Now(), false
	step, finish := func() {}, func() {}
	return func(done, all int) {
		if !shown && time.Since(began) > time.Second {
			step, finish = progress(w, all-done+1, what)
			shown = true
		}
		step()
	}, func() { finish() }
}

// printHits gives people blocks that fit, with the words in bold, and programs a table.
func printHits(w io.Writer, hits []index.Hit) error {
	if len(hits) == 0 {
		_, err := fmt.Fprintln(w, "no sessions")
		return err
	}

	if cols := width(w); cols > 0 {
		for _, h := range hits {
			title := h.Title
			if title == "" {
				title = "(nothing said yet)"
			}

			// never cut: it is there to be copied
			fmt.Fprintf(w, "\n%s %s\n", printable(h.Agent), printable(fullID(h.SessionStatus)))
			fmt.Fprintln(
				w,
				short(fmt.Sprintf("  %s, %s: %s", h.State, lastEvent(h.SessionStatus), printable(title)), cols),
			)

			fmt.Fprintln(w, "  "+marked(h.Pieces, cols-2, colours()))
		}
		return nil
	}

	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "AGENT\tSESSION\tSTATE\tLAST EVENT\tTITLE\tFOUND")
	for _, h := range hits {
		last := "never"
		if !h.LastEvent.IsZero() {
			last = h.LastEvent.UTC().Format(time.RFC3339)
		}

		fmt.Fprintf(
			t, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(h.Agent), printable(fullID(h.SessionStatus)), h.State,
			last, printable(short(h.Title, 50)), printable(h.Snippet),
		)
	}

	return t.Flush()
}

// colours says whether a terminal may be sent any.
func colours() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// marked is a snippet of at most so many columns, with the words that were searched for in bold.
func marked(pieces []index.Piece, most int, bold bool) string {
	var b strings.Builder
	for _, p := range pieces {
		text := printable(p.Text)
		cut := columns(text) > most
		if cut {
			text = short(text, most)
		}

		most -= columns(text)
		if p.Hit && bold {
			b.WriteString("\x1b[1m" + text + "\x1b[0m")
		} else {
			b.WriteString(text)
		}

		if cut || most <= 0 {
			break
		}
	}

	return b.String()
}
