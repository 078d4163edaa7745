package main

import (
	"context"
	"strings"
	"testing"

	"belay/docs"
	"belay/internal/agent"
)

// wired is an agent of which doctor is told what it finds.
type wired struct {
	version  string
	findings []string
}

func (w wired) Present() (string, bool)                                            { return w.version, true }
func (w wired) Install(context.Context, agent.Paths, bool) ([]agent.Change, error) { return nil, nil }
func (w wired) Uninstall(agent.Paths, bool) ([]agent.Change, error)                { return nil, nil }
func (w wired) Check(context.Context, agent.Paths) []string                        { return w.findings }

// trusting is one that asks for a person's trust.
type trusting struct{ wired }

func (trusting) Trust(agent.Paths, bool) ([]agent.Change, error) { return nil, nil }

// TestDoctorOfAnAgent: a version that was not tried is a note and no problem.
func TestDoctorOfAnAgent(t *testing.T) {
	tried := docs.Tried("claude-code")
	if len(tried) == 0 {
		t.Skip("docs/agents.md knows no version of claude-code that passed: run scripts/lab --report")
	}

	for _, c := range []struct {
		name string
		in   agent.Installer
		want string // state: said -> do, one a line
	}{
		{"all is well", wired{tried[0], nil}, "ok: hooks are in place (version " + tried[0] + ")"},
		{"no version", wired{"", nil}, "ok: hooks are in place (version unknown)"},
		{"untried", wired{"0.0.1", nil}, "ok: hooks are in place (version 0.0.1)\nnote: version 0.0.1 was not tried with this belay; tried: " + strings.Join(tried, ", ")},
		{"a hook is missing", wired{"", []string{
			"Stop: hook is missing",
		}}, "problem: Stop: hook is missing -> belay install claude-code"},
		{"no trust", trusting{wired{"", []string{
			"11 hooks have no trust",
		}}}, "problem: 11 hooks have no trust -> belay install claude-code --trust, if you trust belay's hooks"},
	} {
		var lines []string
		for _, f := range hooksOf(t.Context(), "claude-code", c.in, agent.Paths{}) {
			line := f.State + ": " + f.Said
			if f.Do != "" {
				line += " -> " + f.Do
			}
			lines = append(lines, line)
		}

		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}
