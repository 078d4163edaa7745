//go:build linux

package lab

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
)

// reportVar names the page that the cases write their results to; without it they write nothing.
const reportVar = "BELAY_LAB_REPORT"

// row is one case that was run with a real agent.
type row struct{ agent, version, what, result, day string }

const pageHead = `# Agents: what was run

Each row is one case of ` + "`internal/test/lab`" + `: belay and the real program, with a model of our own on loopback, and nothing else in between.
` + "`scripts/lab --report`" + ` writes this page; no line of it is written by hand. An agent that is not here was not run.

| agent | version | case | result | day |
| --- | --- | --- | --- | --- |
`

// report writes the result of this case, when it has one, into the page that BELAY_LAB_REPORT names.
func report(t testing.TB, agent, version, what string) {
	t.Helper()
	file := os.Getenv(reportVar)
	if file == "" {
		return
	}

	t.Cleanup(func() {
		r := row{agent, version, what, "passed", time.Now().UTC().Format(time.DateOnly)}
		switch {
		case t.Failed():
			r.result = "failed"
		case t.Skipped():
			return
		}

		if err := addRow(file, r); err != nil {
			t.Errorf("report %s: %v", what, err)
		}
	})
}

// addRow puts a row into the page. Runs of several agents may write at once, so the file is locked and written in
// place.
func addRow(file string, r row) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}

	defer f.Close() // written and checked below
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", file, err)
	}

	var old bytes.Buffer
	if _, err := old.ReadFrom(f); err != nil {
		return err
	}

	page := writePage(merge(readPage(old.String()), r))
	if err := f.Truncate(0); err != nil {
		return err
	}

	_, err = f.WriteAt([]byte(page), 0)
	return err
}

// readPage gives the rows of a page; what is no row was not written by us and is left out.
func readPage(text string) []row {
	var rows []row
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 5 {
			continue
		}

		cells[0], cells[4] = strings.TrimPrefix(cells[0], "| "), strings.TrimSuffix(cells[4], " |")
		if cells[0] != "agent" && cells[0] != "---" {
			rows = append(rows, row{cells[0], cells[1], cells[2], cells[3], cells[4]})
		}
	}

	return rows
}

// merge puts a row in the place of the one of the same case and version, and keeps the order of agent, version and
// case.
func merge(rows []row, r row) []row {
	key := func(r row) string { return r.agent + "\x00" + r.version + "\x00" + r.what }
	at, there := slices.BinarySearchFunc(rows, r, func(a, b row) int { return cmp.Compare(key(a), key(b)) })
	if there {
		rows[at] = r
		return rows
	}
	return slices.Insert(rows, at, r)
}

func writePage(rows []row) string {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.agent, r.version, r.what, r.result, r.day)
	}
	return b.String()
}

// caseWords makes words of a test's name: TestClaudeKilledInTool is "claude killed in tool".
func caseWords(name string) string {
	var b strings.Builder
	for i, c := range strings.TrimPrefix(name, "Test") {
		switch {
		case c == '_' || c == '/':
			c = ' '
		case unicode.IsUpper(c):
			if i > 0 {
				b.WriteByte(' ')
			}
			c = unicode.ToLower(c)
		}
		b.WriteRune(c)
	}

	return strings.Join(strings.Fields(b.String()), " ")
}

var versionForm = regexp.MustCompile(`[0-9]+\.[0-9]+[0-9A-Za-z.+-]*`)

// programVersion asks a program, in a home of its own, which it may litter.
func programVersion(t testing.TB, program string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	dir := t.TempDir()

	// a node may lie beside it
	cmd.Dir, cmd.Env = dir, []string{
		"HOME=" + dir,
		"PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH"),
		"NO_COLOR=1",
	}

	out, err := cmd.Output()
	version := versionForm.Find(out)
	if err != nil || version == nil {
		t.Errorf("%s --version: %q, %v", program, out, err)
		return "unknown"
	}

	return string(version)
}
