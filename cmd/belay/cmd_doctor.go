package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/daemon"
	"belay/internal/lookup"
	"belay/internal/spool"
	"belay/internal/statedir"
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
		Use:   "doctor",
		Short: "Check that everything is in place",
		Long: `Looks at settings, state folder, daemon, socket, store, hooks of the agents on this machine and their transcripts, and says what to do
about each thing that is not right. It changes nothing.

  belay doctor
  belay doctor --json

Exit codes: 0 all is well, 1 failed, 6 something is not right.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := a.diagnose(cmd.Context())
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
				marks := map[string]string{"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}
				for _, f := range list {
					fmt.Fprintf(cmd.OutOrStdout(), "%s %-14s %s\n", marks[f.State], f.What, f.Said)
					if f.Do != "" {
						fmt.Fprintf(cmd.OutOrStdout(), "%23s-> %s\n", "", f.Do)
					}
				}
			}
			if bad > 0 {
				return &coded{fmt.Errorf("%d problems", bad), exitFindings, ""}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) diagnose(ctx context.Context) []finding {
	var list []finding
	add := func(what, state, said, do string) { list = append(list, finding{what, state, said, do}) }
	c, err := a.settings(true, nil)
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
	dir := statedir.Dir{Root: root, FS: vfs.OS{}}
	switch err := dir.Own(); {
	case errors.Is(err, fs.ErrNotExist):
		add("state folder", "note", root+" is not there yet", "the daemon makes it")
	case err != nil:
		add("state folder", "problem", err.Error(), "chmod 700 it, or set BELAY_STATE_DIR")
	default:
		add("state folder", "ok", root, "")
	}
	list = append(list, a.diagnoseDaemon(ctx)...)
	list = append(list, diagnoseStore(ctx, dir)...)
	if n, bytes, err := spool.Pending(dir.FS, dir.Spool()); err == nil && n > 0 {
		add("spool", "note", fmt.Sprintf("%d events (%d bytes) wait for a daemon", n, bytes), "belay daemon &")
	}
	list = append(list, a.diagnoseAgents(ctx, dir)...)
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
		return []finding{{"daemon", "problem", "its answer cannot be read: " + err.Error(), "stop it (kill " + fmt.Sprint(st.PID) + "); the next hook starts the new version"}}
	}
	list := []finding{{"daemon", "ok", fmt.Sprintf("pid %d, %s, at %s", st.PID, st.Version, st.Socket), ""}}
	if st.Version != version() {
		list = append(list, finding{"version", "note", fmt.Sprintf("the daemon is %s, this is %s", st.Version, version()), fmt.Sprintf("kill %d; the next hook starts the new one", st.PID)})
	}
	if st.Problem != "" {
		list = append(list, finding{"state folder", "problem", st.Problem, "mend it; belay goes on by itself"})
	}
	if st.Degraded {
		list = append(list, finding{"store", "problem", "degraded: " + st.Breaker.Reason, "free space or mend the disk; belay reset tries at once"})
	}
	if st.Journal.Error != "" {
		list = append(list, finding{"journal", "problem", st.Journal.Error, "free space or mend the disk; belay goes on by itself"})
	}
	if st.Watch.Why != "" {
		list = append(list, finding{"watch", "note", st.Watch.Why, ""})
	}
	if n := st.Counts["dropped"]; n > 0 {
		list = append(list, finding{"lost", "note", fmt.Sprintf("%d events were dropped since the daemon's start", n), ""})
	}
	return list
}

// diagnoseStore reads every checkpoint's checksum of the newest sessions.
func diagnoseStore(ctx context.Context, dir statedir.Dir) []finding {
	states, rep, err := dir.Find(ctx, statedir.Name{})
	if err != nil {
		return []finding{{"store", "problem", err.Error(), ""}}
	}
	var list []finding
	for _, b := range rep.Bad {
		list = append(list, finding{"state file", "problem", b, "its checkpoints and the journal stand in for it; the file can be removed"})
	}
	store, err := filestore.Open(dir.FS, dir.Root)
	if err != nil {
		return append(list, finding{"store", "problem", err.Error(), ""})
	}
	whole, damaged := 0, 0
	for _, s := range states[:min(len(states), 200)] {
		metas, err := store.List(ctx, s.Key)
		if err != nil {
			list = append(list, finding{"store", "problem", err.Error(), ""})
			continue
		}
		for _, m := range metas {
			data, err := store.Get(ctx, s.Key, m.Number)
			if err == nil {
				_, err = checkpoint.Decode(data)
			}
			if err != nil {
				damaged++
				list = append(list, finding{"checkpoint", "problem", fmt.Sprintf("%d of %s: %v", m.Number, s.Key, err), "older ones are used; the file can be removed"})
				continue
			}
			whole++
		}
	}
	if damaged == 0 {
		list = append(list, finding{"store", "ok", fmt.Sprintf("%d sessions, %d checkpoints whole", len(states), whole), ""})
	}
	return list
}

func (a *app) diagnoseAgents(ctx context.Context, dir statedir.Dir) []finding {
	var list []finding
	paths, err := a.hookPaths()
	if err != nil {
		return []finding{{"hooks", "problem", err.Error(), ""}}
	}
	f := lookup.Folder{Dir: dir, Agents: all.All()}
	for _, g := range all.All() {
		if in, ok := g.(agent.Installer); ok {
			list = append(list, hooksOf(g.Name(), in, paths)...)
		}
		seen, err := f.Sessions(ctx, statedir.Name{Agent: g.Name()}, 1)
		if err != nil || len(seen) == 0 {
			continue
		}
		s := seen[0]
		switch {
		case s.Transcript == nil:
			list = append(list, finding{g.Name(), "note", "last event " + ago(s.LastEvent) + " ago; no transcript was named", "recovery works from its events alone"})
		case missing(s.Transcript.Path):
			list = append(list, finding{g.Name(), "note", "the transcript of its last session is not there: " + s.Transcript.Path, "recovery works from belay's own record"})
		default:
			list = append(list, finding{g.Name(), "ok", fmt.Sprintf("last event %s ago, transcript %s", ago(s.LastEvent), filepath.Base(s.Transcript.Path)), ""})
		}
	}
	return list
}

func hooksOf(name string, in agent.Installer, paths agent.Paths) []finding {
	v, ok := in.Present()
	if !ok {
		return nil
	}
	found := in.Check(paths)
	if len(found) == 0 {
		return []finding{{name, "ok", "hooks are in place (version " + orUnknown(v) + ")", ""}}
	}
	var list []finding
	for _, p := range found {
		list = append(list, finding{name, "problem", p, "belay install " + name})
	}
	return list
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
