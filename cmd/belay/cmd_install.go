package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/adrg/xdg"
	"github.com/spf13/cobra"

	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/vfs"
	"belay/internal/wire"
)

func installable() []string {
	var names []string
	for _, g := range all.All() {
		if _, ok := g.(agent.Installer); ok {
			names = append(names, g.Name())
		}
	}
	return names
}

func installer(name string) (agent.Installer, error) {
	g, ok := all.ByName(name)
	in, can := g.(agent.Installer)
	if !ok || !can {
		return nil, &usage{what: fmt.Sprintf("no installer for %q", name), hint: "These can be installed: " + strings.Join(installable(), ", ") + ". Other programs use belay event."}
	}
	return in, nil
}

// oneAgent takes the agent from the arguments. Without one it says which there are.
func oneAgent(cmd *cobra.Command, args []string) (agent.Installer, error) {
	if len(args) == 1 {
		return installer(args[0])
	}
	hint := ""
	for _, name := range installable() {
		in, err := installer(name)
		if err != nil {
			return nil, err
		}
		found := "not found on this machine"
		if v, ok := in.Present(); ok {
			found = "found on this machine, version " + orUnknown(v)
		}
		hint += fmt.Sprintf("  %s %s   (%s)\n", cmd.CommandPath(), name, found)
	}
	return nil, &usage{what: cmd.Name() + ": which agent?", hint: "One of:\n" + strings.TrimSuffix(hint, "\n")}
}

func (a *app) installCmd() *cobra.Command {
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:     "install AGENT",
		GroupID: groupSetUp,
		Short:   "Wire an agent: its hooks call belay from now on",
		Long: `Adds belay's hooks to the agent's settings and keeps everything else in them. Twice is as good as once. When belay and belay-hook
are not in one folder on PATH, both are copied to $XDG_DATA_HOME/belay/bin (~/.local/share/belay/bin) first: hooks run in an
environment of the agent's. Without AGENT it lists the agents.

  belay install claude-code --dry-run
  belay install claude-code

Exit codes: 0 done, 1 failed (the settings were not changed), 2 no such agent.`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return installable(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := oneAgent(cmd, args)
			if err != nil {
				return err
			}
			paths, copied, err := a.placeBinaries(dryRun)
			if err != nil {
				return err
			}
			changes, err := in.Install(paths, dryRun)
			if err != nil {
				return err
			}
			return printChanges(cmd.OutOrStdout(), append(copied, changes...), dryRun, asJSON)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, change nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) uninstallCmd() *cobra.Command {
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:     "uninstall AGENT",
		GroupID: groupSetUp,
		Short:   "Take belay's hooks out of an agent's settings",
		Long: `Puts the settings back byte for byte when nobody changed them since, else takes out belay's entries alone. What belay has recorded
stays.

  belay uninstall claude-code

Exit codes: 0 done, 1 failed (the settings were not changed), 2 no such agent.`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return installable(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := oneAgent(cmd, args)
			if err != nil {
				return err
			}
			paths, err := a.hookPaths()
			if err != nil {
				return err
			}
			changes, err := in.Uninstall(paths, dryRun)
			if err != nil {
				return err
			}
			return printChanges(cmd.OutOrStdout(), changes, dryRun, asJSON)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, change nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printChanges(w io.Writer, changes []agent.Change, dryRun, asJSON bool) error {
	if asJSON {
		return printJSON(w, map[string]any{"dry_run": dryRun, "changes": changes})
	}
	would := ""
	if dryRun {
		would = "would "
	}
	for _, c := range changes {
		fmt.Fprintf(w, "%s%s %s", would, c.Action, c.Path)
		if c.Detail != "" {
			fmt.Fprintf(w, "  (%s)", c.Detail)
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
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", false
	}
	_, err = exec.LookPath(filepath.Join(filepath.Dir(real), "belay"))
	return abs, err == nil
}

func binFolder() string { return filepath.Join(xdg.DataHome, "belay", "bin") }

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
		c, err := copyProgram(from, to, dryRun)
		if errors.Is(err, fs.ErrNotExist) && name == "belay-hook" {
			return paths, changes, &coded{fmt.Errorf("%s is missing: %w", from, err), exitFailed, "Build both: go build -o bin/ ./cmd/..."}
		}
		if err != nil {
			return paths, changes, err
		}
		changes = append(changes, c)
	}
	return paths, changes, nil
}

func copyProgram(from, to string, dryRun bool) (agent.Change, error) {
	c := agent.Change{Path: to, Action: "create"}
	data, err := os.ReadFile(from)
	if err != nil {
		return c, err
	}
	if old, err := os.ReadFile(to); err == nil {
		if string(old) == string(data) {
			c.Action = "keep"
			return c, nil
		}
		c.Action = "change"
	}
	if dryRun {
		return c, nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return c, err
	}
	if err := vfs.Replace(vfs.OS{}, to, data); err != nil {
		return c, err
	}
	return c, os.Chmod(to, 0o755)
}
