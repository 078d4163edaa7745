//go:build linux

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestReport: the page holds one row for each case and version, whoever writes at once, and says what failed.
func TestReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agents.md")
	rows := []row{
		{"pi", "0.1.0", "pi two rounds", "passed", "2026-11-30"},
		{"claude-code", "2.1.328", "claude two rounds", "failed", "2026-11-29"},
		{"claude-code", "2.1.328", "claude two rounds", "passed", "2026-11-30"},
		{"claude-code", "2.1.400", "claude two rounds", "passed", "2026-11-30"},
	}

	add := func(list ...row) {
		for _, r := range list {
			if err := addRow(file, r); err != nil {
				t.Error(err)
			}
		}
	}

	add(rows[1])
	var wait sync.WaitGroup
	for _, r := range []row{rows[0], rows[2], rows[3]} {
		wait.Go(func() { add(r) })
	}

	wait.Wait()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	want := pageHead + `| claude-code | 2.1.328 | claude two rounds | passed | 2026-11-30 |
| claude-code | 2.1.400 | claude two rounds | passed | 2026-11-30 |
| pi | 0.1.0 | pi two rounds | passed | 2026-11-30 |
`

	if string(text) != want {
		t.Errorf("got the page\n%s\nwant\n%s", text, want)
	}
}

// TestReportOfARun: a case writes when a page is named, and nothing of a skipped one.
func TestReportOfARun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agents.md")
	t.Setenv(reportVar, file)
	t.Run("skipped", func(t *testing.T) {
		report(t, "mine", "1.0", "skipped case")
		t.Skip("not here")
	})

	t.Run("passed", func(t *testing.T) { report(t, "mine", "1.0", "good case") })
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "| mine | 1.0 | good case | passed | ") ||
		strings.Contains(string(text), "skipped case") {
		t.Errorf("got %v and\n%s\nwant the good case alone", err, text)
	}
}

func TestCaseWords(t *testing.T) {
	for name, want := range map[string]string{
		"TestClaudeKilledInTool": "claude killed in tool", "TestPi/kill_in_tool": "pi kill in tool", "TestX": "x",
	} {
		if got := caseWords(name); got != want {
			t.Errorf("caseWords(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestThePageIsOurs: nothing in docs/agents.md was written by hand.
func TestThePageIsOurs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "agents.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want := writePage(readPage(string(text))); string(text) != want {
		t.Errorf("docs/agents.md is\n%s\nwant what scripts/lab --report writes:\n%s", text, want)
	}
}
