package all

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestTheLedgerKnowsNoTool: what tools, their arguments and shell commands are called is said by the agents and their
// kit alone. The words are the string literals of the files that say it.
func TestTheLedgerKnowsNoTool(t *testing.T) {
	files := func(pattern string) []string {
		list, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}

	known := map[string]string{}
	tables := append(files("../*/tools.go"), "../kit/tools/tools.go")
	for _, path := range tables {
		for _, w := range literals(t, path) {
			known[w] = path
		}
	}

	delete(known, " ")
	delete(known, "prompt") // a kind of event too
	if len(tables) < 9 || len(known) < 80 || known["bash"] == "" {
		t.Errorf("%d words of %d files: this test holds nothing", len(known), len(tables))
	}

	for _, path := range files("../../../checkpoint/*.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, w := range literals(t, path) {
			if from := known[w]; from != "" {
				t.Errorf("%s names %q, which is for %s to know", path, w, from)
			}
		}
	}
}

// literals gives the string literals of a file, in lower case: no imports, no tags of fields.
func literals(t *testing.T, path string) (list []string) {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	f, err := parser.ParseFile(token.NewFileSet(), path, src, 0)
	if err != nil {
		t.Fatal(err)
	}

	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && s != "" {
				list = append(list, strings.ToLower(s))
			}
		}
		return true
	})

	return list
}
