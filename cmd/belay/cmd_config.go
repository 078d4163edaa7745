package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"belay/internal/config"
	"belay/internal/redact"
)

func (a *app) configCmd() *cobra.Command {
	var check, asJSON bool
	cmd := &cobra.Command{
		Use:     "config",
		GroupID: groupSetUp,
		Short:   "Print every setting and where its value comes from",
		Long: `Prints every setting: defaults, then the file (~/.config/belay/config.yaml or BELAY_CONFIG), then
the environment (BELAY_GATES_SPARSE_TIME and so on), then flags. With --check every fault is an
error, and all are told at once.

  belay config
  belay config --check

Exit codes: 0 printed, 1 failed, 2 a setting is wrong (with --check).`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(check)
			if err != nil {
				return &coded{err, exitUsage, "belay config prints every key with its default."}
			}

			if asJSON {
				return printJSON(
					cmd.OutOrStdout(),
					map[string]any{"file": c.File, "settings": c.Values(), "warnings": words(c.Warnings)},
				)
			}

			for _, w := range c.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "belay: warning: %s\n", said(w.Error()))
			}

			return printSettings(cmd.OutOrStdout(), c.Values())
		},
	}

	cmd.Flags().BoolVar(&check, "check", false, "make every fault an error")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func words(errs []error) []string {
	list := []string{}
	for _, err := range errs {
		list = append(list, redact.Text(err.Error()))
	}
	return list
}

// printSettings gives programs one line for each setting; on a terminal the meaning stands below the value.
func printSettings(w io.Writer, values []config.Value) error {
	cols := width(w)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if cols == 0 {
		fmt.Fprintln(t, "KEY\tVALUE\tFROM\tMEANING")
	}

	for _, v := range values {
		value := printable(v.Value)
		if value == "" {
			value = `""`
		}
		if cols == 0 {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Key, value, printable(v.Origin), v.Help)
			continue
		}

		fmt.Fprintf(t, "%s = %s (%s)\n", v.Key, value, printable(v.Origin))
		for _, line := range wrap(v.Help, cols-4) {
			fmt.Fprintf(t, "    %s\n", line)
		}
	}

	return t.Flush()
}
