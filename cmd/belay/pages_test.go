package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/config"
	"belay/internal/daemon"
	"belay/internal/state/check"
	"belay/internal/state/index"
	"belay/internal/state/query"
	"belay/internal/transcript/repair"
	"belay/recovery"
)

// allPages are the pages that people read, by their place below the module.
func allPages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}

	all := map[string]string{}
	for _, name := range append(names, filepath.Join("..", "..", "README.md"), filepath.Join("..", "..", "SECURITY.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		rel, err := filepath.Rel(filepath.Join("..", ".."), name)
		if err != nil {
			t.Fatal(err)
		}

		all[rel] = string(text)
	}

	return all
}

// anchor is the name of a heading in an address.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(heading))
	return strings.ReplaceAll(regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(heading, ""), " ", "-")
}

// A link of a page leads to a file or a heading that is there.
func TestLinksOfPages(t *testing.T) {
	all := allPages(t)
	seen := 0
	for name, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			path, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}

			seen++
			target := filepath.Join(filepath.Dir(name), path)
			if path == "" {
				target = name
			}
			if _, err := os.Stat(filepath.Join("..", "..", target)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, m[1])
				continue
			}
			if heading == "" {
				continue
			}

			var there []string
			for _, h := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(all[target], -1) {
				there = append(there, anchor(h[1]))
			}

			if !slices.Contains(there, heading) {
				t.Errorf("%s: %s has no heading %q", name, target, heading)
			}
		}
	}

	if seen < 10 {
		t.Errorf("%d links were looked at", seen)
	}
}

// commandsOf gives the command lines of belay's on a page: in code between words, and in blocks.
func commandsOf(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile("`(?:bin/)?belay ([^`]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}

	for _, m := range regexp.MustCompile(`(?m)^(?:bin/)?belay ([^:\n][^\n]*)$`).FindAllStringSubmatch(strings.Join(append(blocks(text, ""), blocks(text, "sh")...), "\n"), -1) {
		all = append(all, m[1])
	}

	return all
}

// A command that a page names is there, and has the flags that the page gives it.
func TestCommandsOfPages(t *testing.T) {
	seen := 0
	for name, text := range allPages(t) {
		for _, line := range commandsOf(text) {
			line = regexp.MustCompile(`'[^']*'|"[^"]*"|\s#.*|\s--\s.*|\s[|>&].*|\s\(.*`).ReplaceAllString(line+" ", " ")
			words := strings.Fields(line)
			cmd, rest, err := newRoot().Find(
				slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.HasPrefix(w, "-") }),
			)
			if len(words) > 0 && strings.ContainsAny(words[0], "|=") || err == nil && cmd.Name() == "completion" {
				continue
			}
			if err != nil || !cmd.HasParent() && !strings.HasPrefix(line, "-") {
				t.Errorf("%s: there is no command belay %s (%v, %q)", name, line, err, rest)
				continue
			}

			seen++
			for _, w := range words {
				if flag, found := strings.CutPrefix(w, "--"); found && !hasFlag(cmd, flag) {
					t.Errorf("%s: belay %s has no flag %s", name, cmd.Name(), w)
				}
			}
		}
	}

	if seen < 60 {
		t.Errorf("%d commands were looked at", seen)
	}
}

func hasFlag(cmd *cobra.Command, flag string) bool {
	flag, _, _ = strings.Cut(strings.TrimRight(flag, ".,;:"), "=")
	cmd.InitDefaultHelpFlag()
	return flag == "" || cmd.Flags().Lookup(flag) != nil || cmd.InheritedFlags().Lookup(flag) != nil
}

// The scripts that a page names are there.
func TestScriptsOfPages(t *testing.T) {
	for name, text := range allPages(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`| )(scripts/[a-z.]+)").FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", "..", m[1])); err != nil {
				t.Errorf("%s: there is no %s", name, m[1])
			}
		}
	}
}

// The README's table of exit codes is that of the program.
func TestExitCodesOfTheReadme(t *testing.T) {
	_, table, _ := strings.Cut(allPages(t)["README.md"], "\n## Exit codes\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \|`).FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}

	if want := []string{"0", "1", "2", "3", "4", "5", "6", "126, 127"}; !slices.Equal(got, want) {
		t.Errorf("codes %q, want %q", got, want)
	}

	if exitOK != 0 || exitFailed != 1 || exitUsage != 2 || exitNotFound != 3 || exitNoDaemon != 4 ||
		exitDegraded != 5 ||
		exitFindings != 6 ||
		exitNotExecutable != 126 ||
		exitNoProgram != 127 {
		t.Error("the program's codes are others than the table's")
	}
}

// fieldsOf are the names of a type's fields in JSON, those of its parts too. What the page says is not promised is left
// out.
func fieldsOf(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}

	if t.Kind() != reflect.Struct ||
		slices.Contains(
			[]reflect.Type{
				reflect.TypeFor[time.Time](),
				reflect.TypeFor[checkpoint.State](),
				reflect.TypeFor[checkpoint.Call](),
			},
			t,
		) {
		return nil
	}

	var all []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if name != "" {
			all = append(all, name)
		}

		all = append(all, fieldsOf(f.Type)...)
	}

	return all
}

// Every field that a script can meet stands in the part of the page that is about it.
func TestJSONPage(t *testing.T) {
	text := page(t, "json.md")
	session, status, show, recovered, others := "A session", "status", "show", "recover", "The others"
	for _, c := range []struct {
		of    reflect.Type
		parts []string
	}{
		{reflect.TypeFor[query.SessionStatus](), []string{session}}, {reflect.TypeFor[index.Hit](), []string{session}},
		{reflect.TypeFor[daemon.Status](), []string{
			status, session,
		}}, {reflect.TypeFor[query.Shown](), []string{show, session}},
		{reflect.TypeFor[recovery.Result](), []string{
			recovered,
		}}, {reflect.TypeFor[config.Value](), []string{others}}, {reflect.TypeFor[finding](), []string{others}},
		{reflect.TypeFor[check.Finding](), []string{others}}, {reflect.TypeFor[change](), []string{others}},
		{reflect.TypeFor[repair.Report](), []string{others, session}},
	} {
		said := ""
		for _, part := range c.parts {
			_, after, found := strings.Cut(text, "\n## "+part+"\n")
			if !found {
				t.Fatalf("the page has no part %q", part)
			}
			after, _, _ = strings.Cut(after, "\n## ")
			said += after
		}

		for _, name := range fieldsOf(c.of) {
			if !strings.Contains(said, "`"+name+"`") {
				t.Errorf("%v: the parts %q do not explain %s", c.of, c.parts, name)
			}
		}
	}
}
