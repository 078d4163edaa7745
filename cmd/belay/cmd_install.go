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
		return nil, &coded{fmt.Errorf("no installer for %q", name), exitUsage, "These can be installed: " + strings.Join(installable(), ", ") + ". Other programs use belay event."}
	}
	return in, nil
}

func (a *app) installCmd() *cobra.Command {
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "install AGENT",
		Short: "Wire an agent: its hooks call belay from now on",
		Long: `Adds belay's hooks to the agent's settings and keeps everything else in them. Twice is as good as once. When belay and belay-hook
are not on PATH, both are copied to ` + "`$XDG_DATA_HOME/belay/bin`" + ` first.

  belay install claude-code --dry-run
  belay install claude-code

Exit codes: 0 done, 1 failed (nothing was changed), 2 no such agent.`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return installable(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := installer(args[0])
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
		Use:   "uninstall AGENT",
		Short: "Take belay's hooks out of an agent's settings",
		Long: `Puts the settings back byte for byte when nobody changed them since, else takes out belay's entries alone. What belay has recorded
stays.

  belay uninstall claude-code

Exit codes: 0 done, 1 failed (nothing was changed), 2 no such agent.`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return installable(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := installer(args[0])
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
	if found, err := exec.LookPath("belay-hook"); err == nil {
		if abs, err := filepath.Abs(found); err == nil && onPath("belay") {
			p.Hook = abs
		}
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

func onPath(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
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
