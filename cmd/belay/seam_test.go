package main

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// besides are the files that touch the disk without the seam of internal/vfs, and why: none of it is durable state of
// belay's.
var besides = map[string]string{
	"internal/vfs/":                        "the seam itself",
	"internal/daemon/socket/place.go":      "the socket and its folder",
	"internal/wire/intake/handover.go":     "the stamp of the last start of a daemon",
	"internal/wire/intake/intake.go":       "a lock file",
	"internal/transcript/sqlite/sqlite.go": "a copy of another program's database, to read it",
	"internal/agent/codex/rollout.go":      "an unpacked copy of a transcript, to read it",
	"internal/test/lab/report.go":          "the table of what was tried, written by tests",
	"internal/host/run/run.go":             "the terminal",
	"scripts/replay/main.go":               "the transcript of an agent that is played",
	"scripts/bench.d/":                     "measurements",
}

// TestDurableStateGoesThroughTheSeam: what fails and what a power cut takes is tested at one place, so nothing may
// write past it. Opening a file for reading alone is free.
func TestDurableStateGoesThroughTheSeam(t *testing.T) {
	writers := []string{
		"WriteFile",
		"Rename",
		"Create",
		"CreateTemp",
		"Remove",
		"RemoveAll",
		"Mkdir",
		"MkdirAll",
		"MkdirTemp",
		"Chmod",
		"Chtimes",
		"Chown",
		"Link",
		"Symlink",
		"Truncate",
	}

	used := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}

			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}

			pkg, ok := sel.X.(*ast.Ident)
			if !ok || pkg.Name != "os" ||
				!slices.Contains(writers, sel.Sel.Name) && !(sel.Sel.Name == "OpenFile" && opensToWrite(s, call)) {
				return true
			}

			for place := range besides {
				if strings.HasPrefix(s.name, place) {
					used[place] = true
					return true
				}
			}

			t.Errorf("%s: os.%s goes past internal/vfs", s.fset.Position(call.Pos()), sel.Sel.Name)
			return true
		})
	}

	for place, why := range besides {
		if !used[place] {
			t.Errorf("%s (%s) touches no disk any more: take it off the list", place, why)
		}
	}
}

// opensToWrite says whether a call of os.OpenFile names a flag for it.
func opensToWrite(s source, call *ast.CallExpr) bool {
	from, to := s.fset.Position(call.Pos()).Offset, s.fset.Position(call.End()).Offset
	text := string(s.text[from:to])
	return strings.Contains(text, "O_WRONLY") || strings.Contains(text, "O_RDWR") ||
		strings.Contains(text, "O_CREATE") ||
		!strings.Contains(text, "O_RDONLY")
}
