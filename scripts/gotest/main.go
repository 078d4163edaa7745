// Command gotest runs `go test` with the arguments that it is given, prints the lines of the packages and all that
// failing tests said, and counts the tests that were skipped.
//
// Where CI is set, a test that is skipped and is not in scripts/skips.txt fails the run: a check that silently no
// longer runs proves nothing. Each line of that file is a pattern and the reason: "lab.TestCodex*" stands for the tests
// of a package whose path ends in lab, with their subtests.
//
// Exit codes: 0 all passed, 1 a test failed or was skipped without leave, 2 the run itself did not work.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// run is what is known of the tests so far.
type run struct {
	said    map[string][]string // what each test has printed, until it ends
	passed  int
	skipped []skip
}

type skip struct{ test, why string }

// leave is a line of scripts/skips.txt.
type leave struct{ pattern, reason string }

func main() {
	leaves, err := readLeaves("scripts/skips.txt")
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(2)
	}

	r := run{said: map[string][]string{}}
	cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		err = errors.Join(r.read(out), cmd.Wait())
	}

	lost := r.report(leaves)
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(2)
	case err != nil, lost && os.Getenv("CI") != "":
		os.Exit(1)
	}
}

// readLeaves reads the tests that may be skipped. Blank lines and those with # are left out.
func readLeaves(file string) ([]leave, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the tests that may be skipped: %w", err)
	}

	var all []leave
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		pattern, reason, _ := strings.Cut(line, " ")
		if _, err := path.Match(pattern, ""); err != nil || reason == "" {
			return nil, fmt.Errorf("read %s: %q: want a pattern and a reason", file, line)
		}

		all = append(all, leave{pattern, strings.TrimSpace(reason)})
	}

	return all, nil
}

// covers says whether a test, or the one that it is part of, may be skipped.
func (l leave) covers(test string) bool {
	whole, _, _ := strings.Cut(test, "/")
	for _, name := range []string{test, whole} {
		if ok, _ := path.Match(l.pattern, name); ok { // the pattern is a good one
			return true
		}
	}
	return false
}

// read takes in the events and prints those of packages and of failing tests.
func (r *run) read(in io.Reader) error {
	for dec := json.NewDecoder(in); ; {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the events of go test: %w", err)
		}
		r.take(e)
	}
}

func (r *run) take(e event) {
	name := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		if e.Test == "" {
			if e.Output != "PASS\n" {
				fmt.Print(e.Output)
			}
			return
		}

		r.said[name] = append(r.said[name], e.Output)
		return

	case "fail":
		fmt.Print(strings.Join(r.said[name], ""))
	case "pass":
		if e.Test != "" {
			r.passed++
		}

	case "skip":
		if e.Test != "" {
			r.skipped = append(r.skipped, skip{path.Base(e.Package) + "." + e.Test, reason(r.said[name])})
		}

	default:
		return
	}

	delete(r.said, name)
}

// reason is the line that t.Skip printed.
func reason(said []string) string {
	for _, line := range said {
		text := strings.TrimSpace(line)
		if text != "" && !strings.HasPrefix(text, "===") && !strings.HasPrefix(text, "---") {
			return text
		}
	}
	return "no reason given"
}

// report prints the count and says whether a test was skipped without leave.
func (r *run) report(leaves []leave) (lost bool) {
	fmt.Printf("%d tests passed, %d were skipped\n", r.passed, len(r.skipped))
	count := make([]int, len(leaves))
	for _, s := range r.skipped {
		i := slices.IndexFunc(leaves, func(l leave) bool { return l.covers(s.test) })
		if i < 0 {
			lost = true
			fmt.Printf("  skipped, and not in scripts/skips.txt: %s: %s\n", s.test, s.why)
			continue
		}
		count[i]++
	}

	for i, l := range leaves {
		if count[i] > 0 {
			fmt.Printf("  %3d of %s: %s\n", count[i], l.pattern, l.reason)
		}
	}

	return lost
}
