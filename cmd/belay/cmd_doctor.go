package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/docs"
	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/daemon"
	"belay/internal/state"
	"belay/internal/state/spool"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// finding is one thing that doctor looked at.
type finding struct {
	What  string `json:"what"`
	State string `json:"state"` // ok, note, problem
	Said  string `json:"said"`
	Do    string `json:"do,omitempty"`
}

func (a *app) doctorCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "doctor",
		GroupID: groupSetUp,
		Short:   "Check that everything is in place",
		Long: `Looks at settings, state folder, daemon, socket, store, hooks of the agents on this machine and
their transcripts, and says what to do about each thing that is not right. It changes nothing, but
closes a state folder that others could read.

  belay doctor
  belay doctor --json

Exit codes: 0 all is well, 1 failed, 2 wrong flags, 6 something is not right.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := a.diagnose(cmd.Context(), cmd.ErrOrStderr())
			if err := withoutSecrets(&list); err != nil {
				return err
			}

			bad := 0
			for _, f := range list {
				if f.State == "problem" {
					bad++
				}
			}

			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), map[string]any{"problems": bad, "findings": list}); err != nil {
					return err
				}
			} else {
				printFindings(cmd.OutOrStdout(), list)
			}

			if bad > 0 {
				return &coded{
					errors.New("doctor: " + count(bad, "problem")),
					exitFindings,
					"Each says what to do about it.",
				}
			}

			return nil
		},
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(a.doctorTranscriptCmd(), a.doctorStoreCmd())
	return cmd
}

func printFindings(w io.Writer, list []finding) {
	marks := map[string]string{"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}
	for _, f := range list {
		for i, line := range strings.Split(f.Said, "\n") {
			if i == 0 {
				fmt.Fprintf(w, "%s %-14s %s\n", marks[f.State], f.What, printable(line))
			} else {
				fmt.Fprintf(w, "%22s %s\n", "", printable(line))
			}
		}
		if f.Do != "" {
			fmt.Fprintf(w, "%22s -> %s\n", "", printable(f.Do))
		}
	}
}

func (a *app) diagnose(ctx context.Context, screen io.Writer) []finding {
	var list []finding
	add := func(what, state, said, do string) { list = append(list, finding{what, state, said, do}) }
	c, err := a.settings(true)
	switch {
	case err != nil:
		add("settings", "problem", err.Error(), "belay config prints every key with its default")
	case c.File == "":
		add("settings", "ok", "defaults and environment; no file", "")
	default:
		add("settings", "ok", c.File, "")
	}

	root, err := a.root()
	if err != nil {
		add("state folder", "problem", err.Error(), "set BELAY_STATE_DIR to a folder of your own")
		return list
	}

	dir := state.Dir{Root: root, FS: vfs.Within(vfs.OS{}, root)}
	switch err := dir.Own(); {
	case errors.Is(err, fs.ErrNotExist):
		add("state folder", "note", root+" is not there yet", "the daemon makes it")
	case err != nil:
		add(
			"state folder", "problem", err.Error(),
			"set BELAY_STATE_DIR to a folder of your own (chmod 700 it, if it is belay's alone)",
		)

	default:
		add("state folder", "ok", root, "")
	}

	list = append(list, a.diagnoseDaemon(ctx)...)
	list = append(list, diagnoseKey(c, dir)...)
	states, rep, err := dir.Find(ctx, state.Name{})
	if err != nil {
		add("store", "problem", err.Error(), "mend the folder, or move it away: the daemon makes a new one")
	} else {
		list = append(list, diagnoseJournal(rep)...)
		list = append(list, diagnoseStore(ctx, dir, states, screen)...)
	}

	if n, bytes, err := spool.Pending(dir.FS, dir.Spool()); err == nil && n > 0 {
		add(
			"spool", "note",
			fmt.Sprintf("%s (%s) not yet taken in by a daemon", count(n, "event"), count(int(bytes), "byte")),
			"belay daemon &",
		)
	}

	list = append(list, a.diagnoseAgents(ctx, states)...)
	if _, err := exec.LookPath("git"); err != nil {
		add("git", "note", "not found: checkpoints will not hold the state of the work tree", "")
	}

	return list
}

func (a *app) diagnoseDaemon(ctx context.Context) []finding {
	r, _, err := a.request(ctx, false, wire.Request{Op: "status"})
	if errors.Is(err, wire.ErrNoDaemon) {
		return []finding{{"daemon", "note", "none runs", "the first hook of an agent starts it; or: belay daemon &"}}
	}
	if err != nil {
		return []finding{{"daemon", "problem", err.Error(), "belay daemon, in a terminal, shows what it says"}}
	}

	var st daemon.Status
	if err := json.Unmarshal(r.Body, &st); err != nil {
		return []finding{
			{
				"daemon",
				"problem",
				"its answer cannot be read: " + err.Error(),
				"stop it (kill " + fmt.Sprint(st.PID) + "); the next hook starts the new version",
			},
		}
	}

	list := []finding{{"daemon", "ok", fmt.Sprintf("pid %d, %s, at %s", st.PID, st.Version, st.Socket), ""}}
	if st.Version != version() {
		list = append(
			list,
			finding{
				"version",
				"note",
				fmt.Sprintf("the daemon is %s, this is %s", st.Version, version()),
				fmt.Sprintf("kill %d; the next hook starts the new one", st.PID),
			},
		)
	}

	if st.Problem != "" {
		list = append(list, finding{"state folder", "problem", st.Problem, "mend it; belay goes on by itself"})
	}

	if st.Degraded {
		list = append(
			list,
			finding{
				"store",
				"problem",
				"degraded: " + st.Breaker.Reason,
				"free space or mend the disk; belay reset tries at once",
			},
		)
	}

	if st.Journal.Error != "" {
		list = append(
			list,
			finding{"journal", "problem", st.Journal.Error, "free space or mend the disk; belay goes on by itself"},
		)
	}

	if st.Watch.Why != "" {
		list = append(list, finding{"watch", "note", st.Watch.Why, ""})
	}
	if n := st.Counts["dropped"]; n > 0 {
		list = append(list, finding{"lost", "note", count(int(n), "event") + " dropped since the daemon's start", ""})
	}

	return list
}

// diagnoseJournal tells what the log and the saved states have lost.
func diagnoseJournal(rep state.Report) []finding {
	var list []finding
	for _, b := range rep.Bad {
		list = append(
			list,
			finding{
				"state file",
				"problem",
				b,
				"its checkpoints and the journal stand in for it; the file can be removed",
			},
		)
	}

	if rep.Panics > 0 {
		said := count(rep.Panics, "record") + " not applied: an error inside belay"
		list = append(list, finding{"journal", "problem", said, "their sessions go on without them; report it"})
	}

	if j := rep.Journal; j.Damaged+j.Unreadable > 0 {
		list = append(
			list,
			finding{
				"journal",
				"problem",
				fmt.Sprintf(
					"%s damaged, %s lost, %s not readable", count(j.Damaged, "place"),
					count(int(j.Lost), "record"), count(j.Unreadable, "segment"),
				),
				"the daemon goes past it; check the disk",
			},
		)
	}

	return list
}

const doctorSessions = 200 // newest ones, whose checkpoints are read

// diagnoseStore reads every checkpoint's checksum of the newest sessions.
func diagnoseStore(ctx context.Context, dir state.Dir, states []*checkpoint.State, screen io.Writer) []finding {
	store, err := dir.OpenStore()
	if err != nil {
		return []finding{{"store", "problem", err.Error(), ""}}
	}

	defer store.Close() // nothing is written through it
	var list []finding
	whole, some := 0, states[:min(len(states), doctorSessions)]
	step, done := progress(screen, len(some), "reading checkpoints")
	planted := map[string]bool{} // sessions share work trees
	for _, s := range some {
		step()
		for _, said := range state.InWorkTree(s.Workspace) {
			if !planted[said] {
				list = append(list, finding{"planted", "note", said, "it is not used; see who put it there"})
			}
			planted[said] = true
		}

		metas, err := store.List(ctx, s.Key)
		if err != nil {
			list = append(
				list,
				finding{
					"store",
					"problem",
					err.Error(),
					"mend the folder, or move it away: the daemon makes a new one",
				},
			)
			continue
		}

		for _, m := range metas {
			data, err := store.Get(ctx, s.Key, m.Number)
			if err == nil {
				_, err = checkpoint.DecodeIn(s.Key.Dir(), data)
			}

			if err != nil {
				list = append(
					list,
					finding{
						"checkpoint",
						"problem",
						fmt.Sprintf("%d of %s: %v", m.Number, s.Key, err),
						"older ones are used; the file can be removed",
					},
				)
				continue
			}

			whole++
		}
	}

	done()
	said := fmt.Sprintf("%s, %s whole", count(len(states), "session"), count(whole, "checkpoint"))
	if len(some) < len(states) {
		said = fmt.Sprintf(
			"%s, %s of the newest %d whole", count(len(states), "session"), count(whole, "checkpoint"),
			len(some),
		)
	}

	if len(list) == 0 {
		list = append(list, finding{"store", "ok", said, ""})
	}

	return list
}

// diagnoseAgents looks at the hooks and at each agent's newest session.
func (a *app) diagnoseAgents(ctx context.Context, states []*checkpoint.State) []finding {
	var list []finding
	paths, err := a.hookPaths()
	var machine agent.Host
	if err == nil {
		machine, err = a.host()
	}
	if err != nil {
		return []finding{{"hooks", "problem", err.Error(), ""}}
	}

	for _, g := range all.All(machine) {
		if in, ok := g.(agent.Installer); ok {
			list = append(list, hooksOf(ctx, g.Name(), in, paths)...)
		}

		i := slices.IndexFunc(
			states, func(s *checkpoint.State) bool { return s.Key.Agent == g.Name() && s.Key.Child == "" },
		)

		if i < 0 {
			continue
		}

		s := states[i]
		switch {
		case s.Transcript == "":
			list = append(
				list,
				finding{
					g.Name(),
					"note",
					"last event " + ago(s.LastEvent) + "; no transcript was named",
					"recovery works from its events alone",
				},
			)

		case missing(s.Transcript):
			list = append(
				list,
				finding{
					g.Name(),
					"note",
					"the transcript of its last session is not there: " + s.Transcript,
					"recovery works from belay's own record",
				},
			)

		default:
			list = append(
				list,
				finding{
					g.Name(),
					"ok",
					fmt.Sprintf("last event %s, transcript %s", ago(s.LastEvent), filepath.Base(s.Transcript)),
					"",
				},
			)
		}
	}

	return list
}

// hooksOf checks an agent's wiring against every place where belay-hook may have been installed from: this shell's PATH
// need not be the one of that time. The place with the fewest findings is taken for the right one.
func hooksOf(ctx context.Context, name string, in agent.Installer, paths agent.Paths) []finding {
	v, ok := in.Present()
	if !ok {
		return nil
	}

	found := in.Check(ctx, paths)
	for _, hook := range hookChoices() {
		if other := in.Check(ctx, agent.Paths{Hook: hook, Socket: paths.Socket}); len(other) < len(found) {
			found = other
		}
	}

	var list []finding
	for _, p := range found {
		do := "belay install " + name
		if asksForTrust(in) && strings.Contains(p, "trust") {
			do += " --trust, if you trust belay's hooks"
		}
		list = append(list, finding{name, "problem", p, do})
	}

	if !slices.ContainsFunc(list, func(f finding) bool { return f.State == "problem" }) {
		list = slices.Insert(list, 0, finding{name, "ok", "hooks are in place (version " + orUnknown(v) + ")", ""})
	}

	if tried := docs.Tried(name); v != "" && !slices.Contains(tried, v) {
		list = append(
			list,
			finding{
				name,
				"note",
				fmt.Sprintf("version %s was not tried with this belay; tried: %s", v, orNone(tried)),
				"",
			},
		)
	}

	return list
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// hookChoices are the programs that may stand in settings: the copy that install made, and the one beside this program.
func hookChoices() []string {
	choices := []string{filepath.Join(binFolder(), "belay-hook")}
	if exe, err := os.Executable(); err == nil {
		choices = append(choices, filepath.Join(filepath.Dir(exe), "belay-hook"))
	}
	return slices.DeleteFunc(choices, missing)
}

func orUnknown(v string) string {
	if v == "" {
		return "unknown"
	}
	return v
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
