package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func (a *app) configCmd() *cobra.Command {
	var check, asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print every setting and where its value comes from",
		Long: `Prints every setting: defaults, then the file (~/.config/belay/config.yaml or BELAY_CONFIG), then the environment
(BELAY_GATES_SPARSE_TIME and so on), then flags. With --check every fault is an error, and all are told at once.

  belay config
  belay config --check

Exit codes: 0 printed, 1 failed, 2 a setting is wrong (with --check).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(check, nil)
			if err != nil {
				return &coded{err, exitUsage, "belay config prints every key with its default."}
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"file": c.File, "settings": c.Values()})
			}
			for _, w := range c.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "belay: warning: %v\n", w)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(t, "KEY\tVALUE\tFROM\tMEANING")
			for _, v := range c.Values() {
				value := v.Value
				if value == "" {
					value = `""`
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Key, value, v.Origin, v.Help)
			}
			return t.Flush()
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "make every fault an error")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
