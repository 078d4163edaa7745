package tools

import (
	"fmt"
	"strings"
	"testing"

	"belay/checkpoint"
)

func TestTellingArgument(t *testing.T) {
	tests := []struct{ input, want string }{
		{`{"command":"make\n  test"}`, "make test"},
		{`{"cmd":["git","status"]}`, "git status"},
		{`{"description":"d","file_path":"/a/b"}`, "/a/b"},
		{`{"command":7,"path":"/a"}`, "/a"},
		{`{"command":"","path":"/a"}`, "/a"},
		{`{"other": 1}`, ""},
		{`{}`, ""},
		{`[1, 2]`, ""},
		{`{"command":"cut he […] `, ""},
		{"", ""},
	}

	for _, c := range tests {
		if got := Generic.Act("x", c.input).Digest; got != c.want {
			t.Errorf("%s: got %q, want %q", c.input, got, c.want)
		}
	}

	long := Generic.Act("x", `{"command":"`+strings.Repeat("é", 5000)+`"}`).Digest
	if long != checkpoint.Line(long) || !strings.Contains(long, "[…]") {
		t.Errorf("%d bytes, want one bounded line with a mark", len(long))
	}
}

func TestReads(t *testing.T) {
	looks := []string{"ls -l", "git status", "cat a.txt", "git log --max-count=3"}
	changes := []string{
		"rm a",
		"ls > x",
		"cat a | tee b",
		"git push",
		"ls; rm a",
		"$(rm a)",
		"",
		"make",
		"git",
		"ls\nrm a",
		"sort -o a b",
		"git diff --output=x",
		"git branch -D x",
		"date -s now",
		"tree -o x",
		"git -c core.pager=x log",
		"less -o x y",
		"rg --pre ./x y",
		"file -C -m x",
	}

	for _, c := range looks {
		if !Generic.Act("Bash", fmt.Sprintf(`{"command":%q}`, c)).Reads {
			t.Errorf("%q may change something, want it only reads", c)
		}
	}

	for _, c := range changes {
		if Generic.Act("Bash", fmt.Sprintf(`{"command":%q}`, c)).Reads {
			t.Errorf("%q only reads, want it may change something", c)
		}
	}

	for name, want := range map[string]bool{
		"Read": true, "grep": true, "Edit": false, "mcp__x__read": false, "": false,
	} {
		if got := Generic.Act(name, `{}`).Reads; got != want {
			t.Errorf("%q: reads %v, want %v", name, got, want)
		}
	}

	for _, input := range []string{
		`{"command":"ls […`, `{"command":["ls"]}`, `{"command":["rm","a"],"cmd":"ls"}`, `{"command":"ls","cmd":"rm"}`,
		"",
	} {
		if Generic.Act("Bash", input).Reads {
			t.Errorf("%s only reads, want it may change something", input)
		}
	}
}

func TestFile(t *testing.T) {
	table := Table{"edit": Writes("target", "path"), "read": Reads(), "sh": Shell("command")}
	long := strings.Repeat("x", maxFile+1)
	for _, c := range []struct{ tool, input, want string }{
		{"Edit", `{"target":"/a","path":"/b"}`, "/a"},
		{"Edit", `{"target":["/a"],"path":"/b"}`, "/b"},
		{"Edit", `{"target":"` + long + `","path":"/b"}`, "/b"},
		{"Edit", `{"file_path":"/a"}`, ""},
		{"other", `{"notebook_path":"/n","file_path":"/a"}`, "/a"},
		{"other", `{"filePath":"/a"}`, "/a"},
		{"other", `{"file_path":"/a […`, ""},
		{"Read", `{"path":"/a"}`, ""},
		{"sh", `{"command":"ls","path":"/a"}`, ""},
		{"sh", `{"command":"make","path":"/a"}`, "/a"},
	} {
		if got := table.Act(c.tool, c.input).File; got != c.want {
			t.Errorf("%s %.80s: file %q, want %q", c.tool, c.input, got, c.want)
		}
	}
}
