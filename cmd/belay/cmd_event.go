package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/state/query"
	"belay/internal/wire"
)

// eventID makes an event's id, so that one sent twice counts once.
func eventID() string { return strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + rand.Text()[:8] }

// errNoSession: a command that changes a session's record takes none that nobody named.
var errNoSession error = &usage{what: "no session", hint: "Give --session ID or set BELAY_SESSION."}

// sessionsHere adds to "no session" which ones there are in this folder.
func (a *app) sessionsHere(ctx context.Context, f *sessionFlags, err error) error {
	name, nerr := f.name()
	folder, ferr := a.folder()
	if errors.Join(nerr, ferr) != nil {
		return err
	}

	list, ferr := folder.Sessions(ctx, name, 3)
	if ferr != nil || len(list) == 0 {
		return err
	}

	var ids []string
	for _, s := range list {
		ids = append(
			ids,
			fmt.Sprintf("\n  --session %s   (%s, %s, %s)", shellWord(s.SessionID), s.Agent, s.State, ago(s.LastEvent)),
		)
	}

	return &coded{
		err,
		exitUsage,
		"Say which with --session or BELAY_SESSION. The newest in this folder:" + strings.Join(ids, ""),
	}
}

// target fills in who an event is about.
func (f *sessionFlags) target(req wire.Request) (wire.Request, error) {
	if f.session == "" {
		f.session = os.Getenv("BELAY_SESSION")
	}
	if f.session == "" {
		return req, errNoSession
	}

	n, err := f.name()
	if err != nil {
		return req, err
	}

	req.Agent, req.Session, req.Child, req.Workspace, req.ID = f.agent, f.session, f.child, n.Workspace, eventID()
	if req.Agent == "" {
		req.Agent = otherAgent
	}

	return req, nil
}

// known is target for a session that may be any agent's: the one that has this id. A new one is nobody's that belay
// knows.
func (a *app) known(ctx context.Context, f *sessionFlags, req wire.Request) (wire.Request, error) {
	req, err := f.target(req)
	if errors.Is(err, errNoSession) {
		return req, a.sessionsHere(ctx, f, err)
	}
	if err != nil || f.agent != "" {
		return req, err
	}

	folder, err := a.folder()
	if err != nil {
		return req, err
	}

	found, err := folder.Sessions(ctx, state.Name{Session: req.Session, Child: req.Child, Workspace: req.Workspace}, 0)
	switch {
	case err != nil:
		return req, err
	case len(found) == 1:
		req.Agent = found[0].Agent
	case len(found) > 1:
		return req, fmt.Errorf("%w: session %s", query.ErrSeveral, req.Session)
	}

	return req, nil
}

// printReply shows what the gates said.
func printReply(cmd *cobra.Command, r wire.Reply, body []byte, asJSON bool) error {
	if asJSON {
		r.Len = 0 // of the socket's framing
		return printJSON(cmd.OutOrStdout(), r)
	}
	if len(body) == 0 {
		body = []byte(replyText(r) + "\n")
	}

	_, err := cmd.OutOrStdout().Write(body)
	return err
}

// replyText is one line for an answer that brings none.
func replyText(r wire.Reply) string {
	text := "nothing to keep"
	switch r.Kept {
	case wire.KeptDisk:
		text = fmt.Sprintf("kept, record %d", r.Seq)
	case wire.KeptMemory:
		text = fmt.Sprintf("kept in memory only, record %d: the journal's disk fails, belay status says why", r.Seq)
	}

	switch d := r.Decision; {
	case d == nil:
	case d.Take:
		text += fmt.Sprintf("; taking %s: %s", d.Kind, d.Text)
	case d.Owed:
		text += "; " + d.Text + " (owed)"
	default:
		text += "; " + d.Text
	}

	return text
}

func (a *app) eventCmd() *cobra.Command {
	var f sessionFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "event [JSON]",
		GroupID: groupEvents,
		Short:   "Send one event of any agent, as JSON",
		Long: `Sends an event: the JSON object from the argument or from standard input. The daemon is started
when none runs. Without --agent it belongs to the one session that has this id; a new session's
agent is then "other". Its kind is one of start, prompt, stop, tool-start, tool-end, compacting,
compacted, child-start, child-end, end, exit, mark, task, beat; text holds words, call and name a
tool call. docs/protocol.md lists all fields.

  belay event --agent mine --session s1 '{"kind":"prompt","text":"write the report"}'
  echo '{"kind":"tool-start","call":"c1","name":"deploy"}' | BELAY_SESSION=s1 belay event --agent mine

Exit codes: 0 kept, 1 failed, 2 no event or not JSON, 4 no daemon could be started.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := eventJSON(args, cmd.InOrStdin())
			if err != nil {
				return err
			}

			req, err := a.known(cmd.Context(), &f, wire.Request{Op: "event", Body: data})
			if err != nil {
				return err
			}

			r, body, err := a.request(cmd.Context(), true, req)
			if err != nil {
				return err
			}

			warnUnknown(cmd.ErrOrStderr(), data)
			return printReply(cmd, r, body, asJSON)
		},
	}

	f.add(cmd, a)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's reply as JSON")
	return cmd
}

// maxEvent leaves room for the rest of the request's line.
const maxEvent = wire.MaxLine - 64<<10

// eventJSON is the event from the argument or from standard input.
func eventJSON(args []string, in io.Reader) ([]byte, error) {
	const example = `For example: belay event --session s1 '{"kind":"prompt","text":"hello"}'`
	var data []byte
	switch f, _ := in.(*os.File); {
	case len(args) > 1:
		return nil, &usage{what: fmt.Sprintf("one event, not %d", len(args)), hint: example}
	case len(args) == 1:
		data = []byte(args[0])
	case f != nil && term.IsTerminal(int(f.Fd())):
		return nil, &usage{what: "no event", hint: example}
	default:
		var err error
		if data, err = io.ReadAll(io.LimitReader(in, maxEvent+1)); err != nil {
			return nil, fmt.Errorf("read the event: %w", err)
		}
	}

	if len(data) > maxEvent {
		return nil, &usage{
			what: fmt.Sprintf("the event has over %d bytes", maxEvent),
			hint: "Send less of the text: belay keeps 16 KB of it.",
		}
	}

	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil || object == nil {
		return nil, &usage{what: "the event is no JSON object", hint: example}
	}

	return data, nil
}

// warnUnknown tells of a field that no event has: the socket ignores it for the sake of newer clients, and a person at
// a shell has mistyped it.
func warnUnknown(w io.Writer, data []byte) {
	var e wire.Event
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if name, found := strings.CutPrefix(fmt.Sprint(dec.Decode(&e)), "json: unknown field "); found {
		fmt.Fprintf(w, "belay: warning: no event has the field %s; docs/protocol.md lists all\n", said(name))
	}
}

func (a *app) markCmd() *cobra.Command {
	var f sessionFlags
	var decision, asJSON bool
	cmd := &cobra.Command{
		Use:     "mark TEXT",
		GroupID: groupSessions,
		Short:   "Keep a note or a decision in the session's record",
		Long: `Keeps a note. With --decision it is kept for good, given to every later session, and a FULL
checkpoint is taken at once.

  belay mark --session 3f0c... --decision "The API stays on v1 until March."

Exit codes: 0 kept, 1 failed, 2 wrong use, 4 no daemon could be started.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || strings.TrimSpace(args[0]) == "" {
				return &usage{what: "mark takes one text", hint: `In quotes: belay mark --session ID "the text"`}
			}

			body, err := json.Marshal(wire.Event{Kind: "mark", Text: args[0], Decision: decision})
			if err != nil {
				return err
			}

			req, err := a.known(cmd.Context(), &f, wire.Request{Op: "mark", Body: body})
			if err != nil {
				return err
			}

			r, out, err := a.request(cmd.Context(), true, req)
			if err != nil {
				return err
			}

			return printReply(cmd, r, out, asJSON)
		},
	}

	f.add(cmd, a)
	cmd.Flags().BoolVar(&decision, "decision", false, "it is a decision")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's reply as JSON")
	return cmd
}

func (a *app) checkpointCmd() *cobra.Command {
	var f sessionFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "checkpoint",
		GroupID: groupSessions,
		Short:   "Take a FULL checkpoint of a session now",
		Long: `Takes a FULL checkpoint whatever the time gate says, and waits until it is on disk. With nothing
new since the last FULL none is taken.

  belay checkpoint --session 3f0c...

Exit codes: 0 taken, nothing new, or owed for a second, 1 failed, 2 wrong use, 3 no such session,
4 no daemon, 5 degraded.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := a.known(cmd.Context(), &f, wire.Request{Op: "checkpoint"})
			if err != nil {
				return err
			}

			r, body, err := a.request(cmd.Context(), false, req)
			if err != nil {
				return a.elsewhere(cmd.Context(), f, err)
			}

			if r.Decision != nil && r.Decision.Code == string(checkpoint.CodeDegraded) {
				return &coded{
					errors.New("take a checkpoint: degraded, it is owed"),
					exitDegraded,
					"belay status says why; belay reset tries the store now.",
				}
			}

			return printReply(cmd, r, body, asJSON)
		},
	}

	f.add(cmd, a)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's reply as JSON")
	return cmd
}

func (a *app) resetCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "reset",
		GroupID: groupSetUp,
		Short:   "Try the store now and leave degraded mode if it works",
		Long: `Probes the store at once. If it can be written, the breaker closes and the owed checkpoints are
taken.

  belay reset

Exit codes: 0 the store is well, 1 failed, 2 wrong flags, 4 no daemon, 5 it still cannot be written.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, _, err := a.request(cmd.Context(), false, wire.Request{Op: "reset"})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r.Body)
			}

			fmt.Fprintln(cmd.OutOrStdout(), "the store is well")
			return nil
		},
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print the breaker's state as JSON")
	return cmd
}

// verbCmds are the verbs of the original scripts. belay-hook has them in a faster form.
func (a *app) verbCmds() []*cobra.Command {
	verbs := []struct{ name, short, example string }{
		{"increment", "Count a round and let the gates decide", ` --text "The tests pass."`},
		{
			"tool-start",
			"A tool call starts (without --id an anonymous one)",
			" --id c1 --name deploy --input '{\"host\":\"staging\"}'",
		},
		{"tool-end", "A tool call ended (without --id the newest anonymous one)", " --id c1 --failed"},
		{"check-sparse", "Ask for a SPARSE checkpoint; answers 'taken N' when the last round's decision took one", ""},
		{"check-full", "Ask for a FULL checkpoint", " --heartbeat"},
	}

	var cmds []*cobra.Command
	for _, v := range verbs {
		cmds = append(cmds, a.verbCmd(v.name, v.short, v.example))
	}

	return cmds
}

func (a *app) verbCmd(verb, short, example string) *cobra.Command {
	var f sessionFlags
	var flags struct {
		Name       string `json:"name,omitempty"`
		ID         string `json:"id,omitempty"`
		Text       string `json:"text,omitempty"`
		Input      string `json:"input,omitempty"`
		Transcript string `json:"transcript,omitempty"`
		Heartbeat  bool   `json:"heartbeat,omitempty"`
		Failed     bool   `json:"failed,omitempty"`
	}

	var asJSON bool
	cmd := &cobra.Command{
		Use:     verb,
		GroupID: groupEvents,
		Short:   short,
		Long: short + `.
A verb of the original checkpoint scripts, for agents that call a shell.

  BELAY_SESSION=main belay ` + verb + example + `

Exit codes: 0 done, also when a gate refused; 1 failed, 2 wrong use, 3 no such session, 4 no daemon could be started.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := json.Marshal(flags)
			if err != nil {
				return err
			}

			req, err := a.known(cmd.Context(), &f, wire.Request{Op: "verb", Event: verb, Body: body})
			if err != nil {
				return err
			}

			r, out, err := a.request(cmd.Context(), true, req)
			if err != nil {
				return err
			}

			return printReply(cmd, r, out, asJSON)
		},
	}

	f.add(cmd, a)
	fl := cmd.Flags()
	fl.BoolVar(&asJSON, "json", false, "print the daemon's reply as JSON")
	switch verb {
	case "tool-start", "tool-end":
		fl.StringVar(&flags.Name, "name", "", "the tool's name")
		fl.StringVar(&flags.ID, "id", "", "the call's id")
		fl.StringVar(&flags.Input, "input", "", "its arguments, as JSON or text")
		if verb == "tool-end" {
			fl.BoolVar(&flags.Failed, "failed", false, "it failed")
		}

	case "increment":
		fl.StringVar(&flags.Text, "text", "", "the last answer")
		fl.StringVar(&flags.Transcript, "transcript", "", "the agent's transcript file")
	case "check-full":
		fl.BoolVar(&flags.Heartbeat, "heartbeat", false, "it is a heartbeat of the agent's own")
	}

	return cmd
}
