package main

import (
	"bytes"
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

	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/config"
	"belay/internal/vfs"
	"belay/internal/wire"
)

func installable() []string {
	var names []string
	for _, g := range all.All(host("")) {
		if _, ok := g.(agent.Installer); ok {
			names = append(names, g.Name())
		}
	}
	return names
}

func installer(h agent.Host, name string) (agent.Installer, error) {
	g, ok := all.ByName(h, name)
	in, can := g.(agent.Installer)
	if !ok || !can {
		return nil, &usage{
			what: fmt.Sprintf("no installer for %q", name),
			hint: "These can be installed: " + strings.Join(installable(), ", ") + ". Other programs use belay event.",
		}
	}

	return in, nil
}

// chosen is an agent to wire, and its name.
type chosen struct {
	name string
	agent.Installer
}

// choose takes the agent from the arguments; without one it is every agent that fits.
func (a *app) choose(args []string, fits func(agent.Installer) bool) ([]chosen, error) {
	if len(args) > 1 {
		return nil, &usage{
			what: fmt.Sprintf("one agent, not %d", len(args)),
			hint: "Without a name it is all that are on this machine.",
		}
	}

	h, err := a.host()
	if err != nil {
		return nil, err
	}

	var list []chosen
	for _, name := range installable() {
		in, err := installer(h, name)
		if err != nil {
			return nil, err
		}
		if len(args) == 1 && args[0] == name || len(args) == 0 && fits(in) {
			list = append(list, chosen{name, in})
		}
	}

	if len(args) == 1 && len(list) == 0 {
		_, err := installer(h, args[0])
		return nil, err
	}

	return list, nil
}

func present(in agent.Installer) bool {
	_, ok := in.Present()
	return ok
}

// change is one of an agent's, or of belay's own programs.
type change struct {
	Agent string `json:"agent,omitempty"`
	agent.Change
}

func changesOf(name string, list []agent.Change) []change {
	var all []change
	for _, c := range list {
		all = append(all, change{name, c})
	}
	return all
}

// installFlags are those of install and uninstall.
type installFlags struct{ dryRun, trust, json bool }

func (a *app) installCmd() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:     "install [AGENT]",
		GroupID: groupSetUp,
		Short:   "Wire the agents: their hooks call belay from now on",
		Long: `Adds belay's hooks to the settings of an agent, or of every agent that is on this machine, and
keeps everything else in them. Twice is as good as once. When belay and belay-hook are not in one
folder on PATH, both are copied to $XDG_DATA_HOME/belay/bin (~/.local/share/belay/bin) first:
hooks run in an environment of the agent's. An agent that runs hooks only once a person trusts
them is told so with --trust, and never without.

  belay install --dry-run
  belay install
  belay install codex --trust

Exit codes: 0 done, 1 failed (the settings of that agent were not changed) or no agent is here, 2
no such agent.`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return installable(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.install(cmd, args, f) },
	}

	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, change nothing")
	cmd.Flags().BoolVar(&f.trust, "trust", false,
		"say in the agent's settings that you trust belay's hooks, where it asks for that")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (a *app) install(cmd *cobra.Command, args []string, f installFlags) error {
	list, err := a.choose(args, present)
	switch {
	case err != nil:
		return err
	case len(list) == 0:
		hint := "Name one to wire it all the same: " + strings.Join(
			installable(), ", ",
		) + ". Other programs use belay event."
		return &coded{errors.New("install: none of the agents is on this machine"), exitFailed, hint}

	case f.trust && len(args) == 1 && !asksForTrust(list[0].Installer):
		return &usage{
			what: list[0].name + " asks for no trust",
			hint: "belay install " + list[0].name + " is all it needs.",
		}
	}

	paths, copied, err := a.placeBinaries(f.dryRun)
	if err != nil {
		return err
	}

	changes := changesOf("", copied)
	var errs []error
	for _, in := range list {
		done, err := in.Install(cmd.Context(), paths, f.dryRun)
		changes = append(changes, changesOf(in.name, done)...)
		if truster, ok := in.Installer.(agent.Truster); ok && err == nil && f.trust {
			if f.dryRun && slices.ContainsFunc(done, func(c agent.Change) bool { return c.Action != "keep" }) {
				fmt.Fprintf(
					cmd.ErrOrStderr(), "%s: what --trust writes depends on hooks that are not there yet\n",
					in.name,
				)
				continue
			}

			done, err = truster.Trust(paths, f.dryRun)
			changes = append(changes, changesOf(in.name, done)...)
		}

		if err != nil {
			errs = append(errs, fmt.Errorf("install %s: %w", in.name, err)) // the others go on
		}
	}

	errs = append(errs, printChanges(cmd.OutOrStdout(), changes, f))
	if err := errors.Join(errs...); err != nil || f.json || f.dryRun {
		return err
	}

	return printNext(cmd.OutOrStdout())
}

// printNext says what comes after install.
func printNext(w io.Writer) error {
	text := "Start the agent as always: its first hook starts the daemon. belay status shows what is watched.\n"
	if _, err := exec.LookPath("belay"); err != nil {
		text += "belay is not on PATH; for this shell: export PATH=" + shellWord(binFolder()) + ":$PATH\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

func asksForTrust(in agent.Installer) bool {
	_, ok := in.(agent.Truster)
	return ok
}

func (a *app) uninstallCmd() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:     "uninstall [AGENT]",
		GroupID: groupSetUp,
		Short:   "Take belay's hooks out of the agents' settings",
		Long: `Puts the settings of an agent, or of all, back byte for byte when nobody changed them since, else
takes out belay's entries alone. What belay has recorded stays.

  belay uninstall claude-code
  belay uninstall --dry-run

Exit codes: 0 done, 1 failed (the settings of that agent were not changed), 2 no such agent.`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return installable(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.uninstall(cmd, args, f) },
	}

	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, change nothing")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (a *app) uninstall(cmd *cobra.Command, args []string, f installFlags) error {
	list, err := a.choose(args, func(agent.Installer) bool { return true }) // settings may outlive their agent
	if err != nil {
		return err
	}

	paths, err := a.hookPaths()
	if err != nil {
		return err
	}

	var changes []change
	var errs []error
	for _, in := range list {
		done, err := in.Uninstall(paths, f.dryRun)
		if err != nil {
			errs = append(errs, fmt.Errorf("uninstall %s: %w", in.name, err)) // the others go on
		}
		if len(args) == 0 { // of all agents, only those that had something are worth a word
			done = slices.DeleteFunc(done, func(c agent.Change) bool { return c.Action == "keep" })
		}

		changes = append(changes, changesOf(in.name, done)...)
	}

	if len(changes)+len(errs) == 0 && !f.json {
		fmt.Fprintln(cmd.OutOrStdout(), "nothing of belay's is in any agent's settings")
	}

	return errors.Join(append(errs, printChanges(cmd.OutOrStdout(), changes, f))...)
}

func printChanges(w io.Writer, changes []change, f installFlags) error {
	if f.json {
		return printJSON(w, map[string]any{"dry_run": f.dryRun, "changes": append([]change{}, changes...)})
	}

	would := ""
	if f.dryRun {
		would = "would "
	}

	last := ""
	for _, c := range changes {
		if c.Agent != last {
			fmt.Fprintf(w, "%s:\n", printable(c.Agent))
			last = c.Agent
		}

		fmt.Fprintf(w, "%s%s %s", would, c.Action, printable(c.Path))
		if c.Detail != "" {
			fmt.Fprintf(w, "  (%s)", printable(c.Detail))
		}

		fmt.Fprintln(w)
	}

	return nil
}

// hookPaths are the places that an installer writes into settings.
func (a *app) hookPaths() (agent.Paths, error) {
	p := agent.Paths{Hook: filepath.Join(binFolder(), "belay-hook")}
	if onPath, ok := hookOnPath(); ok {
		p.Hook = onPath
	} else if binFolder() == "" {
		return p, errors.New("find a place for the programs: neither XDG_DATA_HOME nor HOME is an absolute path")
	}

	if a.socket != "" {
		abs, err := filepath.Abs(a.socket)
		if err != nil {
			return p, err
		}
		p.Socket = abs
		return p, nil
	}

	root, err := a.root()
	if err != nil {
		return p, err
	}

	usual, err := (&app{}).defaultRoot()
	if err == nil && root != usual {
		p.Socket = wire.SocketPlaces(root)[0] // a hook's environment need not have what ours has
	}

	return p, nil
}

// defaultRoot is the state folder that a hook finds with nothing but HOME in its environment.
func (a *app) defaultRoot() (string, error) {
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state", "belay"), err
}

// hookOnPath finds belay-hook on PATH, if belay is beside it: a hook need not have our PATH, and looks there first.
func hookOnPath() (string, bool) {
	found, err := exec.LookPath("belay-hook")
	if err != nil {
		return "", false
	}

	abs, err := filepath.Abs(found)
	if err != nil {
		return "", false
	}

	target, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", false
	}

	_, err = exec.LookPath(filepath.Join(filepath.Dir(target), "belay"))
	return abs, err == nil
}

func binFolder() string { return config.BinDir(os.Getenv) }

// placeBinaries copies both programs where hooks can find them for good, unless they are on PATH.
func (a *app) placeBinaries(dryRun bool) (agent.Paths, []agent.Change, error) {
	paths, err := a.hookPaths()
	if err != nil || filepath.Dir(paths.Hook) != binFolder() {
		return paths, nil, err
	}

	exe, err := os.Executable()
	if err != nil {
		return paths, nil, err
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return paths, nil, err
	}

	var changes []agent.Change
	for _, name := range []string{"belay", "belay-hook"} {
		from, to := filepath.Join(filepath.Dir(exe), name), filepath.Join(binFolder(), name)
		if from == to {
			continue
		}

		c, err := copyProgram(vfs.OS{}, from, to, dryRun)
		if errors.Is(err, fs.ErrNotExist) && name == "belay-hook" {
			err = fmt.Errorf("%s is missing: %w", from, err)
			return paths, changes, &coded{err, exitFailed, "Build both: go build -o bin/ ./cmd/..."}
		}
		if err != nil {
			return paths, changes, err
		}

		changes = append(changes, c)
	}

	return paths, changes, nil
}

// maxProgram is more than any program of ours has.
const maxProgram = 1 << 30

func copyProgram(disk vfs.FS, from, to string, dryRun bool) (agent.Change, error) {
	c := agent.Change{Path: to, Action: "create"}
	data, err := vfs.ReadFile(disk, from, maxProgram)
	if err != nil {
		return c, err
	}

	if !dryRun {
		if err := vfs.RemoveTemp(disk, to); err != nil { // of a copy that was broken off: nobody else sweeps there
			return c, err
		}
	}

	if old, err := vfs.ReadFile(disk, to, maxProgram); err == nil {
		if bytes.Equal(old, data) {
			c.Action = "keep"
			return c, nil
		}
		c.Action = "change"
	}

	if dryRun {
		return c, nil
	}
	if err := vfs.MakeDirMode(disk, filepath.Dir(to), 0o755); err != nil {
		return c, err
	}

	return c, vfs.ReplaceMode(disk, to, data, 0o755)
}
